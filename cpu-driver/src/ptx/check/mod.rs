//! What grammar alone does not see: names that nobody declared, names declared
//! twice, registers of a type that an instruction cannot take, bounds of zero.
//!
//! Refused here is what ptxas (12.0 and 13.0) refuses too; an instruction form
//! that is not known has its names checked and nothing else, and fails only
//! when a launched kernel reaches it. Laxer than ptxas: special registers may be
//! operands of any instruction, and module-level names may be used before they
//! are declared.
//!
//! `names.rs` holds the scopes, `types.rs` the rules for operands.

mod names;
mod special;
mod types;

#[cfg(test)]
mod tests;

use std::fmt;

use self::names::{Kind, Names};
use super::ast::{
    Directive, Function, InitValue, Instruction, Linkage, Module, Operand, StateSpace, Statement,
    Variable,
};

/// Why a module that follows the grammar is not PTX all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckError {
    /// From 1.
    pub line: u32,
    pub message: String,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for CheckError {}

fn wrong<T>(line: u32, message: impl Into<String>) -> Result<T, CheckError> {
    let message = message.into();
    Err(CheckError { line, message })
}

/// Checks one module.
///
/// # Errors
/// The first mistake in the order of the text.
pub fn check(module: &Module) -> Result<(), CheckError> {
    let mut names = Names::new();
    for function in &module.functions {
        names.declare(&function.name, Kind::Function);
    }
    for (alias, _) in &module.aliases {
        names.declare(alias, Kind::Function);
    }
    let external = |variable: &Variable| variable.linkage == Linkage::Extern;
    for variable in module.variables.iter().filter(|v| !external(v)) {
        names.define_variable(variable)?;
    }
    for variable in module.variables.iter().filter(|v| external(v)) {
        names.declare(&variable.name, Kind::Variable);
    }
    for variable in &module.variables {
        initialiser(&names, variable)?;
    }
    module
        .functions
        .iter()
        .try_for_each(|function| check_function(&mut names, function))
}

/// Symbols in an initialiser.
fn initialiser(names: &Names<'_>, variable: &Variable) -> Result<(), CheckError> {
    for value in &variable.init {
        if let InitValue::Symbol { name, .. } = value
            && names.find(name).is_none()
        {
            return wrong(
                variable.line,
                format!(
                    "`{name}` in the initialiser of {} is not declared",
                    variable.name
                ),
            );
        }
    }
    Ok(())
}

fn check_function<'m>(names: &mut Names<'m>, function: &'m Function) -> Result<(), CheckError> {
    for directive in &function.directives {
        bounds(function, directive)?;
    }
    names.open();
    for param in function.returns.iter().chain(&function.params) {
        if param.name != "_" {
            names.define_variable(param)?;
        }
    }
    if let Some(body) = &function.body {
        check_block(names, body)?;
    }
    names.close();
    Ok(())
}

/// `.maxntid 256, 1, 1` and its kin count things: no zero, no negative number.
fn bounds(function: &Function, directive: &Directive) -> Result<(), CheckError> {
    let most = match directive.name.as_str() {
        "maxntid" | "reqntid" | "reqnctapercluster" => 3,
        "minnctapersm" | "maxnctapersm" | "maxnreg" | "maxclusterrank" => 1,
        _ => return Ok(()),
    };
    let (name, values) = (&directive.name, &directive.values);
    if values.is_empty() || values.len() > most {
        return wrong(
            function.line,
            format!(
                ".{name} of {}: expected 1 to {most} numbers, found {}",
                function.name,
                values.len()
            ),
        );
    }
    match values
        .iter()
        .find(|&&value| !(1..=i64::from(u32::MAX)).contains(&value))
    {
        None => Ok(()),
        Some(value) => wrong(
            function.line,
            format!(
                ".{name} of {}: expected numbers of at least 1, found {value}",
                function.name
            ),
        ),
    }
}

