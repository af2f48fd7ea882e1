//! Each report block, word for word.

use super::*;
use crate::machine::observe::{
    AccessKind, Frame, HeapError, HeapErrorKind, Site, Violation, ViolationKind,
};
use crate::ptx::ast::StateSpace;

fn site() -> Site {
    Site {
        function: "diffNextPastEnd".into(),
        offset: 0x160,
        frames: vec![Frame {
            function: None,
            file: "adjacent_difference.cu".into(),
            line: 21,
        }],
        ptx_line: 77,
        instruction: "ld.global.nc.u32".into(),
    }
}

fn violation(kind: ViolationKind, space: StateSpace, access: AccessKind) -> Violation {
    Violation {
        kind,
        space,
        access,
        size: 4,
        address: 0x7000_0600_601c,
        thread: [6, 0, 0],
        block: [24, 0, 0],
        kernel: "diffNextPastEnd".into(),
        site: site(),
    }
}

fn near(distance: Distance, freed: bool) -> Neighbour {
    Neighbour {
        base: 0x7000_0600_0000,
        bytes: 24_604,
        freed,
        distance,
    }
}

fn access(violation: &Violation, nearest: Option<Neighbour>) -> Access {
    let mut access = Access::new(violation, None, HostStack::default());
    access.nearest = nearest;
    access
}

fn main_frame() -> HostStack {
    HostStack {
        frames: vec![HostFrame {
            function: Some("memory_bugs::main".into()),
            source: None,
            offset: 0xae61,
            module: "memory_bugs".into(),
        }],
    }
}

#[track_caller]
fn prints(finding: &impl Display, expected: &str) {
    assert_eq!(finding.to_string(), expected.trim_start_matches('\n'));
}

#[test]
fn a_read_past_an_allocation() {
    let seen = violation(
        ViolationKind::OutOfBounds,
        StateSpace::Global,
        AccessKind::Read,
    );
    let mut finding = access(&seen, Some(near(Distance::After(1), false)));
    finding.launched = main_frame();
    prints(
        &finding,
        "
Invalid __global__ read of size 4 bytes
    at diffNextPastEnd+0x160 in adjacent_difference.cu:21
    by thread (6,0,0) in block (24,0,0)
    Access to 0x70000600601c is out of bounds
    and is 1 bytes after the nearest allocation at 0x700006000000 of size 24,604 bytes
    Saved host backtrace up to driver entry point at kernel launch time
        Host Frame: memory_bugs::main [0xae61] in memory_bugs
",
    );
}

#[test]
fn a_write_past_a_shared_tile_names_the_offset_and_no_allocation() {
    let mut seen = violation(
        ViolationKind::OutOfBounds,
        StateSpace::Shared,
        AccessKind::Write,
    );
    seen.address = 0x408;
    prints(
        &access(&seen, None),
        "
Invalid __shared__ write of size 4 bytes
    at diffNextPastEnd+0x160 in adjacent_difference.cu:21
    by thread (6,0,0) in block (24,0,0)
    Access to 0x408 is out of bounds
",
    );
}

#[test]
fn a_misaligned_atomic_inside_an_allocation_in_an_inlined_function() {
    let mut seen = violation(
        ViolationKind::Misaligned,
        StateSpace::Global,
        AccessKind::Atomic,
    );
    seen.site.frames.insert(
        0,
        Frame {
            function: Some("_Z3addPii".into()),
            file: "add.cuh".into(),
            line: 3,
        },
    );
    prints(
        &access(&seen, Some(near(Distance::Inside(2), false))),
        "
Invalid __global__ atomic of size 4 bytes
    at add(int*, int)+0x160 in add.cuh:3
    by thread (6,0,0) in block (24,0,0)
    Access to 0x70000600601c is misaligned
    and is inside the nearest allocation at 0x700006000000 of size 24,604 bytes
        Device Frame: diffNextPastEnd+0x160 in adjacent_difference.cu:21
",
    );
}

#[test]
fn a_use_after_free_names_the_freed_allocation_and_where_it_was_freed() {
    let seen = violation(
        ViolationKind::UseAfterFree,
        StateSpace::Global,
        AccessKind::Write,
    );
    let mut finding = access(&seen, Some(near(Distance::Inside(1_028), true)));
    finding.freed = Some(main_frame());
    prints(
        &finding,
        "
Invalid __global__ write of size 4 bytes
    at diffNextPastEnd+0x160 in adjacent_difference.cu:21
    by thread (6,0,0) in block (24,0,0)
    Access to 0x70000600601c is out of bounds
    and is 1,028 bytes inside the freed allocation at 0x700006000000 of size 24,604 bytes
    and was freed before (use after free)
    Saved host backtrace up to driver entry point at free time
        Host Frame: memory_bugs::main [0xae61] in memory_bugs
",
    );
}

