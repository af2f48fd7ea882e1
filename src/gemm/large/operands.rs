//! All operands of a case on the device, between guard bands.

use anyhow::Result;

use super::device_matrix::{DeviceMatrix, Maker};
use super::report::{GUARDED, Report};
use super::workshop::{Workshop, linear, spread};
use crate::device::{Argument, Device, Launch};
use crate::gemm::case::Case;
use crate::gemm::inputs::{Stream, mixed_seed};
use crate::gemm::operands::{c_unit, group_seed};
use crate::gemm::problem::{Problem, Segment};
use crate::gemm::runner::GUARD;
use crate::gemm::scratch::bytes;
use crate::gemm::simt::shifts;
use crate::gemm::subject::{DeviceOperands, Group};
use crate::lowp::OutputType;

const GUARD_WORD: u32 = 0xa5a5_a5a5;
const NAN_CODES: u32 = 0x7f7f_7f7f;
const NAN_SCALE: u32 = 0x7fc0_0000;

/// Bytes between guard bands.
pub struct Region {
    pub name: &'static str,
    /// Of the band before it.
    start: u64,
    pub bytes: u64,
}

impl Region {
    fn new(device: &Device, shop: &Workshop, name: &'static str, bytes: u64) -> Result<Region> {
        let start = shop.scratch.take(device, name, bytes + 2 * GUARD as u64)?;
        Ok(Region { name, start, bytes })
    }

    pub fn address(&self) -> u64 {
        self.start + GUARD as u64
    }
}

/// All operands of a case on the device.
pub struct Large {
    /// A, B, their scales, the group table: what kernels only read.
    pub regions: [Region; 5],
    pub c: Region,
    pub groups: Vec<Group>,
    pub matrices: Vec<(DeviceMatrix, DeviceMatrix)>,
    /// Start and size of every region, C's last, on the device.
    table: u64,
}

impl Large {
    /// Takes the memory; nothing is in it yet but the group table.
    pub fn place(device: &Device, shop: &Workshop, case: &Case) -> Result<Large> {
        let problem = &case.problem;
        let layout = layout(problem);
        let region = |name, bytes| Region::new(device, shop, name, bytes);
        let groups = bytes(layout.groups.iter().flat_map(Group::words));
        let image = [vec![0; GUARD], groups, vec![0; GUARD]].concat();
        let regions = [
            region("A", layout.a)?,
            region("B", layout.b)?,
            region("A's scales", layout.a_scale * 4)?,
            region("B's scales", layout.b_scale * 4)?,
            Region {
                name: "the group table",
                start: shop.scratch.upload(device, "the group table", &image)?,
                bytes: layout.groups.len() as u64 * 64,
            },
        ];
        let c = region("C", layout.c * problem.output.size() as u64)?;
        let table = bytes(
            regions
                .iter()
                .chain([&c])
                .flat_map(|region| [region.start, region.bytes]),
        );
        Ok(Large {
            table: shop.scratch.upload(device, "the regions", &table)?,
            regions,
            c,
            groups: layout.groups,
            matrices: Vec::new(),
        })
    }

    /// Enqueues the making of A and B and of the guard bands.
    pub fn make(&mut self, device: &Device, shop: &Workshop, case: &Case) -> Result<()> {
        let problem = &case.problem;
        let [a, b, a_scale, b_scale, _] = &self.regions;
        if problem.segments().iter().any(|s| s.rows < s.allocated) {
            // Rows that masking leaves over are NaN in codes and scales.
            shop.fill(a.address(), NAN_CODES, a.bytes)?;
            shop.fill(a_scale.address(), NAN_SCALE, a_scale.bytes)?;
        }
        let arguments: [&dyn Argument; 2] = [&self.table, &GUARD_WORD];
        shop.check("fillGuards", guards(), &arguments)?;
        let maker = Maker::new(device, shop, case.input);
        for (index, (segment, group)) in problem.segments().iter().zip(&self.groups).enumerate() {
            let seed = group_seed(case.seed, index);
            let a_at = (a.address() + group.a, a_scale.address() + 4 * group.a_scale);
            let b_at = (b.address() + group.b, b_scale.address() + 4 * group.b_scale);
            let (rows, n, k) = (segment.rows as u64, problem.n as u64, segment.depth as u64);
            let of_a = (seed, Stream::A, Stream::AScale);
            let of_b = (seed, Stream::B, Stream::BScale);
            self.matrices.push((
                maker.make(&problem.a, of_a, (rows, k), a_at)?,
                maker.make(&problem.b, of_b, (n, k), b_at)?,
            ));
        }
        Ok(())
    }

    pub fn operands(&self) -> DeviceOperands {
        let [a, b, a_scale, b_scale, table] = &self.regions;
        DeviceOperands {
            a: a.address(),
            b: b.address(),
            a_scale: a_scale.address(),
            b_scale: b_scale.address(),
            c: self.c.address(),
            table: table.address(),
            groups: self.groups.clone(),
        }
    }

