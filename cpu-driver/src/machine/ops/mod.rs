//! The operations, one file a family: how its instructions are decoded and
//! what they do.
//!
//! Families of pure lane operations are tables of PTX forms (`lanes`); the
//! others decode their opcodes themselves (`decoders`). A form that no family
//! knows is refused and fails when a kernel reaches it.

pub mod atomic;
pub mod barrier;
pub mod call;
pub mod compare;
pub mod control;
pub mod convert;
pub mod copy_async;
pub mod float;
pub mod half;
pub mod half_convert;
pub mod integer;
pub mod logic;
pub mod matrix;
pub mod mbarrier;
pub mod memory;
pub mod mma;
pub mod moves;
pub mod special;
pub mod transfer;
pub mod video;
pub mod warp;
pub mod wmma;

use std::collections::HashMap;
use std::sync::OnceLock;

use super::lanes::LaneForm;
use crate::program::code::Class;
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::scalar_type;
use crate::program::operation::{Flow, Operation, Value};
use crate::ptx::ast::{Instruction, Operand};

pub type Decode = fn(&mut Lowering<'_>, &Instruction) -> Result<(), Refusal>;

pub struct Family {
    /// Opcodes that the family decodes itself.
    pub decoders: &'static [(&'static str, Decode)],
    /// Adds the family's lane operations.
    pub lanes: fn(&mut Vec<LaneForm>),
}

/// For families without a table.
pub fn no_lanes(_: &mut Vec<LaneForm>) {}

const FAMILIES: &[Family] = &[
    atomic::FAMILY,
    barrier::FAMILY,
    call::FAMILY,
    compare::FAMILY,
    control::FAMILY,
    convert::FAMILY,
    copy_async::FAMILY,
    float::FAMILY,
    half::FAMILY,
    half_convert::FAMILY,
    integer::FAMILY,
    logic::FAMILY,
    matrix::FAMILY,
    mbarrier::FAMILY,
    memory::FAMILY,
    mma::FAMILY,
    moves::FAMILY,
    video::FAMILY,
    warp::FAMILY,
    wmma::FAMILY,
];

struct Registry {
    lanes: HashMap<String, LaneForm>,
    decoders: HashMap<&'static str, Decode>,
}

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut forms = Vec::new();
        let mut decoders = HashMap::new();
        for family in FAMILIES {
            (family.lanes)(&mut forms);
            decoders.extend(family.decoders.iter().copied());
        }
        let mut lanes = HashMap::new();
        for form in forms {
            for name in expand(form.names) {
                let mut words = name.split('.');
                let opcode = words.next().unwrap_or_default();
                let rest: Vec<&str> = words.collect();
                lanes.insert(key(opcode, &rest), form);
            }
        }
        Registry { lanes, decoders }
    })
}

/// Number of lane forms by their full names.
pub fn lane_form_count() -> usize {
    registry().lanes.len()
}

/// `a.{x,y}.b` to `a.x.b` and `a.y.b`; groups may repeat, not nest.
fn expand(text: &str) -> Vec<String> {
    let (Some(open), Some(close)) = (text.find('{'), text.find('}')) else {
        return vec![text.to_owned()];
    };
    text[open + 1..close]
        .split(',')
        .flat_map(|choice| expand(&format!("{}{choice}{}", &text[..open], &text[close + 1..])))
        .collect()
}

/// Modifiers may come in any order, types may not.
fn key(opcode: &str, modifiers: &[&str]) -> String {
    let (types, mut others): (Vec<&str>, Vec<&str>) = modifiers
        .iter()
        .partition(|word| scalar_type(word).is_some());
    others.sort_unstable();
    let mut key = opcode.to_owned();
    for word in others.into_iter().chain(types) {
        key.push('.');
        key.push_str(word);
    }
    key
}

/// Lowers one instruction, its guard included.
pub fn lower(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    if instruction.opcode == "bra" {
        return control::branch(lowering, instruction);
    }
    let Some(guard) = &instruction.guard else {
        return decode(lowering, instruction);
    };
    let predicate = lowering.source(&Operand::Name(guard.register.clone()), Class::Predicate)?;
    let (start, first_label) = (lowering.operations.len(), lowering.labels.len());
    decode(lowering, instruction)?;
    let mut emitted = lowering.operations.split_off(start);
    if let [one] = emitted.as_mut_slice()
        && !one.whole
        && one.flow == Flow::Next
    {
        one.partial = true;
        control::guard(lowering, predicate, guard.negated);
        lowering.operations.append(&mut emitted);
        return Ok(());
    }
    for label in &mut lowering.labels[first_label..] {
        *label = label.wrapping_add(1);
    }
    let skip = lowering.new_label();
    control::branch_if(lowering, predicate, !guard.negated, skip);
    lowering.operations.append(&mut emitted);
    lowering.place_label(skip);
    Ok(())
}

fn decode(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    match registry().decoders.get(instruction.opcode.as_str()) {
        Some(decode) => decode(lowering, instruction),
        None => lane(lowering, instruction),
    }
}

/// The table entry of a form.
pub fn find_lane(opcode: &str, modifiers: &[&str]) -> Option<LaneForm> {
    registry().lanes.get(&key(opcode, modifiers)).copied()
}

/// Decodes an instruction by the tables of lane operations.
pub fn lane(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let modifiers: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
    let Some(form) = find_lane(&instruction.opcode, &modifiers) else {
        return refuse("this form is not implemented");
    };
    emit_lane(lowering, &form, &instruction.operands)
}

/// Emits a lane operation on these operands, the target first.
pub fn emit_lane(
    lowering: &mut Lowering<'_>,
    form: &LaneForm,
    operands: &[Operand],
) -> Result<(), Refusal> {
    let sources = form.src.iter().filter(|c| **c != Class::None).count();
    let Some((target, given)) = operands.split_first() else {
        return refuse("no operands");
    };
    if given.len() != sources {
        return refuse(format!(
            "expected {sources} source operands, found {}",
            given.len()
        ));
    }
    let dst = lowering.target(target, form.dst)?;
    let mut values = [Value::None; 4];
    for (at, operand) in given.iter().enumerate() {
        values[at] = lowering.source(operand, form.src[at])?;
    }
    emit_lane_values(lowering, form, dst, values)
}

/// The same with operands already resolved.
///
/// # Errors
/// A source that the form reads and that is not given: its code would read what
/// lies beside the frame.
pub fn emit_lane_values(
    lowering: &mut Lowering<'_>,
    form: &LaneForm,
    dst: Value,
    values: [Value; 4],
) -> Result<(), Refusal> {
    let mut read = form.src.iter().zip(&values);
    if read.any(|(class, value)| *class != Class::None && *value == Value::None) {
        return refuse("a source operand is missing");
    }
    let mut operation = Operation::new(form.exec());
    operation.dst = written(lowering, dst, form.dst);
    [operation.a, operation.b, operation.c, operation.fourth] = values;
    lowering.emit(operation);
    Ok(())
}

/// A register to write where the program throws the result away.
pub fn written(lowering: &mut Lowering<'_>, dst: Value, class: Class) -> Value {
    if dst == Value::None {
        Value::Register(lowering.new_register(class))
    } else {
        dst
    }
}
