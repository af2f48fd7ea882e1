//! The harness's kernels on a device, and what they keep from case to case.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

use anyhow::{Context, Result};

use crate::device::{
    Argument, Buffer, Device, DeviceError, Event, Fp64Gemm, Launch, Lt, LtError, Module,
};
use crate::gemm::inputs::{self, Input};
use crate::gemm::scratch::Scratch;
use crate::kernels::{GEMM_JUDGE, GEMM_REFERENCE};

/// Blocks of launches that go over their elements whatever the grid: some for every
/// multiprocessor there is, few enough for the CPU driver.
const BLOCKS: u64 = 2048;
/// Bytes of one FP64 panel of an operand, and of an FP64 product.
const PANEL: u64 = 1 << 30;

/// The points in time of a case, by events on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Start,
    Made,
    RunStarts(usize),
    RunEnds(usize),
    Checking,
    End,
}

impl Mark {
    fn index(self) -> usize {
        match self {
            Mark::Start => 0,
            Mark::Made => 1,
            Mark::RunStarts(run) => 2 + 2 * run,
            Mark::RunEnds(run) => 3 + 2 * run,
            Mark::Checking => 6,
            Mark::End => 7,
        }
    }
}

/// The harness's kernels, loaded.
pub struct Workshop {
    make: Module,
    judge: Module,
    pub scratch: Scratch,
    quantiles: RefCell<HashMap<Input, Buffer<f32>>>,
    library: OnceCell<Option<Lt>>,
    clock: OnceCell<Vec<Event>>,
}

impl Workshop {
    pub fn load(device: &Device) -> Result<Workshop, DeviceError> {
        Ok(Workshop {
            make: device.load(&GEMM_REFERENCE)?,
            judge: device.load(&GEMM_JUDGE)?,
            scratch: Scratch::default(),
            quantiles: RefCell::default(),
            library: OnceCell::new(),
            clock: OnceCell::new(),
        })
    }

    fn launch_of(
        module: &Module,
        kernel: &str,
        launch: Launch,
        arguments: &[&dyn Argument],
    ) -> Result<()> {
        module
            .kernel(kernel)?
            .launch(launch, arguments)
            .with_context(|| format!("while launching the harness's {kernel}"))
    }

    /// Launches a kernel of `gemm_judge.cu`.
    pub fn check(&self, kernel: &str, launch: Launch, arguments: &[&dyn Argument]) -> Result<()> {
        Workshop::launch_of(&self.judge, kernel, launch, arguments)
    }

    /// Launches a kernel of `gemm_reference.cu`.
    pub fn make(&self, kernel: &str, launch: Launch, arguments: &[&dyn Argument]) -> Result<()> {
        Workshop::launch_of(&self.make, kernel, launch, arguments)
    }

    /// `pattern` over `bytes` bytes at `to`, which is aligned to 16.
    pub fn fill(&self, to: u64, pattern: u32, bytes: u64) -> Result<()> {
        self.make("fillBytes", spread(bytes / 16), &[&to, &pattern, &bytes])
    }

    /// Adds the digest of `bytes` bytes at `from` to the word at `sum`.
    pub fn digest(&self, from: u64, bytes: u64, sum: u64) -> Result<()> {
        self.check("digest", spread(bytes / 16), &[&from, &bytes, &sum])
    }

    /// The address of the table that `input` draws from.
    pub fn quantiles(&self, device: &Device, input: Input) -> Result<u64> {
        let mut tables = self.quantiles.borrow_mut();
        if let Some(table) = tables.get(&input) {
            return Ok(table.address());
        }
        let table = device.upload(&inputs::quantiles(input))?;
        let address = table.address();
        tables.insert(input, table);
        Ok(address)
    }

    /// Records a point in time behind all that was enqueued.
    pub fn mark(&self, device: &Device, mark: Mark) -> Result<()> {
        Ok(self.clock(device)?[mark.index()].record()?)
    }

    /// Milliseconds of the device between two points of a case that has ended.
    pub fn milliseconds(&self, device: &Device, from: Mark, to: Mark) -> Result<f64> {
        let clock = self.clock(device)?;
        Ok(clock[from.index()].microseconds_to(&clock[to.index()])? / 1e3)
    }

    fn clock(&self, device: &Device) -> Result<&[Event]> {
        if let Some(clock) = self.clock.get() {
            return Ok(clock);
        }
        let events: Result<Vec<Event>, DeviceError> =
            (0..=Mark::End.index()).map(|_| device.event()).collect();
        let events = events?;
        Ok(self.clock.get_or_init(|| events))
    }

    /// The library whose FP64 product serves as a reference; `None` without it.
    pub fn library(&self, device: &Device) -> Result<Option<&Lt>> {
        if self.library.get().is_none() {
            let found = match Lt::open(device) {
                Ok(lt) => Some(lt),
                Err(LtError::Absent(_)) => None,
                Err(error) => return Err(error).context("while opening cuBLASLt"),
            };
            let _ = self.library.set(found);
        }
        Ok(self.library.get().and_then(Option::as_ref))
    }

    /// An FP64 product, by the library where there is one.
    pub fn product(&self, device: &Device, gemm: &Fp64Gemm) -> Result<()> {
        if gemm.k == 0 {
            return self.fill(gemm.d, 0, gemm.m * gemm.n * 8);
        }
        if let Some(lt) = self.library(device)? {
            match lt.gemm_fp64(device, gemm) {
                // Our own then.
                Err(LtError::Unsupported(_)) => {}
                done => return done.context("while multiplying in FP64"),
            }
        }
        let launch = grid(gemm.n.div_ceil(64), gemm.m.div_ceil(64), 256)?;
        let arguments: [&dyn Argument; 6] = [&gemm.a, &gemm.b, &gemm.m, &gemm.n, &gemm.k, &gemm.d];
        self.check("productFp64", launch, &arguments)
    }
}

/// Rows of `depth` in one FP64 panel; a grid can cover them.
pub fn panel_rows(rows: u64, depth: u64) -> u64 {
    (PANEL / (8 * depth.max(1))).clamp(1, 1 << 20).min(rows)
}

/// Columns of a product of `rows` rows that are worked on at once.
pub fn panel_cols(n: u64, rows: u64, depth: u64) -> u64 {
    let of_b = PANEL / 2 / (8 * depth.max(1));
    let of_c = PANEL / (8 * rows.max(1));
    // Whole tiles, where there is room for one.
    let cols = of_b.min(of_c).max(1);
    let cols = if cols >= 128 { cols / 128 * 128 } else { cols };
    cols.min(n)
}

/// A grid for kernels that take any: about a thread for each of `threads`.
pub fn spread(threads: u64) -> Launch {
    let blocks = threads.div_ceil(256).clamp(1, BLOCKS);
    Launch::linear(blocks as u32, 256)
}

/// One thread each.
pub fn linear(threads: u64) -> Result<Launch> {
    let blocks = u32::try_from(threads.div_ceil(256)).context("too many elements")?;
    Ok(Launch::linear(blocks, 256))
}

pub fn grid(x: u64, y: u64, threads: u32) -> Result<Launch> {
    let size = |x: u64| u32::try_from(x).context("too many blocks");
    Ok(Launch {
        grid: (size(x)?, size(y)?, 1),
        block: (threads, 1, 1),
        shared_bytes: 0,
    })
}
