//! Put a kernel of your own under test: PTX or a cubin in, verdict out; a module that
//! the device refuses is a skip. `own_gemm -- FILE` takes another than `own_gemm.cu`'s.
use anyhow::Result;
use kernelgate::device::{Argument, Device, DeviceError, Launch, Module};
use kernelgate::gemm::check::{Limits, run_case};
use kernelgate::gemm::problem::{Problem, tensor_recipes};
use kernelgate::gemm::subject::{DeviceOperands, Subject};
use kernelgate::gemm::{bound::Accumulator, case::Case, inputs::Input};
use kernelgate::{exit, exit::Exit, lowp::OutputType::F32, outln};

struct OwnGemm(Result<Module, DeviceError>);

impl Subject for OwnGemm {
    fn name(&self) -> &str {
        "own"
    }
    fn refusal(&self, p: &Problem) -> Option<String> {
        let simple = p.output == F32 && (p.a, p.b) == tensor_recipes();
        let other = (!simple).then(|| "own: FP32 from E4M3, one scale a tensor".into());
        self.0
            .as_ref()
            .map_or_else(|e| Some(e.to_string()), |_| other)
    }
    fn accumulator(&self, _: &Problem) -> Accumulator {
        Accumulator::Fp32
    }
    fn tile(&self, _: &Problem) -> (usize, usize) {
        (1, 64)
    }
    fn launch(&self, _: &Device, p: &Problem, o: &DeviceOperands) -> Result<()> {
        let (n, k, ldc) = (p.n as u32, p.k as u32, p.ldc() as u32);
        let mut launch = Launch::linear(n.div_ceil(64), 64);
        launch.grid.1 = p.m as u32;
        let args: [&dyn Argument; 8] = [&o.a, &o.b, &o.a_scale, &o.b_scale, &o.c, &n, &k, &ldc];
        let module = self.0.as_ref().map_err(Clone::clone)?;
        Ok(module.kernel("ownGemm")?.launch(launch, &args)?)
    }
}

fn main() -> std::process::ExitCode {
    exit::run(|| {
        let device = Device::open()?;
        outln!("{}", device.banner())?;
        let own = OwnGemm(match std::env::args().nth(1) {
            Some(file) => device.load_file(file.as_ref()),
            None => device.load_ptx("own_gemm", include_str!("own_gemm.ptx")),
        });
        for input in [Input::Integers, Input::Normal, Input::Positive] {
            let problem = Problem::dense(5, 70, 200, F32).with_recipes(tensor_recipes());
            let case = Case::new("example", problem, input, 1);
            let outcome = run_case(&device, &own, &case, &Limits::default())?;
            outln!("{} {case}\n{outcome:#?}", outcome.word())?;
            if !outcome.passed() {
                return Ok(outcome.exit());
            }
        }
        Ok(Exit::Held)
    })
}
