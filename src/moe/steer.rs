//! Routing that is steered into corners.

use serde::Serialize;

use super::generate::Tokens;
use super::layer::Input;
use super::shape::Shape;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steer {
    /// As the logits fall.
    Free,
    /// No token goes to this expert.
    Avoid(usize),
    /// Every token goes to this expert, in its first slot.
    Favour(usize),
    /// A given table in which a token's first two slots name the same expert.
    Duplicate,
}

impl Steer {
    /// The logits of a token.
    pub fn logits(self, shape: &Shape, tokens: &Tokens, token: usize) -> Vec<f32> {
        let mut logits = tokens.logits(shape, token);
        match self {
            Steer::Avoid(expert) => logits[expert] = -30.0,
            Steer::Favour(expert) => logits[expert] = 30.0,
            Steer::Free | Steer::Duplicate => {}
        }
        logits
    }

    /// A table that is given instead of computed.
    pub fn given(self, shape: &Shape, input: &Input) -> Option<(Vec<u32>, Vec<f32>)> {
        if self != Steer::Duplicate {
            return None;
        }
        let (mut index, mut weight) = (Vec::new(), Vec::new());
        for token in input.first..input.first + input.count {
            let (i, w) = input.tokens.duplicated(shape, token);
            index.extend(i);
            weight.extend(w);
        }
        Some((index, weight))
    }
}
