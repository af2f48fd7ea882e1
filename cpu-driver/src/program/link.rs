//! Names across modules: who defines what, what a kernel reaches, and where
//! its shared variables lie.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::lower::variable_bytes;
use super::reach::{Layout, instructions, names, nested_variables};
use super::{GlobalDef, LoadError, image};
use crate::machine::builtin::Builtin;
use crate::ptx::ast::{Function, FunctionKind, InitValue, Linkage, Module, StateSpace, Variable};

/// Function addresses start here: far from every device allocation.
const FUNCTION_BASE: u64 = 0x0000_00f0_0000_0000;

/// Index of a function among all functions of the program.
pub type FunctionId = u32;

#[derive(Debug, Clone, PartialEq)]
pub enum Definition {
    /// A `.global` or `.const` variable, by its unique name.
    Global(String),
    /// A `.shared` variable, by its place among the module's variables.
    Shared(usize),
    Function(FunctionId),
}

/// Modules with their names resolved.
#[derive(Debug)]
pub struct Symbols {
    pub modules: Vec<Module>,
    pub globals: Vec<GlobalDef>,
    /// Module and index of every function with a body.
    pub functions: Vec<(usize, usize)>,
    /// Where each global stands in `globals`.
    places: HashMap<String, usize>,
    local: Vec<HashMap<String, Definition>>,
    exported: HashMap<String, Definition>,
    /// Functions whose address is taken somewhere.
    pub address_taken: Vec<FunctionId>,
}

/// Symbols with the addresses of their variables.
#[derive(Debug)]
pub struct Linked {
    pub symbols: Arc<Symbols>,
    addresses: HashMap<String, u64>,
}

/// What a name stands for outside a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Address(u64),
    Shared(u32),
}

fn exported(linkage: Linkage) -> bool {
    linkage != Linkage::Internal
}

impl Symbols {
    pub fn link(modules: &[Module]) -> Result<Self, LoadError> {
        let mut symbols = Self {
            modules: modules.to_vec(),
            globals: Vec::new(),
            functions: Vec::new(),
            places: HashMap::new(),
            local: vec![HashMap::new(); modules.len()],
            exported: HashMap::new(),
            address_taken: Vec::new(),
        };
        for at in 0..modules.len() {
            symbols.functions_of(at)?;
            symbols.variables_of(at)?;
        }
        for (at, module) in modules.iter().enumerate() {
            for (alias, target) in &module.aliases {
                if let Some(found) = symbols.find(at, target).cloned() {
                    symbols.exported.insert(alias.clone(), found.clone());
                    symbols.local[at].insert(alias.clone(), found);
                }
            }
        }
        symbols.undefined()?;
        symbols.fill_images()?;
        symbols.note_taken_addresses();
        Ok(symbols)
    }

    fn functions_of(&mut self, at: usize) -> Result<(), LoadError> {
        for index in 0..self.modules[at].functions.len() {
            let function = &self.modules[at].functions[index];
            if function.body.is_none() {
                continue;
            }
            let (name, linkage, line) = (function.name.clone(), function.linkage, function.line);
            let id = self.functions.len() as FunctionId;
            self.functions.push((at, index));
            self.add(at, &name, linkage, Definition::Function(id), line)?;
        }
        Ok(())
    }

    fn variables_of(&mut self, at: usize) -> Result<(), LoadError> {
        for index in 0..self.modules[at].variables.len() {
            let variable = self.modules[at].variables[index].clone();
            match variable.space {
                StateSpace::Shared => {
                    self.local[at].insert(variable.name.clone(), Definition::Shared(index));
                }
                StateSpace::Global | StateSpace::Const if variable.linkage != Linkage::Extern => {
                    self.global(at, &variable)?;
                }
                _ => {}
            }
        }
        for index in 0..self.modules[at].functions.len() {
            let body = self.modules[at].functions[index].body.clone();
            for variable in body.iter().flat_map(|body| nested_variables(body)) {
                if matches!(variable.space, StateSpace::Global | StateSpace::Const) {
                    self.global(at, variable)?;
                }
            }
        }
        Ok(())
    }

    fn global(&mut self, at: usize, variable: &Variable) -> Result<(), LoadError> {
        let merges = matches!(variable.linkage, Linkage::Weak | Linkage::Common);
        if merges && self.exported.contains_key(&variable.name) {
            return Ok(());
        }
        let taken = self.places.contains_key(&variable.name);
        let name = if taken && !exported(variable.linkage) {
            format!("{}$module{at}", variable.name)
        } else {
            variable.name.clone()
        };
        let definition = Definition::Global(name.clone());
        self.add(
            at,
            &variable.name,
            variable.linkage,
            definition,
            variable.line,
        )?;
        let bytes = if variable.dims.contains(&None) {
            image::unsized_bytes(variable)
        } else {
            variable_bytes(variable)
        };
        self.places.insert(name.clone(), self.globals.len());
        self.globals.push(GlobalDef {
            name,
            bytes,
            align: variable.align,
            constant: variable.space == StateSpace::Const,
            managed: variable.managed,
            image: Vec::new(),
            relocations: Vec::new(),
        });
        Ok(())
    }

    fn add(
        &mut self,
        at: usize,
        name: &str,
        linkage: Linkage,
        definition: Definition,
        line: u32,
    ) -> Result<(), LoadError> {
        if self.local[at].contains_key(name) {
            return Err(LoadError {
                line,
                message: format!("duplicate definition of {name}"),
            });
        }
        if exported(linkage) {
            if self.exported.contains_key(name) && linkage != Linkage::Weak {
                return Err(LoadError {
                    line,
                    message: format!("{name} is defined in more than one module"),
                });
            }
            self.exported
                .entry(name.to_owned())
                .or_insert_with(|| definition.clone());
        }
        self.local[at].insert(name.to_owned(), definition);
        Ok(())
    }

