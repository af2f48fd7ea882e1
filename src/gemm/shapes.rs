//! Which problems are tried: the edge ladder, the random sweep, the shapes of
//! models in use. Every list is a function of its arguments: the same seed gives
//! the same cases on every machine.

use super::case::Case;
use super::inputs::{Input, Stream, mix};
use super::problem::{Form, Problem, fp4_recipes, fp8_recipes, tensor_recipes};
use crate::lowp::{E2M1, E4M3, Granularity, OutputType, Recipe, ScaleFormat};

/// Multiply-adds of one case that the ladder may have on any machine; most cases
/// have far fewer. The whole ladder takes a minute or two on the CPU driver.
pub const LADDER_CAP: u128 = 1 << 25;

type Recipes = (Recipe, Recipe);

fn token(g: usize, scale: ScaleFormat) -> Recipe {
    Recipe::new(E4M3, Granularity::PerToken(g), scale)
}

/// Recipes that the ladder and the sweep go through.
pub fn recipes() -> Vec<Recipes> {
    let block = |g| Recipe::new(E4M3, Granularity::PerBlock(g), ScaleFormat::F32);
    let fp4 = |g, scale| Recipe::new(E2M1, Granularity::PerToken(g), scale);
    vec![
        fp8_recipes(),
        fp4_recipes(),
        (
            token(128, ScaleFormat::Ue8m0),
            Recipe {
                scale: ScaleFormat::Ue8m0,
                ..block(128)
            },
        ),
        (token(64, ScaleFormat::F32), block(64)),
        (token(128, ScaleFormat::F32), token(128, ScaleFormat::F32)),
        (token(32, ScaleFormat::Ue8m0), fp4(32, ScaleFormat::Ue8m0)),
        (token(16, ScaleFormat::F32), block(16)),
        (block(128), block(128)),
        (token(128, ScaleFormat::F32), fp4(16, ScaleFormat::F32)),
        (token(32, ScaleFormat::F32), block(32)),
        tensor_recipes(),
    ]
}

/// Inputs besides the integers, which every shape gets first.
const OTHERS: [Input; 7] = [
    Input::Normal,
    Input::Positive,
    Input::HalfZero,
    Input::HeavyTailed,
    Input::Outlier,
    Input::Equal,
    Input::DenormalScales,
];

/// (m, n, k): m = 1, each side of every tile edge, k one group, k ragged, k/128 no
/// multiple of 4, n below a tile.
const EDGES: [(usize, usize, usize); 42] = [
    (1, 1, 1),
    (1, 1, 128),
    (1, 7, 129),
    (1, 128, 640),
    (1, 300, 896),
    (2, 8, 16),
    (3, 31, 17),
    (31, 33, 15),
    (32, 32, 32),
    (33, 31, 33),
    (32, 64, 127),
    (31, 32, 128),
    (33, 64, 129),
    (63, 65, 255),
    (64, 64, 256),
    (65, 63, 257),
    (64, 8, 384),
    (5, 129, 640),
    (17, 257, 896),
    (96, 96, 144),
    (127, 129, 130),
    (128, 128, 128),
    (129, 127, 272),
    (128, 256, 200),
    (200, 100, 384),
    (4, 40, 1024),
    (2, 24, 2048),
    (1, 16, 4096),
    (7, 130, 48),
    (70, 200, 328),
    (16, 512, 512),
    (97, 161, 80),
    (256, 24, 112),
    (1, 2112, 512),
    (1, 576, 1792),
    (1, 2048, 496),
    (16, 2112, 480),
    (65, 129, 2048),
    (129, 257, 768),
    (256, 256, 500),
    (33, 1024, 384),
    (3, 40, 16384),
];

