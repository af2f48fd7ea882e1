//! What a kernel reaches, and where its shared variables lie.

use std::collections::HashMap;

use super::link::{Definition, FunctionId, Symbols};
use super::lower::variable_bytes;
use crate::machine::builtin::Builtin;
use crate::ptx::ast::{Function, Instruction, Operand, StateSpace, Statement, Variable};

/// What one kernel reaches, and the layout of its shared memory.
#[derive(Debug, Default)]
pub struct Layout {
    /// The kernel first.
    pub functions: Vec<FunctionId>,
    shared: HashMap<(usize, String), u32>,
    pub static_shared: u32,
    /// The same without a bound, however much the text declares.
    pub static_shared_bytes: u64,
}

impl Symbols {
    /// What a kernel reaches.
    pub fn layout(&self, kernel: FunctionId) -> Layout {
        let mut layout = Layout::default();
        let mut queue = vec![kernel];
        let mut indirect = false;
        let mut dynamic: Vec<(usize, String, u32)> = Vec::new();
        while let Some(id) = queue.pop() {
            if layout.functions.contains(&id) {
                continue;
            }
            layout.functions.push(id);
            let (at, function) = self.function(id);
            for variable in function.body.iter().flat_map(|body| nested_variables(body)) {
                if variable.space == StateSpace::Shared {
                    layout.place_shared(at, variable, &mut dynamic);
                }
            }
            for instruction in instructions(function) {
                indirect |= instruction.opcode == "call" && !self.calls_by_name(at, instruction);
                for name in names(instruction) {
                    match self.find(at, name) {
                        Some(Definition::Function(callee)) => queue.push(*callee),
                        Some(Definition::Shared(index)) => {
                            // An alias may lead here from another module.
                            let variable = self.modules[at].variables.get(*index);
                            if let Some(variable) = variable.filter(|v| v.name == name) {
                                layout.place_shared(at, variable, &mut dynamic);
                            }
                        }
                        _ => {}
                    }
                }
            }
            if indirect {
                queue.extend(&self.address_taken);
            }
        }
        // Dynamic shared memory starts behind all static variables.
        if let Some(align) = dynamic.iter().map(|(_, _, align)| *align).max() {
            layout.static_shared = layout.static_shared.next_multiple_of(align.max(1));
            for (at, name, _) in dynamic {
                layout.shared.insert((at, name), layout.static_shared);
            }
        }
        layout
    }

    fn calls_by_name(&self, at: usize, call: &Instruction) -> bool {
        call.operands.iter().any(|operand| match operand {
            Operand::Name(name) => {
                self.function_named(at, name).is_some() || Builtin::named(name).is_some()
            }
            _ => false,
        })
    }
}

impl Layout {
    fn place_shared(
        &mut self,
        at: usize,
        variable: &Variable,
        dynamic: &mut Vec<(usize, String, u32)>,
    ) {
        let key = (at, variable.name.clone());
        if self.shared.contains_key(&key) {
            return;
        }
        let align = variable.align.clamp(1, 1 << 12);
        if variable.dims.contains(&None) {
            if !dynamic
                .iter()
                .any(|(m, name, _)| (*m, name) == (at, &key.1))
            {
                dynamic.push((at, key.1, align));
            }
            return;
        }
        let offset = self.static_shared.next_multiple_of(align);
        let bytes = variable_bytes(variable);
        let exact = self.static_shared_bytes.max(u64::from(offset));
        self.static_shared_bytes = exact.saturating_add(bytes);
        let bytes = bytes.min(u64::from(u32::MAX / 4)) as u32;
        self.static_shared = offset.saturating_add(bytes);
        self.shared.insert(key, offset);
    }

    pub fn shared_offset(&self, module: usize, name: &str) -> Option<u32> {
        self.shared.get(&(module, name.to_owned())).copied()
    }

    /// Index of a function in this kernel's code.
    pub fn index_of(&self, id: FunctionId) -> Option<u32> {
        self.functions
            .iter()
            .position(|known| *known == id)
            .map(|at| at as u32)
    }
}

/// Variables declared anywhere inside statements.
pub fn nested_variables(body: &[Statement]) -> Vec<&Variable> {
    let mut found = Vec::new();
    for statement in body {
        match statement {
            Statement::Variable(variable) => found.push(variable),
            Statement::Block(inner) => found.extend(nested_variables(inner)),
            _ => {}
        }
    }
    found
}

pub fn instructions(function: &Function) -> Vec<&Instruction> {
    fn collect<'a>(body: &'a [Statement], found: &mut Vec<&'a Instruction>) {
        for statement in body {
            match statement {
                Statement::Instruction(instruction) => found.push(instruction),
                Statement::Block(inner) => collect(inner, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    if let Some(body) = &function.body {
        collect(body, &mut found);
    }
    found
}

/// Names in the operands of an instruction.
pub fn names(instruction: &Instruction) -> Vec<&str> {
    fn collect<'a>(operand: &'a Operand, found: &mut Vec<&'a str>) {
        match operand {
            Operand::Name(name) | Operand::NameOffset(name, _) => found.push(name),
            Operand::Address { base, .. } => collect(base, found),
            Operand::Vector(list) | Operand::List(list) => {
                list.iter().for_each(|one| collect(one, found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    for operand in &instruction.operands {
        collect(operand, &mut found);
    }
    found
}
