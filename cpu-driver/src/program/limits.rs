//! What a module may declare.
//!
//! | space | limit | ptxas 13.0 says |
//! |---|---|---|
//! | `.shared`, static, a kernel | the most that a launch may opt in to: 227 KiB on an H200, whose driver takes it (ptxas for a cubin: 48 KiB) | uses too much shared data |
//! | `.const`, a module | 64 KiB | uses too much global constant data |
//! | `.param`, a kernel | 4,352 bytes; from ISA 8.1 and sm_70 on 32,764 | uses too much parameter space |
//! | `.local`, a thread | what 31 bits count | (nothing: the hardware's 512 KiB are met at the launch) |
//!
//! Dynamic shared memory is the launch's, `.global` the device memory's business.

use super::LoadError;
use super::link::Symbols;
use super::lower::variable_bytes;
use super::reach::nested_variables;
use crate::ptx::ast::{Function, Module, StateSpace, Variable};

pub const CONSTANTS: u64 = 64 << 10;
pub const PARAMETERS: u64 = 4_352;
pub const LARGE_PARAMETERS: u64 = 32_764;
pub const LOCAL: u64 = i32::MAX as u64;

/// Checks linked modules.
///
/// # Errors
/// The first space that is too small for what is declared in it.
pub fn check(symbols: &Symbols) -> Result<(), LoadError> {
    symbols.modules.iter().try_for_each(constants)?;
    for id in symbols.kernels() {
        let (at, kernel) = symbols.function(id);
        parameters(&symbols.modules[at], kernel)?;
        for function in &symbols.layout(id).functions {
            let (_, function) = symbols.function(*function);
            within(function, "local data", local(function), LOCAL)?;
        }
    }
    Ok(())
}

/// Checks the shared memory that each kernel of linked modules reaches.
///
/// # Errors
/// A kernel that needs more than `most` bytes.
pub fn check_shared(symbols: &Symbols, most: u64) -> Result<(), LoadError> {
    symbols.kernels().try_for_each(|id| {
        let (_, kernel) = symbols.function(id);
        let bytes = symbols.layout(id).static_shared_bytes;
        within(kernel, "shared data", bytes, most)
    })
}

fn within(function: &Function, what: &str, bytes: u64, most: u64) -> Result<(), LoadError> {
    if bytes <= most {
        return Ok(());
    }
    Err(LoadError {
        line: function.line,
        message: format!(
            "{} uses too much {what}: {bytes} bytes ({bytes:#x}), at most {most} ({most:#x}) are \
             allowed",
            function.name
        ),
    })
}

/// Where variables of these sizes and alignments end when laid out in order.
fn extent<'v>(variables: impl Iterator<Item = &'v Variable>) -> u64 {
    variables.fold(0, |end: u64, variable| {
        let align = u64::from(variable.align.clamp(1, 1 << 20));
        end.checked_next_multiple_of(align)
            .unwrap_or(u64::MAX)
            .saturating_add(variable_bytes(variable))
    })
}

fn parameters(module: &Module, kernel: &Function) -> Result<(), LoadError> {
    let large = module.version >= (8, 1) && module.target.sm >= 70;
    let most = if large { LARGE_PARAMETERS } else { PARAMETERS };
    within(
        kernel,
        "parameter space",
        extent(kernel.params.iter()),
        most,
    )
}

fn local(function: &Function) -> u64 {
    let body = function.body.as_deref().unwrap_or(&[]);
    let variables = nested_variables(body);
    let here = |space| matches!(space, StateSpace::Local | StateSpace::Param);
    extent(
        variables
            .into_iter()
            .filter(|variable| here(variable.space)),
    )
}

fn constants(module: &Module) -> Result<(), LoadError> {
    let bodies = module.functions.iter().filter_map(|f| f.body.as_deref());
    let nested = bodies.flat_map(nested_variables);
    let constants = module.variables.iter().chain(nested);
    let constants = constants.filter(|variable| variable.space == StateSpace::Const);
    let line = constants
        .clone()
        .next_back()
        .map_or(0, |variable| variable.line);
    let bytes = extent(constants);
    if bytes <= CONSTANTS {
        return Ok(());
    }
    Err(LoadError {
        line,
        message: format!(
            "the module uses too much constant data: {bytes} bytes ({bytes:#x}), at most \
             {CONSTANTS} ({CONSTANTS:#x}) are allowed"
        ),
    })
}
