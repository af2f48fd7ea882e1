//! Runs a subject on a case: guarded buffers, poisoned output, two runs.
//!
//! Every buffer has [`GUARD`] bytes of a known pattern before and after it. What
//! masking leaves over of A holds NaN codes and NaN scales: a kernel that reads it
//! shows it.

use anyhow::Result;

use super::between;
use super::case::Case;
use super::gate::Execution;
use super::operands::Operands;
use super::problem::Problem;
use super::simt::shifts;
use super::subject::{DeviceOperands, Group, Subject};
use crate::device::{Buffer, Device};
use crate::lowp::E2M1;

/// Bytes before and after each buffer; keeps the alignment of an allocation.
pub const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;
/// NaN in E4M3.
const NAN_CODE: u8 = 0x7f;

/// A buffer between two guard bands.
struct Guarded {
    name: &'static str,
    buffer: Buffer<u8>,
    len: usize,
}

impl Guarded {
    fn upload(device: &Device, name: &'static str, data: &[u8]) -> Result<Guarded> {
        let mut image = vec![GUARD_BYTE; GUARD];
        image.extend_from_slice(data);
        image.resize(data.len() + 2 * GUARD, GUARD_BYTE);
        Ok(Guarded {
            name,
            buffer: device.upload(&image)?,
            len: data.len(),
        })
    }

    fn address(&self) -> u64 {
        self.buffer.address() + GUARD as u64
    }

    fn set(&mut self, data: &[u8]) -> Result<()> {
        assert_eq!(data.len(), self.len, "{}", self.name);
        Ok(self.buffer.upload_range(GUARD, data)?)
    }

    fn get(&self) -> Result<Vec<u8>> {
        Ok(self.buffer.download_range(GUARD..GUARD + self.len)?)
    }

    /// Changed guard bytes nearest to the data, one a side.
    fn broken(&self) -> Result<Vec<(&'static str, i64)>> {
        let before = self.buffer.download_range(0..GUARD)?;
        let after = self
            .buffer
            .download_range(GUARD + self.len..2 * GUARD + self.len)?;
        let mut found = Vec::new();
        if let Some(at) = before.iter().rposition(|&byte| byte != GUARD_BYTE) {
            found.push((self.name, at as i64 - GUARD as i64));
        }
        if let Some(at) = after.iter().position(|&byte| byte != GUARD_BYTE) {
            found.push((self.name, at as i64));
        }
        Ok(found)
    }
}

/// A case on the device, ready for any number of subjects.
pub struct Stage<'d> {
    device: &'d Device,
    problem: Problem,
    /// A, B, scale of A, scale of B, the group table: what kernels only read.
    operands: [Guarded; 5],
    images: [Vec<u8>; 5],
    c: Guarded,
    initial: Vec<u8>,
    groups: Vec<Group>,
}

