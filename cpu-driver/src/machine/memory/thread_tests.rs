//! Many threads on one memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

fn memory(quarantine_bytes: u64) -> Memory {
    let mut options = MemoryOptions::checked(64 << 20);
    options.quarantine_bytes = quarantine_bytes;
    Memory::new(options).expect("address space for the tests")
}

#[test]
fn threads_that_allocate_and_free_never_share_a_byte() {
    let memory = memory(1 << 20);
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let memory = &memory;
            scope.spawn(move || {
                let view = memory.view();
                for round in 0..300_u64 {
                    let bytes = 1 + (round * 7_919 + u64::from(thread) * 104_729) % 40_000;
                    let kind = if round % 5 == 0 {
                        AllocationKind::Managed
                    } else {
                        AllocationKind::Device
                    };
                    let mine = memory.allocate(Request::new(kind, bytes, 1)).expect("room");
                    memory.fill(mine.base, &[thread], bytes).expect("live");
                    std::thread::yield_now();
                    let mut content = vec![0; bytes as usize];
                    memory.read(mine.base, &mut content).expect("live");
                    assert!(content == vec![thread; content.len()]);
                    assert!(view.span::<true>(mine.base, mine.base + bytes).is_some());
                    memory.free(mine.base).expect("live");
                    assert!(view.span::<true>(mine.base, mine.base + 1).is_none());
                }
            });
        }
    });
    assert_eq!(memory.usage(0).free, 64 << 20);
    assert!(memory.live(None).is_empty());
}

/// A view of another thread may not remember what was freed.
#[test]
fn a_free_is_seen_by_every_view_once_it_has_returned() {
    // Large enough that no address comes back while the test runs.
    let memory = memory(64 << 20);
    let address = AtomicU64::new(0);
    let freed = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let view = memory.view();
                while !done.load(Ordering::Acquire) {
                    let at = address.load(Ordering::Acquire);
                    if at == 0 {
                        continue;
                    }
                    let _ = view.span::<true>(at, at + 64);
                    if freed.load(Ordering::Acquire) == at {
                        assert!(view.span::<true>(at, at + 64).is_none(), "{at:#x}");
                    }
                }
            });
        }
        for _ in 0..3_000 {
            let buffer = memory
                .allocate(Request::new(AllocationKind::Device, 64, 1))
                .expect("room");
            freed.store(0, Ordering::Release);
            address.store(buffer.base, Ordering::Release);
            std::hint::spin_loop();
            memory.free(buffer.base).expect("live");
            freed.store(buffer.base, Ordering::Release);
            std::hint::spin_loop();
            // Nobody may look at `freed` while the address is handed out anew.
            address.store(0, Ordering::Release);
            freed.store(0, Ordering::Release);
        }
        done.store(true, Ordering::Release);
    });
}
