//! The collective operations of a layer, and their form without GPUs.
//!
//! Two operations: everybody learns everybody's counts, then rows move all to all
//! in buffers of known ranges. Starting and finishing are separate, as on a GPU:
//! between them neither buffer may be touched, and what a receiver would read is
//! whatever was there before.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, ensure};

use super::hub::{self, Hub};
use crate::device::Buffer;

/// One all-to-all: byte ranges of two device buffers, one of each for every rank.
/// Ranges may be empty; the lengths that two ranks give for their pair must agree.
pub struct Transfer<'a> {
    pub send: &'a Buffer<u8>,
    pub to: Vec<Range<usize>>,
    pub receive: &'a mut Buffer<u8>,
    pub from: Vec<Range<usize>>,
}

/// How the ranks of a layer talk to each other.
pub trait Collective {
    /// What it is, for reports.
    fn name(&self) -> String;

    /// Everybody's counts, by rank. Lengths must agree.
    ///
    /// # Errors
    /// [`hub::RankLost`], or a failed library call.
    fn gather_counts(&mut self, counts: &[u32]) -> Result<Vec<Vec<u32>>>;

    /// Begins the transfers. The buffers must be complete on the device.
    fn start(&mut self, transfers: &mut [Transfer<'_>]) -> Result<()>;

    /// Waits until the transfers that were started are complete. They are given
    /// once more, the same ones.
    fn finish(&mut self, transfers: &mut [Transfer<'_>]) -> Result<()>;
}

/// Device buffers through host memory and the hub: threads or processes of machines
/// without GPUs. Everything moves in [`Collective::finish`], the latest moment that
/// the contract allows: whoever touches a buffer too early shows.
pub struct HostCollective {
    hub: Arc<dyn Hub>,
}

impl HostCollective {
    pub fn new(hub: Arc<dyn Hub>) -> HostCollective {
        HostCollective { hub }
    }
}

impl Collective for HostCollective {
    fn name(&self) -> String {
        "host buffers".to_owned()
    }

    fn gather_counts(&mut self, counts: &[u32]) -> Result<Vec<Vec<u32>>> {
        let bytes: Vec<u8> = counts.iter().flat_map(|c| c.to_le_bytes()).collect();
        hub::gather(self.hub.as_ref(), &bytes)?
            .iter()
            .enumerate()
            .map(|(rank, bytes)| {
                ensure!(
                    bytes.len() == 4 * counts.len(),
                    "rank {rank} sent {} bytes of counts; expected {}",
                    bytes.len(),
                    4 * counts.len()
                );
                Ok(words(bytes))
            })
            .collect()
    }

    fn start(&mut self, _: &mut [Transfer<'_>]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, transfers: &mut [Transfer<'_>]) -> Result<()> {
        for transfer in transfers {
            let parts = transfer
                .to
                .iter()
                .map(|range| match range.is_empty() {
                    true => Ok(Vec::new()),
                    false => transfer.send.download_range(range.clone()),
                })
                .collect::<Result<Vec<_>, _>>()?;
            let inbox = self.hub.exchange(parts)?;
            for (rank, (part, range)) in inbox.iter().zip(&transfer.from).enumerate() {
                ensure!(
                    part.len() == range.len(),
                    "rank {rank} sent {} bytes; {} were expected from its counts",
                    part.len(),
                    range.len()
                );
                if !part.is_empty() {
                    transfer.receive.upload_range(range.start, part)?;
                }
            }
        }
        Ok(())
    }
}

/// Little-endian words; a ragged tail is dropped.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect()
}