fn grouped_forms() -> Vec<(usize, usize, usize, Form)> {
    let contiguous = |rows: &[usize]| Form::Contiguous {
        rows: rows.to_vec(),
    };
    let masked = |max_rows, rows: &[usize]| Form::Masked {
        max_rows,
        rows: rows.to_vec(),
    };
    let k_grouped = |depths: &[usize]| Form::KGrouped {
        depths: depths.to_vec(),
    };
    vec![
        (0, 40, 144, contiguous(&[3, 0, 5])),
        (0, 130, 256, contiguous(&[33, 31, 64, 1])),
        (0, 24, 640, contiguous(&[0, 0, 7])),
        (0, 9, 130, contiguous(&[1])),
        (0, 40, 144, masked(8, &[0, 8, 3])),
        (0, 136, 256, masked(33, &[33, 0, 1, 32])),
        (0, 24, 384, masked(64, &[64])),
        (20, 40, 0, k_grouped(&[128, 0, 17, 300])),
        (33, 130, 0, k_grouped(&[256, 64])),
        (1, 8, 0, k_grouped(&[16, 16, 16])),
    ]
}

/// The edge ladder: each shape with integers and with two other inputs; recipes,
/// outputs, accumulation and padding rotate so that neighbours differ in all.
pub fn ladder(seed: u64, cap: u128) -> Vec<Case> {
    let recipes = recipes();
    let dense = EDGES.iter().map(|&(m, n, k)| (m, n, k, Form::Dense));
    let mut cases = Vec::new();
    for (i, (m, n, k, form)) in dense.chain(grouped_forms()).enumerate() {
        let grouped = form != Form::Dense;
        for pass in 0..3 {
            let turn = i + pass * 5;
            let input = if pass == 0 {
                Input::Integers
            } else {
                OTHERS[(i + 3 * pass) % OTHERS.len()]
            };
            // FP16 ends at 65,504: only inputs of moderate size fit it.
            let wide = matches!(input, Input::Outlier | Input::HeavyTailed | Input::Equal);
            let output = match turn % 3 {
                1 if wide => OutputType::F32,
                turn => [OutputType::F32, OutputType::F16, OutputType::Bf16][turn],
            };
            let mut problem = Problem::dense(m, n, k, output)
                .with_recipes(if grouped {
                    recipes[turn % 2]
                } else {
                    recipes[turn % recipes.len()]
                })
                .with_form(form.clone());
            problem.accumulate = turn % 4 == 3;
            problem.pad = if turn % 5 == 2 { 8 } else { 0 };
            let case = Case::new(format!("ladder {i}"), problem, input, seed + i as u64);
            if case.problem.work() <= cap {
                cases.push(case);
            }
        }
    }
    cases
}

/// Ranges of the random sweep.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    pub seed: u64,
    pub cases: usize,
    pub max_m: usize,
    /// Multiply-adds of one case.
    pub cap: u128,
}

/// Log-uniform in [low, high].
fn draw(bits: u64, low: usize, high: usize) -> usize {
    let t = (bits >> 11) as f64 / (1u64 << 53) as f64;
    let (low, high) = (low as f64, high as f64);
    ((low.ln() + t * (high.ln() - low.ln())).exp().round() as usize)
        .clamp(low as usize, high as usize)
}

/// Random cases: m ∈ [1, max_m], n, k ∈ [256, 16384], log-uniform; half of them
/// aligned as vendor libraries want it. Shapes above the cap are drawn again, and
/// if 1,024 draws do not fit, the smallest shape stands in.
pub fn sweep(sweep: &Sweep) -> Vec<Case> {
    (0..sweep.cases)
        .map(|index| random_case(sweep, index))
        .collect()
}

