//! Makes a failing case smaller: the first smaller case that still fails replaces
//! it, until none does or the budget is spent.

use super::case::Case;
use super::problem::{Form, Problem};

/// Smaller problems to try, the boldest first.
fn candidates(problem: &Problem) -> Vec<Problem> {
    let mut smaller = Vec::new();
    let mut with = |change: &dyn Fn(&mut Problem)| {
        let mut next = problem.clone();
        change(&mut next);
        let next = {
            let form = next.form.clone();
            next.with_form(form)
        };
        if next != *problem && next.check().is_ok() {
            smaller.push(next);
        }
    };
    let halves = |x: usize| [x / 2, x.saturating_sub(1)];
    match &problem.form {
        Form::Dense => {}
        form => {
            with(&|p| p.form = Form::Dense);
            let groups = match form {
                Form::Contiguous { rows } | Form::Masked { rows, .. } => rows.len(),
                Form::KGrouped { depths } => depths.len(),
                Form::Dense => 0,
            };
            for drop in 0..groups {
                with(&|p| match &mut p.form {
                    Form::Contiguous { rows } | Form::Masked { rows, .. } => {
                        rows.remove(drop);
                    }
                    Form::KGrouped { depths } => {
                        depths.remove(drop);
                    }
                    Form::Dense => {}
                });
            }
        }
    }
    for step in 0..2 {
        with(&|p| p.k = halves(p.k)[step].max(1));
        with(&|p| p.n = halves(p.n)[step].max(1));
        with(&|p| p.m = halves(p.m)[step].max(1));
    }
    with(&|p| p.pad = 0);
    smaller
}

/// The smallest failing case found with at most `budget` calls of `fails`.
pub fn shrink(case: &Case, budget: usize, mut fails: impl FnMut(&Case) -> bool) -> Case {
    let mut best = case.clone();
    let mut left = budget;
    'smaller: loop {
        for problem in candidates(&best.problem) {
            if left == 0 {
                return best;
            }
            left -= 1;
            let next = Case {
                origin: "shrunk".into(),
                problem,
                ..best.clone()
            };
            if fails(&next) {
                best = next;
                continue 'smaller;
            }
        }
        return best;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::inputs::Input;
    use crate::lowp::OutputType;

    #[test]
    fn a_fault_past_k_130_and_n_40_shrinks_to_its_edge() {
        let problem = Problem::dense(300, 500, 1000, OutputType::F32).padded(3);
        let case = Case::new("test", problem, Input::Normal, 1);
        let small = shrink(&case, 500, |c| c.problem.k > 130 && c.problem.n > 40);
        let p = &small.problem;
        assert_eq!((p.m, p.n, p.k, p.pad), (1, 41, 131, 0));
    }

    #[test]
    fn groups_are_dropped_but_a_grouped_fault_stays_grouped() {
        let problem = Problem::dense(0, 9, 64, OutputType::F32).with_form(Form::Contiguous {
            rows: vec![5, 0, 7, 3],
        });
        let case = Case::new("test", problem, Input::Normal, 1);
        let small = shrink(&case, 200, |c| c.problem.form != Form::Dense);
        assert!(matches!(&small.problem.form, Form::Contiguous { rows } if rows.len() == 1));
        let dense = shrink(&case, 200, |c| c.problem.m > 0);
        assert_eq!(dense.problem.form, Form::Dense);
    }

    #[test]
    fn the_budget_is_kept_and_a_case_that_no_longer_fails_is_returned_as_it_was() {
        let case = Case::new(
            "test",
            Problem::dense(64, 64, 64, OutputType::F32),
            Input::Normal,
            1,
        );
        let mut calls = 0;
        let same = shrink(&case, 4, |_| {
            calls += 1;
            false
        });
        assert_eq!((same, calls), (case, 4));
    }
}
