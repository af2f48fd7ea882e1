//! Thread-instructions a second of the machine on one core.
//!
//!     cargo bench -p cpu-driver --bench machine
//!
//! Each kernel runs unchecked and with every access checked against its
//! allocation; the median of several runs, in processor time, is printed. A thread-instruction is
//! one executed operation of one active lane.

use cuda::machine::launch::{LaunchConfig, Stats, run};
use cuda::machine::memory::{AllocationKind, Memory, MemoryOptions, Request};
use cuda::machine::observe::{Observer, Reaction, Unchecked, Violation};
use cuda::program::{Kernel, Program};

const RUNS: usize = 7;

/// Checks like memcheck and expects to find nothing.
struct Checked;

impl Observer for Checked {
    const STRICT: bool = true;
    const EVENTS: bool = false;

    fn violation(&mut self, violation: &Violation) -> Reaction {
        panic!("a benchmark kernel is wrong: {violation:?}");
    }
}

struct Case {
    name: &'static str,
    ptx: String,
    kernel: &'static str,
    grid: u32,
    block: u32,
    /// Targets in thread-instructions a second: unchecked, checked.
    targets: [f64; 2],
    /// Address and bytes of the first parameters are added in front of these.
    last: u64,
}

/// 16 independent multiply-adds a round.
fn fma_loop() -> String {
    let mut body = String::new();
    for i in 0..16 {
        body += &format!("fma.rn.f32 %f{i}, %f{i}, 0f3F7FFFFE, 0f33D6BF95;\n");
    }
    let starts: String = (0..16)
        .map(|i| format!("mov.f32 %f{i}, 0f3F8{i:X}0000;\n"))
        .collect();
    let sum: String = (1..16)
        .map(|i| format!("add.f32 %f0, %f0, %f{i};\n"))
        .collect();
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n\
         .visible .entry k(.param .u64 in, .param .u64 out, .param .u64 n) {{\n\
         .reg .f32 %f<16>; .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p;\n\
         ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;\n\
         {starts} mov.u32 %r2, 0;\n\
         LOOP:\n{body} add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 2000; @%p bra LOOP;\n\
         {sum} st.global.f32 [%rd2], %f0; ret;\n}}\n"
    )
}

/// Every lane takes its own way through 32 loops.
fn divergent() -> String {
    let mut arms = String::new();
    let labels: Vec<String> = (0..32).map(|i| format!("A{i}")).collect();
    for label in &labels {
        arms += &format!(
            "{label}: add.u32 %r3, %r3, %r1; xor.b32 %r3, %r3, %r2; mul.lo.u32 %r3, %r3, 3;\n\
             add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 400; @%p bra {label}; bra END;\n"
        );
    }
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n\
         .visible .entry k(.param .u64 in, .param .u64 out, .param .u64 n) {{\n\
         .reg .b32 %r<5>; .reg .b64 %rd<4>; .reg .pred %p;\n\
         ld.param.u64 %rd1, [out]; mov.u32 %r1, %laneid; mad.wide.u32 %rd2, %r1, 4, %rd1;\n\
         mov.u32 %r2, 0; mov.u32 %r3, 1;\n\
         ways: .branchtargets {};\n brx.idx %r1, ways;\n{arms}\
         END: st.global.u32 [%rd2], %r3; ret;\n}}\n",
        labels.join(", ")
    )
}