fn random_case(sweep: &Sweep, index: usize) -> Case {
    let recipes = recipes();
    let draws = |what: u64| mix(sweep.seed, Stream::Check, (index as u64) << 16 | what);
    let aligned = draws(1) % 2 == 0;
    let align = |x: usize, to: usize| if aligned { x.div_ceil(to) * to } else { x };
    let mut shape = (1, 256, 256);
    for attempt in 0..1024 {
        let at = |i: u64| draws(16 + 4 * attempt + i);
        shape = (
            draw(at(0), 1, sweep.max_m),
            align(draw(at(1), 256, 16384), 8),
            align(draw(at(2), 256, 16384), 16),
        );
        if shape.0 as u128 * shape.1 as u128 * shape.2 as u128 <= sweep.cap {
            break;
        }
        shape = (1, 256, 256);
    }
    let (m, n, k) = shape;
    let output = OutputType::ALL[draws(2) as usize % 3];
    let input = match (draws(3) % 8, output) {
        (0 | 1, _) => Input::Integers,
        (2, _) => Input::Positive,
        (3, OutputType::F16) | (4, OutputType::F16) => Input::Normal,
        (3, _) => Input::HeavyTailed,
        (4, _) => Input::Outlier,
        (5, _) => Input::HalfZero,
        _ => Input::Normal,
    };
    let form = match draws(4) % 8 {
        0 => Form::Contiguous {
            rows: parts(m, draws(5)),
        },
        1 => {
            let rows = parts(m, draws(5));
            Form::Masked {
                max_rows: rows.iter().copied().max().unwrap_or(1),
                rows,
            }
        }
        2 => Form::KGrouped {
            depths: parts(k / 16, draws(5)).iter().map(|x| x * 16).collect(),
        },
        _ => Form::Dense,
    };
    let dense = form == Form::Dense;
    let pick = if dense { recipes.len() } else { 2 };
    let mut problem = Problem::dense(m, n, k, output)
        .with_recipes(recipes[draws(6) as usize % pick])
        .with_form(form);
    problem.accumulate = draws(7) % 4 == 0;
    Case::new(
        format!("sweep {index}"),
        problem,
        input,
        sweep.seed.wrapping_add(index as u64),
    )
}

