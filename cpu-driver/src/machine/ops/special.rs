//! Special registers.

use super::written;
use crate::machine::context::Context;
use crate::program::code::{Class, Constant, Exec, Op, Special, Step};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::operation::{Operation, Value};

/// Special registers that keep their value while a block runs.
pub fn constant(name: &str, class: Class) -> Option<Constant> {
    if name == "WARP_SZ" {
        return match class {
            Class::Long => Some(Constant::Long(32)),
            _ => Some(Constant::Word(32)),
        };
    }
    let (base, axis) = match name.rsplit_once('.') {
        Some((base, "x")) => (base, 0),
        Some((base, "y")) => (base, 1),
        Some((base, "z")) => (base, 2),
        _ => (name, 0),
    };
    let special = match base {
        "%tid" => Special::ThreadId(axis),
        "%ntid" => Special::BlockSize(axis),
        "%ctaid" => Special::BlockId(axis),
        "%nctaid" => Special::GridSize(axis),
        "%laneid" => Special::Lane,
        "%warpid" => Special::WarpId,
        "%nwarpid" => Special::WarpCount,
        "%smid" => Special::SmId,
        "%nsmid" => Special::SmCount,
        "%gridid" => Special::GridId,
        "%lanemask_eq" => Special::LaneMaskEq,
        "%lanemask_le" => Special::LaneMaskLe,
        "%lanemask_lt" => Special::LaneMaskLt,
        "%lanemask_ge" => Special::LaneMaskGe,
        "%lanemask_gt" => Special::LaneMaskGt,
        "%dynamic_smem_size" => Special::DynamicShared,
        // Where cooperative groups look for their grid barrier.
        "%envreg1" => Special::WorkspaceHigh,
        "%envreg2" => Special::WorkspaceLow,
        "%total_smem_size" => Special::TotalShared,
        // A launch without clusters: every block is a cluster of one.
        "%clusterid" => Special::BlockId(axis),
        "%nclusterid" => Special::GridSize(axis),
        "%cluster_ctaid" | "%cluster_ctarank" => Special::Zero,
        "%cluster_nctaid" | "%cluster_nctarank" => Special::One,
        _ => return None,
    };
    (special.class() == class).then_some(Constant::Special(special))
}

/// Special registers that are read when they are reached, or that stand for a
/// wider or narrower value than the operand has.
pub fn is_special(name: &str) -> bool {
    name.starts_with('%')
        && ([
            "%clock",
            "%clock_hi",
            "%clock64",
            "%globaltimer",
            "%globaltimer_lo",
            "%globaltimer_hi",
            "%gridid",
            "%is_explicit_cluster",
        ]
        .contains(&name)
            || name.starts_with("%envreg"))
}

/// Reads a changing special register into a temporary.
pub fn read(lowering: &mut Lowering<'_>, name: &str, class: Class) -> Result<Value, Refusal> {
    let exec: Exec = match (name, class) {
        ("%clock" | "%globaltimer_lo", Class::Word) => run_clock_low,
        ("%clock_hi" | "%globaltimer_hi", Class::Word) => run_clock_high,
        ("%clock64" | "%globaltimer", Class::Long) => run_clock,
        ("%gridid", Class::Word) => return Ok(Value::Constant(Constant::Word(1))),
        ("%is_explicit_cluster", Class::Predicate) => {
            return Ok(Value::Constant(Constant::Truth(false)));
        }
        _ if name.starts_with("%envreg") => return Ok(Value::Constant(Constant::Word(0))),
        _ => return refuse(format!("{name} does not fit a {class} register")),
    };
    let dst = written(lowering, Value::None, class);
    let mut operation = Operation::new(exec);
    operation.dst = dst;
    lowering.emit(operation);
    Ok(dst)
}

/// Clocks count instructions: the same run gives the same values.
fn run_clock(cx: &mut Context<'_>, op: &Op) -> Step {
    cx.polled = true;
    cx.set_longs(op.dst, &[cx.warp_instructions; 32]);
    Step::Next
}

fn run_clock_low(cx: &mut Context<'_>, op: &Op) -> Step {
    cx.polled = true;
    cx.set_words(op.dst, &[cx.warp_instructions as u32; 32]);
    Step::Next
}

fn run_clock_high(cx: &mut Context<'_>, op: &Op) -> Step {
    cx.set_words(op.dst, &[(cx.warp_instructions >> 32) as u32; 32]);
    Step::Next
}
