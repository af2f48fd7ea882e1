//! Any entry point with any arguments gives a code: no crash, no hang, and no
//! write outside the memory that a pointer argument names.

use proptest::prelude::*;

use super::proc_address::{Symbol, symbols};

type Entry = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;

/// Calls that run code of the client's: a made-up function pointer cannot be
/// told from a real one.
const RUNS_CLIENT_CODE: &[&str] = &[
    "cuLaunchHostFunc",
    "cuLaunchHostFunc_ptsz",
    "cuStreamAddCallback",
    "cuStreamAddCallback_ptsz",
    "cuOccupancyMaxPotentialBlockSize",
    "cuOccupancyMaxPotentialBlockSizeWithFlags",
    "cuGraphAddHostNode",
];

fn entry(symbol: &Symbol) -> Entry {
    // SAFETY: the C calling convention lets a caller pass more integer arguments
    // than the callee reads.
    unsafe { std::mem::transmute(symbol.address) }
}

fn call(name: &str, arguments: &[u64]) -> i32 {
    let symbol = symbols().iter().find(|symbol| symbol.name == name);
    let mut all = [0; 12];
    all[..arguments.len()].copy_from_slice(arguments);
    call_with(entry(symbol.expect(name)), &all)
}

fn call_with(entry: Entry, a: &[u64; 12]) -> i32 {
    entry(
        a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
    )
}

/// Memory that may be overwritten, with nothing mapped on either side.
struct Arena(u64);

const ARENA: usize = 1 << 16;

impl Arena {
    fn new() -> Arena {
        let length = ARENA + 2 * 4096;
        let (none, both) = (libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping, and its inside made accessible.
        let base = unsafe {
            let base = libc::mmap(std::ptr::null_mut(), length, none, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(base.add(4096), ARENA, both), 0);
            base as u64
        };
        Arena(base + 4096)
    }

    fn slot(&self, n: u64) -> u64 {
        self.0 + n * 64
    }
}

const PTX: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n\
    .visible .global .align 4 .u32 g = 5;\n.visible .entry k(.param .u64 p) { ret; }\n\0";

/// Live objects of every kind, and values that are none.
fn values(arena: &Arena) -> Vec<u64> {
    let out = arena.slot(0);
    let make = |name: &str, arguments: &[u64]| {
        call(name, arguments);
        // SAFETY: the arena is ours and mapped.
        unsafe { (out as *const u64).read() }
    };
    let text = arena.slot(8);
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(PTX.as_ptr(), text as *mut u8, PTX.len()) };
    let name = arena.slot(200);
    // SAFETY: as above.
    unsafe { (name as *mut [u8; 2]).write(*b"k\0") };
    make("cuInit", &[0]);
    let context = make("cuCtxCreate_v2", &[out, 0, 0]);
    let module = make("cuModuleLoadData", &[out, text]);
    let library = make("cuLibraryLoadData", &[out, text]);
    let graph = make("cuGraphCreate", &[out, 0]);
    let mut values = vec![
        context,
        module,
        library,
        graph,
        make("cuModuleGetFunction", &[out, module, name]),
        make("cuLibraryGetKernel", &[out, library, name]),
        make("cuGraphAddEmptyNode", &[out, graph, 0, 0]),
        make("cuGraphInstantiateWithFlags", &[out, graph, 0]),
        make("cuStreamCreate", &[out, 1]),
        make("cuEventCreate", &[out, 0]),
        make("cuMemAlloc_v2", &[out, 4096]),
        make("cuMemAllocManaged", &[out, 4096, 1]),
        make("cuMemAllocHost_v2", &[out, 4096]),
        make("cuDeviceGetDefaultMemPool", &[out, 0]),
        make("cuLinkCreate_v2", &[0, 0, 0, out]),
        text,
        name,
    ];
    values.extend((0..8).map(|n| arena.slot(300 + 8 * n)));
    values.extend([0, 0, 0, 1, 1, 2, 3, 4, 5, 8, 16, 32, 64, 256, 1024, 65_536]);
    values.extend([0xdead_beef, 1 << 31, u64::from(u32::MAX), 1 << 40, 1 << 46]);
    values.extend([1 << 63, u64::MAX - 7, u64::MAX]);
    values
}

/// Found by the property below.
#[test]
fn calls_that_once_failed_inside_the_driver_give_a_code() {
    let arena = Arena::new();
    let context = values(&arena)[0];
    let crashers: &[(&str, &[u64])] = &[("cuCtxSetLimit", &[0, u64::MAX])];
    for (name, arguments) in crashers {
        assert_eq!(
            call(name, arguments),
            super::code::Code::INVALID_VALUE.0,
            "{name}"
        );
    }
    call("cuCtxDestroy_v2", &[context]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_call_with_any_arguments_returns_a_code(
        calls in proptest::collection::vec((any::<usize>(), any::<[u16; 12]>()), 1..60),
    ) {
        let arena = Arena::new();
        let values = values(&arena);
        for (which, choices) in calls {
            let symbol = &symbols()[which % symbols().len()];
            if RUNS_CLIENT_CODE.contains(&symbol.name) {
                continue;
            }
            let arguments = choices.map(|choice| values[usize::from(choice) % values.len()]);
            let code = call_with(entry(symbol), &arguments);
            prop_assert!((0..=999).contains(&code), "{} gave {code}", symbol.name);
            prop_assert!(code != 999, "{} failed inside", symbol.name);
        }
        call("cuLibraryUnload", &[values[2]]);
        call("cuCtxDestroy_v2", &[values[0]]);
    }
}
