//! How to time a kernel of your own: `cargo bench --bench own_kernel`.
//!
//! The kernel is PTX text, here `out = 2 in + 1`. [`bench`] wants a closure that
//! launches and does not wait; the result is checked after timing, because a kernel
//! that does nothing is the fastest. Without a GPU it says why it did not run and
//! exits 3: a skip is no pass.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use kernelgate::device::{Device, Launch};
use kernelgate::exit::{self, Exit};
use kernelgate::outln;
use kernelgate::perf::bench;

const PTX: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry doubleAndOne(.param .u64 from, .param .u64 to, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %rd<6>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [to];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p, %r2, %r1;
    @%p ret;
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    fma.rn.f32 %f2, %f1, 0f40000000, 0f3F800000;
    st.global.f32 [%rd5], %f2;
    ret;
}
";

fn main() -> ExitCode {
    exit::run(run)
}

fn run() -> Result<Exit> {
    let device = Device::open()?;
    outln!("{}", device.banner())?;
    let n = 1u32 << 24;
    let input: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    let from = device.upload(&input)?;
    let to = device.poisoned::<f32>(input.len())?;
    let module = device.load_ptx("own kernel", PTX)?;
    let kernel = module.kernel("doubleAndOne")?;
    let launch = Launch::linear(n.div_ceil(256), 256);
    let time = bench(
        &device,
        || Ok(kernel.launch(launch, &[&from, &to, &n])?),
        10,
        50,
    )?;
    let got = to.download()?;
    let wrong = (0..input.len()).find(|&i| got[i] != 2.0 * input[i] + 1.0);
    ensure!(wrong.is_none(), "element {wrong:?} is wrong after timing");
    outln!(
        "doubleAndOne: {:.2} us ({:.2} to {:.2}), {:.0} GB/s",
        time.median,
        time.interval.0,
        time.interval.1,
        8.0 * f64::from(n) / time.median / 1e3
    )?;
    Ok(Exit::Held)
}
