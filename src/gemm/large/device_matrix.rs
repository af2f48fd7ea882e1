//! Makes and quantises one operand on the device.

use anyhow::{Context, Result};

use super::workshop::{Workshop, linear, spread};
use crate::device::{Argument, Device, Launch};
use crate::gemm::inputs::{INTEGERS, Input, Stream, mixed_seed};
use crate::gemm::operands::DENORMAL_DOWN;
use crate::gemm::simt::shifts;
use crate::lowp::{E2M1, Recipe, ScaleFormat, Ties};

/// `struct Recipe` of `gemm_reference.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MatrixArgument {
    mixed_seed: u64,
    pub rows: u64,
    pub cols: u64,
    scale_cols: u64,
    row_shift: u32,
    col_shift: u32,
    half_zero: u32,
    outlier: u32,
    fp4: u32,
    power_scale: u32,
    largest: f32,
    scale_factor: f32,
}

impl Argument for MatrixArgument {
    fn bytes(&self) -> *mut std::ffi::c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
    fn size(&self) -> usize {
        size_of::<MatrixArgument>()
    }
}

/// A quantised matrix on the device.
pub struct DeviceMatrix {
    pub argument: MatrixArgument,
    pub codes: u64,
    pub scales: u64,
}

impl DeviceMatrix {
    /// Rows `row0` .. `row0 + rows` in FP64 at `to`.
    pub fn dequantise(&self, shop: &Workshop, row0: u64, rows: u64, to: u64) -> Result<()> {
        let arguments: [&dyn Argument; 6] =
            [&self.argument, &self.codes, &self.scales, &row0, &rows, &to];
        let threads = rows * self.argument.cols.div_ceil(4);
        shop.check("dequantise", spread(threads), &arguments)
    }
}

/// What all matrices of a case share.
pub struct Maker<'a> {
    device: &'a Device,
    shop: &'a Workshop,
    input: Input,
}

impl<'a> Maker<'a> {
    pub fn new(device: &'a Device, shop: &'a Workshop, input: Input) -> Maker<'a> {
        Maker {
            device,
            shop,
            input,
        }
    }

    /// Enqueues the making of rows × cols codes and their scales at the addresses
    /// given.
    pub fn make(
        &self,
        recipe: &Recipe,
        (seed, stream, scale_stream): (u64, Stream, Stream),
        (rows, cols): (u64, u64),
        (codes, scales): (u64, u64),
    ) -> Result<DeviceMatrix> {
        let (row_shift, col_shift) =
            shifts(recipe).context("scales along the rows are not made on a device")?;
        let down = if stream == Stream::A {
            DENORMAL_DOWN
        } else {
            -DENORMAL_DOWN
        };
        let denormal = self.input == Input::DenormalScales;
        let argument = MatrixArgument {
            mixed_seed: mixed_seed(seed, stream),
            rows,
            cols,
            scale_cols: cols.div_ceil(1 << col_shift),
            row_shift,
            col_shift,
            half_zero: u32::from(self.input == Input::HalfZero),
            outlier: u32::from(self.input == Input::Outlier),
            fp4: u32::from(recipe.format == E2M1),
            power_scale: u32::from(recipe.scale == ScaleFormat::Ue8m0),
            largest: recipe.format.max() as f32,
            scale_factor: if denormal { 2f32.powi(down) } else { 1.0 },
        };
        let matrix = DeviceMatrix {
            argument,
            codes,
            scales,
        };
        if rows == 0 || cols == 0 {
            return Ok(matrix);
        }
        if self.input == Input::Integers {
            self.integers(recipe, &matrix, mixed_seed(seed, scale_stream))?;
        } else {
            self.quantise(&matrix)?;
        }
        Ok(matrix)
    }

    fn quantise(&self, matrix: &DeviceMatrix) -> Result<()> {
        let argument = &matrix.argument;
        let table = self.shop.quantiles(self.device, self.input)?;
        let (codes, scales) = (&matrix.codes, &matrix.scales);
        if argument.col_shift > 7 {
            let maximum = self.shop.scratch.take(self.device, "largest", 4)?;
            self.shop.fill(maximum, 0, 4)?;
            let arguments: [&dyn Argument; 3] = [argument, &table, &maximum];
            self.shop
                .make("tensorMaximum", chunks(argument), &arguments)?;
            let arguments: [&dyn Argument; 5] = [argument, &table, &maximum, codes, scales];
            return self.shop.make("encodeTensor", chunks(argument), &arguments);
        }
        let (kernel, tile_rows) = if argument.row_shift == 0 {
            ("quantiseRows", 32)
        } else {
            ("quantiseBlocks", 128)
        };
        let tiles = argument.rows.div_ceil(tile_rows) * argument.cols.div_ceil(128);
        let arguments: [&dyn Argument; 4] = [argument, &table, codes, scales];
        self.shop.make(kernel, spread(tiles * 256), &arguments)
    }

    fn integers(&self, recipe: &Recipe, matrix: &DeviceMatrix, scale_seed: u64) -> Result<()> {
        let code = |value: f32| {
            let code = recipe.format.encode(value, Ties::Even);
            u32::from(code.expect("small integers have codes in every format"))
        };
        let four = INTEGERS
            .iter()
            .enumerate()
            .fold(0, |word, (i, &value)| word | code(value) << (8 * i));
        let argument = &matrix.argument;
        let arguments: [&dyn Argument; 3] = [argument, &four, &matrix.codes];
        self.shop
            .make("encodeIntegers", chunks(argument), &arguments)?;
        let groups = argument.rows.div_ceil(1 << argument.row_shift) * argument.scale_cols;
        let arguments: [&dyn Argument; 3] = [&scale_seed, &groups, &matrix.scales];
        self.shop.make("integerScales", linear(groups)?, &arguments)
    }
}

/// One thread a chunk of 16 columns.
fn chunks(argument: &MatrixArgument) -> Launch {
    spread(argument.rows * argument.cols.div_ceil(16))
}
