//! Rows on the move: packed, transferred, unpacked, brought back and summed.

use anyhow::{Context, Result};

use super::{Flight, Layer, META};
use crate::device::{Argument, Buffer, Launch};
use crate::moe::collective::{Collective, Transfer};
use crate::moe::fault::Fault;
use crate::moe::plan::{Copy, NO_ROW};
use crate::moe::shape::Layout;

impl Layer {
    /// Packs, transfers and unpacks.
    pub fn dispatch(&mut self, collective: &mut dyn Collective, flight: &Flight) -> Result<()> {
        self.pack(flight)?;
        self.reserve_rows(flight)?;
        self.device.synchronize()?;
        collective.start(&mut self.transfers(flight)?)?;
        if self.fault == Some(Fault::MissingSynchronisation) {
            self.unpack(flight)?;
            self.device.synchronize()?;
            return collective.finish(&mut self.transfers(flight)?);
        }
        collective.finish(&mut self.transfers(flight)?)?;
        self.unpack(flight)
    }

    /// The transfers of a dispatch alone, with `between` while they are under way.
    pub fn transfer(
        &mut self,
        collective: &mut dyn Collective,
        flight: &Flight,
        between: &mut dyn FnMut(&mut Layer) -> Result<()>,
    ) -> Result<()> {
        collective.start(&mut self.transfers(flight)?)?;
        between(self)?;
        collective.finish(&mut self.transfers(flight)?)
    }

    /// Rows into sending order.
    pub fn pack(&mut self, flight: &Flight) -> Result<()> {
        let rows = flight.send.copies.len();
        let (hidden, scales) = (self.shape.hidden, 4 * self.shape.hidden_scales());
        let (device, arena) = (&self.device, &mut self.arena);
        arena.send_codes.reserve(device, rows * hidden)?;
        arena.send_scales.reserve(device, rows * scales)?;
        let meta: Vec<u8> = flight
            .send
            .copies
            .iter()
            .flat_map(|copy| self::meta(copy, flight.weight[slot(copy, self.shape.top_k)]))
            .collect();
        arena.send_meta.fill(device, &meta)?;
        let from: Vec<u32> = flight.send.copies.iter().map(|copy| copy.token).collect();
        let to: Vec<u32> = (0..rows as u32).collect();
        let (codes, scaled) = (self.arena.codes.address(), self.arena.scales.address());
        let (send, send_scales) = (
            self.arena.send_codes.address(),
            self.arena.send_scales.address(),
        );
        self.map(&from, &to)?;
        self.move_rows(codes, send, rows, hidden)?;
        self.move_rows(scaled, send_scales, rows, scales)
    }

    fn reserve_rows(&mut self, flight: &Flight) -> Result<()> {
        let (arrived, rows) = (flight.receive.place.len(), flight.believed.rows());
        let (hidden, scales) = (self.shape.hidden, 4 * self.shape.hidden_scales());
        let (device, arena) = (&self.device, &mut self.arena);
        // Maps of the unpacking too: growing a buffer later would free the old one,
        // which waits for the transfers, and so hide a missing wait.
        arena.from.reserve(device, arrived + rows)?;
        arena.to.reserve(device, arrived + rows)?;
        arena.got_codes.reserve(device, arrived * hidden)?;
        arena.got_scales.reserve(device, arrived * scales)?;
        arena.got_meta.reserve(device, arrived * META)?;
        arena.row_codes.reserve(device, rows * hidden)?;
        arena.row_scales.reserve(device, rows * scales)?;
        arena.row_meta.reserve(device, rows * META)?;
        Ok(())
    }

    fn transfers(&mut self, flight: &Flight) -> Result<[Transfer<'_>; 3]> {
        let (hidden, scales) = (self.shape.hidden, 4 * self.shape.hidden_scales());
        let bytes = |ranges: &[std::ops::Range<usize>], size: usize| {
            let scaled = |r: &std::ops::Range<usize>| r.start * size..r.end * size;
            ranges.iter().map(scaled).collect::<Vec<_>>()
        };
        let (to, from) = (&flight.send.to, &flight.receive.from);
        let arena = &mut self.arena;
        Ok([
            Transfer {
                send: arena.send_codes.get()?,
                to: bytes(to, hidden),
                receive: arena.got_codes.get()?,
                from: bytes(from, hidden),
            },
            Transfer {
                send: arena.send_scales.get()?,
                to: bytes(to, scales),
                receive: arena.got_scales.get()?,
                from: bytes(from, scales),
            },
            Transfer {
                send: arena.send_meta.get()?,
                to: bytes(to, META),
                receive: arena.got_meta.get()?,
                from: bytes(from, META),
            },
        ])
    }

