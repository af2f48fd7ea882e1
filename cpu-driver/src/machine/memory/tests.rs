//! Tests of the allocator, the views and the transfers.

use super::*;
use crate::machine::observe::{AccessKind, ViolationKind};

const CAPACITY: u64 = 1 << 30;

fn memory(strict: bool) -> Memory {
    let options = if strict {
        MemoryOptions::checked(CAPACITY)
    } else {
        MemoryOptions::unchecked(CAPACITY)
    };
    Memory::new(options).expect("address space for the tests")
}

fn device(memory: &Memory, bytes: u64) -> Allocation {
    memory
        .allocate(Request::new(AllocationKind::Device, bytes, 1))
        .expect("memory for the tests")
}

#[test]
fn four_bytes_past_24604_are_silent_unchecked_and_refused_checked() {
    for strict in [false, true] {
        let memory = memory(strict);
        let input = device(&memory, 24_604);
        let view = memory.view();
        let past = input.base + 24_604;
        assert!(view.span::<false>(past, past + 4).is_some());
        assert!(view.span::<true>(past - 4, past).is_some());
        assert!(view.span::<true>(past, past + 4).is_none());
        assert!(view.span::<true>(past - 4, past + 4).is_none());
        for over in 1..9 {
            assert!(view.span::<true>(past - 4, past + over).is_none(), "{over}");
            assert!(
                view.lane::<true>(past - 4, 4 + over as u32).is_none(),
                "{over}"
            );
        }
        assert!(view.lane::<true>(past - 2, 4).is_none());
        assert_eq!(
            view.classify(past, 4, AccessKind::Read),
            ViolationKind::OutOfBounds
        );
        let nearest = memory.nearest(past).expect("an allocation");
        assert_eq!(nearest.relation, Relation::After(1));
        assert_eq!(nearest.allocation.bytes, 24_604);
    }
}

#[test]
fn an_unmapped_page_is_refused_in_both_modes() {
    let memory = memory(false);
    let large = device(&memory, 3 * PAGE);
    let view = memory.view();
    let end = large.base + 3 * PAGE;
    assert!(view.span::<false>(end - 4, end).is_some());
    assert!(view.span::<false>(large.base, end).is_some(), "three pages");
    for (lo, hi) in [
        (end, end + 4),
        (end - 4, end + 4),
        (0, 4),
        (u64::MAX - 4, u64::MAX),
    ] {
        assert!(view.span::<false>(lo, hi).is_none(), "{lo:#x}..{hi:#x}");
        assert!(view.span::<true>(lo, hi).is_none(), "{lo:#x}..{hi:#x}");
    }
    assert!(view.span::<false>(end - 4, end - 4).is_none(), "empty");
    assert!(view.span::<false>(end - 4, end - 8).is_none(), "reversed");
}

#[test]
fn freed_memory_is_refused_remembered_and_counted_as_free() {
    let memory = memory(true);
    let buffer = device(&memory, 1000);
    let view = memory.view();
    assert!(view.span::<true>(buffer.base, buffer.base + 8).is_some());
    memory.free(buffer.base).unwrap();
    assert!(
        view.span::<true>(buffer.base, buffer.base + 8).is_none(),
        "the view must not remember a freed allocation"
    );
    assert_eq!(
        view.classify(buffer.base + 16, 4, AccessKind::Write),
        ViolationKind::UseAfterFree
    );
    let nearest = memory.nearest(buffer.base + 16).unwrap();
    assert!(nearest.allocation.freed);
    assert_eq!(nearest.relation, Relation::Inside(16));
    assert_eq!(memory.usage(0).free, CAPACITY);
    assert_eq!(
        memory.free(buffer.base),
        Err(MemoryError::DoubleFree {
            address: buffer.base,
            bytes: 1000
        })
    );
}

#[test]
fn a_free_that_starts_no_allocation_is_told_from_a_double_free() {
    let memory = memory(true);
    let buffer = device(&memory, 1000);
    for address in [buffer.base + 4, buffer.base - 4, 0, u64::MAX, 0x1234] {
        let error = memory.free(address).unwrap_err();
        assert!(
            matches!(error, MemoryError::NotAllocated { .. }),
            "{address:#x}: {error}"
        );
    }
    assert_eq!(memory.live(None).len(), 1, "nothing was freed");
}

#[test]
fn freed_addresses_come_back_only_after_the_quarantine() {
    let mut options = MemoryOptions::checked(CAPACITY);
    options.quarantine_bytes = 64 << 10;
    let memory = Memory::new(options).unwrap();
    let first = device(&memory, 4096);
    memory.free(first.base).unwrap();
    let mut since = 0;
    loop {
        let next = device(&memory, 4096);
        if next.base == first.base {
            break;
        }
        assert!(memory.find_freed(first.base).is_some());
        memory.free(next.base).unwrap();
        since += 4096;
        assert!(since < 1 << 20, "the quarantine never ends");
    }
    assert!(since >= 32 << 10, "reused after {since} bytes");
    assert!(memory.find_freed(first.base).is_none(), "live again");
}