    /// Enqueues C as it is before a run.
    pub fn reset(&self, shop: &Workshop, case: &Case) -> Result<()> {
        let problem = &case.problem;
        let [p0, p1, p2, p3] = four_bytes(problem.output);
        let pattern = u32::from_le_bytes([p0, p1, p2, p3]);
        shop.fill(self.c.address(), pattern, self.c.bytes)?;
        if !problem.accumulate {
            return Ok(());
        }
        let kind = output_word(problem.output);
        let (n, ldc) = (problem.n as u64, problem.ldc() as u64);
        for (index, group) in self.groups.iter().enumerate() {
            if group.rows == 0 {
                continue;
            }
            let to = self.c.address() + group.c * problem.output.size() as u64;
            let seed = mixed_seed(group_seed(case.seed, index), Stream::C);
            let unit = f64::from(c_unit(case.input));
            let arguments: [&dyn Argument; 7] = [&to, &kind, &n, &ldc, &group.rows, &seed, &unit];
            shop.make("fillC", linear(group.rows * n)?, &arguments)?;
        }
        Ok(())
    }

    /// Enqueues the digests of the operands, to be added to the report's words.
    pub fn digests(&self, shop: &Workshop, sums: impl Fn(usize) -> u64) -> Result<()> {
        for (index, region) in self.regions.iter().enumerate() {
            shop.digest(region.address(), region.bytes, sums(index))?;
        }
        Ok(())
    }

    /// Enqueues the look at what nobody may have written: guard bands, the padding
    /// between the rows of C, masked rows.
    pub fn look_for_stray_stores(
        &self,
        shop: &Workshop,
        problem: &Problem,
        report: &Report,
    ) -> Result<()> {
        let nearest = report.guards();
        let arguments: [&dyn Argument; 3] = [&self.table, &GUARD_WORD, &nearest];
        shop.check("checkGuards", guards(), &arguments)?;
        let poison = four_bytes(problem.output);
        let size = problem.output.size() as u32;
        let poison = if size == 4 {
            u32::from_le_bytes(poison)
        } else {
            u32::from(u16::from_le_bytes([poison[0], poison[1]]))
        };
        let (n, ldc) = (problem.n as u64, problem.ldc() as u64);
        for (index, group) in self.groups.iter().enumerate() {
            let untouched = group.rows * (ldc - n) + (group.allocated - group.rows) * ldc;
            if untouched == 0 {
                continue;
            }
            let c = self.c.address() + group.c * u64::from(size);
            let touched = report.touched(index);
            let arguments: [&dyn Argument; 8] = [
                &c,
                &size,
                &poison,
                &n,
                &ldc,
                &group.rows,
                &group.allocated,
                &touched,
            ];
            shop.check("countTouched", spread(untouched), &arguments)?;
        }
        Ok(())
    }
}

fn guards() -> Launch {
    Launch::linear(GUARDED as u32, GUARD as u32)
}

/// The poison of C, four bytes of it.
fn four_bytes(output: OutputType) -> [u8; 4] {
    let poison = output.poison();
    std::array::from_fn(|i| poison[i % poison.len()])
}

/// An output type as the kernels are told it.
pub fn output_word(output: OutputType) -> u32 {
    match output {
        OutputType::F32 => 0,
        OutputType::F16 => 1,
        OutputType::Bf16 => 2,
    }
}

/// Sizes in bytes (codes) and elements (scales, C), and the group table.
struct Layout {
    a: u64,
    b: u64,
    a_scale: u64,
    b_scale: u64,
    c: u64,
    groups: Vec<Group>,
}

fn layout(problem: &Problem) -> Layout {
    let mut layout = Layout {
        a: 0,
        b: 0,
        a_scale: 0,
        b_scale: 0,
        c: 0,
        groups: Vec::new(),
    };
    let scales = |recipe, rows: u64, cols: u64| {
        let (row, col) = shifts(recipe).unwrap_or((0, 0));
        rows.div_ceil(1 << row) * cols.div_ceil(1 << col)
    };
    for Segment {
        rows,
        allocated,
        depth,
    } in problem.segments()
    {
        let (rows, allocated, depth) = (rows as u64, allocated as u64, depth as u64);
        let n = problem.n as u64;
        layout.groups.push(Group {
            a: layout.a,
            b: layout.b,
            a_scale: layout.a_scale,
            b_scale: layout.b_scale,
            c: layout.c,
            rows,
            depth,
            allocated,
        });
        layout.a += allocated * depth;
        layout.b += n * if problem.b.format.bits == 4 {
            depth.div_ceil(2)
        } else {
            depth
        };
        layout.a_scale += scales(&problem.a, allocated, depth);
        layout.b_scale += scales(&problem.b, n, depth);
        layout.c += allocated * problem.ldc() as u64;
    }
    layout
}

/// The operands of `case` as the device makes them, in the order of
/// [`crate::gemm::runner::images`].
///
/// # Errors
/// Those of the device.
pub fn images(device: &Device, shop: &Workshop, case: &Case) -> Result<[Vec<u8>; 5]> {
    let mut large = Large::place(device, shop, case)?;
    large.make(device, shop, case)?;
    let get = |i: usize| {
        let region = &large.regions[i];
        let range = GUARD as u64..GUARD as u64 + region.bytes;
        anyhow::Ok(shop.scratch.download(region.name, range)?)
    };
    Ok([get(0)?, get(1)?, get(2)?, get(3)?, get(4)?])
}
