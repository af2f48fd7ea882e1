//! Gates of well-known suites, each from its published formula, to be run over
//! the same faults as ours. They see what their suites see: the output array, a
//! reference, and nothing about guard bands, poison or a second run.

use crate::lowp::OutputType;

/// What a rival gate is given. All three slices have the same length.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub got: &'a [f64],
    /// The dequantised product, rounded to the output type.
    pub shared: &'a [f64],
    /// The product before quantising; equal to `shared` where that does not exist.
    pub unquantised: &'a [f64],
    pub output: OutputType,
    /// Whether B is FP4.
    pub fp4: bool,
}

/// A gate of another suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum Rival {
    DeepGemm,
    VllmScaledMm,
    VllmBlock,
    SglangBlockwise,
    FlashInfer,
    SeedFixed,
    TransformerEngine,
    TorchDefaults,
}

impl Rival {
    pub const ALL: [Rival; 8] = [
        Rival::DeepGemm,
        Rival::VllmScaledMm,
        Rival::VllmBlock,
        Rival::SglangBlockwise,
        Rival::FlashInfer,
        Rival::SeedFixed,
        Rival::TransformerEngine,
        Rival::TorchDefaults,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Rival::DeepGemm => "DeepGEMM",
            Rival::VllmScaledMm => "vLLM scaled_mm",
            Rival::VllmBlock => "vLLM block",
            Rival::SglangBlockwise => "SGLang",
            Rival::FlashInfer => "FlashInfer",
            Rival::SeedFixed => "fixed atol",
            Rival::TransformerEngine => "TE C++",
            Rival::TorchDefaults => "torch defaults",
        }
    }

    pub fn formula(self) -> &'static str {
        match self {
            Rival::DeepGemm => "calc_diff(got, unquantised) < 1e-3 (FP4: 1e-2)",
            Rival::VllmScaledMm => "|got - ref| <= 0.15 + 0.5 |ref|",
            Rival::VllmBlock => "mean|got - ref| / mean|ref| < 1e-3",
            Rival::SglangBlockwise => "|got - ref| <= 1 + 0.02 |ref|",
            Rival::FlashInfer => "cosine(got, ref) > 0.99",
            Rival::SeedFixed => "|got - ref| <= 0.005 (FP4: 0.02)",
            Rival::TransformerEngine => "fail if |got - ref| > 1e-5 and |got - ref| > 0.01 |ref|",
            Rival::TorchDefaults => "|got - ref| <= 1e-5 + rtol |ref| of the output type",
        }
    }

    /// Whether the gate accepts. The comparisons are written as the suites write
    /// them, NaN behaviour included.
    pub fn accepts(self, view: &View<'_>) -> bool {
        let View { got, shared, .. } = *view;
        assert!(got.len() == shared.len() && got.len() == view.unquantised.len());
        match self {
            Rival::DeepGemm => {
                calc_diff(got, view.unquantised) < if view.fp4 { 1e-2 } else { 1e-3 }
            }
            Rival::VllmScaledMm => all_close(got, shared, 0.5, 0.15),
            Rival::VllmBlock => {
                let error: f64 = pairs(got, shared).map(|(x, y)| (x - y).abs()).sum();
                let size: f64 = shared.iter().map(|y| y.abs()).sum();
                error / size < 1e-3
            }
            Rival::SglangBlockwise => all_close(got, shared, 0.02, 1.0),
            Rival::FlashInfer => {
                let dot: f64 = pairs(got, shared).map(|(x, y)| x * y).sum();
                let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
                dot / (norm(got) * norm(shared)) > 0.99
            }
            Rival::SeedFixed => all_close(got, shared, 0.0, if view.fp4 { 0.02 } else { 0.005 }),
            // A mismatch must be larger than both limits: NaN is larger than nothing.
            Rival::TransformerEngine => !pairs(got, shared).any(|(x, y)| {
                let error = (x - y).abs();
                error > 1e-5 && error > 0.01 * y.abs()
            }),
            Rival::TorchDefaults => {
                let rtol = match view.output {
                    OutputType::F32 => 1.3e-6,
                    OutputType::F16 => 1e-3,
                    OutputType::Bf16 => 1.6e-2,
                };
                all_close(got, shared, rtol, 1e-5)
            }
        }
    }
}

