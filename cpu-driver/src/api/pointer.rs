//! What a pointer points to.

use super::code::Code;
use super::context::current;
use super::driver::driver;
use super::ffi::{In, Out, Outcome};
use super::guard::entries;
use crate::machine::memory::{Allocation, AllocationKind};

const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Every attribute is written with its own size.
enum Value {
    Word(u64),
    Half(u32),
    Flag(bool),
}

fn memory_type(found: &Allocation) -> u32 {
    match found.kind {
        AllocationKind::HostPinned | AllocationKind::HostRegistered => HOST,
        _ => DEVICE,
    }
}

/// `CUpointer_attribute` of a known allocation.
///
/// # Errors
/// `INVALID_VALUE` for one that the allocation has not.
fn value(number: u32, address: u64, found: &Allocation) -> Result<Value, Code> {
    Ok(match number {
        1 => Value::Word(found.context),
        2 => Value::Half(memory_type(found)),
        3 => Value::Word(address),
        4 if found.kind.is_host() => Value::Word(address),
        6 => Value::Flag(false),
        7 => Value::Word(found.serial),
        8 => Value::Flag(found.kind.is_managed()),
        9 => Value::Half(found.device),
        10 | 15 => Value::Flag(false),
        11 => Value::Word(found.base),
        12 => Value::Word(found.bytes),
        13 => Value::Flag(true),
        14 => Value::Word(0),
        16 => Value::Half(if found.read_only { 1 } else { 3 }),
        17 => Value::Word(super::pool::pool_of(found.base).unwrap_or(0)),
        18 => Value::Word(found.bytes),
        19 => Value::Word(found.base),
        20 => Value::Word(found.serial),
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// What an unknown pointer answers in the plural form: nothing, as zeros.
fn nothing(number: u32) -> Value {
    match number {
        6 | 8 | 10 | 13 | 15 => Value::Flag(false),
        2 | 16 => Value::Half(0),
        9 => Value::Half(-2_i32 as u32),
        _ => Value::Word(0),
    }
}

fn write(value: Value, out: u64) -> Outcome {
    match value {
        Value::Word(value) => Out(out as *mut u64).set(value),
        Value::Half(value) => Out(out as *mut u32).set(value),
        Value::Flag(value) => Out(out as *mut u8).set(u8::from(value)),
    }
}

fn get(out: u64, number: u32, address: u64) -> Outcome {
    current()?;
    let found = driver()?.memory.find(address).ok_or(Code::INVALID_VALUE)?;
    write(value(number, address, &found)?, out)
}

fn get_all(count: u32, numbers: In<u32>, outs: In<u64>, address: u64) -> Outcome {
    current()?;
    let numbers = numbers.all(count as usize)?;
    let outs = outs.all(count as usize)?;
    let found = driver()?.memory.find(address);
    for (&number, &out) in numbers.iter().zip(&outs) {
        let value = match &found {
            Some(found) => value(number, address, found).unwrap_or_else(|_| nothing(number)),
            None => nothing(number),
        };
        write(value, out)?;
    }
    Ok(())
}

fn set(address: u64) -> Outcome {
    // Only SYNC_MEMOPS can be set, and every copy here is synchronous enough.
    super::memory::known(address).map(drop)
}

entries! {
    cuPointerGetAttribute(out: u64, number: u32, address: u64) => get(out, number, address);
    cuPointerGetAttributes(count: u32, numbers: In<u32>, outs: In<u64>, address: u64) =>
        get_all(count, numbers, outs, address);
    cuPointerSetAttribute(_value: u64, _number: u32, address: u64) => set(address);
}
