//! Who sends which row where: the host's part of dispatch and combine.
//!
//! A *copy* is one (token, slot) with its expert. A source orders its copies by
//! expert, then token, then slot; so each owner's copies are one run, and each
//! expert's a run within it. Where an expert has room for fewer copies than it was
//! sent, the first ones in the order (source rank, token, slot) are kept: with
//! tokens numbered over the ranks that does not depend on the number of ranks.

use std::ops::Range;

use super::shape::{Layout, Shape};

/// No row: a dropped copy, or a padding row that is zeroed.
pub const NO_ROW: u32 = u32::MAX;

/// One routed copy of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Copy {
    pub expert: u32,
    pub token: u32,
    pub slot: u32,
}

/// All copies of a source in sending order, `index` being tokens × top_k.
pub fn copies(index: &[u32], top_k: usize) -> Vec<Copy> {
    let mut copies: Vec<Copy> = index
        .iter()
        .enumerate()
        .map(|(at, &expert)| Copy {
            expert,
            token: (at / top_k) as u32,
            slot: (at % top_k) as u32,
        })
        .collect();
    copies.sort_unstable();
    copies
}

/// Copies for each expert.
pub fn count(copies: &[Copy], experts: usize) -> Vec<u32> {
    let mut counts = vec![0u32; experts];
    for copy in copies {
        counts[copy.expert as usize] += 1;
    }
    counts
}

/// How many copies each rank sends to each expert after dropping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// `kept[source][expert]`.
    pub kept: Vec<Vec<u32>>,
}

impl Counts {
    /// Applies `capacity` (copies an expert takes over all ranks) to what each
    /// rank routed.
    pub fn new(routed: &[Vec<u32>], capacity: Option<u32>) -> Counts {
        let experts = routed.first().map_or(0, Vec::len);
        let mut room = vec![capacity.unwrap_or(u32::MAX); experts];
        let kept = routed
            .iter()
            .map(|counts| {
                counts
                    .iter()
                    .zip(&mut room)
                    .map(|(&count, room)| {
                        let kept = count.min(*room);
                        *room -= kept;
                        kept
                    })
                    .collect()
            })
            .collect();
        Counts { kept }
    }

    /// Copies from `source` for a range of experts.
    pub fn rows(&self, source: usize, experts: Range<usize>) -> usize {
        self.kept[source][experts].iter().map(|&c| c as usize).sum()
    }

    /// Copies that `expert` gets from all ranks.
    pub fn of_expert(&self, expert: usize) -> usize {
        self.kept.iter().map(|counts| counts[expert] as usize).sum()
    }
}

/// What a source sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendPlan {
    /// Kept copies in sending order.
    pub copies: Vec<Copy>,
    /// Rows for each rank, in sending order.
    pub to: Vec<Range<usize>>,
    /// tokens × top_k: the row of a copy in sending order, or [`NO_ROW`].
    pub position: Vec<u32>,
}

impl SendPlan {
    /// `kept` is this rank's line of [`Counts::kept`].
    pub fn new(shape: &Shape, ranks: usize, index: &[u32], kept: &[u32]) -> SendPlan {
        let mut left = kept.to_vec();
        let copies: Vec<Copy> = copies(index, shape.top_k)
            .into_iter()
            .filter(|copy| {
                let left = &mut left[copy.expert as usize];
                let keep = *left > 0;
                *left -= u32::from(keep);
                keep
            })
            .collect();
        let mut position = vec![NO_ROW; index.len()];
        for (row, copy) in copies.iter().enumerate() {
            position[copy.token as usize * shape.top_k + copy.slot as usize] = row as u32;
        }
        let mut start = 0;
        let to = (0..ranks)
            .map(|rank| {
                let rows: usize = kept[shape.experts_of(rank, ranks)]
                    .iter()
                    .map(|&c| c as usize)
                    .sum();
                let range = start..start + rows;
                start = range.end;
                range
            })
            .collect();
        SendPlan {
            copies,
            to,
            position,
        }
    }
}

/// Where an expert's rows lie in the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First row.
    pub start: usize,
    /// Rows in use.
    pub count: usize,
    /// Rows the expert owns, padding or masked ones included.
    pub allocated: usize,
}

/// How an owner arranges what it receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivePlan {
    /// Rows from each rank, in order of arrival.
    pub from: Vec<Range<usize>>,
    /// One for each local expert.
    pub segments: Vec<Segment>,
    /// Layout row for each received row, in order of arrival.
    pub place: Vec<u32>,
}

impl ReceivePlan {
    pub fn new(
        shape: &Shape,
        layout: Layout,
        rank: usize,
        ranks: usize,
        counts: &Counts,
    ) -> ReceivePlan {
        let local = shape.experts_of(rank, ranks);
        let segments = segments(shape, layout, local.clone(), counts);
        let mut next: Vec<usize> = segments.iter().map(|s| s.start).collect();
        let (mut from, mut place) = (Vec::with_capacity(ranks), Vec::new());
        for source in 0..ranks {
            let start = place.len();
            for (segment, expert) in local.clone().enumerate() {
                for _ in 0..counts.kept[source][expert] {
                    place.push(next[segment] as u32);
                    next[segment] += 1;
                }
            }
            from.push(start..place.len());
        }
        ReceivePlan {
            from,
            segments,
            place,
        }
    }

