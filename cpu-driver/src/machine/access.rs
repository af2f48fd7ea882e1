//! From the addresses of a warp to host pointers, with every check on the way.
//!
//! One range check covers the warp where all active lanes fall into one legal
//! region; otherwise each lane is checked by itself. The first refused lane
//! sends the whole warp down the reporting path and nothing is accessed.

use super::context::{Context, Stop};
use super::lanes::LANES;
use super::launch::Fault;
use super::observe::{AccessKind, Reaction, Site, Violation, ViolationKind, WarpAccess};
use crate::program::code::{Class, Op, Step};
use crate::ptx::ast::StateSpace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Generic,
    /// Constants lie in global memory, too.
    Global,
    Shared,
    Local,
    /// The kernel's parameters.
    Param,
}

/// What a memory operation does, apart from its registers.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    pub space: Space,
    /// Space as written, for reports.
    pub report: StateSpace,
    pub kind: AccessKind,
    /// Bytes of one element: 1, 2, 4, 8 or 16.
    pub element: u32,
    /// Elements of a vector access.
    pub count: u32,
    pub signed: bool,
    /// Class of the data registers.
    pub register: Class,
    /// Class of the address register.
    pub address: Class,
    /// Volatile, relaxed, acquire, …: what code does that waits for others.
    pub polls: bool,
}

impl Access {
    pub fn bytes(&self) -> u32 {
        self.element * self.count
    }
}

/// Kernel parameters stand this far into the local window.
pub const PARAM_WINDOW: u64 = 8 << 20;

/// Where the lanes' data lies on the host. Lives on the stack of one operation.
#[allow(clippy::large_enum_variant)]
pub enum Host {
    /// Host address = device address + this, wrapping.
    Linear(u64),
    Each([u64; LANES]),
}

impl Host {
    #[inline(always)]
    pub fn at(&self, lane: usize, address: u64) -> *mut u8 {
        let host = match self {
            Host::Linear(delta) => address.wrapping_add(*delta),
            Host::Each(each) => each[lane],
        };
        std::ptr::with_exposed_provenance_mut(host as usize)
    }
}

/// The address of every lane.
#[inline(always)]
pub fn addresses(cx: &Context<'_>, access: &Access, op: &Op) -> [u64; LANES] {
    let mut out = [0; LANES];
    if access.address == Class::Word {
        let row = cx.words(op.a);
        for lane in 0..LANES {
            out[lane] = u64::from(row[lane].wrapping_add(op.imm as u32));
        }
    } else {
        let row = cx.longs(op.a);
        for lane in 0..LANES {
            out[lane] = row[lane].wrapping_add(op.imm);
        }
    }
    out
}

/// Smallest and largest active address, and the union of all their bits.
#[inline(always)]
fn extent(addresses: &[u64; LANES], active: u32) -> (u64, u64, u64) {
    let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
    if active == u32::MAX {
        for address in addresses {
            low = low.min(*address);
            high = high.max(*address);
            bits |= address;
        }
    } else {
        let mut rest = active;
        while rest != 0 {
            let address = addresses[rest.trailing_zeros() as usize];
            low = low.min(address);
            high = high.max(address);
            bits |= address;
            rest &= rest - 1;
        }
    }
    (low, high, bits)
}

/// Checks and translates. `Err` carries how the operation ends.
#[inline(always)]
pub fn resolve<const STRICT: bool, const EVENTS: bool>(
    cx: &mut Context<'_>,
    access: &Access,
    addresses: &[u64; LANES],
) -> Result<Host, Step> {
    if EVENTS {
        tell(cx, access, addresses);
    }
    cx.polled |= access.polls;
    let bytes = access.bytes();
    let (low, high, bits) = extent(addresses, cx.active);
    if bits & u64::from(bytes - 1) == 0
        && let Some(end) = high.checked_add(u64::from(bytes))
        && let Some(host) = region::<STRICT>(cx, access, low, end)
    {
        return Ok(Host::Linear(host.wrapping_sub(low)));
    }
    each::<STRICT>(cx, access, addresses, &[bytes; LANES])
}

