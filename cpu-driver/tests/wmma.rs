//! Tiles through `wmma` (`tests/ptx/wmma.cu`): exact products of small whole
//! numbers in every layout.

mod support;

use support::Host;

const PROGRAM: &str = include_str!("ptx/wmma_sm80.ptx");

/// Element (row, column) of A or B: small, different everywhere.
fn value(row: usize, column: usize, seed: usize) -> i32 {
    ((row * 7 + column * 3 + seed) % 9) as i32 - 4
}

/// The matrix as it lies in memory.
fn stored(rows: usize, columns: usize, by_row: bool, seed: usize) -> Vec<i32> {
    (0..rows * columns)
        .map(|at| {
            if by_row {
                value(at / columns, at % columns, seed)
            } else {
                value(at % rows, at / rows, seed)
            }
        })
        .collect()
}

fn half(x: i32) -> u16 {
    // Whole numbers up to 4: sign, exponent, one mantissa bit.
    let magnitude = match x.unsigned_abs() {
        0 => 0,
        1 => 0x3c00,
        2 => 0x4000,
        3 => 0x4200,
        _ => 0x4400,
    };
    magnitude | if x < 0 { 0x8000 } else { 0 }
}

struct Case {
    kernel: &'static str,
    shape: [usize; 3],
    by_row: [bool; 2],
}

const CASES: [Case; 6] = [
    Case {
        kernel: "half16",
        shape: [16, 16, 16],
        by_row: [true, false],
    },
    Case {
        kernel: "half32",
        shape: [32, 8, 16],
        by_row: [true, true],
    },
    Case {
        kernel: "half8",
        shape: [8, 32, 16],
        by_row: [false, false],
    },
    Case {
        kernel: "bytes",
        shape: [16, 16, 16],
        by_row: [true, false],
    },
    Case {
        kernel: "tensor",
        shape: [16, 16, 8],
        by_row: [true, false],
    },
    Case {
        kernel: "doubles",
        shape: [8, 8, 4],
        by_row: [true, false],
    },
];

fn upload(host: &Host, kernel: &str, values: &[i32]) -> u64 {
    match kernel {
        "bytes" => host.upload(&values.iter().map(|v| *v as i8).collect::<Vec<_>>()),
        "tensor" => host.upload(&values.iter().map(|v| *v as f32).collect::<Vec<_>>()),
        "doubles" => host.upload(&values.iter().map(|v| f64::from(*v)).collect::<Vec<_>>()),
        _ => host.upload(&values.iter().map(|v| half(*v)).collect::<Vec<_>>()),
    }
}

fn download(host: &Host, kernel: &str, at: u64, count: usize) -> Vec<i32> {
    match kernel {
        "bytes" => host
            .words(at, count)
            .into_iter()
            .map(|w| w as i32)
            .collect(),
        "doubles" => host
            .longs(at, count)
            .into_iter()
            .map(|w| f64::from_bits(w) as i32)
            .collect(),
        _ => host
            .floats(at, count)
            .into_iter()
            .map(|f| f as i32)
            .collect(),
    }
}

#[test]
fn tiles_multiply_exactly_in_every_shape_and_layout() {
    let host = Host::new(PROGRAM);
    for Case {
        kernel,
        shape: [m, n, k],
        by_row,
    } in &CASES
    {
        let a = upload(&host, kernel, &stored(*m, *k, by_row[0], 0));
        let b = upload(&host, kernel, &stored(*k, *n, by_row[1], 5));
        let c = host.alloc((m * n * 8) as u64);
        host.launch(kernel, 1, 32, &[a, b, c]).expect("runs");
        let got = download(&host, kernel, c, m * n);
        for (at, got) in got.into_iter().enumerate() {
            let (row, column) = (at / n, at % n);
            let sum: i32 = (0..*k)
                .map(|i| value(row, i, 0) * value(i, column, 5))
                .sum();
            assert_eq!(got, sum + 4, "{kernel}: row {row}, column {column}");
        }
    }
}
