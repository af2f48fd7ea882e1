//! Functions that device code finds without defining them.

use super::access::{Space, place};
use super::context::{Context, Stop};
use super::launch::Fault;
use super::memory::{Allocation, AllocationKind, Request};
use super::observe::{HeapError, HeapErrorKind, Reaction};
use super::printf;
use crate::program::code::{CallSite, LocalSlot, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    Printf,
    Malloc,
    Free,
    AssertFail,
}

impl Builtin {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "vprintf" => Builtin::Printf,
            "malloc" => Builtin::Malloc,
            "free" => Builtin::Free,
            "__assertfail" => Builtin::AssertFail,
            _ => return None,
        })
    }
}

/// Runs a built-in function for every current lane, in order.
pub fn call(cx: &mut Context<'_>, function: Builtin, site: &CallSite) -> Step {
    for lane in 0..32 {
        if cx.mask >> lane & 1 == 0 {
            continue;
        }
        let argument = |cx: &Context<'_>, at: usize| {
            site.arguments
                .get(at)
                .map_or(0, |slot| read_slot(cx, lane, *slot))
        };
        let result = match function {
            Builtin::Printf => {
                let (format, arguments) = (argument(cx, 0), argument(cx, 1));
                print(cx, lane, format, arguments)
            }
            Builtin::Malloc => malloc(cx, argument(cx, 0)),
            Builtin::Free => match free(cx, lane, argument(cx, 0)) {
                None => 0,
                Some(Reaction::EndLaunch) => return cx.fault(Fault::Memory),
                Some(Reaction::KillWarp) => return cx.stop(Stop::WarpKilled),
            },
            Builtin::AssertFail => return assert_fail(cx, lane, site),
        };
        if let Some(slot) = site.results.first() {
            write_slot(cx, lane, *slot, result);
        }
    }
    Step::Next
}

fn slot_address(cx: &Context<'_>, lane: u32, slot: LocalSlot) -> Option<(*mut u8, usize)> {
    let base = cx.warp.activations[cx.activation as usize].local_base;
    let low = u64::from(base + slot.offset);
    let bytes = slot.bytes.min(8);
    cx.shared
        .local_at(cx.thread_of(lane), low, low + u64::from(bytes))
        .map(|host| {
            (
                std::ptr::with_exposed_provenance_mut(host as usize),
                bytes as usize,
            )
        })
}

fn read_slot(cx: &Context<'_>, lane: u32, slot: LocalSlot) -> u64 {
    let mut value = [0; 8];
    if let Some((at, bytes)) = slot_address(cx, lane, slot) {
        // SAFETY: `local_at` found these bytes inside local memory.
        unsafe { std::ptr::copy_nonoverlapping(at, value.as_mut_ptr(), bytes) };
    }
    u64::from_le_bytes(value)
}

fn write_slot(cx: &mut Context<'_>, lane: u32, slot: LocalSlot, value: u64) {
    if let Some((at, bytes)) = slot_address(cx, lane, slot) {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), at, bytes) };
    }
}

/// Reads bytes at a generic address of a lane; `None` where it may not.
pub fn read_bytes(cx: &Context<'_>, lane: u32, address: u64, out: &mut [u8]) -> Option<()> {
    let bytes = out.len() as u64;
    let (space, offset) = place(cx, Space::Generic, address);
    let end = offset.checked_add(bytes)?;
    let host = match space {
        Space::Shared => cx
            .shared
            .shared_at::<true>(cx.grid.shared_bytes, offset, end)?,
        Space::Local => cx.shared.local_at(cx.thread_of(lane), offset, end)?,
        Space::Param => return None,
        Space::Global | Space::Generic => {
            let pointer = cx.grid.view.lane::<false>(address, bytes as u32)?;
            pointer.expose_provenance() as u64
        }
    };
    // SAFETY: the range was found readable above.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::with_exposed_provenance::<u8>(host as usize),
            out.as_mut_ptr(),
            out.len(),
        );
    }
    Some(())
}

/// Longest string that is read from device memory.
const STRING_LIMIT: u64 = 1 << 16;

/// A zero-terminated string at a generic address.
pub fn read_string(cx: &Context<'_>, lane: u32, address: u64) -> Vec<u8> {
    let mut text = Vec::new();
    if address == 0 {
        return b"(null)".to_vec();
    }
    for at in 0..STRING_LIMIT {
        let mut byte = [0];
        if read_bytes(cx, lane, address.wrapping_add(at), &mut byte).is_none() || byte[0] == 0 {
            break;
        }
        text.push(byte[0]);
    }
    text
}

fn print(cx: &Context<'_>, lane: u32, format: u64, arguments: u64) -> u64 {
    let format = read_string(cx, lane, format);
    let mut at = arguments;
    let (text, count) = printf::format(
        &format,
        &mut |bytes| {
            at = at.next_multiple_of(bytes as u64);
            let mut value = [0; 8];
            let found = read_bytes(cx, lane, at, &mut value[..bytes]);
            at += bytes as u64;
            found.map_or(0, |()| u64::from_le_bytes(value))
        },
        &mut |address| read_string(cx, lane, address),
    );
    printf::append(&text);
    count
}

fn malloc(cx: &Context<'_>, bytes: u64) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let request = Request::new(AllocationKind::DeviceHeap, bytes, cx.grid.context);
    cx.grid
        .memory
        .allocate(request)
        .map_or(0, |allocation| allocation.base)
}

/// Only what `malloc` in a kernel gave can be freed in a kernel. The hardware
/// does not report anything else; an observer may.
fn free(cx: &mut Context<'_>, lane: u32, address: u64) -> Option<Reaction> {
    if address == 0 {
        return None;
    }
    let memory = cx.grid.memory;
    let on_heap = |allocation: &Allocation| {
        allocation.base == address && allocation.kind == AllocationKind::DeviceHeap
    };
    if memory.find(address).is_some_and(|found| on_heap(&found)) && memory.free(address).is_ok() {
        return None;
    }
    let freed = memory
        .find_freed(address)
        .is_some_and(|found| on_heap(&found));
    let error = HeapError {
        kind: if freed {
            HeapErrorKind::DoubleFree
        } else {
            HeapErrorKind::InvalidFree
        },
        address,
        thread: cx.thread_coordinates(lane),
        block: cx.shared.coordinates,
        kernel: cx.grid.kernel.to_owned(),
        site: (cx.grid.sites)(cx.pc),
    };
    cx.listener.heap_error(&error)
}

/// `__assertfail(message, file, line, function, char_size)`
fn assert_fail(cx: &mut Context<'_>, lane: u32, site: &CallSite) -> Step {
    let argument = |at: usize| {
        site.arguments
            .get(at)
            .map_or(0, |slot| read_slot(cx, lane, *slot))
    };
    let text = |address| String::from_utf8_lossy(&read_string(cx, lane, address)).into_owned();
    let [bx, by, bz] = cx.shared.coordinates;
    let [tx, ty, tz] = cx.thread_coordinates(lane);
    let message = format!(
        "{}:{}: {}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{}` failed.",
        text(argument(1)),
        argument(2) as u32,
        text(argument(3)),
        text(argument(0)),
    );
    let site = (cx.grid.sites)(cx.pc);
    cx.fault(Fault::Assert { site, message })
}
