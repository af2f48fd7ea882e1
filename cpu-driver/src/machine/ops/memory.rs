//! `ld`, `st`, `ldu`, `prefetch`: vectors, every space, every width.

use super::transfer::{LOADS, STORES};
use super::{Family, moves, no_lanes, written};
use crate::machine::access::{Access, Space};
use crate::machine::observe::AccessKind;
use crate::program::code::{Class, Constant};
use crate::program::lower::{Lowering, Refusal, class_of, refuse};
use crate::program::modifiers::{Modifiers, bytes_of, is_signed};
use crate::program::operation::{Operation, Value};
use crate::ptx::ast::{Instruction, Operand, ScalarType, StateSpace};

pub const FAMILY: Family = Family {
    decoders: &[
        ("ld", load),
        ("ldu", load),
        ("st", store),
        ("prefetch", nothing),
        ("prefetchu", nothing),
        ("applypriority", nothing),
        ("discard", nothing),
        ("createpolicy", policy),
    ],
    lanes: no_lanes,
};

const SPACES: [&str; 10] = [
    "global",
    "const",
    "shared",
    "shared::cta",
    "shared::cluster",
    "local",
    "param",
    "param::entry",
    "param::func",
    "generic",
];

/// Space, vector count and type of a memory instruction. Takes ordering, scope
/// and cache hints along; the order of one thread's accesses is kept anyway.
pub struct Shape {
    pub space: Space,
    pub report: StateSpace,
    pub count: u32,
    pub ty: ScalarType,
    pub polls: bool,
}

pub fn shape(modifiers: &mut Modifiers<'_>) -> Result<Shape, Refusal> {
    let (space, report) = space(modifiers);
    let polls = ordering(modifiers);
    let count = match modifiers.take_any(&["v2", "v4", "v8"]) {
        Some(at) => 2 << at,
        None => 1,
    };
    Ok(Shape {
        space,
        report,
        count,
        ty: modifiers.need_type()?,
        polls,
    })
}

pub fn space(modifiers: &mut Modifiers<'_>) -> (Space, StateSpace) {
    match modifiers.take_any(&SPACES) {
        Some(0) => (Space::Global, StateSpace::Global),
        Some(1) => (Space::Global, StateSpace::Const),
        Some(2..=4) => (Space::Shared, StateSpace::Shared),
        Some(5) => (Space::Local, StateSpace::Local),
        Some(6..=8) => (Space::Param, StateSpace::Param),
        _ => (Space::Generic, StateSpace::Global),
    }
}

/// Takes orderings, scopes and hints. Tells whether spinning code could be
/// using this access.
pub fn ordering(modifiers: &mut Modifiers<'_>) -> bool {
    let mut polls = false;
    for word in [
        "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "sc",
    ] {
        polls |= modifiers.take(word);
    }
    for word in [
        "weak", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "gpu", "cta", "sys", "cluster",
        "unified",
    ] {
        modifiers.take(word);
    }
    modifiers.drop_prefix("L1::");
    modifiers.drop_prefix("L2::");
    polls
}

/// An address operand, ready for an operation.
pub struct Place {
    pub base: Value,
    pub offset: u64,
    pub class: Class,
    pub space: Space,
}

/// Resolves `[base + offset]` in a space.
pub fn place(
    lowering: &mut Lowering<'_>,
    operand: &Operand,
    space: Space,
) -> Result<Place, Refusal> {
    let (base, offset) = match operand {
        Operand::Address { base, offset, .. } => (&**base, *offset),
        other => (other, 0),
    };
    let mut space = space;
    let (value, class, offset) = match base {
        Operand::Int(number) => (
            Value::Constant(Constant::Long(*number as u64)),
            Class::Long,
            offset,
        ),
        _ if lowering.local(base).is_some() => {
            // Parameters of functions and of calls lie in local memory.
            space = if space == Space::Generic {
                Space::Generic
            } else {
                Space::Local
            };
            (lowering.source(base, Class::Long)?, Class::Long, offset)
        }
        _ => {
            let class = lowering.register_class(base).unwrap_or(Class::Long);
            (lowering.source(base, class)?, class, offset)
        }
    };
    if space == Space::Param && !lowering.is_kernel {
        space = Space::Local;
    }
    if !matches!(class, Class::Word | Class::Long) {
        return refuse("expected a 32- or 64-bit address");
    }
    Ok(Place {
        base: value,
        offset: offset as u64,
        class,
        space,
    })
}

/// The data registers of a vector access.
fn data(operand: &Operand, count: u32) -> Result<Vec<&Operand>, Refusal> {
    match operand {
        Operand::Vector(list) if list.len() == count as usize => Ok(list.iter().collect()),
        Operand::Vector(_) => refuse(format!("expected {count} registers")),
        one if count == 1 => Ok(vec![one]),
        _ => refuse(format!("expected {count} registers")),
    }
}