impl<'d> Stage<'d> {
    /// Uploads the operands.
    ///
    /// # Errors
    /// [`crate::device::DeviceError::OutOfMemory`] when they do not fit.
    pub fn new(device: &'d Device, case: &Case, operands: &Operands) -> Result<Stage<'d>> {
        let image = Image::build(&case.problem, operands);
        let names = ["A", "B", "A's scales", "B's scales", "the group table"];
        let images = [image.a, image.b, image.a_scale, image.b_scale, image.table];
        let upload = |i: usize| Guarded::upload(device, names[i], &images[i]);
        let initial = initial_c(&case.problem, operands);
        Ok(Stage {
            device,
            problem: case.problem.clone(),
            operands: [upload(0)?, upload(1)?, upload(2)?, upload(3)?, upload(4)?],
            c: Guarded::upload(device, "C", &initial)?,
            images,
            initial,
            groups: image.groups,
        })
    }

    /// What C holds before a run of ours: poison, or the values to add to.
    pub fn initial(&self) -> &[u8] {
        &self.initial
    }

    fn addresses(&self) -> DeviceOperands {
        let [a, b, a_scale, b_scale, table] = &self.operands;
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

    /// One run over a C that held `before`.
    pub fn run_over(&mut self, subject: &dyn Subject, before: &[u8]) -> Result<Vec<u8>> {
        self.c.set(before)?;
        subject.launch(self.device, &self.problem, &self.addresses())?;
        self.device.synchronize()?;
        self.c.get()
    }

    /// Two runs from the same start with another call between them; guard bands and
    /// operands checked after all.
    pub fn execute(&mut self, subject: &dyn Subject) -> Result<Execution> {
        let initial = self.initial.clone();
        let c = self.run_over(subject, &initial)?;
        between::call(self.device, subject, &self.problem, &self.addresses())?;
        let rerun = self.run_over(subject, &initial)?;
        let mut guards = self.c.broken()?;
        let mut modified = Vec::new();
        for (buffer, image) in self.operands.iter_mut().zip(&self.images) {
            guards.extend(buffer.broken()?);
            let now = buffer.get()?;
            if let Some(at) = now.iter().zip(image).position(|(x, y)| x != y) {
                modified.push((buffer.name, at));
                buffer.set(image)?;
            }
        }
        if !guards.is_empty() {
            self.restore_guards()?;
        }
        Ok(Execution {
            c,
            rerun,
            initial,
            guards,
            modified,
        })
    }

    /// So that the next subject on this stage is not blamed.
    fn restore_guards(&mut self) -> Result<()> {
        let band = [GUARD_BYTE; GUARD];
        for buffer in self.operands.iter_mut().chain([&mut self.c]) {
            buffer.buffer.upload_range(0, &band)?;
            buffer.buffer.upload_range(GUARD + buffer.len, &band)?;
        }
        Ok(())
    }
}

/// A, B, the scales of A, those of B and the group table, as a kernel reads them.
pub fn images(problem: &Problem, operands: &Operands) -> [Vec<u8>; 5] {
    let image = Image::build(problem, operands);
    [image.a, image.b, image.a_scale, image.b_scale, image.table]
}

/// The bytes of all operands, group after group.
struct Image {
    a: Vec<u8>,
    b: Vec<u8>,
    a_scale: Vec<u8>,
    b_scale: Vec<u8>,
    table: Vec<u8>,
    groups: Vec<Group>,
}

impl Image {
    fn build(problem: &Problem, operands: &Operands) -> Image {
        let mut image = Image {
            a: Vec::new(),
            b: Vec::new(),
            a_scale: Vec::new(),
            b_scale: Vec::new(),
            table: Vec::new(),
            groups: Vec::new(),
        };
        let mut c = 0u64;
        for s in &operands.segments {
            let group = Group {
                a: image.a.len() as u64,
                b: image.b.len() as u64,
                a_scale: image.a_scale.len() as u64 / 4,
                b_scale: image.b_scale.len() as u64 / 4,
                c,
                rows: s.segment.rows as u64,
                depth: s.segment.depth as u64,
                allocated: s.segment.allocated as u64,
            };
            c += (s.segment.allocated * problem.ldc()) as u64;
            let unused = s.segment.allocated - s.segment.rows;
            image.a.extend(&s.a.codes);
            image
                .a
                .resize(image.a.len() + unused * s.segment.depth, NAN_CODE);
            image
                .a_scale
                .extend(s.a.scales.iter().flat_map(|x| x.to_le_bytes()));
            let row_shift = shifts(&problem.a).map_or(0, |(rows, _)| rows);
            let owned = (s.segment.allocated as u64).div_ceil(1 << row_shift) as usize;
            for _ in s.a.scale_rows * s.a.scale_cols..owned * s.a.scale_cols {
                image.a_scale.extend(f32::NAN.to_le_bytes());
            }
            if problem.b.format == E2M1 {
                image.b.extend(s.b.packed());
            } else {
                image.b.extend(&s.b.codes);
            }
            image
                .b_scale
                .extend(s.b.scales.iter().flat_map(|x| x.to_le_bytes()));
            image
                .table
                .extend(group.words().iter().flat_map(|x| x.to_le_bytes()));
            image.groups.push(group);
        }
        image
    }
}

fn initial_c(problem: &Problem, operands: &Operands) -> Vec<u8> {
    let output = problem.output;
    let poison = output.poison();
    let mut c = poison.repeat(problem.c_rows() * problem.ldc());
    if !problem.accumulate {
        return c;
    }
    let mut start = 0;
    for s in &operands.segments {
        for (i, &x) in s.c.iter().enumerate() {
            let (row, col) = (i / problem.n, i % problem.n);
            let at = ((start + row) * problem.ldc() + col) * output.size();
            c[at..at + output.size()].copy_from_slice(&output.bytes_of(x));
        }
        start += s.segment.allocated;
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::inputs::Input;
    use crate::gemm::problem::{Form, fp4_recipes};
    use crate::lowp::OutputType;

    #[test]
    fn offsets_follow_the_groups_and_unused_rows_are_nan() {
        let problem = Problem::dense(0, 5, 33, OutputType::F32)
            .with_form(Form::Masked {
                max_rows: 4,
                rows: vec![1, 4, 0],
            })
            .with_recipes(fp4_recipes())
            .padded(2);
        let case = Case::new("test", problem.clone(), Input::Normal, 1);
        let operands = Operands::generate(&case).unwrap();
        let image = Image::build(&problem, &operands);
        let at = |g: usize| image.groups[g].words();
        assert_eq!(at(0), [0, 0, 0, 0, 0, 1, 33, 4]);
        // Five rows of 17 bytes of B; one scale a row of A, two a row of B.
        assert_eq!(at(1), [132, 85, 4, 10, 28, 4, 33, 4]);
        assert_eq!(at(2)[4], 56);
        assert_eq!(image.a.len(), 3 * 132);
        assert!(image.a[33..132].iter().all(|&code| code == NAN_CODE));
        let scale = |i: usize| f32::from_le_bytes(image.a_scale[i * 4..][..4].try_into().unwrap());
        assert!(scale(0).is_finite() && scale(1).is_nan() && scale(4).is_finite());
    }
}
