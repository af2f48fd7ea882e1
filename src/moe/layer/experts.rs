//! The experts' arithmetic: GEMM, SwiGLU with quantisation, GEMM.

use anyhow::Result;

use super::{Flight, Layer};
use crate::device::{Argument, Launch};
use crate::gemm::problem::{Form, Problem};
use crate::gemm::subject::{DeviceOperands, Group, Subject};
use crate::lowp::OutputType;
use crate::moe::fault::Fault;
use crate::moe::generate::Matrix;
use crate::moe::shape::{GROUP, Layout};

impl Layer {
    fn table(&self, flight: &Flight, matrix: Matrix) -> Vec<Group> {
        let (n, depth) = matrix.size(&self.shape);
        let experts = flight.believed.segments.len();
        let segments = flight.believed.segments.iter().enumerate();
        segments
            .map(|(local, segment)| {
                let weights = match self.fault {
                    Some(Fault::ExpertsPermuted) => (local + 1) % experts,
                    _ => local,
                };
                Group {
                    a: (segment.start * depth) as u64,
                    b: (weights * n * depth) as u64,
                    a_scale: (segment.start * depth.div_ceil(GROUP)) as u64,
                    b_scale: (weights * matrix.scale_count(&self.shape)) as u64,
                    c: (segment.start * n) as u64,
                    rows: match self.layout {
                        Layout::Contiguous => segment.allocated as u64,
                        Layout::Masked => segment.count as u64,
                    },
                    depth: depth as u64,
                    allocated: segment.allocated as u64,
                }
            })
            .collect()
    }

    /// The GEMM that `matrix` is the right operand of.
    pub fn problem(&self, flight: &Flight, matrix: Matrix) -> Problem {
        let (n, depth) = matrix.size(&self.shape);
        let output = match matrix {
            Matrix::GateUp => OutputType::F32,
            Matrix::Down => OutputType::Bf16,
        };
        let segments = &flight.believed.segments;
        let form = match self.layout {
            Layout::Contiguous => Form::Contiguous {
                rows: segments.iter().map(|s| s.allocated).collect(),
            },
            Layout::Masked => Form::Masked {
                max_rows: segments.first().map_or(0, |s| s.allocated),
                rows: segments.iter().map(|s| s.count).collect(),
            },
        };
        Problem::dense(1, n, depth, output).with_form(form)
    }

    fn multiply(&self, flight: &Flight, matrix: Matrix) -> Result<()> {
        let (a, a_scale, c, table) = match matrix {
            Matrix::GateUp => (
                self.arena.row_codes.address(),
                self.arena.row_scales.address(),
                self.arena.first.address(),
                self.arena.first_table.address(),
            ),
            Matrix::Down => (
                self.arena.middle_codes.address(),
                self.arena.middle_scales.address(),
                self.arena.second.address(),
                self.arena.second_table.address(),
            ),
        };
        let (b, b_scale) = self.weights.addresses(matrix);
        let operands = DeviceOperands {
            a,
            b,
            a_scale,
            b_scale,
            c,
            table,
            groups: self.table(flight, matrix),
        };
        self.gemm
            .launch(&self.device, &self.problem(flight, matrix), &operands)
    }

    /// Gate and up of every row.
    pub fn first_gemm(&mut self, flight: &Flight) -> Result<()> {
        let rows = flight.believed.rows();
        let words: Vec<u64> = self
            .table(flight, Matrix::GateUp)
            .iter()
            .flat_map(Group::words)
            .collect();
        self.arena.first_table.fill(&self.device, &words)?;
        self.arena
            .first
            .reserve(&self.device, rows * 2 * self.shape.intermediate)?;
        if self.poison {
            self.arena.first.poison()?;
        }
        match rows {
            0 => Ok(()),
            _ => self.multiply(flight, Matrix::GateUp),
        }
    }

    /// SwiGLU and quantisation of every row.
    pub fn activate(&mut self, flight: &Flight) -> Result<()> {
        let (rows, inter) = (flight.believed.rows(), self.shape.intermediate);
        let scales = rows * self.shape.intermediate_scales();
        let (device, arena) = (&self.device, &mut self.arena);
        arena.middle_codes.reserve(device, rows * inter)?;
        arena.middle_scales.reserve(device, scales)?;
        if self.poison {
            arena.middle_codes.poison()?;
            arena.middle_scales.poison()?;
        }
        let segments = &flight.believed.segments;
        let most = segments.iter().map(|s| s.allocated).max().unwrap_or(0);
        if most == 0 {
            return Ok(());
        }
        let launch = Launch {
            grid: (
                inter.div_ceil(GROUP) as u32,
                most.div_ceil(8) as u32,
                segments.len() as u32,
            ),
            block: (256, 1, 1),
            shared_bytes: 0,
        };
        let arguments: [&dyn Argument; 5] = [
            &self.arena.first.address(),
            &self.arena.middle_codes.address(),
            &self.arena.middle_scales.address(),
            &self.arena.first_table.address(),
            &(inter as u32),
        ];
        self.swiglu
            .kernel("swigluQuantise")?
            .launch(launch, &arguments)?;
        Ok(())
    }

    /// Back to hidden columns.
    pub fn second_gemm(&mut self, flight: &Flight) -> Result<()> {
        let rows = flight.believed.rows();
        let words: Vec<u64> = self
            .table(flight, Matrix::Down)
            .iter()
            .flat_map(Group::words)
            .collect();
        self.arena.second_table.fill(&self.device, &words)?;
        self.arena
            .second
            .reserve(&self.device, rows * 2 * self.shape.hidden)?;
        if self.poison {
            self.arena.second.poison()?;
        }
        match rows {
            0 => Ok(()),
            _ => self.multiply(flight, Matrix::Down),
        }
    }
}