#[test]
fn oversize_and_absurd_requests_are_errors() {
    let memory = memory(false);
    for bytes in [CAPACITY + 1, u64::MAX, u64::MAX - 511, 1 << 63] {
        for kind in [
            AllocationKind::Device,
            AllocationKind::Managed,
            AllocationKind::HostPinned,
        ] {
            let refused = memory.allocate(Request::new(kind, bytes, 1));
            assert!(
                matches!(refused, Err(MemoryError::OutOfMemory { .. })),
                "{bytes} {kind:?}: {refused:?}"
            );
        }
    }
    assert_eq!(
        memory.allocate(Request::new(AllocationKind::Device, 0, 1)),
        Err(MemoryError::ZeroBytes)
    );
    let all = device(&memory, CAPACITY);
    assert_eq!(memory.usage(0).free, 0);
    assert!(
        memory
            .allocate(Request::new(AllocationKind::Device, 1, 1))
            .is_err()
    );
    memory.free(all.base).unwrap();
    device(&memory, CAPACITY);
}

#[test]
fn constants_are_readable_and_refuse_stores() {
    let memory = memory(false);
    let mut request = Request::new(AllocationKind::Module, 64, 1);
    request.read_only = true;
    let table = memory.allocate(request).unwrap();
    memory.write(table.base, &[7; 64]).unwrap();
    let view = memory.view();
    let (lo, hi) = (table.base, table.base + 4);
    assert!(view.span::<false>(lo, hi).is_some());
    assert!(view.span::<true>(lo, hi).is_some());
    assert!(view.span_mut::<false>(lo, hi).is_none());
    assert!(view.span_mut::<true>(lo, hi).is_none());
    assert_eq!(
        view.classify(lo, 4, AccessKind::Write),
        ViolationKind::ReadOnly
    );
}

#[test]
fn host_kinds_have_one_pointer_for_both_sides() {
    let memory = memory(false);
    for kind in [AllocationKind::Managed, AllocationKind::HostPinned] {
        let buffer = memory.allocate(Request::new(kind, 100, 1)).unwrap();
        assert!(!memory.is_device_address(buffer.base));
        memory.write(buffer.base, &[1, 2, 3, 4]).unwrap();
        let host: *const u8 = std::ptr::with_exposed_provenance(buffer.base as usize);
        // SAFETY: live host memory of at least 100 bytes.
        assert_eq!(unsafe { host.add(2).read() }, 3);
        let view = memory.view();
        let found = view.span::<false>(buffer.base, buffer.base + 100).unwrap();
        assert_eq!(found.cast_const(), host);
        assert!(
            view.span::<true>(buffer.base + 98, buffer.base + 102)
                .is_none()
        );
        memory.free(buffer.base).unwrap();
        assert!(view.span::<false>(buffer.base, buffer.base + 4).is_none());
        assert_eq!(
            view.classify(buffer.base, 4, AccessKind::Read),
            ViolationKind::UseAfterFree
        );
    }
}

#[test]
fn ordinary_host_memory_is_a_host_pointer_until_it_is_registered() {
    let memory = memory(false);
    let mut bytes = vec![5_u8; 10_000];
    let base = bytes.as_mut_ptr().expose_provenance() as u64;
    let view = memory.view();
    assert!(view.span::<false>(base, base + 4).is_none());
    assert_eq!(
        view.classify(base, 4, AccessKind::Read),
        ViolationKind::HostPointer
    );
    memory.register(base, 10_000, 1, false).unwrap();
    assert!(view.span::<false>(base, base + 4).is_some());
    assert!(view.span::<false>(base, base + 10_004).is_none());
    assert!(matches!(
        memory.register(base + 8, 8, 1, false),
        Err(MemoryError::AlreadyRegistered { .. })
    ));
    assert!(matches!(
        memory.free(base),
        Err(MemoryError::Registered { .. })
    ));
    memory.unregister(base).unwrap();
    assert!(view.span::<false>(base, base + 4).is_none());
    assert!(memory.unregister(base).is_err());
    assert!(memory.register(16, 4096, 1, false).is_err(), "not mapped");
    assert!(memory.register(u64::MAX - 8, 64, 1, false).is_err());
    assert!(
        memory
            .register(memory.shared_window().start, 64, 1, false)
            .is_err(),
        "a window is no host memory"
    );
}

