//! Operations before they have places: operands are virtual registers, jump
//! targets are labels.

use super::code::{Constant, Exec, Variants};

/// A virtual register of the function being lowered.
pub type Register = u32;
/// A label of the function being lowered.
pub type Label = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Value {
    #[default]
    None,
    Register(Register),
    Constant(Constant),
    /// A number that goes into the field as it is.
    Raw(u32),
}

/// Where control goes after an operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Flow {
    #[default]
    Next,
    Jump(Label),
    /// To the label or to the next operation.
    Branch(Label),
    /// To one of the labels.
    Table(Vec<Label>),
    /// Nowhere: `exit`, `ret`, `trap`.
    Leave,
}

#[derive(Debug, Clone)]
pub struct Operation {
    pub exec: Exec,
    pub variants: Option<&'static Variants>,
    pub imm: u64,
    pub dst: Value,
    pub dst2: Value,
    pub a: Value,
    pub b: Value,
    pub c: Value,
    /// A fourth source; only without a list.
    pub fourth: Value,
    /// Further operands, and whether each is written.
    pub list: Vec<(Value, bool)>,
    pub flow: Flow,
    /// Runs for some lanes only: what it writes does not end a register's life.
    pub partial: bool,
    /// Needs the whole split: guarded by a branch around it, not by a mask.
    pub whole: bool,
    /// A plain copy of `a` to `dst`.
    pub copies: bool,
    pub site: u32,
}

impl Operation {
    pub fn new(exec: Exec) -> Self {
        Self {
            exec,
            variants: None,
            imm: 0,
            dst: Value::None,
            dst2: Value::None,
            a: Value::None,
            b: Value::None,
            c: Value::None,
            fourth: Value::None,
            list: Vec::new(),
            flow: Flow::Next,
            partial: false,
            whole: false,
            copies: false,
            site: 0,
        }
    }

    pub fn reads(&self) -> impl Iterator<Item = Value> + '_ {
        [self.a, self.b, self.c, self.fourth]
            .into_iter()
            .chain(self.list.iter().filter(|(_, w)| !w).map(|(v, _)| *v))
    }

    pub fn writes(&self) -> impl Iterator<Item = Value> + '_ {
        [self.dst, self.dst2]
            .into_iter()
            .chain(self.list.iter().filter(|(_, w)| *w).map(|(v, _)| *v))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> + '_ {
        [
            &mut self.dst,
            &mut self.dst2,
            &mut self.a,
            &mut self.b,
            &mut self.c,
            &mut self.fourth,
        ]
        .into_iter()
        .chain(self.list.iter_mut().map(|(v, _)| v))
    }
}
