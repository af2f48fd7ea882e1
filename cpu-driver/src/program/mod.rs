//! Syntax tree to typed operations.
//!
//! Decoding happens once a kernel, at its first launch: every instruction
//! becomes one fixed-size operation on register rows. Forms that are not known
//! stay in the program as an operation that fails when a launched kernel
//! reaches it.
//!
//! [`link`] resolves names across modules, [`lower`] turns statements into
//! operations on virtual registers, [`flow`] finds the post-dominators,
//! [`allocate`] gives registers their rows, [`assemble`] puts it together.

pub mod allocate;
pub mod assemble;
pub mod code;
pub mod flow;
mod image;
pub mod limits;
pub mod link;
mod literal;
pub mod lower;
pub mod modifiers;
pub mod operation;
pub mod reach;
pub mod sites;

use std::sync::{Arc, OnceLock};

use self::code::{ABSENT, Code};
use self::link::{FunctionId, Linked, Symbols};
use self::lower::variable_bytes;
use self::reach::Layout;
use crate::machine::observe::Site;
use crate::ptx::ast::{self, Variable};

/// A loaded kernel, ready to launch.
pub struct Kernel {
    pub name: String,
    pub params: Vec<ParamSlot>,
    /// Bytes of the packed parameter buffer.
    pub param_bytes: u32,
    pub static_shared: u32,
    pub local_bytes: u32,
    /// `.maxntid` product, or the device's limit.
    pub max_threads: u32,
    /// `.reqntid`: the only shape of a block that may be launched.
    pub required_block: Option<[u32; 3]>,
    /// Rough register count a thread, for occupancy queries.
    pub registers: u32,
    linked: Arc<Linked>,
    id: FunctionId,
    layout: Layout,
    code: OnceLock<Code>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamSlot {
    pub offset: u32,
    pub bytes: u32,
    pub align: u32,
}

/// A `.global` or `.const` variable that needs memory before a kernel runs.
#[derive(Debug, Clone, PartialEq)]
pub struct GlobalDef {
    pub name: String,
    pub bytes: u64,
    pub align: u32,
    pub constant: bool,
    pub managed: bool,
    /// Initial bytes; shorter than `bytes` means zeros follow.
    pub image: Vec<u8>,
    /// Places in `image` that hold the address of another global or function.
    pub relocations: Vec<Relocation>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Relocation {
    pub offset: u64,
    pub symbol: String,
    pub addend: i64,
}

/// A decoded module before its globals have addresses.
pub struct Program {
    pub globals: Vec<GlobalDef>,
    symbols: Arc<Symbols>,
}

/// Why a module was refused; becomes the JIT error log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadError {
    /// Line in the PTX text, 0 where none applies.
    pub line: u32,
    pub message: String,
}

impl Program {
    /// Links one or more modules (extern symbols resolve across them).
    ///
    /// # Errors
    /// Duplicate or undefined symbols, more than a space can hold ([`limits`]), and
    /// whatever makes the module unusable as a whole. Unknown instructions are no error
    /// here.
    pub fn link(modules: &[ast::Module]) -> Result<Program, LoadError> {
        let symbols = Symbols::link(modules)?;
        limits::check(&symbols)?;
        Ok(Program {
            globals: symbols.globals.clone(),
            symbols: Arc::new(symbols),
        })
    }

    /// Refuses kernels with more static shared memory than `most` bytes.
    ///
    /// # Errors
    /// The first such kernel.
    pub fn check_shared(&self, most: u64) -> Result<(), LoadError> {
        limits::check_shared(&self.symbols, most)
    }

    /// The address that stands for a function, for relocations that name one.
    pub fn function_address(&self, name: &str) -> Option<u64> {
        self.symbols
            .exported_function(name)
            .map(Symbols::function_address)
    }

