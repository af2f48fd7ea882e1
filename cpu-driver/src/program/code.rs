//! The executable form: fixed-size operations on byte offsets of a frame.
//!
//! A *frame* holds the registers of one function activation for one warp:
//! predicates (one bit a lane, four bytes each), then 128-, 64- and 32-bit
//! rows of 32 lanes, then rows with constants. Offsets are bytes from the
//! frame's start. Rows of different widths never share bytes: lanes of one
//! warp may stand at different places of the program, and only then does a
//! lane's slot in one row never meet another lane's slot in another row.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::machine::context::Context;
use crate::machine::observe::Frame;

/// What the interpreter does after an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    Next,
    /// Go on at [`Context::pc`].
    Jump,
    /// [`Context::stop`] says why.
    Stop,
}

/// The code of an operation.
pub type Exec = unsafe fn(&mut Context<'_>, &Op) -> Step;

/// One operation. What the fields mean is the family's own business.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Op {
    pub exec: Exec,
    pub imm: u64,
    pub dst: u32,
    /// Second destination (`setp p|q`, `shfl d|p`).
    pub dst2: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    /// A fourth source, or the start of the operand list in [`Code::lists`].
    pub aux: u32,
    /// Index into [`Code::sites`].
    pub site: u32,
}

/// Marks an operand that is not there.
pub const ABSENT: u32 = u32::MAX;

/// Width of a register or constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    None,
    Predicate,
    Word,
    Long,
    Quad,
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Class::None => "absent",
            Class::Predicate => "predicate",
            Class::Word => "32-bit",
            Class::Long => "64-bit",
            Class::Quad => "128-bit",
        })
    }
}

impl Class {
    /// Bytes that one register takes in a frame.
    pub const fn bytes(self) -> u32 {
        match self {
            Class::None => 0,
            Class::Predicate => 4,
            Class::Word => 128,
            Class::Long => 256,
            Class::Quad => 512,
        }
    }
}

/// The same operation for each way of observing memory: unchecked, checked,
/// checked with events.
pub type Variants = [Exec; 3];

/// The [`Variants`] of `run::<STRICT, EVENTS>`, or of one with a further
/// constant behind those two.
#[cfg(not(feature = "without-checks"))]
macro_rules! variants {
    ($run:ident $(, $more:literal)?) => {
        [
            $run::<false, false $(, $more)?>,
            $run::<true, false $(, $more)?>,
            $run::<true, true $(, $more)?>,
        ]
    };
}

/// In a build without checks there is one way, the unchecked one.
#[cfg(feature = "without-checks")]
macro_rules! variants {
    ($run:ident $(, $more:literal)?) => {
        [
            $run::<false, false $(, $more)?>,
            $run::<false, false $(, $more)?>,
            $run::<false, false $(, $more)?>,
        ]
    };
}

pub(crate) use variants;

/// A value that fills a constant row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Constant {
    Truth(bool),
    Word(u32),
    Long(u64),
    Quad(u128),
    Special(Special),
    /// Bytes of the kernel's parameters from this offset on.
    ParamWord(u32),
    ParamLong(u32),
    /// Address, in the thread's local memory, of a byte of this activation.
    LocalWord(u32),
    LocalLong(u32),
}

impl Constant {
    pub fn class(self) -> Class {
        match self {
            Constant::Truth(_) => Class::Predicate,
            Constant::Word(_) | Constant::ParamWord(_) | Constant::LocalWord(_) => Class::Word,
            Constant::Long(_) | Constant::ParamLong(_) | Constant::LocalLong(_) => Class::Long,
            Constant::Quad(_) => Class::Quad,
            Constant::Special(special) => special.class(),
        }
    }
}

/// Special registers that do not change while a block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    ThreadId(u8),
    BlockSize(u8),
    BlockId(u8),
    GridSize(u8),
    Lane,
    WarpId,
    WarpCount,
    SmId,
    SmCount,
    GridId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    DynamicShared,
    /// Address of the grid's workspace in a cooperative launch, upper and lower
    /// half.
    WorkspaceHigh,
    WorkspaceLow,
    TotalShared,
    One,
    Zero,
}

impl Special {
    pub fn class(self) -> Class {
        match self {
            Special::GridId => Class::Long,
            _ => Class::Word,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Fill {
    pub offset: u32,
    pub constant: Constant,
}

/// A variable in a function's part of local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalSlot {
    pub offset: u32,
    pub bytes: u32,
}

#[derive(Debug)]
pub struct FunctionCode {
    pub name: String,
    pub entry: u32,
    pub end: u32,
    /// A multiple of 512.
    pub frame_bytes: u32,
    pub fills: Vec<Fill>,
    /// Depot, parameters and call arguments, a multiple of 16.
    pub local_bytes: u32,
    pub params: Vec<LocalSlot>,
    pub returns: Vec<LocalSlot>,
}

/// A call's target.
#[derive(Debug, Clone)]
pub enum Callee {
    /// Index into [`Code::functions`].
    Function(u32),
    /// By the function addresses in the operation's first source.
    Indirect,
    /// A function the machine has built in.
    Builtin(crate::machine::builtin::Builtin),
}

/// One call instruction: where its arguments and results lie in the caller's
/// local memory.
#[derive(Debug, Clone)]
pub struct CallSite {
    pub callee: Callee,
    pub arguments: Vec<LocalSlot>,
    pub results: Vec<LocalSlot>,
}

/// Where an operation comes from.
#[derive(Debug, Clone, Default)]
pub struct SiteInfo {
    pub text: String,
    pub ptx_line: u32,
    /// Index into [`Code::frames`], or [`ABSENT`].
    pub frames: u32,
}

/// A kernel with every function that it can reach.
#[derive(Debug, Default)]
pub struct Code {
    pub ops: Vec<Op>,
    /// Operations that exist in several variants.
    pub variants: Vec<(u32, &'static Variants)>,
    pub lists: Vec<u32>,
    pub functions: Vec<FunctionCode>,
    pub calls: Vec<CallSite>,
    pub accesses: Vec<crate::machine::access::Access>,
    pub matrices: Vec<crate::machine::ops::mma::Shape>,
    pub videos: Vec<crate::machine::ops::video::Video>,
    pub tiles: Vec<crate::machine::ops::wmma::Tile>,
    pub products: Vec<crate::machine::ops::wmma::Product>,
    pub sites: Vec<SiteInfo>,
    pub frames: Vec<Vec<Frame>>,
    /// Messages of operations that are not implemented.
    pub refusals: Vec<String>,
    /// Functions by the address that stands for them.
    pub by_address: HashMap<u64, u32>,
    /// Bytes of local memory of all functions, once each.
    pub local_bytes: u32,
    /// Device functions are called: calls may nest deeper than once each.
    pub calls_functions: bool,
    checked: OnceLock<Vec<Op>>,
    events: OnceLock<Vec<Op>>,
}

impl Code {
    /// The operations for one way of observing memory.
    pub fn ops_for(&self, strict: bool, events: bool) -> &[Op] {
        let patched = |variant: usize| {
            let mut ops = self.ops.clone();
            for (at, execs) in &self.variants {
                ops[*at as usize].exec = execs[variant];
            }
            ops
        };
        match (strict, events) {
            (false, false) => &self.ops,
            (_, false) => self.checked.get_or_init(|| patched(1)),
            (_, true) => self.events.get_or_init(|| patched(2)),
        }
    }

    /// The function that holds operation `pc`.
    pub fn function_at(&self, pc: u32) -> Option<&FunctionCode> {
        self.functions.iter().find(|f| f.entry <= pc && pc < f.end)
    }
}