/// As [`resolve`], where lane `i` touches only the first `sizes[i]` bytes of
/// what `access` describes. Alignment is that of the whole access.
pub fn resolve_parts<const STRICT: bool, const EVENTS: bool>(
    cx: &mut Context<'_>,
    access: &Access,
    addresses: &[u64; LANES],
    sizes: &[u32; LANES],
) -> Result<Host, Step> {
    let bytes = access.bytes();
    let is_whole = |lane: usize| cx.active >> lane & 1 == 0 || sizes[lane] == bytes;
    if (0..LANES).all(is_whole) {
        return resolve::<STRICT, EVENTS>(cx, access, addresses);
    }
    if EVENTS {
        tell(cx, access, addresses);
    }
    cx.polled |= access.polls;
    each::<STRICT>(cx, access, addresses, sizes)
}

#[inline(always)]
fn region<const STRICT: bool>(
    cx: &Context<'_>,
    access: &Access,
    low: u64,
    end: u64,
) -> Option<u64> {
    match access.space {
        Space::Shared => cx
            .shared
            .shared_at::<STRICT>(cx.grid.shared_bytes, low, end),
        Space::Local | Space::Param => None,
        Space::Global | Space::Generic => {
            if access.space == Space::Generic {
                let window = cx.grid.view.shared_window();
                if window.contains(&low) {
                    return cx.shared.shared_at::<STRICT>(
                        cx.grid.shared_bytes,
                        low - window.start,
                        end - window.start,
                    );
                }
            }
            let host = if access.kind == AccessKind::Read {
                cx.grid.view.span::<STRICT>(low, end)
            } else {
                cx.grid.view.span_mut::<STRICT>(low, end)
            };
            host.map(|pointer| pointer.expose_provenance() as u64)
        }
    }
}

/// Lane by lane: several regions, local memory, or something wrong.
#[cold]
#[inline(never)]
fn each<const STRICT: bool>(
    cx: &mut Context<'_>,
    access: &Access,
    addresses: &[u64; LANES],
    sizes: &[u32; LANES],
) -> Result<Host, Step> {
    let mut hosts = [0; LANES];
    let mut wrong = Vec::new();
    for lane in 0..LANES {
        if cx.active >> lane & 1 == 0 {
            continue;
        }
        match lane_at::<STRICT>(cx, access, lane as u32, addresses[lane], sizes[lane]) {
            Ok(host) => hosts[lane] = host,
            Err(found) => wrong.push((lane as u32, found)),
        }
    }
    if wrong.is_empty() {
        Ok(Host::Each(hosts))
    } else {
        Err(report(cx, access, &wrong))
    }
}

/// What is wrong with one lane: kind, space, address and size as reported.
struct Refused {
    kind: ViolationKind,
    space: StateSpace,
    address: u64,
    bytes: u32,
}

fn lane_at<const STRICT: bool>(
    cx: &Context<'_>,
    access: &Access,
    lane: u32,
    address: u64,
    bytes: u32,
) -> Result<u64, Refused> {
    let (space, offset) = place(cx, access.space, address);
    let end = offset.saturating_add(u64::from(bytes));
    let refuse = |kind| Refused {
        kind,
        space: match space {
            Space::Shared => StateSpace::Shared,
            Space::Local => StateSpace::Local,
            Space::Param => StateSpace::Param,
            Space::Global | Space::Generic if access.report == StateSpace::Const => {
                StateSpace::Const
            }
            Space::Global | Space::Generic => StateSpace::Global,
        },
        address: offset,
        bytes,
    };
    if !address.is_multiple_of(u64::from(access.bytes())) {
        return Err(refuse(ViolationKind::Misaligned));
    }
    let found = match space {
        Space::Shared => cx
            .shared
            .shared_at::<STRICT>(cx.grid.shared_bytes, offset, end),
        Space::Local => cx.shared.local_at(cx.thread_of(lane), offset, end),
        Space::Param if access.kind != AccessKind::Read => {
            return Err(refuse(ViolationKind::ReadOnly));
        }
        Space::Param => (end <= cx.grid.params.len() as u64)
            .then(|| cx.grid.params.as_ptr().expose_provenance() as u64 + offset),
        Space::Global | Space::Generic => {
            let host = if access.kind == AccessKind::Read {
                cx.grid.view.lane::<STRICT>(address, bytes)
            } else {
                cx.grid.view.lane_mut::<STRICT>(address, bytes)
            };
            return match host {
                Some(pointer) => Ok(pointer.expose_provenance() as u64),
                None => Err(refuse(cx.grid.view.classify(address, bytes, access.kind))),
            };
        }
    };
    found.ok_or_else(|| refuse(ViolationKind::OutOfBounds))
}

