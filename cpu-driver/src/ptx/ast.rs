//! The syntax tree of a PTX module: as close to the text as is useful.

/// `.version`, `.target`, `.address_size` and everything declared after them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Module {
    /// `.version 8.0` is `(8, 0)`.
    pub version: (u32, u32),
    pub target: Target,
    pub address_size: u32,
    /// `.file` entries; they stand at the end of nvcc's output.
    pub files: Vec<SourceFile>,
    pub variables: Vec<Variable>,
    pub functions: Vec<Function>,
    /// `.debug_str` section: the names that `.loc … inlined_at` refers to,
    /// as (label, text).
    /// A `.loc` that names `label+8` finds an entry of that very name here.
    pub debug_strings: Vec<(String, String)>,
    /// `.alias new, old;`
    pub aliases: Vec<(String, String)>,
}

/// `.target sm_90a, debug`
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Target {
    /// 90 for `sm_90`, `sm_90a` and `sm_90f`.
    pub sm: u32,
    /// `a` (architecture-specific) or `f` (family-specific).
    pub suffix: Option<char>,
    pub options: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SourceFile {
    pub index: u32,
    pub path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateSpace {
    Register,
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// The fundamental types of PTX; vectors are [`Variable::vector`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScalarType {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    F32,
    F64,
    E4M3,
    E5M2,
    E4M3x2,
    E5M2x2,
    E2M1x2,
    Pred,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Linkage {
    #[default]
    Internal,
    Visible,
    Extern,
    Weak,
    Common,
}

/// A variable in any state space, function parameters and register
/// declarations included.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    pub linkage: Linkage,
    pub space: StateSpace,
    /// Bytes; the type's own size where the text gives none.
    pub align: u32,
    pub ty: ScalarType,
    /// 1, 2 or 4 (`.v2`, `.v4`).
    pub vector: u32,
    pub name: String,
    /// `%r<7>` declares `%r0` to `%r6`: `Some(7)`.
    pub range: Option<u32>,
    /// Array dimensions; `None` for the unsized `[]` of an extern array.
    pub dims: Vec<Option<u64>>,
    pub init: Vec<InitValue>,
    /// `.attribute(.managed)`
    pub managed: bool,
    /// `.ptr .global .align 16` of a kernel parameter is ignored by the machine.
    pub line: u32,
}

/// One element of an initialiser, flattened in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub enum InitValue {
    /// Integer bits, already negated where the text says so.
    Int(i128),
    /// Float bits as written (`0f3F800000`, `0d…`) widened to f64 where decimal.
    F32(u32),
    F64(u64),
    /// Address of a symbol plus a byte offset; `generic` where wrapped in `generic(…)`.
    /// `mask` is the byte selected by the `0xFF(symbol)` form.
    Symbol {
        name: String,
        offset: i64,
        generic: bool,
        mask: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// `.entry`: a kernel.
    Entry,
    /// `.func`: a device function.
    Device,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    pub kind: FunctionKind,
    pub linkage: Linkage,
    pub name: String,
    pub returns: Vec<Variable>,
    pub params: Vec<Variable>,
    pub directives: Vec<Directive>,
    /// `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    pub line: u32,
}

/// `.maxntid 256, 1, 1`, `.minnctapersm 2`, `.noreturn`, …
#[derive(Debug, Clone, PartialEq)]
pub struct Directive {
    pub name: String,
    pub values: Vec<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    Variable(Variable),
    Label {
        name: String,
        line: u32,
    },
    Instruction(Instruction),
    Loc(Loc),
    /// `{ … }`, a scope for names.
    Block(Vec<Statement>),
    /// `$L_table: .branchtargets $L1, $L2;`
    BranchTargets {
        name: String,
        labels: Vec<String>,
        line: u32,
    },
    /// `prototype_0: .callprototype (…) _ (…);` and `.calltargets`
    CallPrototype {
        name: String,
        returns: Vec<Variable>,
        params: Vec<Variable>,
        line: u32,
    },
    CallTargets {
        name: String,
        functions: Vec<String>,
        line: u32,
    },
    Pragma(String),
}

/// `.loc 1 42 9, function_name $L__info_string0, inlined_at 1 50 3`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Loc {
    pub file: u32,
    /// 0 means made by the compiler.
    pub line: u32,
    pub column: u32,
    /// Key into [`Module::debug_strings`] of the inlined function.
    pub function: Option<String>,
    pub inlined_at: Option<(u32, u32, u32)>,
}

/// `@!%p1 ld.global.nc.v4.f32 {%f1, %f2, _, %f4}, [%rd1+16];`
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    pub guard: Option<Guard>,
    /// The word before the first dot: `ld`, `mad`, `mma`.
    pub opcode: String,
    /// The words after it, without dots, in the order of the text. `::` stays
    /// inside a word: `shared::cta`.
    pub modifiers: Vec<String>,
    pub operands: Vec<Operand>,
    /// Line in the PTX text.
    pub line: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    pub register: String,
    pub negated: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register, special register (`%tid.x` with its dot), variable, label
    /// or function name: told apart by the declarations in scope.
    Name(String),
    /// `!%p1` as a source.
    Not(String),
    /// `variable+8` outside brackets.
    NameOffset(String, i64),
    /// `-1`, `0x7f`, `42U`: the bits, sign-extended.
    Int(i128),
    /// `0f3F800000`
    F32(u32),
    /// `0d3FF0000000000000`, and decimal literals.
    F64(u64),
    /// `{%f1, %f2}`
    Vector(Vec<Operand>),
    /// `[base + offset]`; `base` is a name or an integer. Tensor operands put
    /// their coordinate vector into `coordinates`.
    Address {
        base: Box<Operand>,
        offset: i64,
        coordinates: Vec<Operand>,
    },
    /// `%p1|%p2` or `%r1|%p1` (`setp`, `shfl`, `match`).
    Pair(Box<Operand>, Box<Operand>),
    /// `_`
    Sink,
    /// The parenthesised lists of `call`.
    List(Vec<Operand>),
}