    /// Gives every symbol its address and returns the kernels in the order of
    /// the text.
    ///
    /// # Errors
    /// A symbol that `address_of` does not know.
    pub fn instantiate(
        &self,
        address_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Vec<Kernel>, LoadError> {
        let linked = Arc::new(Linked::new(self.symbols.clone(), address_of)?);
        Ok(self
            .symbols
            .kernels()
            .map(|id| Kernel::new(linked.clone(), id))
            .collect())
    }
}

impl Kernel {
    fn new(linked: Arc<Linked>, id: FunctionId) -> Self {
        let layout = linked.symbols.layout(id);
        let (_, function) = linked.symbols.function(id);
        let (params, param_bytes) = param_slots(&function.params);
        let max_threads = function
            .directives
            .iter()
            .find(|d| d.name == "maxntid" || d.name == "reqntid")
            .map_or(1024, |d| d.values.iter().product::<i64>().clamp(1, 1024));
        let required = function.directives.iter().find(|d| d.name == "reqntid");
        let axis = |d: &ast::Directive, axis: usize| {
            d.values.get(axis).map_or(1, |&n: &i64| n.clamp(1, 1024))
        };
        let declared = function.body.as_deref().map_or(0, declared_words);
        Self {
            name: function.name.clone(),
            params,
            param_bytes,
            static_shared: layout.static_shared,
            local_bytes: function.body.as_deref().map_or(0, depot_bytes),
            max_threads: max_threads as u32,
            required_block: required.map(|d| [0, 1, 2].map(|at| axis(d, at) as u32)),
            registers: declared.clamp(16, 255),
            linked,
            id,
            layout,
            code: OnceLock::new(),
        }
    }

    /// The executable form, made at the first call.
    pub fn code(&self) -> &Code {
        self.code
            .get_or_init(|| assemble::assemble(&self.linked, &self.layout))
    }

    /// Where operation `operation` comes from.
    pub fn site(&self, operation: u32) -> Site {
        let code = self.code();
        let function = code.function_at(operation);
        let info = code
            .ops
            .get(operation as usize)
            .and_then(|op| code.sites.get(op.site as usize))
            .cloned()
            .unwrap_or_default();
        Site {
            function: function.map_or_else(|| self.name.clone(), |f| f.name.clone()),
            offset: 16 * operation.saturating_sub(function.map_or(0, |f| f.entry)),
            frames: if info.frames == ABSENT {
                Vec::new()
            } else {
                code.frames
                    .get(info.frames as usize)
                    .cloned()
                    .unwrap_or_default()
            },
            ptx_line: info.ptx_line,
            instruction: info.text,
        }
    }

    /// Identity of the kernel in its program.
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// Places of kernel parameters, and the bytes of all of them.
pub fn param_slots(params: &[Variable]) -> (Vec<ParamSlot>, u32) {
    let mut bytes = 0u32;
    let slots = params
        .iter()
        .map(|param| {
            let size = variable_bytes(param).min(1 << 20) as u32;
            let align = param.align.clamp(1, 1 << 12);
            let offset = bytes.next_multiple_of(align);
            bytes = (offset + size).min(1 << 28);
            ParamSlot {
                offset,
                bytes: size,
                align,
            }
        })
        .collect();
    (slots, bytes)
}

/// 32-bit registers that a body declares.
fn declared_words(body: &[ast::Statement]) -> u32 {
    body.iter()
        .map(|statement| match statement {
            ast::Statement::Variable(v) if v.space == ast::StateSpace::Register => {
                let words = modifiers::bytes_of(v.ty).div_ceil(4);
                words.saturating_mul(v.range.unwrap_or(1))
            }
            ast::Statement::Block(inner) => declared_words(inner),
            _ => 0,
        })
        .fold(0, u32::saturating_add)
}

/// Bytes of local variables that a body declares.
fn depot_bytes(body: &[ast::Statement]) -> u32 {
    body.iter()
        .map(|statement| match statement {
            ast::Statement::Variable(v) if v.space == ast::StateSpace::Local => {
                variable_bytes(v).min(1 << 24) as u32
            }
            ast::Statement::Block(inner) => depot_bytes(inner),
            _ => 0,
        })
        .fold(0, u32::saturating_add)
}