/// The space that an address means, and the offset in it.
pub fn place(cx: &Context<'_>, space: Space, address: u64) -> (Space, u64) {
    if space != Space::Generic {
        return (space, address);
    }
    let shared = cx.grid.view.shared_window();
    let local = cx.grid.view.local_window();
    if shared.contains(&address) {
        (Space::Shared, address - shared.start)
    } else if local.contains(&address) {
        let offset = address - local.start;
        if offset >= PARAM_WINDOW {
            (Space::Param, offset - PARAM_WINDOW)
        } else {
            (Space::Local, offset)
        }
    } else {
        (Space::Global, address)
    }
}

/// Tells the observer of every refused lane; the strongest reaction counts.
#[cold]
fn report(cx: &mut Context<'_>, access: &Access, wrong: &[(u32, Refused)]) -> Step {
    let site = (cx.grid.sites)(cx.pc);
    let mut end_launch = false;
    for (lane, refused) in wrong {
        let violation = Violation {
            kind: refused.kind,
            space: refused.space,
            access: access.kind,
            size: refused.bytes,
            address: refused.address,
            thread: cx.thread_coordinates(*lane),
            block: cx.shared.coordinates,
            kernel: cx.grid.kernel.to_owned(),
            site: site.clone(),
        };
        end_launch |= cx.listener.violation(&violation) == Reaction::EndLaunch;
    }
    if end_launch {
        cx.fault(Fault::Memory)
    } else {
        cx.stop(Stop::WarpKilled)
    }
}

/// Tells the observer that the active lanes write `.local` at `address`, beyond
/// what a thread has.
#[cold]
pub fn local_overflow(cx: &mut Context<'_>, address: u64, site: &Site) -> Reaction {
    let mut reaction = Reaction::KillWarp;
    for lane in (0..LANES as u32).filter(|lane| cx.mask >> lane & 1 != 0) {
        let violation = Violation {
            kind: ViolationKind::OutOfBounds,
            space: StateSpace::Local,
            access: AccessKind::Write,
            size: 4,
            address,
            thread: cx.thread_coordinates(lane),
            block: cx.shared.coordinates,
            kernel: cx.grid.kernel.to_owned(),
            site: site.clone(),
        };
        if cx.listener.violation(&violation) == Reaction::EndLaunch {
            reaction = Reaction::EndLaunch;
        }
    }
    reaction
}

#[inline(never)]
fn tell(cx: &mut Context<'_>, access: &Access, addresses: &[u64; LANES]) {
    let first = addresses[cx.first_lane() as usize];
    let (space, offset) = place(cx, access.space, first);
    let report = match space {
        Space::Shared => StateSpace::Shared,
        Space::Local => StateSpace::Local,
        Space::Param => StateSpace::Param,
        Space::Global | Space::Generic => access.report,
    };
    let mut shifted = *addresses;
    for address in &mut shifted {
        *address = address.wrapping_sub(first.wrapping_sub(offset));
    }
    cx.listener.access(&WarpAccess {
        space: report,
        access: access.kind,
        size: access.bytes(),
        mask: cx.active,
        addresses: &shifted,
        operation: cx.pc,
        block: cx.shared.index,
        warp: cx.warp.index,
    });
}
