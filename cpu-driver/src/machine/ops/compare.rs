//! `setp` and `set`: comparisons, alone or combined with a predicate.

use super::{Family, emit_lane_values, find_lane, written};
use crate::lane;
use crate::machine::lanes::LaneForm;
use crate::machine::numerics::single::flush;
use crate::program::code::{Class, Constant};
use crate::program::lower::{Lowering, Refusal, refuse};
use crate::program::modifiers::scalar_type;
use crate::program::operation::Value;
use crate::ptx::ast::{Instruction, Operand, ScalarType};

pub const FAMILY: Family = Family {
    decoders: &[("setp", setp), ("set", set)],
    lanes,
};

macro_rules! ordered {
    ($out:ident, $t:ty, $types:literal) => {
        lane!($out, concat!("setp.lt.", $types), (a: $t, b: $t) -> bool, a < b);
        lane!($out, concat!("setp.le.", $types), (a: $t, b: $t) -> bool, a <= b);
        lane!($out, concat!("setp.gt.", $types), (a: $t, b: $t) -> bool, a > b);
        lane!($out, concat!("setp.ge.", $types), (a: $t, b: $t) -> bool, a >= b);
    };
}

macro_rules! unsigned {
    ($out:ident, $t:ty, $width:literal) => {
        lane!($out, concat!("setp.{lt,lo}.u", $width), (a: $t, b: $t) -> bool, a < b);
        lane!($out, concat!("setp.{le,ls}.u", $width), (a: $t, b: $t) -> bool, a <= b);
        lane!($out, concat!("setp.{gt,hi}.u", $width), (a: $t, b: $t) -> bool, a > b);
        lane!($out, concat!("setp.{ge,hs}.u", $width), (a: $t, b: $t) -> bool, a >= b);
        lane!($out, concat!("setp.eq.{u", $width, ",s", $width, ",b", $width, "}"),
            (a: $t, b: $t) -> bool, a == b);
        lane!($out, concat!("setp.ne.{u", $width, ",s", $width, ",b", $width, "}"),
            (a: $t, b: $t) -> bool, a != b);
    };
}

/// Comparisons of floats; `$f` prepares an operand.
#[macro_export]
macro_rules! float_comparisons {
    ($out:ident, $t:ty, $tail:literal, $f:expr) => {
        lane!($out, concat!("setp.eq", $tail), (a: $t, b: $t) -> bool, $f(a) == $f(b));
        lane!($out, concat!("setp.ne", $tail), (a: $t, b: $t) -> bool,
            $f(a) < $f(b) || $f(a) > $f(b));
        lane!($out, concat!("setp.lt", $tail), (a: $t, b: $t) -> bool, $f(a) < $f(b));
        lane!($out, concat!("setp.le", $tail), (a: $t, b: $t) -> bool, $f(a) <= $f(b));
        lane!($out, concat!("setp.gt", $tail), (a: $t, b: $t) -> bool, $f(a) > $f(b));
        lane!($out, concat!("setp.ge", $tail), (a: $t, b: $t) -> bool, $f(a) >= $f(b));
        lane!($out, concat!("setp.equ", $tail), (a: $t, b: $t) -> bool,
            !($f(a) < $f(b) || $f(a) > $f(b)));
        lane!($out, concat!("setp.neu", $tail), (a: $t, b: $t) -> bool, $f(a) != $f(b));
        lane!($out, concat!("setp.ltu", $tail), (a: $t, b: $t) -> bool, !($f(a) >= $f(b)));
        lane!($out, concat!("setp.leu", $tail), (a: $t, b: $t) -> bool, !($f(a) > $f(b)));
        lane!($out, concat!("setp.gtu", $tail), (a: $t, b: $t) -> bool, !($f(a) <= $f(b)));
        lane!($out, concat!("setp.geu", $tail), (a: $t, b: $t) -> bool, !($f(a) < $f(b)));
        lane!($out, concat!("setp.num", $tail), (a: $t, b: $t) -> bool,
            !$f(a).is_nan() && !$f(b).is_nan());
        lane!($out, concat!("setp.nan", $tail), (a: $t, b: $t) -> bool,
            $f(a).is_nan() || $f(b).is_nan());
    };
}

fn lanes(out: &mut Vec<LaneForm>) {
    ordered!(out, i16, "s16");
    ordered!(out, i32, "s32");
    ordered!(out, i64, "s64");
    unsigned!(out, u16, "16");
    unsigned!(out, u32, "32");
    unsigned!(out, u64, "64");
    floats(out);
}

// The negated comparisons are the unordered ones: a NaN makes them true.
#[allow(clippy::neg_cmp_op_on_partial_ord)]
fn floats(out: &mut Vec<LaneForm>) {
    fn same<T>(x: T) -> T {
        x
    }
    float_comparisons!(out, f32, ".f32", same);
    float_comparisons!(out, f32, ".ftz.f32", flush);
    float_comparisons!(out, f64, ".f64", same);
}

const COMBINE: [&str; 3] = ["and", "or", "xor"];

/// A comparison, and what its result is combined with.
struct Comparison<'i> {
    words: Vec<&'i str>,
    combine: Option<&'i str>,
}

fn comparison(instruction: &Instruction) -> Comparison<'_> {
    let combine = instruction
        .modifiers
        .iter()
        .map(String::as_str)
        .find(|m| COMBINE.contains(m));
    Comparison {
        words: instruction
            .modifiers
            .iter()
            .map(String::as_str)
            .filter(|m| !COMBINE.contains(m))
            .collect(),
        combine,
    }
}

