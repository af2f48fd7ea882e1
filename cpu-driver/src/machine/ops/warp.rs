//! Stub.
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::ptx::ast::Instruction;
pub fn barrier(_: &mut Lowering<'_>, _: &Instruction) -> Result<(), Refusal> {
    refuse("not yet")
}