    /// Received rows to the rows of their experts; padding is zeroed.
    pub fn unpack(&mut self, flight: &Flight) -> Result<()> {
        let (hidden, scales) = (self.shape.hidden, 4 * self.shape.hidden_scales());
        let mut from = flight.arrival.clone();
        let mut to = flight.believed.place[..from.len()].to_vec();
        if self.layout == Layout::Contiguous {
            for row in flight.believed.padding() {
                from.push(NO_ROW);
                to.push(row as u32);
            }
        }
        let rows = from.len();
        self.map(&from, &to)?;
        let (a, b) = (
            self.arena.got_codes.address(),
            self.arena.row_codes.address(),
        );
        self.move_rows(a, b, rows, hidden)?;
        let (a, b) = (self.arena.got_meta.address(), self.arena.row_meta.address());
        self.move_rows(a, b, rows, META)?;
        if self.fault == Some(Fault::ScalesNotMoved) {
            let identity: Vec<u32> = (0..flight.arrival.len() as u32).collect();
            to[..identity.len()].copy_from_slice(&identity);
            from.truncate(identity.len());
            to.truncate(identity.len());
            self.device.synchronize()?;
            self.map(&from, &to)?;
        }
        let (a, b) = (
            self.arena.got_scales.address(),
            self.arena.row_scales.address(),
        );
        self.move_rows(a, b, from.len(), scales)
    }

    /// Copies rows by an identity map: the memory ceiling of `moe::bench`.
    pub fn copy_rows(
        &self,
        from: &Buffer<u8>,
        to: &Buffer<u8>,
        map: &Buffer<u32>,
        row: usize,
    ) -> Result<()> {
        let arguments: [&dyn Argument; 5] = [from, to, map, map, &(row as u32)];
        let launch = Launch::linear(u32::try_from(map.len())?, 256);
        self.rows.kernel("moveRows")?.launch(launch, &arguments)?;
        Ok(())
    }

    fn map(&mut self, from: &[u32], to: &[u32]) -> Result<()> {
        self.arena.from.fill(&self.device, from)?;
        self.arena.to.fill(&self.device, to)
    }

    fn move_rows(&self, input: u64, output: u64, rows: usize, bytes: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let arguments: [&dyn Argument; 5] = [
            &input,
            &output,
            &self.arena.from.address(),
            &self.arena.to.address(),
            &(bytes as u32),
        ];
        let threads = if bytes >= 2048 { 128 } else { 32 };
        let launch = Launch::linear(u32::try_from(rows).context("rows of a launch")?, threads);
        self.rows.kernel("moveRows")?.launch(launch, &arguments)?;
        Ok(())
    }
    /// Rows back to the ranks that own their tokens.
    pub fn give_back(&mut self, collective: &mut dyn Collective, flight: &Flight) -> Result<()> {
        let row = 2 * self.shape.hidden;
        let (device, arena) = (&self.device, &mut self.arena);
        arena
            .back_send
            .reserve(device, flight.receive.place.len() * row)?;
        arena
            .back_got
            .reserve(device, flight.send.copies.len() * row)?;
        if self.poison {
            arena.back_send.poison()?;
            arena.back_got.poison()?;
        }
        let (a, b) = (arena.second.address(), arena.back_send.address());
        let to = flight.arrival.clone();
        let from = flight.believed.place[..to.len()].to_vec();
        self.map(&from, &to)?;
        self.move_rows(a, b, to.len(), row)?;
        self.device.synchronize()?;
        let bytes = |ranges: &[std::ops::Range<usize>]| {
            let scaled = |r: &std::ops::Range<usize>| r.start * row..r.end * row;
            ranges.iter().map(scaled).collect::<Vec<_>>()
        };
        let mut transfers = [Transfer {
            send: self.arena.back_send.get()?,
            to: bytes(&flight.receive.from),
            receive: self.arena.back_got.get()?,
            from: bytes(&flight.send.to),
        }];
        collective.start(&mut transfers)?;
        collective.finish(&mut transfers)
    }

    /// The weighted sum of each token's copies, in slot order.
    pub fn combine(&mut self, flight: &Flight) -> Result<()> {
        let tokens = flight.input.count;
        self.arena
            .position
            .fill(&self.device, &flight.send.position)?;
        let out = self
            .arena
            .out
            .reserve(&self.device, tokens * self.shape.hidden)?;
        if self.poison {
            out.poison()?;
        }
        let mut weight = flight.weight.clone();
        if self.fault == Some(Fault::CombineWeightsOff) && !weight.is_empty() {
            weight.rotate_left(1);
        }
        self.arena.combine_weight.fill(&self.device, &weight)?;
        if tokens == 0 {
            return Ok(());
        }
        let arguments: [&dyn Argument; 6] = [
            &self.arena.back_got.address(),
            &self.arena.combine_weight.address(),
            &self.arena.position.address(),
            &self.arena.out.address(),
            &(self.shape.top_k as u32),
            &(self.shape.hidden as u32),
        ];
        let threads = if self.shape.hidden >= 1024 { 256 } else { 64 };
        self.rows
            .kernel("combineRows")?
            .launch(Launch::linear(tokens as u32, threads), &arguments)?;
        Ok(())
    }
}

/// The place of a copy in the routing tables.
pub fn slot(copy: &Copy, top_k: usize) -> usize {
    copy.token as usize * top_k + copy.slot as usize
}

/// What travels with a row.
pub fn meta(copy: &Copy, weight: f32) -> [u8; META] {
    let mut bytes = [0; META];
    let words = [copy.token, copy.slot, copy.expert, weight.to_bits()];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
