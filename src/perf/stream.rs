//! Memory-bound workloads: sums, copy and the lesson kernels.
//!
//! Every result is compared in full: elementwise kernels element by element against
//! values made again on the host, sums exactly (small integers, so that any order
//! gives the same bits).

use std::fmt::Write;

use anyhow::{Result, ensure};

use super::inputs::{Filler, in_parallel, slot, small_integers, words};
use super::peaks::Unit;
use super::roofline::Work;
use super::workload::{About, Checked, Config, Workload};
use crate::device::{Argument, Buffer, Device, Launch, Module};
use crate::kernels::{
    ADJACENT_DIFFERENCE, COPY, KernelModule, REDUCE, REDUCE_VECTORISED, SQUARE, WINDOW_SUM,
};

const THREADS: u32 = 256;

/// Value of an element of the input.
type Input<'a> = &'a dyn Fn(u64) -> u32;

/// What a kernel does with its n words.
#[derive(Clone, Copy)]
enum Leaves {
    /// One float a block; their sum must be the sum of the input.
    Sum,
    /// Word i must be this function of (input, i, n).
    Words(fn(Input<'_>, u64, u64) -> u32),
}

/// A kernel, how it is launched and what it must leave.
#[derive(Clone, Copy)]
pub struct Stream {
    pub name: &'static str,
    module: KernelModule,
    /// `None`: the driver's own copy.
    pub kernel: Option<&'static str>,
    /// Words that a thread takes; 0 for a grid-stride loop.
    words_a_thread: u64,
    result: Leaves,
    floats: bool,
    /// The kernel counts quads of 16 bytes.
    quads: bool,
}

/// The streams, by name.
pub const STREAMS: [Stream; 7] = [
    Stream {
        name: "vectorised-sum",
        module: REDUCE_VECTORISED,
        kernel: Some("vectorisedSum"),
        words_a_thread: 0,
        result: Leaves::Sum,
        floats: true,
        quads: false,
    },
    Stream {
        name: "block-tree-sum",
        module: REDUCE,
        kernel: Some("blockTreeSum"),
        words_a_thread: 1,
        result: Leaves::Sum,
        floats: true,
        quads: false,
    },
    Stream {
        name: "copy",
        module: COPY,
        kernel: Some("copyQuads"),
        words_a_thread: 0,
        result: Leaves::Words(|input, i, _| input(i)),
        floats: false,
        quads: true,
    },
    Stream {
        name: "memcpy",
        module: COPY,
        kernel: None,
        words_a_thread: 0,
        result: Leaves::Words(|input, i, _| input(i)),
        floats: false,
        quads: true,
    },
    Stream {
        name: "square",
        module: SQUARE,
        kernel: Some("squareGuarded"),
        words_a_thread: 1,
        result: Leaves::Words(|input, i, _| {
            let x = f32::from_bits(input(i));
            (x * x).to_bits()
        }),
        floats: true,
        quads: false,
    },
    Stream {
        name: "adjacent-difference",
        module: ADJACENT_DIFFERENCE,
        kernel: Some("diffNext"),
        words_a_thread: 1,
        result: Leaves::Words(|input, i, n| {
            if i + 1 < n {
                input(i + 1).wrapping_sub(input(i))
            } else {
                0
            }
        }),
        floats: false,
        quads: false,
    },
    Stream {
        name: "window-sum",
        module: WINDOW_SUM,
        kernel: Some("windowSum"),
        words_a_thread: 1,
        result: Leaves::Words(window_sum),
        floats: false,
        quads: false,
    },
];

fn window_sum(input: Input<'_>, i: u64, n: u64) -> u32 {
    let before = if i > 0 { input(i - 1) } else { 0 };
    let after = if i + 1 < n { input(i + 1) } else { 0 };
    before.wrapping_add(input(i)).wrapping_add(after)
}

/// The stream called `name`.
pub fn stream(name: &str) -> Option<&'static Stream> {
    STREAMS.iter().find(|stream| stream.name == name)
}

/// A stream on `n` words.
pub struct StreamWorkload {
    stream: Stream,
    about: About,
    module: Module,
    filler: Filler,
    table: (Buffer<u32>, Vec<u32>),
    input: Buffer<u32>,
    output: Buffer<u32>,
    launch: Launch,
    seed: u64,
    /// Elements that a planted slowdown reads again.
    again: Option<u64>,
}

impl StreamWorkload {
    /// `bytes` of input, a multiple of 16; `ptx` where another build is meant.
    pub fn new(
        device: &Device,
        stream: &Stream,
        bytes: u64,
        ptx: Option<&str>,
    ) -> Result<StreamWorkload> {
        StreamWorkload::build(device, stream, bytes, ptx, None)
    }

    /// The vectorised sum with a planted slowdown: `share` of the input is read a
    /// second time.
    pub fn slowed(device: &Device, bytes: u64, share: f64) -> Result<StreamWorkload> {
        ensure!((0.0..=1.0).contains(&share), "a share of {share}");
        let again = (bytes as f64 / 4.0 * share) as u64;
        StreamWorkload::build(device, &STREAMS[0], bytes, None, Some(again))
    }

