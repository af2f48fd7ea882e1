//! A tiny host for tests of the machine: memory, kernels from PTX text,
//! launches with parameters given as words.
#![allow(dead_code)]

pub mod damage;

use cuda::machine::launch::{Fault, LaunchConfig, Stats, run};
use cuda::machine::memory::{AllocationKind, Memory, MemoryOptions, Request};
use cuda::machine::observe::{Observer, Reaction, Unchecked, Violation};
use cuda::program::{Kernel, Program};

/// Checks against allocations and keeps every violation.
#[derive(Default)]
pub struct Strict {
    pub found: Vec<Violation>,
    pub kill_only: bool,
}

impl Observer for Strict {
    const STRICT: bool = true;
    const EVENTS: bool = false;

    fn violation(&mut self, violation: &Violation) -> Reaction {
        self.found.push(violation.clone());
        if self.kill_only {
            Reaction::KillWarp
        } else {
            Reaction::EndLaunch
        }
    }
}

pub struct Host {
    pub memory: Memory,
    pub kernels: Vec<Kernel>,
    /// Bytes of stack for recursion.
    pub stack: u32,
}

impl Host {
    pub fn new(ptx: &str) -> Self {
        let memory = Memory::new(MemoryOptions::unchecked(1 << 30)).expect("reservations");
        let module = cuda::ptx::parse(ptx).expect("PTX parses");
        let program = Program::link(&[module]).expect("program links");
        let mut addresses = std::collections::HashMap::new();
        for global in &program.globals {
            let request = Request {
                align: u64::from(global.align.max(1)),
                ..Request::new(AllocationKind::Module, global.bytes.max(1), 1)
            };
            let at = memory.allocate(request).expect("global").base;
            addresses.insert(global.name.clone(), at);
        }
        for global in &program.globals {
            let mut image = global.image.clone();
            image.resize(global.bytes as usize, 0);
            for relocation in &global.relocations {
                let target = addresses
                    .get(&relocation.symbol)
                    .copied()
                    .or_else(|| program.function_address(&relocation.symbol))
                    .expect("known symbol");
                let value = target.wrapping_add_signed(relocation.addend).to_le_bytes();
                let at = relocation.offset as usize;
                image[at..at + 8].copy_from_slice(&value);
            }
            if !image.is_empty() {
                memory
                    .write(addresses[&global.name], &image)
                    .expect("image");
            }
        }
        let kernels = program
            .instantiate(&|name| addresses.get(name).copied())
            .expect("addresses");
        Self {
            memory,
            kernels,
            stack: 0,
        }
    }

    pub fn kernel(&self, name: &str) -> &Kernel {
        self.kernels
            .iter()
            .find(|kernel| kernel.name == name)
            .expect("kernel of this name")
    }

    pub fn alloc(&self, bytes: u64) -> u64 {
        let at = self
            .memory
            .allocate(Request::new(AllocationKind::Device, bytes, 1))
            .expect("allocation")
            .base;
        self.memory
            .write(at, &vec![0; bytes as usize])
            .expect("zeroed");
        at
    }

    pub fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let bytes = std::mem::size_of_val(values);
        let at = self.alloc(bytes as u64);
        // SAFETY: plain numbers read as bytes.
        let raw = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), bytes) };
        self.memory.write(at, raw).expect("upload");
        at
    }

    pub fn words(&self, at: u64, count: usize) -> Vec<u32> {
        let mut raw = vec![0; 4 * count];
        self.memory.read(at, &mut raw).expect("download");
        raw.chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect()
    }

    pub fn floats(&self, at: u64, count: usize) -> Vec<f32> {
        self.words(at, count)
            .into_iter()
            .map(f32::from_bits)
            .collect()
    }

    pub fn longs(&self, at: u64, count: usize) -> Vec<u64> {
        self.words(at, 2 * count)
            .chunks_exact(2)
            .map(|w| u64::from(w[1]) << 32 | u64::from(w[0]))
            .collect()
    }

    pub fn launch_with<O: Observer>(
        &self,
        name: &str,
        grid: u32,
        block: u32,
        params: &[u64],
        observer: &mut O,
    ) -> Result<Stats, Fault> {
        let kernel = self.kernel(name);
        assert_eq!(kernel.params.len(), params.len(), "parameter count");
        let mut packed = vec![0; kernel.param_bytes as usize];
        for (slot, value) in kernel.params.iter().zip(params) {
            let bytes = slot.bytes.min(8) as usize;
            let at = slot.offset as usize;
            packed[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
        let config = LaunchConfig {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            dynamic_shared: 0,
            cooperative: false,
            instruction_budget: 2_000_000,
            stack: self.stack,
            context: 1,
        };
        run(kernel, &config, &packed, &self.memory, observer)
    }

    pub fn launch(
        &self,
        name: &str,
        grid: u32,
        block: u32,
        params: &[u64],
    ) -> Result<Stats, Fault> {
        self.launch_with(name, grid, block, params, &mut Unchecked::default())
    }
}
