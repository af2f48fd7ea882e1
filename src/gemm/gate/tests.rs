//! Each check rejects the fault it is there for, and correct runs pass.

use super::*;
use crate::gemm::bound::Accumulator;
use crate::gemm::inputs::Input;
use crate::gemm::problem::{Form, Problem};
use crate::gemm::reference;
use crate::lowp::OutputType;

struct Bench {
    case: Case,
    operands: Operands,
    reference: Reference,
    run: Execution,
}

/// A run as a correct kernel leaves it.
fn bench(problem: Problem, input: Input) -> Bench {
    let case = Case::new("test", problem.clone(), input, 9);
    let operands = Operands::generate(&case).unwrap();
    let reference = reference::compute(&problem, &operands, Accumulator::Fp32);
    let output = problem.output;
    let poison = output.poison();
    let initial: Vec<u8> = poison.repeat(problem.c_rows() * problem.ldc());
    let mut c = initial.clone();
    let layout = Layout::of(&case);
    for (group, reference) in reference.iter().enumerate() {
        for (i, &want) in reference.want.iter().enumerate() {
            let (row, col) = (i / problem.n, i % problem.n);
            let at = ((layout.starts[group] + row) * layout.ldc + col) * layout.size;
            c[at..at + layout.size].copy_from_slice(&output.bytes_of(want as f32));
        }
    }
    Bench {
        case,
        operands,
        reference: Reference::Full(reference),
        run: Execution {
            rerun: c.clone(),
            c,
            initial,
            guards: Vec::new(),
            modified: Vec::new(),
        },
    }
}

impl Bench {
    fn judge(&self) -> Judgement {
        judge(&self.case, &self.operands, &self.reference, &self.run).unwrap()
    }

    fn put(&mut self, at: usize, x: f32) {
        let output = self.case.problem.output;
        let bytes = output.bytes_of(x);
        for c in [&mut self.run.c, &mut self.run.rerun] {
            c[at * bytes.len()..(at + 1) * bytes.len()].copy_from_slice(&bytes);
        }
    }

    fn get(&self, at: usize) -> f32 {
        let output = self.case.problem.output;
        output.widen(&self.run.c[at * output.size()..(at + 1) * output.size()])[0] as f32
    }
}

#[test]
fn a_correct_run_passes_for_every_output_input_and_form() {
    for output in OutputType::ALL {
        for input in Input::ALL {
            let base = Problem::dense(6, 9, 150, output);
            for problem in [
                base.clone(),
                base.clone().padded(3),
                base.clone().with_form(Form::Masked {
                    max_rows: 5,
                    rows: vec![0, 5, 2],
                }),
            ] {
                // An outlier's square is beyond FP16.
                if output == OutputType::F16 && matches!(input, Input::Outlier | Input::HeavyTailed)
                {
                    continue;
                }
                let judgement = bench(problem, input).judge();
                assert!(
                    judgement.passed(),
                    "{output:?} {input:?} {:?}",
                    judgement.findings
                );
                let (calc, limit) = judgement.global.unwrap();
                assert!(calc <= limit);
                assert!(judgement.worst.unwrap().ratio <= 1.0);
            }
        }
    }
}

type Fault = (&'static str, Check, fn(&mut Bench));

#[test]
fn each_check_rejects_the_fault_it_is_there_for() {
    let masked = || {
        bench(
            Problem::dense(0, 9, 150, OutputType::F32)
                .with_form(Form::Masked {
                    max_rows: 5,
                    rows: vec![2, 3],
                })
                .padded(2),
            Input::Normal,
        )
    };
    let faults: [Fault; 9] = [
        ("guard", Check::Guards, |b| b.run.guards.push(("C", -4))),
        ("input", Check::Inputs, |b| b.run.modified.push(("A", 7))),
        ("padding", Check::Untouched, |b| b.put(9, 1.0)),
        ("masked row", Check::Untouched, |b| b.put(2 * 11, 0.0)),
        ("unwritten", Check::Coverage, |b| {
            let poison = b.run.initial[..4].to_vec();
            b.run.c[4..8].copy_from_slice(&poison);
            b.run.rerun[4..8].copy_from_slice(&poison);
        }),
        ("nan", Check::Elementwise, |b| b.put(3, f32::NAN)),
        ("nan global", Check::Global, |b| b.put(3, f32::NAN)),
        ("slightly off", Check::Elementwise, |b| {
            let x = b.get(12);
            b.put(12, x * 1.001);
        }),
        ("rerun", Check::Rerun, |b| b.run.rerun[0] ^= 1),
    ];
    for (name, check, plant) in faults {
        let mut bench = masked();
        assert!(bench.judge().passed());
        plant(&mut bench);
        let judgement = bench.judge();
        assert!(judgement.failed(check), "{name}: {:?}", judgement.findings);
        assert!(!judgement.passed());
    }
}

#[test]
fn integers_have_tolerance_zero_and_the_finding_names_the_k_group() {
    for output in OutputType::ALL {
        let mut bench = bench(Problem::dense(4, 5, 300, output), Input::Integers);
        assert!(bench.judge().passed());
        let x = bench.get(7);
        let next = output.widen(&output.bytes_of(x + 2.0 * output.half_ulp(f64::from(x)) as f32));
        bench.put(7, next[0] as f32);
        let judgement = bench.judge();
        assert!(judgement.failed(Check::Exact), "{output:?}");
        assert_eq!(
            judgement.findings[0].place,
            Some(Place {
                group: 0,
                row: 1,
                col: 2
            })
        );
    }
    let mut bench = bench(Problem::dense(4, 5, 300, OutputType::F32), Input::Normal);
    let term: f64 = (128..256)
        .map(|k| {
            let s = &bench.operands.segments[0];
            s.a.dequantise()[k] * s.b.dequantise()[k]
        })
        .sum();
    let x = bench.get(0);
    bench.put(0, x - term as f32);
    let message = &bench.judge().findings[0].message;
    assert!(
        message.contains("k-group 1 (k 128..256) were left out"),
        "{message}"
    );
}

#[test]
fn sampled_strength_passes_correct_runs_and_rejects_a_wrong_tile_and_a_nan() {
    for input in [Input::Normal, Input::Integers, Input::Positive] {
        let mut b = bench(Problem::dense(70, 200, 300, OutputType::Bf16), input);
        b.reference = Reference::Sampled(Accumulator::Fp32);
        let judgement = b.judge();
        assert!(judgement.passed(), "{:?}", judgement.findings);
        assert!(judgement.strength.contains("a single element off by"));
        b.put(4321, f32::NAN);
        assert!(!b.judge().passed());
        for i in 0..64 {
            b.put(4321 - i, 0.0);
        }
        assert!(!b.judge().passed());
    }
}

#[test]
fn an_all_zero_reference_and_wrong_lengths_are_errors() {
    let mut b = bench(Problem::dense(3, 3, 40, OutputType::F32), Input::Normal);
    b.run.c.pop();
    assert!(judge(&b.case, &b.operands, &b.reference, &b.run).is_err());
    let mut b = bench(Problem::dense(3, 3, 40, OutputType::F32), Input::Normal);
    if let Reference::Full(reference) = &mut b.reference {
        reference[0].want.fill(0.0);
    }
    let error = judge(&b.case, &b.operands, &b.reference, &b.run).unwrap_err();
    assert!(error.to_string().contains("all zeros"), "{error}");
}