fn load(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    let shape = shape(&mut modifiers)?;
    modifiers.finish()?;
    let [target, address, ..] = instruction.operands.as_slice() else {
        return refuse("expected a target and an address");
    };
    if shape.space == Space::Param
        && let Some(offset) = kernel_param(lowering, address)
    {
        return load_param(lowering, &shape, target, offset);
    }
    let targets = data(target, shape.count)?;
    let place = place(lowering, address, shape.space)?;
    let register = targets
        .iter()
        .find_map(|t| lowering.register_class(t))
        .unwrap_or(class_of(shape.ty));
    let mut operation = Operation::new(LOADS[0]);
    operation.variants = Some(&LOADS);
    memory_operation(
        lowering,
        &mut operation,
        &shape,
        &place,
        AccessKind::Read,
        register,
    )?;
    for target in targets {
        let value = lowering.target(target, register)?;
        operation.list.push((value, true));
    }
    lowering.emit(operation);
    Ok(())
}

/// Fills in address, offset and the index of the [`Access`].
fn memory_operation(
    lowering: &mut Lowering<'_>,
    operation: &mut Operation,
    shape: &Shape,
    place: &Place,
    kind: AccessKind,
    register: Class,
) -> Result<(), Refusal> {
    let element = bytes_of(shape.ty);
    if element > 8 && register != Class::Quad || register == Class::Predicate {
        return refuse("the register does not fit the type");
    }
    if register == Class::Word && element > 4 {
        return refuse("the register is narrower than the type");
    }
    operation.a = place.base;
    operation.imm = place.offset;
    operation.b = Value::Raw(lowering.tables.accesses.len() as u32);
    lowering.tables.accesses.push(Access {
        space: place.space,
        report: shape.report,
        kind,
        element,
        count: shape.count,
        signed: is_signed(shape.ty),
        register,
        address: place.class,
        polls: shape.polls,
    });
    Ok(())
}

/// Constant offset into the kernel's parameters.
fn kernel_param(lowering: &Lowering<'_>, address: &Operand) -> Option<u32> {
    match address {
        Operand::Address { base, offset, .. } => match &**base {
            Operand::Name(name) => lowering
                .param_offset(name)
                .map(|at| at.wrapping_add(*offset as u32)),
            _ => None,
        },
        _ => None,
    }
}

/// A kernel parameter at a constant offset is a constant of the launch.
fn load_param(
    lowering: &mut Lowering<'_>,
    shape: &Shape,
    target: &Operand,
    offset: u32,
) -> Result<(), Refusal> {
    let element = bytes_of(shape.ty);
    for (at, target) in data(target, shape.count)?.into_iter().enumerate() {
        let offset = offset + at as u32 * element;
        let register = lowering
            .register_class(target)
            .unwrap_or(class_of(shape.ty));
        let dst = lowering.target(target, register)?;
        match (element, register) {
            (8, Class::Long) => {
                let from = Value::Constant(Constant::ParamLong(offset));
                moves::copy(lowering, Class::Long, dst, from)?;
            }
            (4, Class::Word) => {
                let from = Value::Constant(Constant::ParamWord(offset));
                moves::copy(lowering, Class::Word, dst, from)?;
            }
            (1 | 2 | 4, Class::Word | Class::Long) => {
                let from = Value::Constant(Constant::ParamWord(offset));
                super::convert::extend(lowering, shape.ty, register, from, dst)?;
            }
            _ => return refuse("the register does not fit the type"),
        }
    }
    Ok(())
}

fn store(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let mut modifiers = Modifiers::of(instruction);
    modifiers.take("async");
    let shape = shape(&mut modifiers)?;
    modifiers.finish()?;
    let [address, source, ..] = instruction.operands.as_slice() else {
        return refuse("expected an address and a source");
    };
    let sources = data(source, shape.count)?;
    let place = place(lowering, address, shape.space)?;
    let register = sources
        .iter()
        .find_map(|s| lowering.register_class(s))
        .unwrap_or(class_of(shape.ty));
    let mut operation = Operation::new(STORES[0]);
    operation.variants = Some(&STORES);
    memory_operation(
        lowering,
        &mut operation,
        &shape,
        &place,
        AccessKind::Write,
        register,
    )?;
    for source in sources {
        let value = lowering.source(source, register)?;
        operation.list.push((value, false));
    }
    lowering.emit(operation);
    Ok(())
}

fn nothing(_: &mut Lowering<'_>, _: &Instruction) -> Result<(), Refusal> {
    Ok(())
}

/// Cache policies are handles that nothing here looks at.
fn policy(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let Some(target) = instruction.operands.first() else {
        return refuse("no operands");
    };
    let dst = lowering.target(target, Class::Long)?;
    let dst = written(lowering, dst, Class::Long);
    moves::copy(
        lowering,
        Class::Long,
        dst,
        Value::Constant(Constant::Long(0)),
    )
}