#[test]
fn transfers_stay_inside_one_allocation() {
    let memory = memory(false);
    let (a, b) = (device(&memory, 100), device(&memory, 100));
    memory.fill(a.base, &[1, 2, 3, 4], 25).unwrap();
    memory.copy(b.base, a.base, 100).unwrap();
    let mut back = [0; 100];
    memory.read(b.base, &mut back).unwrap();
    assert_eq!(back[..8], [1, 2, 3, 4, 1, 2, 3, 4]);
    memory.copy(b.base + 1, b.base, 99).unwrap();
    memory.read(b.base, &mut back).unwrap();
    assert_eq!(back[..5], [1, 1, 2, 3, 4], "overlap copies like memmove");
    for nothing in [
        memory.write(a.base + 100, &[]),
        memory.read(0, &mut []),
        memory.copy(0, u64::MAX, 0),
        memory.fill(a.base + 100, &[0; 4], 0),
    ] {
        assert_eq!(nothing, Ok(()));
    }
    for refused in [
        memory.write(a.base + 97, &[0; 4]),
        memory.write(a.base - 1, &[0]),
        memory.read(0, &mut [0; 4]),
        memory.copy(b.base, a.base, 101),
        memory.copy(b.base, a.base, u64::MAX),
        memory.fill(a.base, &[0; 4], u64::MAX / 2),
    ] {
        assert!(
            matches!(refused, Err(MemoryError::OutOfBounds { .. })),
            "{refused:?}"
        );
    }
    assert!(matches!(
        memory.fill(a.base + 1, &[0; 4], 1),
        Err(MemoryError::Alignment { .. })
    ));
}

#[test]
fn a_context_takes_its_allocations_with_it() {
    let memory = memory(true);
    let mine = device(&memory, 10);
    let mut request = Request::new(AllocationKind::Pool, 20, 2);
    let other = memory.allocate(request).unwrap();
    request.context = 1;
    let pool = memory.allocate(request).unwrap();
    let gone: Vec<_> = memory.free_context(1).iter().map(|a| a.base).collect();
    assert_eq!(gone, [mine.base, pool.base]);
    assert_eq!(memory.live(None), [other]);
}

#[test]
fn windows_alias_no_allocation_and_no_host_memory() {
    let memory = memory(false);
    let buffer = device(&memory, 1 << 20);
    for window in [memory.shared_window(), memory.local_window()] {
        assert!(!window.contains(&buffer.base));
        assert!(
            memory
                .view()
                .span::<false>(window.start, window.start + 4)
                .is_none()
        );
        assert!(memory.is_device_address(window.start));
    }
}

#[test]
fn two_devices_have_memory_of_their_own() {
    let mut options = MemoryOptions::unchecked(CAPACITY);
    options.devices = 2;
    let memory = Memory::new(options).unwrap();
    let mut request = Request::new(AllocationKind::Device, CAPACITY, 1);
    memory.allocate(request).unwrap();
    request.device = 1;
    memory.allocate(request).unwrap();
    request.device = 2;
    assert_eq!(
        memory.allocate(request),
        Err(MemoryError::NoDevice { device: 2 })
    );
    assert_eq!((memory.usage(0).free, memory.usage(1).free), (0, 0));
}

#[test]
fn padding_keeps_neighbours_apart() {
    let mut options = MemoryOptions::checked(CAPACITY);
    options.padding = 100_000;
    let memory = Memory::new(options).unwrap();
    let (a, b) = (device(&memory, 16), device(&memory, 16));
    assert!(b.base.abs_diff(a.base) >= 100_000);
}

#[test]
fn cleared_memory_is_zero_to_the_byte_and_its_neighbours_are_not() {
    let memory = Memory::new(MemoryOptions::unchecked(1 << 30)).expect("memory");
    let bytes = 300_000_u64;
    for kind in [AllocationKind::Device, AllocationKind::Managed] {
        let at = memory
            .allocate(Request::new(kind, bytes, 1))
            .expect("room")
            .base;
        for (from, length) in [
            (1, 299_998),
            (5000, 100_000),
            (4096, 65_536),
            (7, 20),
            (3, 0),
        ] {
            memory.fill(at, &[0xA5], bytes).expect("inside");
            memory.clear(at + from, length).expect("inside");
            let mut found = vec![0; bytes as usize];
            memory.read(at, &mut found).expect("inside");
            let (before, rest) = found.split_at(from as usize);
            let (cleared, after) = rest.split_at(length as usize);
            let only = |part: &[u8], value| part.iter().all(|&byte| byte == value);
            assert!(only(cleared, 0), "{kind:?} {from} {length}");
            assert!(
                only(before, 0xA5) && only(after, 0xA5),
                "{kind:?} {from} {length}"
            );
        }
        assert!(memory.clear(at + 1, bytes).is_err());
        assert!(memory.clear(at, u64::MAX).is_err());
    }
}
