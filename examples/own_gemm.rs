//! Put a kernel of your own under test: PTX text in, verdict out.
//!
//! The kernel here is one thread an element, FP8 by FP8 with tensor-wide scales.
//! `cargo run --example own_gemm` compiles it from CUDA C++ that stands in
//! `examples/own_gemm.cu`; the PTX beside it is what nvcc made of that file.

use anyhow::Result;
use kernelgate::device::{Argument, Device, Launch, Module};
use kernelgate::exit::{self, Exit};
use kernelgate::gemm::bound::Accumulator;
use kernelgate::gemm::check::{Limits, run_case};
use kernelgate::gemm::problem::{Problem, tensor_recipes};
use kernelgate::gemm::subject::{DeviceOperands, Subject};
use kernelgate::gemm::{case::Case, inputs::Input};
use kernelgate::lowp::OutputType;
use kernelgate::outln;
use std::process::ExitCode;

struct OwnGemm(Module);

impl Subject for OwnGemm {
    fn name(&self) -> &str {
        "own"
    }
    fn refusal(&self, problem: &Problem) -> Option<String> {
        let simple =
            problem.output == OutputType::F32 && (problem.a, problem.b) == tensor_recipes();
        (!simple).then(|| "own writes FP32 from E4M3 with tensor-wide scales".to_owned())
    }
    fn accumulator(&self, _: &Problem) -> Accumulator {
        Accumulator::Fp32
    }
    fn tile(&self, _: &Problem) -> (usize, usize) {
        (1, 64)
    }
    fn launch(&self, _: &Device, p: &Problem, o: &DeviceOperands) -> Result<()> {
        let (n, k, ldc) = (p.n as u32, p.k as u32, p.ldc() as u32);
        let launch = Launch {
            grid: (n.div_ceil(64), p.m as u32, 1),
            block: (64, 1, 1),
            shared_bytes: 0,
        };
        let arguments: [&dyn Argument; 8] =
            [&o.a, &o.b, &o.a_scale, &o.b_scale, &o.c, &n, &k, &ldc];
        Ok(self.0.kernel("ownGemm")?.launch(launch, &arguments)?)
    }
}

fn main() -> ExitCode {
    exit::run(check)
}

fn check() -> Result<Exit> {
    let device = Device::open()?;
    outln!("{}", device.banner())?;
    let own = OwnGemm(device.load_ptx("own_gemm", include_str!("own_gemm.ptx"))?);
    for input in [Input::Integers, Input::Normal, Input::Positive] {
        let problem = Problem::dense(5, 70, 200, OutputType::F32).with_recipes(tensor_recipes());
        let case = Case::new("example", problem, input, 1);
        let outcome = run_case(&device, &own, &case, &Limits::default())?;
        outln!("{} {case}", outcome.word())?;
        if !outcome.passed() {
            outln!("{outcome:#?}")?;
            return Ok(Exit::Failed);
        }
    }
    Ok(Exit::Held)
}
