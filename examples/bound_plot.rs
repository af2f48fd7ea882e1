//! Draws the error of a kernel beside its bound: `docs/gemm-error-and-bound.svg`.
//!
//! `cargo run --release --example bound_plot -- FILE.svg` runs `simt` and the
//! truncating kernels on 32 × 32 × k for k of 16 to 4,096 and plots, for each k, the
//! largest error and the bound at that element, both relative to the rms of C.

use anyhow::{Context, Result};
use kernelgate::device::Device;
use kernelgate::exit::{self, Exit, UsageError};
use kernelgate::gemm::case::Case;
use kernelgate::gemm::faults::CATALOGUE;
use kernelgate::gemm::gate::results;
use kernelgate::gemm::inputs::Input;
use kernelgate::gemm::operands::Operands;
use kernelgate::gemm::planted::Plant;
use kernelgate::gemm::problem::{Problem, tensor_recipes};
use kernelgate::gemm::reference;
use kernelgate::gemm::runner::Stage;
use kernelgate::gemm::subject::Subject;
use kernelgate::lowp::OutputType;
use kernelgate::outln;
use std::process::ExitCode;

/// (k, largest error, bound there), relative to rms(C).
type Points = Vec<(usize, f64, f64)>;

fn measure(device: &Device, subject: &dyn Subject, input: Input) -> Result<Points> {
    (4..=12)
        .map(|power| {
            let k = 1 << power;
            let problem = Problem::dense(32, 32, k, OutputType::F32).with_recipes(tensor_recipes());
            let case = Case::new("plot", problem.clone(), input, 1);
            let operands = Operands::generate(&case)?;
            let c = Stage::new(device, &case, &operands)?.execute(subject)?.c;
            let reference = reference::compute(&problem, &operands, subject.accumulator(&problem));
            let (got, reference) = (&results(&case, &c)[0], &reference[0]);
            let squares: f64 = reference.want.iter().map(|x| x * x).sum();
            let rms = (squares / got.len() as f64).sqrt();
            let worst = (0..got.len())
                .max_by(|&i, &j| {
                    let error = |i: usize| (got[i] - reference.want[i]).abs();
                    error(i).total_cmp(&error(j))
                })
                .context("C is empty")?;
            let error = (got[worst] - reference.want[worst]).abs();
            Ok((k, error / rms, reference.accumulation(worst) / rms))
        })
        .collect()
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Decades of the vertical axis.
const DECADES: std::ops::Range<i32> = -9..0;

fn place(k: usize, y: f64) -> String {
    let x = 60.0 + ((k as f64).log2() - 4.0) / 8.0 * (WIDTH - 230.0);
    let span = f64::from(DECADES.end - DECADES.start);
    let up = (y.max(1e-9).log10() - f64::from(DECADES.start)) / span;
    format!("{x:.1},{:.1}", HEIGHT - 40.0 - up * (HEIGHT - 70.0))
}

fn line(points: &Points, colour: &str, bound: bool, label: &str) -> String {
    let at = |p: &(usize, f64, f64)| place(p.0, if bound { p.2 } else { p.1 });
    let path: Vec<String> = points.iter().map(at).collect();
    let dash = if bound {
        "stroke-dasharray=\"6 4\""
    } else {
        ""
    };
    let end = path.last().cloned().unwrap_or_default();
    let (x, y) = end.split_once(',').unwrap_or(("0", "0"));
    format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" {dash}/>\n\
         <text x=\"{x}\" y=\"{y}\" dx=\"6\" dy=\"4\" font-size=\"11\" fill=\"{colour}\">{label}</text>\n",
        path.join(" ")
    )
}

fn axes() -> String {
    let mut text = String::new();
    for decade in DECADES {
        let y = place(16, 10f64.powi(decade));
        let y = y.split_once(',').map_or("0", |p| p.1);
        text += &format!(
            "<line x1=\"60\" x2=\"470\" y1=\"{y}\" y2=\"{y}\" stroke=\"#ddd\"/>\n\
             <text x=\"54\" y=\"{y}\" dy=\"4\" font-size=\"11\" text-anchor=\"end\">1e{decade}</text>\n"
        );
    }
    for power in 4..=12 {
        let x = place(1 << power, 1e-9);
        let x = x.split_once(',').map_or("0", |p| p.0);
        text += &format!(
            "<text x=\"{x}\" y=\"378\" font-size=\"11\" text-anchor=\"middle\">{}</text>\n",
            1 << power
        );
    }
    text + "<text x=\"265\" y=\"396\" font-size=\"12\" text-anchor=\"middle\">k</text>\n"
}

fn main() -> ExitCode {
    exit::run(plot)
}

fn plot() -> Result<Exit> {
    let path = std::env::args()
        .nth(1)
        .ok_or_else(|| UsageError("expected the name of the SVG to write".into()))?;
    let device = Device::open()?;
    outln!("{}", device.banner())?;
    let plant = Plant::load(&device)?;
    let truncating = CATALOGUE
        .iter()
        .find(|fault| fault.name == "missing-promotion")
        .context("no such fault")?;
    let simt = kernelgate::gemm::simt::Simt::load(&device)?;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" role=\"img\">\n<title>Largest error of a kernel, solid, and its \
         computed bound, dashed, over k; relative to the rms of C</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}",
        axes()
    );
    let promoted = plant.twin(truncating);
    let never = plant.fault(truncating);
    let curves: [(&dyn Subject, Input, &str, &str); 4] = [
        (&simt, Input::Normal, "#1f6fb2", "FP32, normal"),
        (&simt, Input::Positive, "#2a9d5c", "FP32, positive"),
        (
            &promoted,
            Input::Positive,
            "#b26a1f",
            "13 bits, promoted, positive",
        ),
        (
            &never,
            Input::Positive,
            "#c0392b",
            "13 bits, never promoted",
        ),
    ];
    for (subject, input, colour, label) in curves {
        let points = measure(&device, subject, input)?;
        for (k, error, bound) in &points {
            outln!("{label}: k {k}, error {error:.3e}, bound {bound:.3e} of rms(C)")?;
        }
        svg += &line(&points, colour, false, label);
        // The kernel that never promotes is held to its twin's bound.
        if subject.name() != never.name() {
            svg += &line(&points, colour, true, "");
        }
    }
    std::fs::write(&path, svg + "</svg>\n").with_context(|| format!("cannot write {path}"))?;
    Ok(Exit::Held)
}
