//! One function: statements to operations.
//!
//! Names are resolved here, scope by scope. What an instruction means is the
//! business of its family (see [`crate::machine::ops`]).

use std::collections::HashMap;

use super::code::{CallSite, Class, Constant, LocalSlot, SiteInfo};
use super::link::{Linked, Place};
pub use super::literal::class_of;
use super::literal::literal;
use super::modifiers::bytes_of;
use super::operation::{Flow, Label, Operation, Register, Value};
use super::reach::Layout;
use super::sites::Sites;
use crate::machine::access::Access;
use crate::machine::observe::Frame;
use crate::machine::ops;
use crate::ptx::ast::{
    Function, FunctionKind, Instruction, Operand, StateSpace, Statement, Variable,
};

/// Why an instruction cannot be lowered. It stays in the code as an operation
/// that fails when reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal(pub String);

pub fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(message.into()))
}

/// What a name in a function stands for.
#[derive(Debug, Clone)]
pub enum Symbol {
    Register(Register),
    /// Offset in the kernel's parameter buffer.
    Param(u32),
    /// A variable in the thread's local memory (function parameters too).
    Local(LocalSlot),
    Shared(u32),
    Label(Label),
    Table(Vec<String>),
    Prototype,
}

/// Tables of the kernel that functions add to.
#[derive(Default)]
pub struct Tables {
    pub calls: Vec<CallSite>,
    pub accesses: Vec<Access>,
    pub sites: Vec<SiteInfo>,
    pub refusals: Vec<String>,
    pub frames: Vec<Vec<Frame>>,
    pub matrices: Vec<ops::mma::Shape>,
    pub videos: Vec<ops::video::Video>,
    pub tiles: Vec<ops::wmma::Tile>,
    pub products: Vec<ops::wmma::Product>,
}

pub struct Lowering<'p> {
    pub linked: &'p Linked,
    pub layout: &'p Layout,
    pub tables: &'p mut Tables,
    sites: Sites<'p>,
    pub module: usize,
    pub is_kernel: bool,
    scopes: Vec<HashMap<String, Symbol>>,
    pub registers: Vec<Class>,
    pub operations: Vec<Operation>,
    /// Operation index of each label.
    pub labels: Vec<usize>,
    pub local_bytes: u32,
    pub params: Vec<LocalSlot>,
    pub returns: Vec<LocalSlot>,
    site: u32,
    carry: Option<Register>,
}

/// A lowered function, before it gets places.
pub struct Lowered {
    pub name: String,
    pub registers: Vec<Class>,
    pub operations: Vec<Operation>,
    pub labels: Vec<usize>,
    /// A multiple of 16; never 0 for a device function, whose return address
    /// takes a place on hardware, so that no recursion goes on for ever.
    pub local_bytes: u32,
    pub params: Vec<LocalSlot>,
    pub returns: Vec<LocalSlot>,
}

/// Lowers one function of `module`.
pub fn lower<'p>(
    linked: &'p Linked,
    layout: &'p Layout,
    tables: &'p mut Tables,
    module: usize,
    function: &Function,
) -> Lowered {
    let mut lowering = Lowering {
        linked,
        layout,
        tables,
        sites: Sites::new(&linked.symbols.modules[module]),
        module,
        is_kernel: function.kind == FunctionKind::Entry,
        scopes: vec![HashMap::new()],
        registers: Vec::new(),
        operations: Vec::new(),
        labels: Vec::new(),
        local_bytes: 0,
        params: Vec::new(),
        returns: Vec::new(),
        site: 0,
        carry: None,
    };
    lowering.parameters(function);
    if let Some(body) = &function.body {
        lowering.block(body);
    }
    // Control that runs off the end returns.
    lowering.site = lowering.sites.synthetic(lowering.tables, "ret");
    ops::control::leave(&mut lowering);
    Lowered {
        name: function.name.clone(),
        registers: lowering.registers,
        operations: lowering.operations,
        labels: lowering.labels,
        local_bytes: match lowering.is_kernel {
            true => lowering.local_bytes.next_multiple_of(16),
            false => lowering.local_bytes.max(1).next_multiple_of(16),
        },
        params: lowering.params,
        returns: lowering.returns,
    }
}

/// Registers that one declaration can make; a text that uses more is refused
/// instruction by instruction.
const MOST_REGISTERS: u32 = 1 << 16;

/// Bytes of a variable, its array dimensions included.
pub fn variable_bytes(variable: &Variable) -> u64 {
    let one = u64::from(bytes_of(variable.ty)) * u64::from(variable.vector.max(1));
    variable
        .dims
        .iter()
        .fold(one, |bytes, dim| bytes.saturating_mul(dim.unwrap_or(0)))
}