/// Four parts of `total`, one of them possibly empty.
fn parts(total: usize, bits: u64) -> Vec<usize> {
    let mut cuts: Vec<usize> = (0..3)
        .map(|i| (bits >> (16 * i)) as usize % (total + 1))
        .collect();
    cuts.sort_unstable();
    let mut edges = vec![0];
    edges.extend(cuts);
    edges.push(total);
    edges.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Shapes of models in use (numbers only; facts and sources in docs/).
pub fn models(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut push = |problem: Problem| {
        let index = cases.len() as u64;
        for input in [Input::Integers, Input::Normal] {
            cases.push(Case::new(
                format!("model {index}"),
                problem.clone(),
                input,
                seed + index,
            ));
        }
    };
    let dense = [
        (2112, 7168),
        (576, 7168),
        (24576, 1536),
        (32768, 512),
        (7168, 16384),
        (4096, 7168),
        (7168, 2048),
    ];
    for m in [1, 128, 4096] {
        for (n, k) in dense {
            push(Problem::dense(m, n, k, OutputType::Bf16));
        }
    }
    for (groups, m) in [(4, 8192), (8, 4096)] {
        for (n, k) in [(6144, 7168), (7168, 3072), (4096, 4096), (4096, 2048)] {
            let rows = vec![m; groups];
            push(Problem::dense(0, n, k, OutputType::Bf16).with_form(Form::Contiguous { rows }));
        }
    }
    for (groups, max_rows) in [(6, 1024), (32, 192)] {
        let rows = (0..groups)
            .map(|g| (g * 37 + 11) % (max_rows + 1))
            .collect();
        let form = Form::Masked { max_rows, rows };
        push(Problem::dense(0, 6144, 7168, OutputType::Bf16).with_form(form));
    }
    let form = Form::KGrouped {
        depths: vec![8192; 4],
    };
    push(
        Problem::dense(4096, 7168, 0, OutputType::F32)
            .accumulating()
            .with_form(form),
    );
    cases
}

/// Sizes past 32-bit arithmetic, for a GPU: more than 2^31 elements of C, and more
/// than 2^32 bytes of A.
pub fn huge(seed: u64) -> Vec<Case> {
    let problems = [
        Problem::dense(65_600, 32_800, 32, OutputType::Bf16),
        Problem::dense(262_160, 8, 16_400, OutputType::F32),
    ];
    let mut cases = Vec::new();
    for problem in problems {
        for input in [Input::Integers, Input::Normal] {
            cases.push(Case::new("huge", problem.clone(), input, seed));
        }
    }
    cases
}

/// Case i belongs to shard `part` of `of` (counted from 1).
pub fn in_shard(index: usize, part: usize, of: usize) -> bool {
    index % of == part - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_holds_every_edge_the_issue_names() {
        let cases = ladder(1, LADDER_CAP);
        let any = |f: &dyn Fn(&Case) -> bool| cases.iter().any(f);
        assert!(any(&|c| c.problem.m == 1));
        for class in 0..2 {
            for tile in [32, 64, 128] {
                let side = |c: &Case| if class == 0 { c.problem.m } else { c.problem.n };
                for off in [tile - 1, tile, tile + 1] {
                    assert!(any(&|c| side(c) == off), "no {off}");
                }
            }
        }
        assert!(any(&|c| c.problem.k == 128) && any(&|c| c.problem.k % 128 != 0));
        assert!(any(
            &|c| c.problem.k % 128 == 0 && (c.problem.k / 128) % 4 != 0
        ));
        assert!(any(
            &|c| matches!(&c.problem.form, Form::Contiguous { rows } if rows.contains(&0))
        ));
        assert!(any(&|c| matches!(&c.problem.form,
            Form::Masked { max_rows, rows } if rows.contains(&0) && rows.contains(max_rows))));
        assert!(any(
            &|c| matches!(&c.problem.form, Form::KGrouped { depths } if depths.contains(&0))
        ));
        for input in Input::ALL {
            assert!(any(&|c| c.input == input), "{}", input.name());
        }
        for output in OutputType::ALL {
            assert!(any(&|c| c.problem.output == output && c.problem.accumulate));
        }
        for (a, b) in recipes() {
            assert!(any(&|c| c.problem.a == a && c.problem.b == b), "{a} {b}");
        }
        assert!(any(&|c| c.problem.pad > 0));
        for case in &cases {
            assert!(case.problem.work() <= LADDER_CAP);
            case.problem.check().unwrap();
        }
    }

    #[test]
    fn the_sweep_is_reproducible_in_range_and_capped() {
        let range = Sweep {
            seed: 3,
            cases: 400,
            max_m: 8192,
            cap: 1 << 40,
        };
        let cases = sweep(&range);
        assert_eq!(cases, sweep(&range));
        for case in &cases {
            let p = &case.problem;
            assert!((256..=16384).contains(&p.n), "{p}");
            assert!(p.work() <= 1 << 40);
            assert!(p.check().is_ok(), "{p}");
        }
        assert!(cases.iter().any(|c| c.problem.m > 2000));
        assert!(cases.iter().any(|c| c.problem.m < 4));
        let small = sweep(&Sweep {
            cap: 1 << 22,
            ..range
        });
        assert!(small.iter().all(|c| c.problem.work() <= 1 << 22));
        assert_ne!(cases, sweep(&Sweep { seed: 4, ..range }));
    }

    #[test]
    fn huge_cases_pass_32_bits_of_elements_and_of_bytes() {
        let cases = huge(1);
        let outputs = |p: &Problem| p.m as u64 * p.n as u64;
        assert!(cases.iter().any(|c| outputs(&c.problem) > 1 << 31));
        assert!(
            cases
                .iter()
                .any(|c| c.problem.m as u64 * c.problem.k as u64 > 1 << 32)
        );
    }

    #[test]
    fn shards_partition_the_cases() {
        for of in 1..5 {
            for index in 0..20 {
                let owners = (1..=of).filter(|&part| in_shard(index, part, of)).count();
                assert_eq!(owners, 1);
            }
        }
    }
}