#[test]
fn host_pointers_constants_local_and_parameters_have_their_words() {
    for (kind, space, first, last) in [
        (
            ViolationKind::HostPointer,
            StateSpace::Global,
            "Invalid __global__ write of size 4 bytes",
            "    and is host memory that is neither managed, pinned nor registered",
        ),
        (
            ViolationKind::ReadOnly,
            StateSpace::Const,
            "Invalid __constant__ write of size 4 bytes",
            "    Access to 0x70000600601c is a write to read-only memory",
        ),
        (
            ViolationKind::OutOfBounds,
            StateSpace::Local,
            "Invalid __local__ write of size 4 bytes",
            "    Access to 0x70000600601c is out of bounds",
        ),
        (
            ViolationKind::Misaligned,
            StateSpace::Param,
            "Invalid __param__ write of size 4 bytes",
            "    Access to 0x70000600601c is misaligned",
        ),
    ] {
        let text = access(&violation(kind, space, AccessKind::Write), None).to_string();
        assert_eq!(text.lines().next(), Some(first));
        assert_eq!(text.lines().last(), Some(last));
    }
}

#[test]
fn without_line_information_the_function_and_offset_stand_alone() {
    let mut seen = violation(
        ViolationKind::OutOfBounds,
        StateSpace::Global,
        AccessKind::Read,
    );
    seen.site.frames.clear();
    let text = access(&seen, None).to_string();
    assert_eq!(text.lines().nth(1), Some("    at diffNextPastEnd+0x160"));
}

#[test]
fn a_failed_call_with_and_without_a_bad_free() {
    let mut call = ApiCall {
        function: "cuCtxSynchronize".into(),
        code: 719,
        name: "CUDA_ERROR_LAUNCH_FAILED".into(),
        description: "unspecified launch failure".into(),
        bad_free: None,
        called: main_frame(),
    };
    prints(
        &call,
        "
Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to \"unspecified launch failure\" on CUDA API call to cuCtxSynchronize.
    Saved host backtrace up to driver entry point at error
        Host Frame: memory_bugs::main [0xae61] in memory_bugs
",
    );
    call.function = "cuMemFree_v2".into();
    call.bad_free = Some(BadFree {
        problem: HeapProblem::DoubleFree,
        address: 0x7000_0600_0000,
        nearest: Some(near(Distance::Inside(0), true)),
    });
    let text = call.to_string();
    assert_eq!(
        text.lines().nth(1),
        Some("    Double free : 0x700006000000")
    );
    assert_eq!(
        text.lines().nth(2),
        Some(
            "    and is 0 bytes inside the freed allocation at 0x700006000000 of size 24,604 bytes"
        )
    );
}

#[test]
fn a_bad_free_in_a_kernel() {
    let error = HeapError {
        kind: HeapErrorKind::InvalidFree,
        address: 0x1234,
        thread: [1, 2, 3],
        block: [4, 5, 6],
        kernel: "k".into(),
        site: site(),
    };
    prints(
        &Heap::new(&error, HostStack::default()),
        "
Malloc/Free Error encountered : Invalid pointer to free
    at diffNextPastEnd+0x160 in adjacent_difference.cu:21
    by thread (1,2,3) in block (4,5,6)
    Address 0x1234
",
    );
}

#[test]
fn a_leak_by_the_host_and_one_on_the_device_heap() {
    let mut leak = Leak {
        base: 0x7000_0600_0000,
        bytes: 24_604,
        device_heap: false,
        allocated: main_frame(),
    };
    prints(
        &leak,
        "
Leaked 24,604 bytes at 0x700006000000
    Saved host backtrace up to driver entry point at allocation time
        Host Frame: memory_bugs::main [0xae61] in memory_bugs
",
    );
    leak.device_heap = true;
    leak.allocated = HostStack::default();
    prints(
        &leak,
        "Leaked 24,604 bytes at 0x700006000000 on the device heap\n",
    );
}

#[test]
fn numbers_are_grouped_by_thousands() {
    for (number, text) in [
        (0, "0"),
        (999, "999"),
        (1_000, "1,000"),
        (73_812, "73,812"),
        (137_179_965_340_896, "137,179,965,340,896"),
    ] {
        assert_eq!(Grouped(number).to_string(), text);
    }
}

#[test]
fn a_fingerprint_ignores_addresses_and_tells_findings_apart() {
    let seen = violation(
        ViolationKind::OutOfBounds,
        StateSpace::Global,
        AccessKind::Read,
    );
    let print =
        |violation: &Violation, near| Finding::Access(access(violation, near)).fingerprint();
    let first = print(&seen, Some(near(Distance::After(1), false)));

    let mut moved = seen.clone();
    moved.address += 1 << 21;
    let mut neighbour = near(Distance::After(1), false);
    neighbour.base += 1 << 21;
    assert_eq!(print(&moved, Some(neighbour)), first);

    let mut other_thread = seen.clone();
    other_thread.thread[0] = 7;
    let mut other_line = seen.clone();
    other_line.site.offset += 16;
    for (different, near) in [
        (&seen, near(Distance::After(5), false)),
        (&other_thread, near(Distance::After(1), false)),
        (&other_line, near(Distance::After(1), false)),
    ] {
        assert_ne!(print(different, Some(near)), first);
    }
}