impl Lowering<'_> {
    fn parameters(&mut self, function: &Function) {
        if self.is_kernel {
            let (slots, _) = super::param_slots(&function.params);
            for (param, slot) in function.params.iter().zip(slots) {
                self.define(&param.name, Symbol::Param(slot.offset));
            }
            return;
        }
        for param in &function.params {
            let slot = self.parameter(param);
            self.params.push(slot);
        }
        for result in &function.returns {
            let slot = self.parameter(result);
            self.returns.push(slot);
        }
    }

    fn parameter(&mut self, variable: &Variable) -> LocalSlot {
        let slot = self.local_slot(variable);
        self.define(&variable.name, Symbol::Local(slot));
        slot
    }

    fn local_slot(&mut self, variable: &Variable) -> LocalSlot {
        let bytes = variable_bytes(variable).min(1 << 24) as u32;
        let offset = self
            .local_bytes
            .next_multiple_of(variable.align.clamp(4, 128));
        self.local_bytes = (offset + bytes).min(1 << 28);
        LocalSlot { offset, bytes }
    }

    fn define(&mut self, name: &str, symbol: Symbol) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_owned(), symbol);
        }
    }

    fn block(&mut self, statements: &[Statement]) {
        self.scopes.push(HashMap::new());
        for statement in statements {
            if let Statement::Label { name, .. } = statement {
                let label = self.new_label();
                self.define(name, Symbol::Label(label));
            }
        }
        for statement in statements {
            self.statement(statement);
        }
        self.scopes.pop();
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Variable(variable) => self.variable(variable),
            Statement::Label { name, .. } => {
                if let Some(Symbol::Label(label)) = self.look_up(name).cloned() {
                    self.place_label(label);
                }
            }
            Statement::Instruction(instruction) => self.instruction(instruction),
            Statement::Loc(loc) => self.sites.loc(self.tables, loc),
            Statement::Block(inner) => self.block(inner),
            Statement::BranchTargets { name, labels, .. } => {
                self.define(name, Symbol::Table(labels.clone()));
            }
            Statement::CallPrototype { name, .. } => self.define(name, Symbol::Prototype),
            Statement::CallTargets { name, .. } => self.define(name, Symbol::Prototype),
            Statement::Pragma(_) => {}
        }
    }

    fn variable(&mut self, variable: &Variable) {
        match variable.space {
            StateSpace::Register => {
                let class = class_of(variable.ty);
                match variable.range {
                    Some(count) => {
                        for number in 0..count.min(MOST_REGISTERS) {
                            let register = self.new_register(class);
                            let name = format!("{}{number}", variable.name);
                            self.define(&name, Symbol::Register(register));
                        }
                    }
                    None => {
                        let register = self.new_register(class);
                        self.define(&variable.name, Symbol::Register(register));
                    }
                }
            }
            StateSpace::Shared => {
                if let Some(offset) = self.layout.shared_offset(self.module, &variable.name) {
                    self.define(&variable.name, Symbol::Shared(offset));
                }
            }
            StateSpace::Local | StateSpace::Param => {
                let slot = self.local_slot(variable);
                self.define(&variable.name, Symbol::Local(slot));
            }
            StateSpace::Global | StateSpace::Const => {}
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        self.site = self.sites.instruction(self.tables, instruction);
        let (operations, labels) = (self.operations.len(), self.labels.len());
        if let Err(Refusal(message)) = ops::lower(self, instruction) {
            self.operations.truncate(operations);
            self.labels.truncate(labels);
            let guard = instruction.guard.clone();
            ops::control::refused(self, guard.as_ref(), message);
        }
    }

    pub fn new_register(&mut self, class: Class) -> Register {
        self.registers.push(class);
        self.registers.len() as u32 - 1
    }

    /// The carry flag of `add.cc` and its kin.
    pub fn carry(&mut self) -> Register {
        if let Some(carry) = self.carry {
            return carry;
        }
        let carry = self.new_register(Class::Predicate);
        self.carry = Some(carry);
        carry
    }

    pub fn new_label(&mut self) -> Label {
        self.labels.push(usize::MAX);
        self.labels.len() as u32 - 1
    }

    /// The label stands before the next operation.
    pub fn place_label(&mut self, label: Label) {
        self.labels[label as usize] = self.operations.len();
    }

    pub fn emit(&mut self, mut operation: Operation) {
        operation.site = self.site;
        self.operations.push(operation);
    }

    pub fn look_up(&self, name: &str) -> Option<&Symbol> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// The label that a branch names.
    pub fn label(&self, operand: &Operand) -> Result<Label, Refusal> {
        if let Operand::Name(name) = operand
            && let Some(Symbol::Label(label)) = self.look_up(name)
        {
            return Ok(*label);
        }
        refuse(format!("expected a label, found `{operand}`"))
    }

    /// The labels of a `.branchtargets` table.
    pub fn table(&self, operand: &Operand) -> Result<Vec<Label>, Refusal> {
        if let Operand::Name(name) = operand
            && let Some(Symbol::Table(labels)) = self.look_up(name)
        {
            return labels
                .iter()
                .map(|label| self.label(&Operand::Name(label.clone())))
                .collect();
        }
        refuse(format!("expected a branch table, found `{operand}`"))
    }

    /// A register to write, or nothing for `_`.
    pub fn target(&self, operand: &Operand, class: Class) -> Result<Value, Refusal> {
        match operand {
            Operand::Sink => Ok(Value::None),
            Operand::Name(name) => match self.look_up(name) {
                Some(Symbol::Register(register)) if self.class(*register) == class => {
                    Ok(Value::Register(*register))
                }
                Some(Symbol::Register(register)) => refuse(format!(
                    "expected a {class} register, found {name}, which is a {} one",
                    self.class(*register)
                )),
                _ => refuse(format!("{name} is no register")),
            },
            other => refuse(format!("expected a register to write, found `{other}`")),
        }
    }

    pub fn class(&self, register: Register) -> Class {
        self.registers[register as usize]
    }

    /// Class of an operand that is a register.
    pub fn register_class(&self, operand: &Operand) -> Option<Class> {
        match operand {
            Operand::Name(name) | Operand::Not(name) => match self.look_up(name) {
                Some(Symbol::Register(register)) => Some(self.class(*register)),
                _ => None,
            },
            _ => None,
        }
    }

    /// A value to read, of exactly this class.
    pub fn source(&mut self, operand: &Operand, class: Class) -> Result<Value, Refusal> {
        if let Some(constant) = literal(operand, class) {
            return Ok(Value::Constant(constant));
        }
        match operand {
            Operand::Name(name) => match self.look_up(name) {
                Some(Symbol::Register(register)) => {
                    let register = *register;
                    if self.class(register) == class {
                        Ok(Value::Register(register))
                    } else {
                        refuse(format!(
                            "expected a {class} register, found {name}, which is a {} one",
                            self.class(register)
                        ))
                    }
                }
                _ => self.named_value(name, 0, class),
            },
            Operand::NameOffset(name, offset) => self.named_value(name, *offset, class),
            Operand::Not(name) => {
                let value = self.source(&Operand::Name(name.clone()), Class::Predicate)?;
                Ok(ops::control::negated(self, value))
            }
            other => refuse(format!("expected a value, found `{other}`")),
        }
    }

    /// A special register, or the address of a variable or function.
    fn named_value(&mut self, name: &str, offset: i64, class: Class) -> Result<Value, Refusal> {
        if let Some(constant) = ops::special::constant(name, class) {
            return Ok(Value::Constant(constant));
        }
        if ops::special::is_special(name) {
            return ops::special::read(self, name, class);
        }
        self.address(name, offset, class).map(Value::Constant)
    }

    /// Address of a variable in its own state space.
    pub fn address(&self, name: &str, offset: i64, class: Class) -> Result<Constant, Refusal> {
        let number = |value: u64| match class {
            Class::Word => Ok(Constant::Word(value.wrapping_add_signed(offset) as u32)),
            Class::Long => Ok(Constant::Long(value.wrapping_add_signed(offset))),
            _ => refuse(format!(
                "the address of {name} does not fit a {class} register"
            )),
        };
        match self.look_up(name) {
            Some(Symbol::Local(slot)) => {
                let at = slot.offset.wrapping_add(offset as u32);
                return match class {
                    Class::Word => Ok(Constant::LocalWord(at)),
                    Class::Long => Ok(Constant::LocalLong(at)),
                    _ => refuse(format!(
                        "the address of {name} does not fit a {class} register"
                    )),
                };
            }
            Some(Symbol::Param(at) | Symbol::Shared(at)) => return number(u64::from(*at)),
            Some(_) => return refuse(format!("{name} has no address")),
            None => {}
        }
        match self.linked.place(self.module, name, self.layout) {
            Some(Place::Address(address)) => number(address),
            Some(Place::Shared(at)) => number(u64::from(at)),
            None => refuse(format!("{name} is not declared")),
        }
    }

    /// True where a name stands for a kernel parameter.
    pub fn param_offset(&self, name: &str) -> Option<u32> {
        match self.look_up(name) {
            Some(Symbol::Param(offset)) => Some(*offset),
            _ => None,
        }
    }

    pub fn local(&self, operand: &Operand) -> Option<LocalSlot> {
        match operand {
            Operand::Name(name) => match self.look_up(name) {
                Some(Symbol::Local(slot)) => Some(*slot),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Marks where control goes when the operation is done.
pub fn with_flow(mut operation: Operation, flow: Flow) -> Operation {
    operation.flow = flow;
    operation
}
