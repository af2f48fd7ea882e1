//! Which registers an instruction takes (PTX ISA, "Operand Type Checking").
//!
//! An operand must have the instruction's size; integers of either sign are
//! alike, untyped bits go with everything, floats only with floats and bits.
//! Loads, stores and conversions take wider registers too. The table holds the
//! instructions with one type; what is not in it is not checked here.

use super::super::ast::{Instruction, Operand, ScalarType};
use super::super::variable::type_of;
use super::names::{Kind, Names};
use super::{CheckError, wrong};

/// What one operand must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// The instruction's type.
    Typed(ScalarType),
    /// At least as wide (loads, stores, conversions).
    Wide(ScalarType),
    Address,
}

/// Operands of an instruction with one type: `t` that type, `w` twice as wide,
/// `r` at least as wide, `u` 32 bits, `p` a predicate, `a` an address. Those
/// behind `?` may be absent.
fn pattern(opcode: &str, modifiers: &[String]) -> Option<&'static str> {
    let has = |word: &str| modifiers.iter().any(|modifier| modifier == word);
    Some(match opcode {
        // A cache policy or a barrier follows the operands.
        _ if has("L2::cache_hint") || has("async") => return None,
        "mul" if has("wide") => "wtt",
        "mad" if has("wide") => "wttw",
        "add" | "sub" | "addc" | "subc" | "mul" | "mul24" | "div" | "rem" | "and" | "or"
        | "xor" | "copysign" => "ttt",
        "min" | "max" => "ttt?t",
        "mad" | "mad24" | "madc" | "fma" | "sad" | "prmt" => "tttt",
        "abs" | "neg" | "cnot" | "not" | "sqrt" | "rsqrt" | "rcp" | "sin" | "cos" | "lg2"
        | "ex2" | "tanh" | "brev" | "mov" => "tt",
        "shl" | "shr" => "ttu",
        "shf" => "tttu",
        "bfe" => "ttuu",
        "bfi" => "tttuu",
        "popc" | "clz" | "bfind" => "ut",
        "lop3" => "ttttu?p",
        "selp" => "tttp",
        "setp" => "ptt?p",
        "testp" => "pt",
        "ld" | "ldu" => "ra",
        "st" => "ar",
        "atom" => "tat?t",
        "red" => "at",
        _ => return None,
    })
}