    pub fn find(&self, at: usize, name: &str) -> Option<&Definition> {
        self.local
            .get(at)
            .and_then(|names| names.get(name))
            .or_else(|| self.exported.get(name))
    }

    /// Extern variables and functions must be defined somewhere.
    fn undefined(&self) -> Result<(), LoadError> {
        for (at, module) in self.modules.iter().enumerate() {
            for variable in &module.variables {
                let needed = variable.linkage == Linkage::Extern
                    && matches!(variable.space, StateSpace::Global | StateSpace::Const);
                if needed && self.find(at, &variable.name).is_none() {
                    return Err(undefined(&variable.name, variable.line));
                }
            }
            for function in &module.functions {
                let needed = function.body.is_none()
                    && self.find(at, &function.name).is_none()
                    && Builtin::named(&function.name).is_none();
                if needed && function.linkage == Linkage::Extern && !is_optional(&function.name) {
                    return Err(undefined(&function.name, function.line));
                }
            }
        }
        Ok(())
    }

    fn fill_images(&mut self) -> Result<(), LoadError> {
        let mut built = Vec::new();
        for (at, module) in self.modules.iter().enumerate() {
            let nested = module
                .functions
                .iter()
                .filter_map(|f| f.body.as_ref())
                .flat_map(|body| nested_variables(body));
            for variable in module.variables.iter().chain(nested) {
                if variable.init.is_empty() {
                    continue;
                }
                if let Some(Definition::Global(name)) = self.find(at, &variable.name) {
                    let (image, mut relocations) = image::build(variable)?;
                    for relocation in &mut relocations {
                        relocation.symbol = self.unique(at, &relocation.symbol);
                    }
                    built.push((name.clone(), image, relocations));
                }
            }
        }
        for (name, image, relocations) in built {
            if let Some(&at) = self.places.get(&name) {
                let global = &mut self.globals[at];
                global.image = image;
                global.relocations = relocations;
            }
        }
        Ok(())
    }

    /// The program-wide name of a variable or function of a module.
    fn unique(&self, at: usize, name: &str) -> String {
        match self.find(at, name) {
            Some(Definition::Global(unique)) => unique.clone(),
            _ => name.to_owned(),
        }
    }

    fn note_taken_addresses(&mut self) {
        let mut taken = HashSet::new();
        for (at, module) in self.modules.iter().enumerate() {
            for value in module.variables.iter().flat_map(|v| &v.init) {
                if let InitValue::Symbol { name, .. } = value
                    && let Some(Definition::Function(id)) = self.find(at, name)
                {
                    taken.insert(*id);
                }
            }
            for function in &module.functions {
                for instruction in instructions(function) {
                    if instruction.opcode == "call" {
                        continue;
                    }
                    for name in names(instruction) {
                        if let Some(Definition::Function(id)) = self.find(at, name) {
                            taken.insert(*id);
                        }
                    }
                }
            }
        }
        self.address_taken = taken.into_iter().collect();
        self.address_taken.sort_unstable();
    }

    pub fn function(&self, id: FunctionId) -> (usize, &Function) {
        let (module, index) = self.functions[id as usize];
        (module, &self.modules[module].functions[index])
    }

    /// The function that a name means in a module.
    pub fn function_named(&self, module: usize, name: &str) -> Option<FunctionId> {
        match self.find(module, name) {
            Some(Definition::Function(id)) => Some(*id),
            _ => None,
        }
    }

    /// The address that stands for a function in pointers to it.
    pub fn function_address(id: FunctionId) -> u64 {
        FUNCTION_BASE + 16 * (u64::from(id) + 1)
    }

    pub fn exported_function(&self, name: &str) -> Option<FunctionId> {
        match self.exported.get(name) {
            Some(Definition::Function(id)) => Some(*id),
            _ => (0..self.modules.len()).find_map(|at| self.function_named(at, name)),
        }
    }

    pub fn kernels(&self) -> impl Iterator<Item = FunctionId> + '_ {
        (0..self.functions.len() as FunctionId)
            .filter(|id| self.function(*id).1.kind == FunctionKind::Entry)
    }
}

impl Linked {
    pub fn new(
        symbols: Arc<Symbols>,
        address_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Self, LoadError> {
        let mut addresses = HashMap::new();
        for global in &symbols.globals {
            let Some(address) = address_of(&global.name) else {
                return Err(LoadError {
                    line: 0,
                    message: format!("no address for the variable {}", global.name),
                });
            };
            addresses.insert(global.name.clone(), address);
        }
        Ok(Self { symbols, addresses })
    }

    pub fn place(&self, module: usize, name: &str, layout: &Layout) -> Option<Place> {
        match self.symbols.find(module, name)? {
            Definition::Global(unique) => self.addresses.get(unique).copied().map(Place::Address),
            Definition::Shared(_) => layout.shared_offset(module, name).map(Place::Shared),
            Definition::Function(id) => Some(Place::Address(Symbols::function_address(*id))),
        }
    }
}

fn undefined(name: &str, line: u32) -> LoadError {
    LoadError {
        line,
        message: format!("undefined symbol {name}: no module of the link defines it"),
    }
}

/// Declared by headers, hardly ever reached; a call to it fails when reached.
fn is_optional(name: &str) -> bool {
    name.starts_with("cuda") || name.starts_with("__nv") || name.starts_with("__cuda")
}
