//! Damaged PTX: whatever a text with flipped bits, a cut end, or exchanged,
//! dropped and doubled words still means, loading it ends within a second, and
//! decoding and running it ends without touching anything outside device memory.
//! Every PTX file of the repository is damaged; to look for more, set
//! `KERNELGATE_TEST_ROUNDS` and `KERNELGATE_TEST_SEED`; the text under test is
//! then kept as `damaged.ptx` in the temporary folder.

mod support;

use std::path::Path;

use cuda::machine::launch::{Fault, LaunchConfig, run};
use cuda::machine::memory::{AllocationKind, Memory, MemoryOptions, Request};
use cuda::machine::observe::Unchecked;
use cuda::program::Program;
use support::Strict;
use support::damage::{Random, damaged, number, ptx_files};

/// Damaged texts a file.
const ROUNDS: u64 = 3;
const SEED: u64 = 20_261_130;

/// What came of a text.
#[derive(Default)]
struct Tally {
    refused: usize,
    ran: usize,
}

/// Processor time of this thread: other work on the machine does not count.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "no clock of processor time");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Loads a text as the driver does. `None` where it is refused.
fn load(text: &str) -> Option<Program> {
    let start = processor_seconds();
    let module = cuda::ptx::parse(text).ok();
    let program = module.and_then(|module| {
        // Decoding has to stand what the checks refuse, too.
        let _ = cuda::ptx::check::check(&module);
        Program::link(&[module]).ok()
    });
    let took = processor_seconds() - start;
    assert!(took < 1.0, "loading took {took} s");
    program
}

/// Decodes and runs every kernel of a text that still loads.
fn attempt(text: &str, memory: &Memory, buffer: u64, tally: &mut Tally) {
    let Some(program) = load(text) else {
        tally.refused += 1;
        return;
    };
    let Ok(kernels) = program.instantiate(&|_| Some(buffer)) else {
        tally.refused += 1;
        return;
    };
    for kernel in &kernels {
        let config = LaunchConfig {
            grid: [2, 1, 1],
            block: [64, 1, 1],
            dynamic_shared: 1024,
            cooperative: false,
            instruction_budget: 20_000,
            stack: 0,
            context: 1,
        };
        let params: Vec<u8> = (0..kernel.param_bytes.div_ceil(8))
            .flat_map(|_| buffer.to_le_bytes())
            .collect();
        let start = processor_seconds();
        // The result does not matter; that there is one does.
        let _ = run(kernel, &config, &params, memory, &mut Strict::default());
        let _ = run(kernel, &config, &params, memory, &mut Unchecked::default());
        let took = processor_seconds() - start;
        assert!(took < 5.0, "{}: {took} s", kernel.name);
    }
    tally.ran += kernels.len();
}

#[test]
fn damaged_ptx_ends_with_a_result() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["../forms", "../kernels/ptx", "tests"] {
        ptx_files(&root.join(folder), &mut files);
    }
    files.sort();
    let memory = Memory::new(MemoryOptions::unchecked(1 << 28)).expect("memory");
    let request = Request::new(AllocationKind::Device, 1 << 20, 1);
    let buffer = memory.allocate(request).expect("buffer").base;
    let rounds = number("KERNELGATE_TEST_ROUNDS", ROUNDS);
    let kept = (rounds != ROUNDS).then(|| std::env::temp_dir().join("damaged.ptx"));
    let seed = number("KERNELGATE_TEST_SEED", SEED);
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut tally = Tally::default();
    for path in &files {
        let text = std::fs::read_to_string(path).expect("text");
        for _ in 0..rounds {
            let text = damaged(&text, &mut random);
            // A crash leaves no other trace of the text that it came from.
            if let Some(kept) = &kept {
                std::fs::write(kept, &text).expect("a place for the text");
            }
            attempt(&text, &memory, buffer, &mut tally);
        }
    }
    let Tally { refused, ran } = tally;
    println!(
        "{} files: {refused} texts refused, {ran} kernels run",
        files.len()
    );
    assert!(refused > files.len() / 2, "only {refused} refused");
    assert!(ran > files.len() / 4, "only {ran} ran");
}

/// Found by the test above: each once read or wrote beside the registers.
#[test]
fn instructions_without_all_their_operands_fail_when_reached() {
    let memory = Memory::new(MemoryOptions::unchecked(1 << 28)).expect("memory");
    for body in [
        "cvt.rni.sat.f64.f64 %fd1;",
        "cvt.rn.f32.u32 %f1;",
        "cvt.pack.sat.s16.s32 %r1, %r2;",
    ] {
        let text = format!(
            ".version 8.0\n.target sm_75\n.entry k() {{ .reg .b32 %r<4>; .reg .f32 %f<2>;\n\
             .reg .f64 %fd<2>; {body} ret; }}"
        );
        let program = load(&text).expect("only the check refuses it");
        let kernels = program.instantiate(&|_| None).expect("no globals");
        let config = LaunchConfig {
            grid: [1, 1, 1],
            block: [32, 1, 1],
            dynamic_shared: 0,
            cooperative: false,
            instruction_budget: 1000,
            stack: 0,
            context: 1,
        };
        let ran = run(
            &kernels[0],
            &config,
            &[],
            &memory,
            &mut Unchecked::default(),
        );
        assert!(
            matches!(ran, Err(Fault::Unsupported { .. })),
            "{body}: {ran:?}"
        );
    }
}

/// Names are looked up, not searched for: what grows with their square would
/// take longer than [`load`] allows.
#[test]
fn texts_with_many_names_load_within_a_second() {
    const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";
    let many =
        |count: u32, piece: &dyn Fn(u32) -> String| (0..count).map(piece).collect::<String>();
    let shared = many(48_000, &|i| format!(".shared .b8 s{i};\n"));
    let used = many(48_000, &|i| format!("ld.shared.u8 %r1, [s{i}];\n"));
    for text in [
        many(40_000, &|i| format!(".global .align 4 .u32 g{i} = {i};\n")),
        many(40_000, &|i| format!(".entry k{i}() {{ ret; }}\n")),
        format!("{shared}.entry k() {{ .reg .b32 %r<2>;\n{used} ret; }}"),
        format!(
            ".entry k() {{ {} L50000: ret; }}",
            many(50_000, &|i| format!("L{i}: bra L{};\n", i + 1))
        ),
    ] {
        assert!(load(&format!("{HEAD}{text}")).is_some());
    }
}
