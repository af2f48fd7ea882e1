//! Planted coordination faults: what ranks get wrong in practice, one rank each.

use serde::Serialize;

use super::finding::Stage;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The receiver looks for each rank's rows at the offset of another rank.
    WrongRankOffset,
    /// Ranks that send nothing are left out of the list, the counts are not.
    SkippedEmptyRank,
    /// The layout is made from the counts of the iteration before.
    StaleCounts,
    /// The weights of the next local expert are used.
    ExpertsPermuted,
    /// Codes go to their rows, scales stay in order of arrival.
    ScalesNotMoved,
    /// The last token of the rank is not sent.
    LastTokenDropped,
    /// Each copy is weighted with the weight of the next.
    CombineWeightsOff,
    /// The receive buffer is read before the new rows are in it.
    MissingSynchronisation,
}

impl Fault {
    pub const ALL: [Fault; 8] = [
        Fault::WrongRankOffset,
        Fault::SkippedEmptyRank,
        Fault::StaleCounts,
        Fault::ExpertsPermuted,
        Fault::ScalesNotMoved,
        Fault::LastTokenDropped,
        Fault::CombineWeightsOff,
        Fault::MissingSynchronisation,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::WrongRankOffset => "wrong-rank-offset",
            Fault::SkippedEmptyRank => "skipped-empty-rank",
            Fault::StaleCounts => "stale-counts",
            Fault::ExpertsPermuted => "experts-permuted",
            Fault::ScalesNotMoved => "scales-not-moved",
            Fault::LastTokenDropped => "last-token-dropped",
            Fault::CombineWeightsOff => "combine-weights-off",
            Fault::MissingSynchronisation => "missing-synchronisation",
        }
    }

    /// In words, for reports.
    pub fn describe(self) -> &'static str {
        match self {
            Fault::WrongRankOffset => "rows of each rank looked for at another rank's offset",
            Fault::SkippedEmptyRank => "empty ranks left out of the rank list, not of the counts",
            Fault::StaleCounts => "layout made from the previous iteration's counts",
            Fault::ExpertsPermuted => "each local expert computed with the next one's weights",
            Fault::ScalesNotMoved => "scales left in order of arrival while codes move",
            Fault::LastTokenDropped => "last token of the rank not sent",
            Fault::CombineWeightsOff => "each copy weighted with the next copy's weight",
            Fault::MissingSynchronisation => "receive buffer read before the new rows are in it",
        }
    }

    /// Where the first finding must be: a fault that is seen later only is seen by
    /// its consequences, and would not be named.
    pub fn stages(self) -> &'static [Stage] {
        match self {
            Fault::WrongRankOffset | Fault::MissingSynchronisation => {
                &[Stage::Indices, Stage::Weights, Stage::Tokens]
            }
            Fault::SkippedEmptyRank | Fault::StaleCounts | Fault::LastTokenDropped => {
                &[Stage::Counts]
            }
            Fault::ExpertsPermuted => &[Stage::FirstGemm],
            Fault::ScalesNotMoved => &[Stage::Scales],
            Fault::CombineWeightsOff => &[Stage::Combine],
        }
    }

    /// With one rank there is nothing to get wrong.
    pub fn needs_ranks(self) -> usize {
        match self {
            Fault::WrongRankOffset | Fault::SkippedEmptyRank | Fault::MissingSynchronisation => 2,
            _ => 1,
        }
    }
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        Fault::ALL
            .into_iter()
            .find(|fault| fault.name() == text)
            .ok_or_else(|| {
                let names: Vec<&str> = Fault::ALL.iter().map(|f| f.name()).collect();
                format!("`{text}`: expected one of {}", names.join(", "))
            })
    }
}
