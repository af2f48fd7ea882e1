//! Scopes: what a name stands for where it is used.

use std::collections::HashMap;
use std::fmt;

use super::super::ast::{ScalarType, Variable};
use super::{CheckError, has_address, wrong};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Register {
        ty: ScalarType,
        /// Declared with `.v2`, `.v4`.
        vector: bool,
    },
    /// A variable in memory, or a parameter.
    Variable,
    Function,
    Label,
    /// `.branchtargets`, `.callprototype`, `.calltargets`
    Table,
}

impl Kind {
    pub fn is_predicate(&self) -> bool {
        matches!(
            self,
            Kind::Register {
                ty: ScalarType::Pred,
                ..
            }
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Register { ty, .. } => write!(f, "a {ty} register"),
            Kind::Variable => f.write_str("a variable in memory"),
            Kind::Function => f.write_str("a function"),
            Kind::Label => f.write_str("a label"),
            Kind::Table => f.write_str("a table or prototype"),
        }
    }
}

#[derive(Default)]
struct Scope<'m> {
    single: HashMap<&'m str, Kind>,
    /// `%r<7>`: the prefix, how many, and what they are.
    ranges: HashMap<&'m str, (u32, Kind)>,
}

impl Scope<'_> {
    fn find(&self, name: &str) -> Option<&Kind> {
        if let Some(kind) = self.single.get(name) {
            return Some(kind);
        }
        if self.ranges.is_empty() {
            return None;
        }
        // `x1<5>` declares `x10`: the prefix may end in digits itself.
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        (name.len() - digits.min(10)..name.len()).find_map(|split| {
            let (prefix, number) = name.split_at(split);
            let (count, kind) = self.ranges.get(prefix)?;
            let canonical = number == "0" || !number.starts_with('0');
            let declared = number.parse::<u32>().is_ok_and(|number| number < *count);
            (canonical && declared).then_some(kind)
        })
    }

    /// A name that both the range and something before it declare.
    fn clash(&self, prefix: &str, count: u32) -> Option<String> {
        if self.ranges.contains_key(prefix) && count > 0 {
            return Some(format!("{prefix}0"));
        }
        let number_of = |name: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
        self.single
            .keys()
            .find(|name| number_of(name).is_some_and(|number| number < count))
            .map(|name| (*name).to_owned())
    }
}

/// The scopes around a place of the text, the module's first.
pub struct Names<'m> {
    scopes: Vec<Scope<'m>>,
}

impl<'m> Names<'m> {
    pub fn new() -> Self {
        Self {
            scopes: vec![Scope::default()],
        }
    }

    pub fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    pub fn close(&mut self) {
        self.scopes.pop();
    }

    pub fn find(&self, name: &str) -> Option<&Kind> {
        self.scopes.iter().rev().find_map(|scope| scope.find(name))
    }

    fn innermost(&mut self) -> &mut Scope<'m> {
        if self.scopes.is_empty() {
            self.open();
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    /// Makes a name known that may be declared more than once.
    pub fn declare(&mut self, name: &'m str, kind: Kind) {
        self.innermost().single.entry(name).or_insert(kind);
    }

    /// # Errors
    /// The innermost scope has the name already.
    pub fn define(&mut self, name: &'m str, kind: Kind, line: u32) -> Result<(), CheckError> {
        let scope = self.innermost();
        if let Some(before) = scope.find(name) {
            return wrong(line, duplicate(name, *before));
        }
        scope.single.insert(name, kind);
        Ok(())
    }

    /// # Errors
    /// As [`Names::define`]. A variable may repeat a declaration by `.extern`.
    pub fn define_variable(&mut self, variable: &'m Variable) -> Result<(), CheckError> {
        let kind = match has_address(variable) {
            true => Kind::Variable,
            false => Kind::Register {
                ty: variable.ty,
                vector: variable.vector > 1,
            },
        };
        let name = variable.name.as_str();
        let Some(count) = variable.range else {
            return self.define(name, kind, variable.line);
        };
        let scope = self.innermost();
        if let Some(twice) = scope.clash(name, count) {
            return wrong(variable.line, duplicate(&twice, kind));
        }
        scope.ranges.insert(name, (count, kind));
        Ok(())
    }
}

fn duplicate(name: &str, before: Kind) -> String {
    format!("`{name}` is declared twice in one scope, before as {before}")
}
