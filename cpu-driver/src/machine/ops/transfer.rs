//! What loads and stores do, once decoded by [`super::memory`].

use crate::machine::access::{Access, Host, addresses, resolve};
use crate::machine::context::Context;
use crate::machine::lanes::LANES;
use crate::program::code::{ABSENT, Class, Op, Step, Variants, variants};

pub static LOADS: Variants = variants!(run_load);
pub static STORES: Variants = variants!(run_store);

unsafe fn run_load<const STRICT: bool, const EVENTS: bool>(cx: &mut Context<'_>, op: &Op) -> Step {
    let access = cx.grid.code.accesses[op.b as usize];
    let addresses = addresses(cx, &access, op);
    let host = match resolve::<STRICT, EVENTS>(cx, &access, &addresses) {
        Ok(host) => host,
        Err(step) => return step,
    };
    for (at, target) in cx.list(op, access.count as usize).iter().enumerate() {
        if *target == ABSENT {
            continue;
        }
        let shift = at as u64 * u64::from(access.element);
        // SAFETY: every active lane's `access.bytes()` were checked.
        unsafe { fetch(cx, &access, &host, &addresses, shift, *target) };
    }
    Step::Next
}

/// True where full-warp addresses are one run of `size` bytes a lane.
#[inline(always)]
fn consecutive(addresses: &[u64; LANES], size: u64) -> bool {
    let mut wrong = 0;
    for lane in 0..LANES {
        wrong |= addresses[lane] ^ addresses[0].wrapping_add(lane as u64 * size);
    }
    wrong == 0
}

/// # Safety
/// The bytes of every active lane are readable.
#[inline(always)]
unsafe fn fetch(
    cx: &mut Context<'_>,
    access: &Access,
    host: &Host,
    addresses: &[u64; LANES],
    shift: u64,
    target: u32,
) {
    let active = cx.active;
    let at = |lane: usize| host.at(lane, addresses[lane]).wrapping_add(shift as usize);
    // SAFETY: the caller's promise, for each lane that is active.
    unsafe {
        match (access.element, access.register) {
            (4, Class::Word) => {
                let whole = active == u32::MAX
                    && access.count == 1
                    && matches!(host, Host::Linear(_))
                    && consecutive(addresses, 4);
                let row = cx.words_mut(target);
                if whole {
                    *row = at(0).cast::<[u32; LANES]>().read_unaligned();
                    return;
                }
                for lane in 0..LANES {
                    if active >> lane & 1 != 0 {
                        row[lane] = at(lane).cast::<u32>().read_unaligned();
                    }
                }
            }
            (8, Class::Long) => {
                let row = cx.longs_mut(target);
                for lane in 0..LANES {
                    if active >> lane & 1 != 0 {
                        row[lane] = at(lane).cast::<u64>().read_unaligned();
                    }
                }
            }
            (16, Class::Quad) => {
                let row = cx.quads_mut(target);
                for lane in 0..LANES {
                    if active >> lane & 1 != 0 {
                        row[lane] = at(lane).cast::<u128>().read_unaligned();
                    }
                }
            }
            _ => {
                for lane in 0..LANES {
                    if active >> lane & 1 == 0 {
                        continue;
                    }
                    let value = read_small(at(lane), access.element, access.signed);
                    match access.register {
                        Class::Long => cx.longs_mut(target)[lane] = value,
                        Class::Quad => cx.quads_mut(target)[lane] = value.into(),
                        _ => cx.words_mut(target)[lane] = value as u32,
                    }
                }
            }
        }
    }
}

/// # Safety
/// `bytes` bytes are readable at `at`.
unsafe fn read_small(at: *const u8, bytes: u32, signed: bool) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        match (bytes, signed) {
            (1, false) => at.read().into(),
            (1, true) => at.cast::<i8>().read() as i64 as u64,
            (2, false) => at.cast::<u16>().read_unaligned().into(),
            (2, true) => at.cast::<i16>().read_unaligned() as i64 as u64,
            (4, false) => at.cast::<u32>().read_unaligned().into(),
            (4, true) => at.cast::<i32>().read_unaligned() as i64 as u64,
            _ => at.cast::<u64>().read_unaligned(),
        }
    }
}

unsafe fn run_store<const STRICT: bool, const EVENTS: bool>(cx: &mut Context<'_>, op: &Op) -> Step {
    let access = cx.grid.code.accesses[op.b as usize];
    let addresses = addresses(cx, &access, op);
    let host = match resolve::<STRICT, EVENTS>(cx, &access, &addresses) {
        Ok(host) => host,
        Err(step) => return step,
    };
    for (at, source) in cx.list(op, access.count as usize).iter().enumerate() {
        let shift = at as u64 * u64::from(access.element);
        // SAFETY: every active lane's `access.bytes()` were checked.
        unsafe { put(cx, &access, &host, &addresses, shift, *source) };
    }
    Step::Next
}

/// Lanes store in order: where two meet, the higher lane's value stays.
///
/// # Safety
/// The bytes of every active lane are writable.
#[inline(always)]
unsafe fn put(
    cx: &Context<'_>,
    access: &Access,
    host: &Host,
    addresses: &[u64; LANES],
    shift: u64,
    source: u32,
) {
    let active = cx.active;
    let at = |lane: usize| host.at(lane, addresses[lane]).wrapping_add(shift as usize);
    // SAFETY: the caller's promise, for each lane that is active.
    unsafe {
        match (access.element, access.register) {
            (4, Class::Word) => {
                let row = cx.words(source);
                if active == u32::MAX
                    && access.count == 1
                    && matches!(host, Host::Linear(_))
                    && consecutive(addresses, 4)
                {
                    at(0).cast::<[u32; LANES]>().write_unaligned(*row);
                    return;
                }
                for lane in 0..LANES {
                    if active >> lane & 1 != 0 {
                        at(lane).cast::<u32>().write_unaligned(row[lane]);
                    }
                }
            }
            (_, Class::Quad) => {
                let row = cx.quads(source);
                for lane in 0..LANES {
                    if active >> lane & 1 != 0 {
                        at(lane).cast::<u128>().write_unaligned(row[lane]);
                    }
                }
            }
            _ => {
                for lane in 0..LANES {
                    if active >> lane & 1 == 0 {
                        continue;
                    }
                    let value = match access.register {
                        Class::Long => cx.longs(source)[lane],
                        _ => cx.words(source)[lane].into(),
                    };
                    match access.element {
                        1 => at(lane).write(value as u8),
                        2 => at(lane).cast::<u16>().write_unaligned(value as u16),
                        4 => at(lane).cast::<u32>().write_unaligned(value as u32),
                        _ => at(lane).cast::<u64>().write_unaligned(value),
                    }
                }
            }
        }
    }
}
