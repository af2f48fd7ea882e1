//! What may not change, must change, and must not change between two runs.

use super::{Check, Execution, Finding, Layout, Place, sentence};
use crate::gemm::case::Case;

pub(super) fn untouched(case: &Case, layout: &Layout, run: &Execution) -> Option<Finding> {
    let mut first = None;
    let mut bad = 0;
    for (group, segment) in case.problem.segments().iter().enumerate() {
        for row in 0..segment.allocated {
            let from = if row < segment.rows { layout.n } else { 0 };
            for col in from..layout.ldc {
                let before = layout.element(&run.initial, group, row, col);
                if layout.element(&run.c, group, row, col) != before {
                    bad += 1;
                    first.get_or_insert((Place { group, row, col }, row < segment.rows));
                }
            }
        }
    }
    let (place, padding) = first?;
    let what = if padding {
        "the padding after column n"
    } else {
        "a masked row"
    };
    Some(Finding {
        place: Some(place),
        ..sentence(Check::Untouched, bad, format!("{what} was written"))
    })
}

pub(super) fn coverage(case: &Case, layout: &Layout, run: &Execution) -> Option<Finding> {
    if case.problem.accumulate {
        // C held numbers, not poison; an element left out is off by its whole sum.
        return None;
    }
    let poison = case.problem.output.poison();
    let mut first = None;
    let mut bad = 0;
    for (group, segment) in case.problem.segments().iter().enumerate() {
        for row in 0..segment.rows {
            for col in 0..layout.n {
                if layout.element(&run.c, group, row, col) == poison {
                    bad += 1;
                    first.get_or_insert(Place { group, row, col });
                }
            }
        }
    }
    first.map(|place| Finding {
        place: Some(place),
        ..sentence(
            Check::Coverage,
            bad,
            "still poisoned: never written".to_owned(),
        )
    })
}

pub(super) fn rerun(case: &Case, layout: &Layout, run: &Execution) -> Option<Finding> {
    if run.c == run.rerun {
        return None;
    }
    let differing: Vec<usize> = run
        .c
        .chunks(layout.size)
        .zip(run.rerun.chunks(layout.size))
        .enumerate()
        .filter(|(_, (first, second))| first != second)
        .map(|(at, _)| at)
        .collect();
    let (row, col) = (differing[0] / layout.ldc, differing[0] % layout.ldc);
    let group = layout
        .starts
        .iter()
        .rposition(|&start| start <= row)
        .unwrap_or(0);
    let values = case.problem.output;
    let row = row - layout.starts[group];
    let first = values.widen(layout.element(&run.c, group, row, col))[0];
    let second = values.widen(layout.element(&run.rerun, group, row, col))[0];
    Some(Finding {
        place: Some(Place { group, row, col }),
        ..sentence(
            Check::Rerun,
            differing.len(),
            format!("the second run gave {second:.9e}, the first {first:.9e}"),
        )
    })
}