    fn build(
        device: &Device,
        stream: &Stream,
        bytes: u64,
        ptx: Option<&str>,
        again: Option<u64>,
    ) -> Result<StreamWorkload> {
        ensure!(
            bytes > 0 && bytes.is_multiple_of(16),
            "{bytes} bytes: expected a positive multiple of 16"
        );
        let n = bytes / 4;
        let blocks = match stream.words_a_thread {
            0 => u64::from(device.hardware()?.multiprocessors.max(1)) * 8,
            each => n.div_ceil(u64::from(THREADS) * each),
        };
        let launch = Launch::linear(u32::try_from(blocks)?, THREADS);
        let written = match stream.result {
            Leaves::Sum => blocks,
            Leaves::Words(_) => n,
        };
        let values = if stream.floats {
            small_integers()
        } else {
            words()
        };
        Ok(StreamWorkload {
            stream: *stream,
            about: about(stream, n, written, again),
            module: device.load_ptx(stream.module.name, ptx.unwrap_or(stream.module.ptx))?,
            filler: Filler::new(device)?,
            table: (device.upload(&values)?, values),
            input: device.uninitialised(usize::try_from(n)?)?,
            output: device.uninitialised(usize::try_from(written)?)?,
            launch,
            seed: 0,
            again,
        })
    }

    fn element(&self, i: u64) -> u32 {
        self.table.1[slot(self.seed, i, self.table.1.len())]
    }

    fn check_sum(&self, partials: &[u32]) -> Option<String> {
        let n = self.input.len() as u64;
        let want: i64 = in_parallel(n, |range| {
            range
                .map(|i| f32::from_bits(self.element(i)) as i64)
                .sum::<i64>()
        })
        .into_iter()
        .sum();
        // Integers: exact in f64 whatever the order.
        let got: f64 = partials
            .iter()
            .map(|&bits| f64::from(f32::from_bits(bits)))
            .sum();
        let equal = got == want as f64;
        (!equal).then(|| format!("the sum is {got}, expected {want} exactly"))
    }

    fn check_words(&self, got: &[u32], want: fn(Input<'_>, u64, u64) -> u32) -> Option<String> {
        let n = self.input.len() as u64;
        in_parallel(n, |mut range| {
            range.find_map(|i| {
                let want = want(&|i| self.element(i), i, n);
                let got = got[i as usize];
                (got != want).then(|| format!("word {i} is {got:#x}, expected {want:#x}"))
            })
        })
        .into_iter()
        .flatten()
        .next()
    }
}

impl Workload for StreamWorkload {
    fn about(&self) -> &About {
        &self.about
    }

    fn refresh(&mut self, seed: u64) -> Result<()> {
        self.seed = seed << 40;
        self.filler.words(&self.input, &self.table.0, self.seed)?;
        Ok(self.output.poison()?)
    }

    fn launch(&self) -> Result<()> {
        let name = match (self.again, self.stream.kernel) {
            (Some(_), _) => "vectorisedSumSlowed",
            (None, Some(kernel)) => kernel,
            (None, None) => return Ok(self.output.enqueue_copy(&self.input)?),
        };
        let kernel = self.module.kernel(name)?;
        let n = self.input.len() as u64 / if self.stream.quads { 4 } else { 1 };
        let mut arguments: Vec<&dyn Argument> = vec![&self.input, &self.output, &n];
        if let Some(again) = &self.again {
            arguments.push(again);
        }
        Ok(kernel.launch(self.launch, &arguments)?)
    }

    fn verify(&self) -> Result<Checked> {
        let got = self.output.download()?;
        let (failure, strength) = match self.stream.result {
            Leaves::Sum => (self.check_sum(&got), "the exact sum of all elements"),
            Leaves::Words(want) => (self.check_words(&got, want), "every word, bitwise"),
        };
        Ok(Checked {
            compared: match self.stream.result {
                Leaves::Sum => 1,
                Leaves::Words(_) => got.len(),
            },
            strength: strength.to_owned(),
            failure,
        })
    }
}

/// `1GiB`, `64MiB` or bytes.
pub fn size_name(bytes: u64) -> String {
    match bytes {
        b if b.is_multiple_of(1 << 30) => format!("{}GiB", b >> 30),
        b if b.is_multiple_of(1 << 20) => format!("{}MiB", b >> 20),
        b if b.is_multiple_of(1 << 10) => format!("{}KiB", b >> 10),
        b => format!("{b}B"),
    }
}

fn about(stream: &Stream, n: u64, written: u64, again: Option<u64>) -> About {
    let mut subject = stream.name.to_owned();
    if let Some(again) = again {
        let percent = 100.0 * again as f64 / n as f64;
        let _ = write!(subject, "+{percent:.1}%");
    }
    About {
        case: format!("{subject}/stream/{}", size_name(4 * n)),
        subject,
        form: "stream".to_owned(),
        shape: size_name(4 * n),
        mnk: None,
        dtype: if stream.floats { "f32" } else { "u32" }.to_owned(),
        recipe: "none".to_owned(),
        output: if stream.floats { "f32" } else { "u32" }.to_owned(),
        config: Config {
            warps: stream.kernel.map(|_| THREADS as usize / 32),
            ..Config::default()
        },
        work: Work {
            // One addition or so an element: memory binds, arithmetic is not rated.
            flops: 0.0,
            read: 4.0 * n as f64,
            written: 4.0 * written as f64,
            unit: Unit::Fp32,
        },
        input: if stream.floats {
            "integers 1, 2, 3, 5 of both signs, as f32"
        } else {
            "random words"
        }
        .to_owned(),
        counted: "input and output once".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sizes_read_as_written() {
        for stream in &STREAMS {
            assert_eq!(STREAMS.iter().filter(|s| s.name == stream.name).count(), 1);
        }
        assert_eq!(size_name(1 << 30), "1GiB");
        assert_eq!(size_name(96 << 20), "96MiB");
        assert_eq!(size_name(24), "24B");
    }
}
