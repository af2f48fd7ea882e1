//! A call of another size between a case's two runs.
//!
//! A kernel whose result follows state that outlives a launch (a ticket counter that
//! nobody resets, a split that adds up in order of arrival) repeats its bits when the
//! same call is repeated and the number of its blocks happens to fit: on a device that
//! runs blocks in order, every time. In use, other calls come in between. Here one
//! does: one row by eight columns of the case's own operands. That moves such a counter
//! by one tile, so the second run starts elsewhere than the first.

use anyhow::Result;

use super::problem::Problem;
use super::subject::{DeviceOperands, Subject, Unsupported};
use crate::device::Device;

/// Columns of the call: as few as a vendor's library takes.
const COLUMNS: usize = 8;

/// The call: the first group with anything in it, cut to one row.
fn one_tile(problem: &Problem, operands: &DeviceOperands) -> Option<(Problem, DeviceOperands)> {
    let some = |group: &super::subject::Group| group.rows > 0 && group.depth > 0;
    let index = operands.groups.iter().position(some)?;
    let mut group = operands.groups[index];
    (group.rows, group.allocated) = (1, 1);
    let n = problem.n.min(COLUMNS);
    let depth = usize::try_from(group.depth).ok()?;
    let mut smaller = Problem::dense(1, n, depth, problem.output)
        .with_recipes((problem.a, problem.b))
        .padded(problem.ldc() - n);
    smaller.accumulate = problem.accumulate;
    let operands = DeviceOperands {
        table: operands.table + 64 * index as u64,
        groups: vec![group],
        ..operands.clone()
    };
    Some((smaller, operands))
}

/// Makes the call, where the subject takes one so small. C holds anything after it.
///
/// # Errors
/// Those of the launch.
pub fn call(
    device: &Device,
    subject: &dyn Subject,
    problem: &Problem,
    operands: &DeviceOperands,
) -> Result<()> {
    let Some((problem, operands)) = one_tile(problem, operands) else {
        return Ok(());
    };
    if subject.refusal(&problem).is_some() {
        return Ok(());
    }
    match subject.launch(device, &problem, &operands) {
        Err(error) if error.downcast_ref::<Unsupported>().is_some() => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::super::subject::Group;
    use super::*;
    use crate::lowp::OutputType;

    #[test]
    fn the_call_is_one_row_of_the_first_group_that_has_any_with_the_same_row_stride() {
        let group = |rows, depth, b| Group {
            a: 7,
            b,
            a_scale: 3,
            b_scale: 4,
            c: 5,
            rows,
            depth,
            allocated: 9,
        };
        let operands = DeviceOperands {
            a: 0,
            b: 0,
            a_scale: 0,
            b_scale: 0,
            c: 0,
            table: 1000,
            groups: vec![group(0, 64, 1), group(4, 0, 2), group(4, 64, 3)],
        };
        let problem = Problem::dense(8, 100, 64, OutputType::Bf16)
            .padded(4)
            .accumulating();
        let (smaller, call) = one_tile(&problem, &operands).unwrap();
        assert_eq!((smaller.m, smaller.n, smaller.k), (1, 8, 64));
        assert!(smaller.ldc() == problem.ldc() && smaller.accumulate);
        assert_eq!((call.table, call.groups.len()), (1128, 1));
        assert_eq!((call.groups[0].b, call.groups[0].rows), (3, 1));
    }
}
