//! Empties the instruction caches.
//!
//! A launch that follows others of the same kernel finds its code in the instruction
//! caches of the multiprocessors; the first one fetches it through L2, from memory
//! where L2 was emptied too. For a large kernel that is microseconds, once a launch,
//! whatever the size of the problem. A profiler that works between launches leaves
//! its own code there.
//!
//! One warp a multiprocessor runs through straight code that is larger than those
//! caches hold (128 KiB on Hopper).

use std::fmt::Write;

use anyhow::Result;

use crate::device::{Buffer, Device, Launch, Module};

/// Rounds of two instructions, 16 bytes each: 256 KiB. More takes the driver's
/// compiler seconds.
const ROUNDS: u32 = 8_192;
const KERNEL: &str = "longWay";

/// Code that pushes other code out.
pub struct CodeFlush {
    module: Module,
    sink: Buffer<u32>,
    launch: Launch,
}

impl CodeFlush {
    pub fn new(device: &Device) -> Result<CodeFlush> {
        let blocks = device.hardware()?.multiprocessors.max(1);
        Ok(CodeFlush {
            module: device.load_ptx("code_flush", &ptx(ROUNDS))?,
            sink: device.poisoned(blocks as usize)?,
            launch: Launch::linear(blocks, 32),
        })
    }

    /// Behind what the default stream holds.
    pub fn enqueue(&self) -> Result<()> {
        let kernel = self.module.kernel(KERNEL)?;
        kernel.launch(self.launch, &[&self.sink])?;
        Ok(())
    }
}

/// A chain in which no two steps can be folded into one.
fn ptx(rounds: u32) -> String {
    let mut steps = String::new();
    for round in 0..rounds {
        let odd = round.wrapping_mul(0x9e37_79b9) | 1;
        // Writing to a String cannot fail.
        let _ = writeln!(
            steps,
            "mad.lo.u32 %r1, %r1, {odd}, %r2;\nxor.b32 %r1, %r1, {};",
            odd.rotate_left(7)
        );
    }
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n\
         .visible .entry {KERNEL}(.param .u64 sink) {{\n\
         .reg .b32 %r<4>; .reg .b64 %rd<4>;\n\
         ld.param.u64 %rd1, [sink]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n\
         {steps}\
         mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;\n\
         st.global.u32 [%rd1], %r1; ret;\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result depends on every step: nothing of it can be left out.
    #[test]
    fn the_code_runs_to_its_end() {
        let device = Device::open().unwrap();
        let module = device.load_ptx("code_flush", &ptx(300)).unwrap();
        let sink = device.poisoned::<u32>(2).unwrap();
        let launch = Launch::linear(2, 1);
        let kernel = module.kernel(KERNEL).unwrap();
        kernel.launch(launch, &[&sink]).unwrap();
        device.synchronize().unwrap();
        let want = |block: u32| {
            (0..300u32).fold(0u32, |x, round| {
                let odd = round.wrapping_mul(0x9e37_79b9) | 1;
                x.wrapping_mul(odd).wrapping_add(block) ^ odd.rotate_left(7)
            })
        };
        assert_eq!(sink.download().unwrap(), [want(0), want(1)]);
    }
}