    /// Rows of the layout.
    pub fn rows(&self) -> usize {
        self.segments.last().map_or(0, |s| s.start + s.allocated)
    }

    /// Padding rows, which the contiguous layout zeroes.
    pub fn padding(&self) -> impl Iterator<Item = usize> {
        self.segments
            .iter()
            .flat_map(|s| s.start + s.count..s.start + s.allocated)
    }
}

/// Room for the experts of one rank.
pub fn segments(
    shape: &Shape,
    layout: Layout,
    local: Range<usize>,
    counts: &Counts,
) -> Vec<Segment> {
    let most = local
        .clone()
        .map(|expert| counts.of_expert(expert))
        .max()
        .unwrap_or(0)
        .next_multiple_of(shape.align);
    let mut start = 0;
    local
        .map(|expert| {
            let count = counts.of_expert(expert);
            let allocated = match layout {
                Layout::Contiguous => count.next_multiple_of(shape.align),
                Layout::Masked => most,
            };
            let segment = Segment {
                start,
                count,
                allocated,
            };
            start += allocated;
            segment
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::generate::word;

    /// Random routing for `ranks` ranks with some of them empty.
    fn routed(shape: &Shape, ranks: usize, seed: u64) -> Vec<Vec<u32>> {
        (0..ranks as u64)
            .map(|rank| {
                let tokens = (word(seed, rank) % 6) as usize;
                (0..tokens * shape.top_k)
                    .map(|i| (word(seed ^ (rank + 1), i as u64) % shape.experts as u64) as u32)
                    .collect()
            })
            .collect()
    }

    /// Sends every copy by the plans, and looks where it ends up.
    #[test]
    fn every_kept_copy_arrives_once_in_its_experts_rows_in_source_order() {
        let shape = Shape::small(8);
        for seed in 0..60 {
            let ranks = [1, 2, 3, 8, 16][seed as usize % 5];
            let capacity = (seed % 3 == 0).then_some(2);
            let tables = routed(&shape, ranks, seed);
            let counts: Vec<Vec<u32>> = tables
                .iter()
                .map(|t| count(&copies(t, shape.top_k), shape.experts))
                .collect();
            let counts = Counts::new(&counts, capacity);
            let sends: Vec<SendPlan> = tables
                .iter()
                .zip(&counts.kept)
                .map(|(table, kept)| SendPlan::new(&shape, ranks, table, kept))
                .collect();
            for layout in Layout::ALL {
                for rank in 0..ranks {
                    let plan = ReceivePlan::new(&shape, layout, rank, ranks, &counts);
                    let mut rows = vec![None; plan.rows()];
                    for (source, send) in sends.iter().enumerate() {
                        let arriving = &send.copies[send.to[rank].clone()];
                        assert_eq!(arriving.len(), plan.from[source].len());
                        for (copy, at) in arriving.iter().zip(plan.from[source].clone()) {
                            let row = &mut rows[plan.place[at] as usize];
                            assert!(row.is_none(), "two copies in one row");
                            *row = Some((copy.expert as usize, source, copy.token, copy.slot));
                        }
                    }
                    for (segment, expert) in plan.segments.iter().zip(shape.experts_of(rank, ranks))
                    {
                        let used = &rows[segment.start..segment.start + segment.count];
                        assert!(used.iter().all(|r| r.is_some_and(|r| r.0 == expert)));
                        assert!(used.is_sorted(), "source, token, slot order");
                        if let Some(capacity) = capacity {
                            assert!(segment.count <= capacity as usize);
                        }
                    }
                    assert!(plan.padding().all(|row| rows[row].is_none()));
                }
            }
        }
    }

    #[test]
    fn dropping_does_not_depend_on_how_tokens_fall_on_ranks() {
        let shape = Shape::small(8);
        let table: Vec<u32> = (0..12 * 3).map(|i| (word(5, i) % 8) as u32).collect();
        let kept = |ranks: usize| {
            let tables: Vec<&[u32]> = table.chunks(table.len() / ranks).collect();
            let counts: Vec<Vec<u32>> = tables
                .iter()
                .map(|t| count(&copies(t, 3), shape.experts))
                .collect();
            let counts = Counts::new(&counts, Some(3));
            tables
                .iter()
                .zip(&counts.kept)
                .flat_map(|(t, kept)| SendPlan::new(&shape, ranks, t, kept).position)
                .map(|row| row != NO_ROW)
                .collect::<Vec<bool>>()
        };
        assert!(kept(1).contains(&false), "nothing was dropped");
        for ranks in [2, 3, 4, 6, 12] {
            assert_eq!(kept(ranks), kept(1), "{ranks} ranks");
        }
    }
}
