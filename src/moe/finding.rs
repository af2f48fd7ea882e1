//! What a check found: where in the layer, on which rank, for which expert and token.

use serde::{Deserialize, Serialize};

/// Checks in the order of the layer. The first stage with a finding is the one that
/// went wrong: each stage is judged by what the stage before really produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    Routing,
    Counts,
    Indices,
    Weights,
    Tokens,
    Scales,
    Padding,
    FirstGemm,
    Activation,
    SecondGemm,
    Return,
    Combine,
    Rerun,
    RankCount,
}

impl Stage {
    pub const ALL: [Stage; 14] = [
        Stage::Routing,
        Stage::Counts,
        Stage::Indices,
        Stage::Weights,
        Stage::Tokens,
        Stage::Scales,
        Stage::Padding,
        Stage::FirstGemm,
        Stage::Activation,
        Stage::SecondGemm,
        Stage::Return,
        Stage::Combine,
        Stage::Rerun,
        Stage::RankCount,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Stage::Routing => "routing",
            Stage::Counts => "counts",
            Stage::Indices => "indices",
            Stage::Weights => "weights",
            Stage::Tokens => "tokens",
            Stage::Scales => "scales",
            Stage::Padding => "padding",
            Stage::FirstGemm => "first-gemm",
            Stage::Activation => "activation",
            Stage::SecondGemm => "second-gemm",
            Stage::Return => "return",
            Stage::Combine => "combine",
            Stage::Rerun => "rerun",
            Stage::RankCount => "rank-count",
        }
    }

    /// What the stage's check turns away.
    pub fn rejects(self) -> &'static str {
        match self {
            Stage::Routing => "a choice of experts or a weight outside its computed bound",
            Stage::Counts => "an expert that computes another number of rows than it was sent",
            Stage::Indices => "a row that carries another token's index, slot or expert",
            Stage::Weights => "a row that carries another copy's weight",
            Stage::Tokens => "a code that is not the token's",
            Stage::Scales => "a scale that is not the token's",
            Stage::Padding => "a padding row that is not zero",
            Stage::FirstGemm => "an element outside the GEMM bound, or a masked row written",
            Stage::Activation => "a scale or code that SwiGLU of the first GEMM's rows cannot give",
            Stage::SecondGemm => "an element outside the GEMM bound, or a masked row written",
            Stage::Return => "a row that is not bit for bit what the expert's rank computed",
            Stage::Combine => "a result that is not the weighted sum in slot order, bit for bit",
            Stage::Rerun => "other bits in a second run",
            Stage::RankCount => "a result that depends on the number of ranks",
        }
    }
}

/// A token by the rank that owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenAt {
    pub rank: usize,
    pub token: usize,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub stage: Stage,
    /// The rank that got it wrong, as far as the check can tell.
    pub rank: usize,
    pub expert: Option<usize>,
    pub token: Option<TokenAt>,
    pub iteration: u64,
    /// Got, want, and by which gate.
    pub detail: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: rank {}", self.stage.name(), self.rank)?;
        if let Some(expert) = self.expert {
            write!(f, ", expert {expert}")?;
        }
        if let Some(at) = self.token {
            write!(f, ", token {} of rank {}", at.token, at.rank)?;
        }
        write!(f, ", iteration {}: {}", self.iteration, self.detail)
    }
}

/// Findings of one rank, the first few of each stage; the others are counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    pub list: Vec<Finding>,
    pub more: usize,
}

const KEPT: usize = 4;

impl Findings {
    pub fn push(&mut self, finding: Finding) {
        let same = self.list.iter().filter(|f| f.stage == finding.stage);
        if same.count() < KEPT {
            self.list.push(finding);
        } else {
            self.more += 1;
        }
    }

    pub fn merge(&mut self, other: Findings) {
        self.more += other.more;
        other
            .list
            .into_iter()
            .for_each(|finding| self.push(finding));
    }

    /// The finding of the earliest iteration and stage: nearest to the cause.
    pub fn first(&self) -> Option<&Finding> {
        self.list.iter().min_by_key(|f| (f.iteration, f.stage))
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