fn check_block<'m>(names: &mut Names<'m>, block: &'m [Statement]) -> Result<(), CheckError> {
    names.open();
    // A branch may go forward.
    for statement in block {
        if let Statement::Label { name, line } = statement {
            names.define(name, Kind::Label, *line)?;
        }
    }
    for statement in block {
        match statement {
            Statement::Variable(variable) => {
                names.define_variable(variable)?;
                initialiser(names, variable)?;
            }
            Statement::Instruction(instruction) => check_instruction(names, instruction)?,
            Statement::Block(inner) => check_block(names, inner)?,
            Statement::BranchTargets { name, labels, line } => {
                names.define(name, Kind::Table, *line)?;
                for label in labels {
                    expect_label(names, label, *line)?;
                }
            }
            Statement::CallPrototype { name, line, .. }
            | Statement::CallTargets { name, line, .. } => {
                names.define(name, Kind::Table, *line)?;
            }
            Statement::Label { .. } | Statement::Loc(_) | Statement::Pragma(_) => {}
        }
    }
    names.close();
    Ok(())
}

fn expect_label(names: &Names<'_>, name: &str, line: u32) -> Result<(), CheckError> {
    match names.find(name) {
        Some(Kind::Label) => Ok(()),
        Some(other) => wrong(line, format!("expected a label, found `{name}`, {other}")),
        None => wrong(
            line,
            format!("expected a label, found `{name}`, which is not declared in this function"),
        ),
    }
}

fn check_instruction(names: &Names<'_>, instruction: &Instruction) -> Result<(), CheckError> {
    let line = instruction.line;
    if let Some(guard) = &instruction.guard {
        let kind = declared(names, instruction, &guard.register)?;
        if !kind.is_some_and(|kind| kind.is_predicate()) {
            let found = kind.map_or_else(|| "a special register".to_owned(), |k| k.to_string());
            let name = &guard.register;
            return wrong(
                line,
                format!(
                    "the guard of `{instruction}`: expected a .pred register, found `{name}`, {found}"
                ),
            );
        }
    }
    if let ("bra", [Operand::Name(label)]) =
        (instruction.opcode.as_str(), instruction.operands.as_slice())
    {
        return expect_label(names, label, line);
    }
    for operand in &instruction.operands {
        check_names(names, instruction, operand)?;
    }
    types::check(names, instruction)
}

/// What a name in an operand stands for; `None` for a special register.
fn declared<'n>(
    names: &'n Names<'_>,
    instruction: &Instruction,
    name: &str,
) -> Result<Option<&'n Kind>, CheckError> {
    if let Some(kind) = names.find(name) {
        return Ok(Some(kind));
    }
    if special::is_known(name) {
        return Ok(None);
    }
    // `vector.x`, and byte selectors of video instructions.
    if let Some((base, _)) = name.split_once('.')
        && let Some(kind) = names.find(base)
    {
        return Ok(Some(kind));
    }
    let what = match name.starts_with('%') {
        true => "no register of this name",
        false => "nothing of this name",
    };
    wrong(
        instruction.line,
        format!("`{instruction}` uses `{name}`, but {what} is declared here"),
    )
}

fn check_names(
    names: &Names<'_>,
    instruction: &Instruction,
    operand: &Operand,
) -> Result<(), CheckError> {
    match operand {
        Operand::Name(name) | Operand::Not(name) | Operand::NameOffset(name, _) => {
            declared(names, instruction, name).map(drop)
        }
        Operand::Vector(items) | Operand::List(items) => items
            .iter()
            .try_for_each(|item| check_names(names, instruction, item)),
        Operand::Pair(first, second) => {
            check_names(names, instruction, first)?;
            check_names(names, instruction, second)
        }
        Operand::Address {
            base, coordinates, ..
        } => {
            check_names(names, instruction, base)?;
            coordinates
                .iter()
                .try_for_each(|item| check_names(names, instruction, item))
        }
        Operand::Int(_) | Operand::F32(_) | Operand::F64(_) | Operand::Sink => Ok(()),
    }
}

/// Is the variable a place in memory rather than a register?
fn has_address(variable: &Variable) -> bool {
    variable.space != StateSpace::Register
}