fn pairs<'a>(x: &'a [f64], y: &'a [f64]) -> impl Iterator<Item = (f64, f64)> + 'a {
    x.iter().copied().zip(y.iter().copied())
}

/// `torch.allclose`: NaN fails, equal infinities pass.
fn all_close(got: &[f64], want: &[f64], rtol: f64, atol: f64) -> bool {
    pairs(got, want).all(|(x, y)| x == y || (x - y).abs() <= atol + rtol * y.abs())
}

/// 1 − 2Σxy / Σ(x² + y²); 0 when both are all zeros. Between 0 and 2.
///
/// Computed as Σ(x − y)² / Σ(x² + y²), the same number without the cancellation
/// that would hide anything below 1e-16.
pub fn calc_diff(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len(), "calc_diff compares arrays of one length");
    let apart: f64 = pairs(x, y).map(|(x, y)| (x - y) * (x - y)).sum();
    let size: f64 = pairs(x, y).map(|(x, y)| x * x + y * y).sum();
    if size == 0.0 { 0.0 } else { apart / size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal() -> Vec<f64> {
        use crate::gemm::inputs::{Input, Stream, value};
        (0..4096)
            .map(|i| 22.0 * f64::from(value(Input::Normal, 1, Stream::A, 0, i, 4096)))
            .collect()
    }

    fn accepts(rival: Rival, got: &[f64], want: &[f64]) -> bool {
        rival.accepts(&View {
            got,
            shared: want,
            unquantised: want,
            output: OutputType::Bf16,
            fp4: false,
        })
    }

    #[test]
    fn calc_diff_is_the_published_formula() {
        let (x, y) = ([1.0, 2.0, -3.0], [1.1, 2.0, -2.5]);
        let dot: f64 = pairs(&x, &y).map(|(x, y)| x * y).sum();
        let size: f64 = pairs(&x, &y).map(|(x, y)| x * x + y * y).sum();
        assert!((calc_diff(&x, &y) - (1.0 - 2.0 * dot / size)).abs() < 1e-15);
        assert_eq!(calc_diff(&[0.0], &[0.0]), 0.0);
        assert!(calc_diff(&[f64::NAN], &[1.0]).is_nan());
    }

    /// The holes that each gate is known for, and that it still rejects rubbish.
    #[test]
    fn each_gate_accepts_the_fault_it_is_known_to_miss_and_rejects_noise() {
        let want = normal();
        let scaled = |factor: f64| want.iter().map(|x| x * factor).collect::<Vec<f64>>();
        let mut wild = want.clone();
        wild[77] = 1000.0;
        let mut nan = want.clone();
        nan[5] = f64::NAN;
        let mut rubbish = want.clone();
        rubbish.reverse();
        for (rival, missed) in [
            (Rival::DeepGemm, scaled(1.02)),
            (Rival::VllmScaledMm, scaled(1.45)),
            (Rival::FlashInfer, scaled(7.0)),
            (Rival::TransformerEngine, nan.clone()),
            (Rival::TorchDefaults, scaled(1.01)),
        ] {
            assert!(accepts(rival, &missed, &want), "{}", rival.name());
        }
        for rival in Rival::ALL {
            assert!(accepts(rival, &want, &want), "{}", rival.name());
            assert!(!accepts(rival, &rubbish, &want), "{}", rival.name());
            if rival != Rival::TransformerEngine {
                assert!(!accepts(rival, &nan, &want), "{}", rival.name());
            }
        }
        assert!(!accepts(Rival::SeedFixed, &scaled(1.001), &want));
        assert!(!accepts(Rival::SglangBlockwise, &wild, &want));
    }
}
