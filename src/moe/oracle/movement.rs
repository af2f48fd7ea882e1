//! Data movement, bit for bit: counts, indices, weights, codes, scales, padding.

use super::{Expert, Judge, Wanted};
use crate::moe::finding::{Stage, TokenAt};
use crate::moe::generate::Tokens;
use crate::moe::layer::META;
use crate::moe::shape::Layout;

/// For each local expert, whether its rows are where they must be: the later checks
/// would otherwise judge the wrong rows.
pub type Sound = Vec<bool>;

pub fn check(judge: &Judge<'_>) -> Sound {
    sent(judge);
    let sound: Sound = (0..judge.local().len()).map(|i| counts(judge, i)).collect();
    for (expert, _) in judge
        .local()
        .iter()
        .zip(&sound)
        .filter(|(_, sound)| **sound)
    {
        rows(judge, expert);
        if judge.layer.layout == Layout::Contiguous {
            padding(judge, expert);
        }
    }
    sound
}

impl Wanted {
    pub fn at(&self) -> TokenAt {
        TokenAt {
            rank: self.source,
            token: self.token,
        }
    }
}

/// What this rank planned to send against what its own table asks for.
fn sent(judge: &Judge<'_>) {
    let rank = judge.layer.rank;
    let copies = &judge.seen.flight.send.copies;
    for expert in &judge.experts {
        let want = expert.copies.iter().filter(|c| c.source == rank);
        let planned: Vec<(usize, usize)> = copies
            .iter()
            .filter(|c| c.expert as usize == expert.expert)
            .map(|c| (c.token as usize, c.slot as usize))
            .collect();
        let want: Vec<&Wanted> = want.collect();
        // Planned copies are in sending order, so those of an expert are sorted.
        let absent = |w: &&&Wanted| planned.binary_search(&(w.token, w.slot)).is_err();
        let missing = want.iter().find(absent);
        if let Some(missing) = missing {
            judge.report(
                Stage::Counts,
                rank,
                Some(expert.expert),
                Some(missing.at()),
                format!(
                    "the rank sends {} copies to the expert, its routing asks for {}; this token's is missing",
                    planned.len(),
                    want.len()
                ),
            );
        } else if planned.len() != want.len() {
            judge.report(
                Stage::Counts,
                rank,
                Some(expert.expert),
                None,
                format!(
                    "the rank sends {} copies to the expert, its routing asks for {}",
                    planned.len(),
                    want.len()
                ),
            );
        }
    }
}

/// What this rank's layout is made for.
fn counts(judge: &Judge<'_>, local: usize) -> bool {
    let (expert, layer) = (&judge.local()[local], judge.layer);
    let count = expert.copies.len();
    let (want_rows, believed) = (
        match layer.layout {
            Layout::Contiguous => expert.allocated,
            Layout::Masked => count,
        },
        judge.seen.flight.believed.segments[local],
    );
    let computed = judge.seen.computed[local];
    // Another rank that sends too little is named by its own check.
    let told: usize = judge
        .seen
        .flight
        .counts
        .kept
        .iter()
        .map(|kept| kept[expert.expert] as usize)
        .sum();
    let right = (believed.count, believed.allocated) == (count, expert.allocated)
        && computed == (expert.start, want_rows);
    if !right && told == count {
        let first = expert.copies.get(believed.count).or(expert.copies.last());
        judge.report(
            Stage::Counts,
            layer.rank,
            Some(expert.expert),
            first.map(Wanted::at),
            format!(
                "the layout holds {} rows from row {}, has room for {} and computes {}; expected {count} from row {}, {} and {want_rows}",
                believed.count,
                believed.start,
                believed.allocated,
                computed.1,
                expert.start,
                expert.allocated
            ),
        );
    }
    right
}

fn rows(judge: &Judge<'_>, expert: &Expert) {
    let shape = &judge.layer.shape;
    let (seen, rank) = (judge.seen, judge.layer.rank);
    let tokens: Tokens = seen.flight.input.tokens;
    let (hidden, scales, words) = (shape.hidden, shape.hidden_scales(), META / 4);
    for (i, copy) in expert.copies.iter().enumerate() {
        let row = expert.start + i;
        let report = |stage, detail| {
            judge.report(stage, rank, Some(expert.expert), Some(copy.at()), detail);
        };
        let meta = &seen.meta[row * words..][..words];
        let want = [copy.token as u32, copy.slot as u32, expert.expert as u32];
        if meta[..3] != want {
            report(
                Stage::Indices,
                format!(
                    "row {row} carries (token, slot, expert) {:?}, expected {want:?}",
                    &meta[..3]
                ),
            );
        }
        if meta[3] != copy.weight.to_bits() {
            report(
                Stage::Weights,
                format!(
                    "row {row} carries the weight {:e}, the router gave {:e}",
                    f32::from_bits(meta[3]),
                    copy.weight
                ),
            );
        }
        let number = judge.tables[copy.source].first + copy.token;
        let (got, want) = (
            &seen.codes[row * hidden..][..hidden],
            tokens.codes(shape, number),
        );
        if let Some(col) = got.iter().zip(&want).position(|(x, y)| x != y) {
            report(
                Stage::Tokens,
                format!(
                    "code {col} of row {row} is {:#04x}, the token's is {:#04x}",
                    got[col], want[col]
                ),
            );
        }
        let (got, want) = (
            &seen.scales[row * scales..][..scales],
            tokens.scales(shape, number),
        );
        let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits();
        if let Some(at) = got.iter().zip(&want).position(|pair| !same(pair)) {
            report(
                Stage::Scales,
                format!(
                    "scale {at} of row {row} is {:e}, the token's is {:e}",
                    got[at], want[at]
                ),
            );
        }
    }
}

fn padding(judge: &Judge<'_>, expert: &Expert) {
    let shape = &judge.layer.shape;
    let (hidden, scales) = (shape.hidden, shape.hidden_scales());
    for row in expert.start + expert.copies.len()..expert.start + expert.allocated {
        let codes = &judge.seen.codes[row * hidden..][..hidden];
        let scales = &judge.seen.scales[row * scales..][..scales];
        if codes.iter().any(|&c| c != 0) || scales.iter().any(|s| s.to_bits() != 0) {
            judge.report(
                Stage::Padding,
                judge.layer.rank,
                Some(expert.expert),
                None,
                format!("padding row {row} is not zero"),
            );
        }
    }
}