fn form(name: &str, words: &[&str]) -> Result<LaneForm, Refusal> {
    find_lane(name, words)
        .ok_or_else(|| Refusal(format!("no comparison {name}.{}", words.join("."))))
}

const NONE: Value = Value::None;

/// The comparison's result in a predicate.
fn compare(
    lowering: &mut Lowering<'_>,
    words: &[&str],
    sources: &[Operand],
    dst: Value,
) -> Result<Value, Refusal> {
    let form = form("setp", words)?;
    let a = lowering.source(&sources[0], form.src[0])?;
    let b = lowering.source(&sources[1], form.src[1])?;
    let dst = written(lowering, dst, Class::Predicate);
    emit_lane_values(lowering, &form, dst, [a, b, NONE, NONE])?;
    Ok(dst)
}

/// `setp.cmp{.bool}{.ftz}.type p{|q}, a, b{, c}`
fn setp(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    if instruction.modifiers.iter().any(|m| m.ends_with("16x2")) {
        return super::half::compare_pairs(lowering, instruction);
    }
    let comparison = comparison(instruction);
    let Some((target, sources)) = instruction.operands.split_first() else {
        return refuse("no operands");
    };
    if sources.len() != 2 + usize::from(comparison.combine.is_some()) {
        return refuse("wrong number of operands");
    }
    let (p, q) = match target {
        Operand::Pair(p, q) => (&**p, Some(&**q)),
        other => (other, None),
    };
    let p = lowering.target(p, Class::Predicate)?;
    if q.is_none() && comparison.combine.is_none() {
        compare(lowering, &comparison.words, sources, p)?;
        return Ok(());
    }
    let found = compare(lowering, &comparison.words, sources, NONE)?;
    let opposite = super::control::negated(lowering, found);
    let (copy, third) = match comparison.combine {
        Some(combine) => (
            form(combine, &["pred"])?,
            lowering.source(&sources[2], Class::Predicate)?,
        ),
        None => (form("%copy", &["pred"])?, NONE),
    };
    // `third` may be `p` itself: compute both before writing either.
    let second = written(lowering, NONE, Class::Predicate);
    emit_lane_values(lowering, &copy, second, [opposite, third, NONE, NONE])?;
    emit_lane_values(lowering, &copy, p, [found, third, NONE, NONE])?;
    if let Some(q) = q {
        let q = lowering.target(q, Class::Predicate)?;
        let copy = form("%copy", &["pred"])?;
        emit_lane_values(lowering, &copy, q, [second, NONE, NONE, NONE])?;
    }
    Ok(())
}

/// `set.cmp{.bool}{.ftz}.dtype.stype d, a, b{, c}`: all ones (or 1.0) and 0.
fn set(lowering: &mut Lowering<'_>, instruction: &Instruction) -> Result<(), Refusal> {
    let comparison = comparison(instruction);
    let mut words = comparison.words;
    let Some(at) = words.iter().position(|w| scalar_type(w).is_some()) else {
        return refuse("expected a type");
    };
    let one = match scalar_type(words.remove(at)) {
        Some(ScalarType::U32 | ScalarType::S32) => u32::MAX,
        Some(ScalarType::U16 | ScalarType::S16) => 0xffff,
        Some(ScalarType::F32) => 1f32.to_bits(),
        Some(ScalarType::F16 | ScalarType::F16x2) => 0x3c00,
        Some(ScalarType::BF16 | ScalarType::BF16x2) => 0x3f80,
        _ => return refuse("this form is not implemented"),
    };
    let Some((target, sources)) = instruction.operands.split_first() else {
        return refuse("no operands");
    };
    if sources.len() != 2 + usize::from(comparison.combine.is_some()) {
        return refuse("wrong number of operands");
    }
    let combine = match comparison.combine {
        Some(combine) => {
            let third = lowering.source(&sources[2], Class::Predicate)?;
            Some((form(combine, &["pred"])?, third))
        }
        None => None,
    };
    let dst = lowering.target(target, Class::Word)?;
    if !words.iter().any(|w| w.ends_with("16x2")) {
        let found = compare(lowering, &words, sources, NONE)?;
        chosen(lowering, found, combine, one, dst)?;
        return Ok(());
    }
    // A pair: both halves compared, then put together.
    let (low, high) = super::half::compared_halves(lowering, &words, sources)?;
    let low = chosen(lowering, low, combine, one, NONE)?;
    let high = chosen(lowering, high, combine, one, NONE)?;
    let pack = form("%pack", &["b16x2"])?;
    emit_lane_values(lowering, &pack, dst, [low, high, NONE, NONE])?;
    Ok(())
}

/// `one` where the predicate (combined with another) holds, otherwise 0.
fn chosen(
    lowering: &mut Lowering<'_>,
    mut found: Value,
    combine: Option<(LaneForm, Value)>,
    one: u32,
    dst: Value,
) -> Result<Value, Refusal> {
    if let Some((combine, third)) = combine {
        let combined = written(lowering, NONE, Class::Predicate);
        emit_lane_values(lowering, &combine, combined, [found, third, NONE, NONE])?;
        found = combined;
    }
    let dst = written(lowering, dst, Class::Word);
    let select = form("selp", &["b32"])?;
    let (yes, no) = (
        Value::Constant(Constant::Word(one)),
        Value::Constant(Constant::Word(0)),
    );
    emit_lane_values(lowering, &select, dst, [yes, no, found, NONE])?;
    Ok(dst)
}
