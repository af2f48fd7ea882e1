//! Sizes of a layer, and which rank owns what.

use anyhow::{Result, ensure};
use serde::Serialize;

/// How experts are chosen for a token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "scoring", rename_all = "lowercase")]
pub enum Router {
    /// By logit; weights are the softmax over the chosen.
    Softmax,
    /// DeepSeek-V3: sigmoid scores plus a bias for the choice, among the best
    /// groups of experts only; weights are the scores over their sum, scaled.
    Sigmoid {
        groups: usize,
        top_groups: usize,
        scaling: f32,
    },
}

/// Where an expert's rows lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Expert after expert, each padded with zero rows to a multiple of
    /// [`Shape::align`]; the GEMMs compute the padding too.
    Contiguous,
    /// As many rows for each expert, of which the first `count` are used. The
    /// others must be neither read nor written.
    Masked,
}

impl Layout {
    pub const ALL: [Layout; 2] = [Layout::Contiguous, Layout::Masked];

    pub fn name(self) -> &'static str {
        match self {
            Layout::Contiguous => "contiguous",
            Layout::Masked => "masked",
        }
    }
}

/// A mixture-of-experts layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shape {
    /// Columns of a token.
    pub hidden: usize,
    /// Columns between the two GEMMs of an expert.
    pub intermediate: usize,
    pub experts: usize,
    pub top_k: usize,
    pub router: Router,
    /// Rows to which the contiguous layout pads an expert.
    pub align: usize,
}

/// Elements that share a scale along a row; 128 × 128 share one in weights.
pub const GROUP: usize = 128;

impl Shape {
    /// A layer that the CPU driver runs in a fraction of a second. 160 and 96 are
    /// ragged for the scale groups and for the GEMM's tiles.
    pub fn small(experts: usize) -> Shape {
        let groups = [4, 2, 3, 5, 7]
            .into_iter()
            .find(|groups| experts.is_multiple_of(*groups))
            .unwrap_or(1);
        Shape {
            hidden: 160,
            intermediate: 96,
            experts,
            top_k: 3,
            router: Router::Sigmoid {
                groups,
                top_groups: groups.div_ceil(2),
                scaling: 2.5,
            },
            align: 4,
        }
    }

    /// DeepSeek-V3: 256 experts in 8 groups, the best 4 groups, top 8.
    pub fn deepseek() -> Shape {
        Shape {
            hidden: 7168,
            intermediate: 2048,
            experts: 256,
            top_k: 8,
            router: Router::Sigmoid {
                groups: 8,
                top_groups: 4,
                scaling: 2.5,
            },
            align: 128,
        }
    }

    /// Mixtral 8x7B.
    pub fn mixtral() -> Shape {
        Shape {
            hidden: 4096,
            intermediate: 14336,
            experts: 8,
            top_k: 2,
            router: Router::Softmax,
            align: 128,
        }
    }

    /// Refuses what the kernels cannot mean.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.hidden > 0 && self.intermediate > 0,
            "hidden {} and intermediate {} must be at least 1",
            self.hidden,
            self.intermediate
        );
        ensure!(
            (1..=1024).contains(&self.experts),
            "{} experts: the router handles 1 to 1,024",
            self.experts
        );
        ensure!(
            self.align > 0,
            "rows are aligned to a multiple of at least 1"
        );
        let reachable = match self.router {
            Router::Softmax => self.experts,
            Router::Sigmoid {
                groups, top_groups, ..
            } => {
                ensure!(
                    (1..=32).contains(&groups) && self.experts.is_multiple_of(groups),
                    "{groups} groups of {} experts: expected 1 to 32 groups of equal size",
                    self.experts
                );
                ensure!(
                    (1..=groups).contains(&top_groups),
                    "the best {top_groups} of {groups} groups cannot be chosen"
                );
                self.experts / groups * top_groups
            }
        };
        ensure!(
            (1..=reachable).contains(&self.top_k),
            "top {} of {reachable} experts cannot be chosen",
            self.top_k
        );
        Ok(())
    }

    /// Scales of one token, and of one row of the first GEMM's weights.
    pub fn hidden_scales(&self) -> usize {
        self.hidden.div_ceil(GROUP)
    }

    /// Scales of one row between the GEMMs.
    pub fn intermediate_scales(&self) -> usize {
        self.intermediate.div_ceil(GROUP)
    }

    /// The experts of `rank`: consecutive, as even as they come. A rank may own none.
    pub fn experts_of(&self, rank: usize, ranks: usize) -> std::ops::Range<usize> {
        rank * self.experts / ranks..(rank + 1) * self.experts / ranks
    }

    /// The rank that owns `expert`.
    pub fn owner(&self, expert: usize, ranks: usize) -> usize {
        // The last rank whose range starts at or before the expert.
        ((expert + 1) * ranks - 1) / self.experts
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "hidden {} intermediate {} experts {} top {} {}",
            self.hidden,
            self.intermediate,
            self.experts,
            self.top_k,
            match self.router {
                Router::Softmax => "softmax".to_owned(),
                Router::Sigmoid {
                    groups, top_groups, ..
                } => format!("sigmoid {top_groups}/{groups} groups"),
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expert_has_one_owner_for_any_number_of_ranks() {
        for experts in [1, 2, 7, 8, 64, 256] {
            let shape = Shape {
                experts,
                ..Shape::small(8)
            };
            for ranks in 1..=70 {
                let mut next = 0;
                for rank in 0..ranks {
                    let range = shape.experts_of(rank, ranks);
                    assert_eq!(range.start, next, "{experts} experts, {ranks} ranks");
                    next = range.end;
                    for expert in range {
                        assert_eq!(shape.owner(expert, ranks), rank);
                    }
                }
                assert_eq!(next, experts);
            }
        }
    }

    #[test]
    fn presets_hold_and_impossible_choices_are_refused() {
        for shape in [Shape::deepseek(), Shape::mixtral()] {
            shape.check().unwrap();
        }
        // Eight experts, or two a rank: any number of ranks.
        for experts in std::iter::once(8).chain((10..=1024).step_by(2)) {
            Shape::small(experts).check().unwrap();
        }
        let small = Shape::small(8);
        for wrong in [
            Shape { hidden: 0, ..small },
            Shape { top_k: 0, ..small },
            Shape { top_k: 5, ..small },
            Shape {
                experts: 6,
                ..small
            },
            Shape {
                experts: 2048,
                ..small
            },
            Shape { align: 0, ..small },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
