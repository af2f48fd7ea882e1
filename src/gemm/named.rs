//! The named cases of the scoreboard.

use super::case::Case;
use super::faults::Fault;
use super::inputs::Input;
use super::problem::{Form, Problem, fp4_recipes, tensor_recipes};
use crate::lowp::OutputType;

/// A case of the scoreboard, by name.
#[derive(Debug, Clone)]
pub struct Named {
    pub case: Case,
    /// Inputs and shapes as other suites use them: normal, aligned, BF16.
    pub typical: bool,
    /// Too large for the faults that the CPU driver runs.
    pub specimens_only: bool,
}

impl Named {
    /// Whether `fault` is run on this case.
    pub fn takes(&self, fault: &Fault) -> bool {
        fault.applies(&self.case.problem) && (fault.specimen.is_some() || !self.specimens_only)
    }
}

/// The named cases. Small enough for the CPU driver; `deep` adds those for a GPU.
pub fn named_cases(seed: u64, deep: bool) -> Vec<Named> {
    use OutputType::{Bf16, F32};
    let mut cases = Vec::new();
    let mut add = |name: &str, typical: bool, problem: Problem, input: Input| {
        let seed = seed + cases.len() as u64;
        cases.push(Named {
            case: Case::new(name, problem, input, seed),
            typical,
            specimens_only: false,
        });
    };
    let ragged = |output| Problem::dense(70, 200, 328, output);
    let aligned = |output| Problem::dense(64, 256, 512, output);
    let contiguous = |problem: Problem| {
        problem.with_form(Form::Contiguous {
            rows: vec![17, 0, 32, 9],
        })
    };
    let masked = |problem: Problem| {
        problem.with_form(Form::Masked {
            max_rows: 40,
            rows: vec![33, 0, 40],
        })
    };
    let k_grouped = |problem: Problem| {
        problem
            .with_form(Form::KGrouped {
                depths: vec![256, 0, 130],
            })
            .accumulating()
    };
    add("typical dense bf16", true, aligned(Bf16), Input::Normal);
    add(
        "typical dense fp4 bf16",
        true,
        aligned(Bf16).with_recipes(fp4_recipes()),
        Input::Normal,
    );
    add(
        "typical contiguous bf16",
        true,
        Problem::dense(0, 256, 256, Bf16).with_form(Form::Contiguous {
            rows: vec![32, 32, 64],
        }),
        Input::Normal,
    );
    add(
        "typical masked bf16",
        true,
        Problem::dense(0, 256, 256, Bf16).with_form(Form::Masked {
            max_rows: 64,
            rows: vec![20, 64, 41],
        }),
        Input::Normal,
    );
    add("integers f32", false, ragged(F32), Input::Integers);
    add("integers bf16", false, ragged(Bf16), Input::Integers);
    add(
        "integers accumulate",
        false,
        ragged(F32).accumulating(),
        Input::Integers,
    );
    add(
        "integers fp4",
        false,
        ragged(F32).with_recipes(fp4_recipes()),
        Input::Integers,
    );
    add(
        "integers contiguous",
        false,
        contiguous(Problem::dense(0, 72, 200, F32)),
        Input::Integers,
    );
    add(
        "integers masked",
        false,
        masked(Problem::dense(0, 72, 200, F32)),
        Input::Integers,
    );
    add(
        "integers k-grouped",
        false,
        k_grouped(Problem::dense(40, 72, 0, F32)),
        Input::Integers,
    );
    add(
        "integers padded m=1",
        false,
        Problem::dense(1, 40, 136, F32).padded(8),
        Input::Integers,
    );
    add("normal f32", false, ragged(F32), Input::Normal);
    add("normal bf16", false, ragged(Bf16), Input::Normal);
    add("positive f32", false, ragged(F32), Input::Positive);
    add("outlier f32", false, ragged(F32), Input::Outlier);
    add("heavy-tailed f32", false, ragged(F32), Input::HeavyTailed);
    add("equal f32", false, ragged(F32), Input::Equal);
    add("half-zero f32", false, ragged(F32), Input::HalfZero);
    add(
        "denormal scales f32",
        false,
        ragged(F32),
        Input::DenormalScales,
    );
    let tensor = |output| Problem::dense(16, 24, 4096, output).with_recipes(tensor_recipes());
    add("tensor normal bf16", true, tensor(Bf16), Input::Normal);
    add("tensor normal f32", false, tensor(F32), Input::Normal);
    add("tensor positive f32", false, tensor(F32), Input::Positive);
    if deep {
        // As large as suites test, where one tile or one k is a small share.
        let suite = Problem::dense(1024, 4096, 7168, Bf16);
        add("suite-sized dense bf16", true, suite, Input::Normal);
        let deep = Problem::dense(128, 512, 16384, Bf16);
        add("deep dense bf16", true, deep.clone(), Input::Normal);
        add(
            "deep dense f32",
            false,
            Problem {
                output: F32,
                ..deep.clone()
            },
            Input::Normal,
        );
        add(
            "deep integers f32",
            false,
            Problem {
                output: F32,
                ..deep
            },
            Input::Integers,
        );
    }
    // Where a library has no reason to split k, which would hide the fault.
    let wide = Problem::dense(64, 128, 4096, F32).with_recipes(tensor_recipes());
    let seed = seed + cases.len() as u64;
    cases.push(Named {
        case: Case::new("tensor positive wide f32", wide, Input::Positive, seed),
        typical: false,
        specimens_only: true,
    });
    cases
}
