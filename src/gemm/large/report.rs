//! The words that a case's launches report in, read back once at its end.

use anyhow::Result;

use super::operands::Large;
use super::workshop::Workshop;
use crate::device::Device;
use crate::gemm::case::Case;
use crate::gemm::gate::{Check, Finding, Place};
use crate::gemm::scratch::{bytes, words};

/// Buffers between guard bands: five operands and C.
pub const GUARDED: usize = 6;
const OPERANDS: usize = 5;
const AFTER: usize = OPERANDS;
const C: usize = 2 * OPERANDS;
const GUARDS: usize = C + 2;
const GROUPS: usize = GUARDS + 2 * GUARDED;
/// First bad window; elements touched; first of them; unused.
const PER_GROUP: usize = 4;
/// What a minimum starts from, and stays at when nothing was found.
const NOWHERE: u64 = u64::MAX;

/// Where the words are.
pub struct Report {
    address: u64,
    words: usize,
}

impl Report {
    pub fn start(device: &Device, shop: &Workshop, groups: usize) -> Result<Report> {
        let words = GROUPS + PER_GROUP * groups;
        let initial = (0..words).map(|i| match i {
            0..GUARDS => 0,
            GUARDS..GROUPS => NOWHERE,
            _ => [NOWHERE, 0, NOWHERE, 0][(i - GROUPS) % PER_GROUP],
        });
        Ok(Report {
            address: shop.scratch.upload(device, "the report", &bytes(initial))?,
            words,
        })
    }

    fn at(&self, word: usize) -> u64 {
        self.address + 8 * word as u64
    }

    pub fn before(&self, operand: usize) -> u64 {
        self.at(operand)
    }

    pub fn after(&self, operand: usize) -> u64 {
        self.at(AFTER + operand)
    }

    /// The digest of C after a run.
    pub fn c(&self, run: usize) -> u64 {
        self.at(C + run)
    }

    pub fn guards(&self) -> u64 {
        self.at(GUARDS)
    }

    pub fn first_window(&self, group: usize) -> u64 {
        self.at(GROUPS + PER_GROUP * group)
    }

    /// Two words: how many elements, and the first.
    pub fn touched(&self, group: usize) -> u64 {
        self.at(GROUPS + PER_GROUP * group + 1)
    }

    /// Waits for the launches and reads the words.
    pub fn read(&self, shop: &Workshop) -> Result<Words> {
        let range = 0..8 * self.words as u64;
        Ok(Words(words(&shop.scratch.download("the report", range)?)))
    }
}

/// The words of a case that has ended.
pub struct Words(Vec<u64>);

impl Words {
    /// First window of a group outside its gate: row · windows + window.
    pub fn first_window(&self, group: usize) -> Option<u64> {
        let first = self.0[GROUPS + PER_GROUP * group];
        (first != NOWHERE).then_some(first)
    }

    /// What was changed that must not be, and whether the second run gave other bits.
    pub fn findings(&self, case: &Case, large: &Large) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (index, region) in large.regions.iter().chain([&large.c]).enumerate() {
            for (side, word) in ["before", "after"].into_iter().enumerate() {
                let distance = self.0[GUARDS + 2 * index + side];
                if distance != NOWHERE {
                    let message = format!(
                        "the guard band of {} was overwritten {distance} bytes {word} it",
                        region.name
                    );
                    findings.push(Finding::sentence(Check::Guards, message));
                }
            }
        }
        for (index, region) in large.regions.iter().enumerate() {
            if self.0[index] != self.0[AFTER + index] {
                let message = format!("the kernel changed its operand {}", region.name);
                findings.push(Finding::sentence(Check::Inputs, message));
            }
        }
        for (group, of) in large.groups.iter().enumerate() {
            let [count, first] = [1, 2].map(|word| self.0[GROUPS + PER_GROUP * group + word]);
            if count > 0 {
                let ldc = case.problem.ldc() as u64;
                findings.push(untouched(group, first / ldc, first % ldc, of.rows, count));
            }
        }
        if self.0[C] != self.0[C + 1] {
            let message = "the second run gave other bits".to_owned();
            findings.push(Finding::sentence(Check::Rerun, message));
        }
        findings
    }
}

fn untouched(group: usize, row: u64, col: u64, rows: u64, count: u64) -> Finding {
    let what = if row < rows {
        "the padding after column n"
    } else {
        "a masked row"
    };
    Finding {
        place: Some(Place {
            group,
            row: row as usize,
            col: col as usize,
        }),
        bad: count as usize,
        ..Finding::sentence(Check::Untouched, format!("{what} was written"))
    }
}
