//! Damaged kernels: whatever a text with exchanged, dropped and doubled words
//! still means, decoding and running it ends, and nothing outside device
//! memory is touched. Kept small; raise `ROUNDS` to look for more.

mod support;

use std::path::Path;

use cuda::machine::launch::{LaunchConfig, run};
use cuda::machine::memory::{AllocationKind, Memory, MemoryOptions, Request};
use cuda::program::Program;
use support::Strict;

const ROUNDS: u64 = 5;
const SEED: u64 = 20_261_130;

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }
}

/// Splits into words and what stands between them, so that joining gives the
/// text again.
fn words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut last = None;
    for c in text.chars() {
        let kind = c.is_alphanumeric() || c == '_' || c == '%' || c == '$';
        if last == Some(kind) && kind {
            if let Some(word) = out.last_mut() {
                word.push(c);
            }
        } else {
            out.push(c.to_string());
        }
        last = Some(kind);
    }
    out
}

fn damaged(text: &str, random: &mut Random) -> String {
    let start = text.find('{').unwrap_or(0);
    let mut words = words(&text[start..]);
    for _ in 0..=random.below(4) {
        let (a, b) = (random.below(words.len()), random.below(words.len()));
        match random.below(5) {
            0 => words.swap(a, b),
            1 => words[a] = words[b].clone(),
            2 => words[a] = String::new(),
            3 => {
                let copy = words[b].clone();
                words.insert(a, copy);
            }
            _ => {
                let numbers = ["0", "-1", "4294967295", "7", "_", "9223372036854775807"];
                words[a] = numbers[random.below(numbers.len())].to_owned();
            }
        }
    }
    format!("{}{}", &text[..start], words.concat())
}

/// Decodes and runs every kernel of a text that still parses; gives how many
/// were run.
fn attempt(text: &str, memory: &Memory, buffer: u64) -> usize {
    let Ok(module) = cuda::ptx::parse(text) else {
        return 0;
    };
    let Ok(program) = Program::link(&[module]) else {
        return 0;
    };
    let Ok(kernels) = program.instantiate(&|_| Some(buffer)) else {
        return 0;
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
        // The result does not matter; that there is one does.
        let _ = run(kernel, &config, &params, memory, &mut Strict::default());
        let _ = run(
            kernel,
            &config,
            &params,
            memory,
            &mut cuda::machine::observe::Unchecked::default(),
        );
    }
    kernels.len()
}

#[test]
fn damaged_kernels_end_with_a_result() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in [
        "warp", "block", "control", "memory", "atomic", "matrix", "compare", "video",
    ] {
        let entries = std::fs::read_dir(root.join("forms").join(folder)).expect("forms");
        files.extend(entries.map(|e| e.expect("entry").path()));
    }
    files.extend(
        std::fs::read_dir(root.join("cpu-driver/tests/ptx"))
            .expect("texts")
            .map(|e| e.expect("entry").path()),
    );
    files.retain(|path| path.extension().is_some_and(|e| e == "ptx"));
    files.sort();
    let memory = Memory::new(MemoryOptions::unchecked(1 << 28)).expect("memory");
    let request = Request::new(AllocationKind::Device, 1 << 20, 1);
    let buffer = memory.allocate(request).expect("buffer").base;
    println!("seed {SEED}");
    let mut random = Random(SEED);
    let mut ran = 0;
    for path in &files {
        let text = std::fs::read_to_string(path).expect("text");
        for _ in 0..ROUNDS {
            ran += attempt(&damaged(&text, &mut random), &memory, buffer);
        }
    }
    assert!(
        3 * ran > files.len(),
        "only {ran} kernels of {} files ran",
        files.len()
    );
}