fn cases() -> Vec<Case> {
    let n = 1u64 << 20;
    vec![
        Case {
            name: "FMA loop",
            ptx: fma_loop(),
            kernel: "k",
            grid: 8,
            block: 256,
            targets: [1e9, 5e8],
            last: 0,
        },
        Case {
            name: "block-tree reduction",
            ptx: include_str!("../../kernels/ptx/reduce.ptx").to_owned(),
            kernel: "blockTreeSum",
            grid: (n / 256) as u32,
            block: 256,
            targets: [5e8, 3e8],
            last: n,
        },
        Case {
            name: "fully divergent",
            ptx: divergent(),
            kernel: "k",
            grid: 4,
            block: 128,
            targets: [5e7, 5e7],
            last: 0,
        },
    ]
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

fn load(ptx: &str, name: &str) -> Kernel {
    let module = cuda::ptx::parse(ptx).expect("benchmark PTX parses");
    let program = Program::link(&[module]).expect("benchmark PTX links");
    program
        .instantiate(&|_| None)
        .expect("no globals")
        .into_iter()
        .find(|kernel| kernel.name == name)
        .expect("kernel")
}

fn timed<O: Observer>(case: &Case, kernel: &Kernel, observer: &mut O) -> (f64, Stats) {
    let memory = Memory::new(MemoryOptions::unchecked(1 << 30)).expect("memory");
    let bytes = 4 << 20;
    let allocate = || {
        let request = Request::new(AllocationKind::Device, bytes, 1);
        let at = memory.allocate(request).expect("allocation").base;
        memory.fill(at, &[0], bytes).expect("zeroed");
        at
    };
    let params: Vec<u8> = [allocate(), allocate(), case.last]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let config = LaunchConfig {
        grid: [case.grid, 1, 1],
        block: [case.block, 1, 1],
        dynamic_shared: 0,
        cooperative: false,
        instruction_budget: u64::MAX,
        stack: 0,
        context: 1,
    };
    let mut rates = Vec::new();
    let mut stats = Stats::default();
    // The first run decodes the kernel and is not counted.
    for counted in 0..=RUNS {
        let start = processor_seconds();
        stats = run(kernel, &config, &params, &memory, observer).expect("runs");
        let seconds = processor_seconds() - start;
        if counted > 0 {
            rates.push(stats.thread_instructions as f64 / seconds);
        }
    }
    rates.sort_by(f64::total_cmp);
    (rates[RUNS / 2], stats)
}

fn main() {
    if cfg!(debug_assertions) {
        println!("skipped: measure a release build (cargo bench)");
        return;
    }
    // For `checks_off`: the unchecked rates alone, to be read by a program.
    if std::env::args().any(|word| word == "--rates") {
        for case in cases() {
            let kernel = load(&case.ptx, case.kernel);
            let (rate, _) = timed(&case, &kernel, &mut Unchecked::default());
            println!("{}\t{rate:e}", case.name);
        }
        return;
    }
    println!("thread-instructions a second on one core, median of {RUNS} runs");
    println!(
        "{:22} {:>10} {:>9} {:>10} {:>9} {:>14}",
        "kernel", "unchecked", "target", "checked", "target", "instructions"
    );
    let mut fastest = [0.0_f64; 2];
    for case in cases() {
        let kernel = load(&case.ptx, case.kernel);
        let (unchecked, stats) = timed(&case, &kernel, &mut Unchecked::default());
        let (checked, _) = timed(&case, &kernel, &mut Checked);
        println!(
            "{:22} {unchecked:10.2e} {:9.0e} {checked:10.2e} {:9.0e} {:14}",
            case.name, case.targets[0], case.targets[1], stats.thread_instructions
        );
        fastest = [fastest[0].max(unchecked), fastest[1].max(checked)];
    }
    print_peers(fastest);
}

/// Another tool: instructions a second unchecked, and with the check named.
type Peer = (&'static str, f64, Option<(f64, &'static str)>);

/// Measured on one thread of another 2-core machine (its facts are in the
/// driver's README).
const PEERS: [Peer; 4] = [
    ("Oclgrind 21.10", 1.2e7, Some((3.3e6, "races"))),
    ("remu", 1.45e7, None),
    ("ptoxide 0.1.0", 6e7, None),
    ("warp-SIMD probe", 5e9, Some((1.8e9, "memcheck"))),
];

fn print_peers(fastest: [f64; 2]) {
    println!("\npeers, measured on another machine, and how many times faster the best row is");
    for (name, unchecked, checked) in PEERS {
        print!(
            "{name:22} {unchecked:10.2e} {:8.1}×",
            fastest[0] / unchecked
        );
        if let Some((rate, check)) = checked {
            print!(" {rate:10.2e} {:8.1}×  ({check})", fastest[1] / rate);
        }
        println!();
    }
    println!(
        "the probe is a throw-away loop with full masks and a tiny working set: an upper bound"
    );
    println!("compute-sanitizer on a GPU: 3 to 52 times slower than the bare program (memcheck)");
}
