//! Rows on their way back, by digest, and the weighted sum, bit for bit.

use anyhow::{Result, ensure};

use super::movement::Sound;
use super::{Expert, Judge, Wanted, digest};
use crate::moe::finding::{Stage, TokenAt};
use crate::moe::hub;

/// All ranks must call it together: digests are exchanged.
pub fn check(judge: &Judge<'_>, sound: &Sound) -> Result<()> {
    let (rank, ranks) = (judge.layer.rank, judge.layer.ranks);
    let row = 2 * judge.layer.shape.hidden;
    // What the experts' ranks hold, for the ranks that own the tokens. An expert
    // whose rows are not where they must be says nothing about them.
    let mut parts: Vec<Vec<u8>> = vec![Vec::new(); ranks];
    for (expert, &sound) in judge.local().iter().zip(sound) {
        for (i, copy) in expert.copies.iter().enumerate() {
            let digest = match sound {
                true => digest(&judge.seen.second[(expert.start + i) * row..][..row]),
                false => 0,
            };
            parts[copy.source].extend(digest.to_le_bytes());
        }
    }
    let told = judge.hub.exchange(parts)?;
    let mine = own_copies(&judge.experts, rank);
    ensure!(
        told.iter().map(Vec::len).sum::<usize>() == 8 * mine.len(),
        "the ranks told of other rows than the tables hold"
    );
    // A rank that planned to send other copies is reported already, and nothing
    // came back in the order that is expected here.
    let planned = judge.seen.flight.send.copies.iter();
    let planned = planned.map(|c| (c.expert as usize, c.token as usize, c.slot as usize));
    let wanted = mine.iter().map(|(e, c)| (*e, c.token, c.slot));
    if !planned.eq(wanted) {
        return hub::barrier(judge.hub).map_err(Into::into);
    }
    let digests = told.iter().flat_map(|part| part.chunks_exact(8));
    for (at, ((expert, copy), want)) in mine.iter().zip(digests).enumerate() {
        let got = digest(&judge.seen.returned[at * row..][..row]);
        let known = want != [0; 8];
        if known && got.to_le_bytes() != *want {
            judge.report(
                Stage::Return,
                judge.layer.shape.owner(*expert, ranks),
                Some(*expert),
                Some(copy.at()),
                format!(
                    "the row that came back for slot {} is not what the expert's rank holds",
                    copy.slot
                ),
            );
        }
    }
    combined(judge, &mine);
    hub::barrier(judge.hub).map_err(Into::into)
}

/// This rank's kept copies by expert, token, slot: the order in which they travel.
fn own_copies(experts: &[Expert], rank: usize) -> Vec<(usize, Wanted)> {
    experts
        .iter()
        .flat_map(|expert| {
            let mine = expert.copies.iter().filter(|c| c.source == rank);
            mine.map(|copy| (expert.expert, *copy))
        })
        .collect()
}

/// Σ weight · row over the slots of each token in order, one fused multiply-add
/// each, in f32: the order is part of what is promised, so the bits are.
fn combined(judge: &Judge<'_>, mine: &[(usize, Wanted)]) {
    let shape = &judge.layer.shape;
    let (hidden, k) = (shape.hidden, shape.top_k);
    let mut rows = vec![None; judge.seen.flight.input.count * k];
    for (at, (expert, copy)) in mine.iter().enumerate() {
        rows[copy.token * k + copy.slot] = Some((at, *expert, copy.weight));
    }
    for (token, (slots, out)) in rows
        .chunks(k)
        .zip(judge.seen.out.chunks(hidden))
        .enumerate()
    {
        let mut sum = vec![0f32; hidden];
        for (at, _, weight) in slots.iter().flatten() {
            let row = &judge.seen.returned[at * 2 * hidden..][..2 * hidden];
            for (sum, bf16) in sum.iter_mut().zip(row.chunks_exact(2)) {
                let bits = u32::from(u16::from_le_bytes([bf16[0], bf16[1]])) << 16;
                *sum = weight.mul_add(f32::from_bits(bits), *sum);
            }
        }
        let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits();
        if let Some(col) = out.iter().zip(&sum).position(|pair| !same(pair)) {
            judge.report(
                Stage::Combine,
                judge.layer.rank,
                slots.iter().flatten().next().map(|(_, expert, _)| *expert),
                Some(TokenAt {
                    rank: judge.layer.rank,
                    token,
                }),
                format!(
                    "column {col} is {:e}, the sum in slot order is {:e}",
                    out[col], sum[col]
                ),
            );
        }
    }
}