/// # Errors
/// A register that the instruction cannot take, or a wrong number of operands.
pub fn check(names: &Names<'_>, instruction: &Instruction) -> Result<(), CheckError> {
    let types: Vec<ScalarType> = instruction
        .modifiers
        .iter()
        .filter_map(|word| type_of(&format!(".{word}")))
        .collect();
    let operands = &instruction.operands;
    match (instruction.opcode.as_str(), types.as_slice()) {
        ("cvt", &[to, from]) if plain(to) && plain(from) && !is_pack(instruction) => {
            count(instruction, 2, 2)?;
            check_slot(names, instruction, 0, Slot::Wide(to))?;
            check_slot(names, instruction, 1, Slot::Wide(from))
        }
        ("set", &[to, from]) if operands.len() >= 3 => {
            check_slot(names, instruction, 0, Slot::Typed(to))?;
            check_slot(names, instruction, 1, Slot::Typed(from))?;
            check_slot(names, instruction, 2, Slot::Typed(from))
        }
        (opcode, &[ty]) => match pattern(opcode, &instruction.modifiers) {
            Some(pattern) => check_pattern(names, instruction, pattern, ty),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// `cvt.pack` has operands of its own.
fn is_pack(instruction: &Instruction) -> bool {
    instruction.modifiers.iter().any(|word| word == "pack")
}

fn count(instruction: &Instruction, least: usize, most: usize) -> Result<(), CheckError> {
    let found = instruction.operands.len();
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let expected = match least == most {
        true => least.to_string(),
        false => format!("{least} or {most}"),
    };
    wrong(
        instruction.line,
        format!("`{instruction}`: expected {expected} operands, found {found}"),
    )
}

/// Types that a conversion of one value has; packed ones have rules of their own.
fn plain(ty: ScalarType) -> bool {
    use ScalarType as T;
    matches!(kind(ty), Family::Integer) || matches!(ty, T::F16 | T::BF16 | T::F32 | T::F64)
}

fn check_pattern(
    names: &Names<'_>,
    instruction: &Instruction,
    pattern: &str,
    ty: ScalarType,
) -> Result<(), CheckError> {
    let least = pattern.find('?').unwrap_or(pattern.len());
    let slots: Vec<char> = pattern.chars().filter(|&slot| slot != '?').collect();
    count(instruction, least, slots.len())?;
    let found = instruction.operands.len();
    for (at, slot) in slots.iter().take(found).enumerate() {
        let slot = match slot {
            't' => Slot::Typed(ty),
            'w' => match twice(ty) {
                Some(wide) => Slot::Typed(wide),
                None => continue,
            },
            'r' => Slot::Wide(ty),
            'u' => Slot::Typed(ScalarType::U32),
            'p' => Slot::Typed(ScalarType::Pred),
            _ => Slot::Address,
        };
        check_slot(names, instruction, at, slot)?;
    }
    Ok(())
}

fn check_slot(
    names: &Names<'_>,
    instruction: &Instruction,
    at: usize,
    slot: Slot,
) -> Result<(), CheckError> {
    let operand = &instruction.operands[at];
    match (slot, operand) {
        (Slot::Address, Operand::Address { base, .. }) => match &**base {
            Operand::Name(name) => check_base(names, instruction, name),
            _ => Ok(()),
        },
        (Slot::Address, other) => wrong(
            instruction.line,
            format!("`{instruction}`: expected an address in brackets, found `{other}`"),
        ),
        (_, Operand::Name(name) | Operand::Not(name)) => {
            check_register(names, instruction, at, name, slot)
        }
        // `d|p`: the second is always a predicate.
        (_, Operand::Pair(first, second)) => {
            if let Operand::Name(name) = &**first {
                check_register(names, instruction, at, name, slot)?;
            }
            match &**second {
                Operand::Name(name) => {
                    let slot = Slot::Typed(ScalarType::Pred);
                    check_register(names, instruction, at, name, slot)
                }
                _ => Ok(()),
            }
        }
        (Slot::Wide(_), Operand::Vector(items)) => items.iter().try_for_each(|item| match item {
            Operand::Name(name) => check_register(names, instruction, at, name, slot),
            _ => Ok(()),
        }),
        _ => Ok(()),
    }
}

fn check_base(names: &Names<'_>, instruction: &Instruction, name: &str) -> Result<(), CheckError> {
    match names.find(name) {
        Some(found @ Kind::Register { ty, .. })
            if !matches!(kind(*ty), Family::Integer | Family::Bits) =>
        {
            wrong(
                instruction.line,
                format!(
                    "`{instruction}`: expected an address of an integer type, found `{name}`, {found}"
                ),
            )
        }
        _ => Ok(()),
    }
}

fn check_register(
    names: &Names<'_>,
    instruction: &Instruction,
    at: usize,
    name: &str,
    slot: Slot,
) -> Result<(), CheckError> {
    let fits = match names.find(name) {
        // Vectors go whole through `mov`, `ld` and `st`.
        Some(Kind::Register { vector: true, .. }) => true,
        Some(Kind::Register { ty, .. }) => match slot {
            Slot::Typed(want) => same(*ty, want),
            Slot::Wide(want) => at_least(*ty, want),
            Slot::Address => true,
        },
        Some(Kind::Label | Kind::Table) => false,
        // Addresses of variables and functions, special registers.
        _ => true,
    };
    if fits {
        return Ok(());
    }
    let (Slot::Typed(want) | Slot::Wide(want)) = slot else {
        return Ok(());
    };
    let wider = match slot {
        Slot::Wide(_) => " or wider",
        _ => "",
    };
    let found = names.find(name).map_or_else(String::new, Kind::to_string);
    wrong(
        instruction.line,
        format!(
            "`{instruction}`, operand {}: expected a register that holds {want}{wider}, found \
             `{name}`, {found}",
            at + 1
        ),
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Bits,
    Integer,
    Float,
    Predicate,
}

fn kind(ty: ScalarType) -> Family {
    use ScalarType as T;
    match ty {
        T::Pred => Family::Predicate,
        T::U8 | T::U16 | T::U32 | T::U64 | T::S8 | T::S16 | T::S32 | T::S64 => Family::Integer,
        T::F16 | T::F16x2 | T::BF16 | T::BF16x2 | T::TF32 | T::F32 | T::F64 => Family::Float,
        _ => Family::Bits,
    }
}

fn twice(ty: ScalarType) -> Option<ScalarType> {
    use ScalarType as T;
    Some(match ty {
        T::U16 => T::U32,
        T::S16 => T::S32,
        T::U32 => T::U64,
        T::S32 => T::S64,
        _ => return None,
    })
}

fn same(register: ScalarType, want: ScalarType) -> bool {
    let (found, wanted) = (kind(register), kind(want));
    if found == Family::Predicate || wanted == Family::Predicate {
        return found == wanted;
    }
    let alike = found == wanted || found == Family::Bits || wanted == Family::Bits;
    alike && register.bytes() == want.bytes()
}

fn at_least(register: ScalarType, want: ScalarType) -> bool {
    match (kind(register), kind(want)) {
        (Family::Predicate, _) | (_, Family::Predicate) => false,
        (Family::Float, Family::Integer) | (Family::Integer, Family::Float) => false,
        (Family::Float, _) => register.bytes() == want.bytes(),
        _ => register.bytes() >= want.bytes(),
    }
}
