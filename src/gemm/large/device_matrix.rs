//! Makes and quantises one operand on the device.

use anyhow::{Context, Result};

use super::Workshop;
use crate::device::{Argument, Buffer, Device, Launch};
use crate::gemm::case::Case;
use crate::gemm::inputs::{self, Input, Stream, mix, mixed_seed};
use crate::gemm::operands::DENORMAL_DOWN;
use crate::gemm::simt::shifts;
use crate::lowp::{E2M1, Recipe, ScaleFormat, Ties};

/// `struct Recipe` of `gemm_reference.cu`.
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

/// What all matrices of a case share.
pub struct Maker<'a> {
    device: &'a Device,
    shop: &'a Workshop,
    input: Input,
    quantiles: Buffer<f32>,
}

impl<'a> Maker<'a> {
    pub fn new(device: &'a Device, shop: &'a Workshop, case: &Case) -> Result<Maker<'a>> {
        Ok(Maker {
            device,
            shop,
            input: case.input,
            quantiles: device.upload(&inputs::quantiles(case.input))?,
        })
    }

    /// rows × cols codes and their scales at the addresses given.
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
        let groups = rows.div_ceil(1 << row_shift) * argument.scale_cols;
        if self.input == Input::Integers {
            self.integers(recipe, &matrix, mixed_scales(seed, scale_stream, groups))?;
        } else {
            self.quantise(&matrix, groups)?;
        }
        Ok(matrix)
    }

    fn quantise(&self, matrix: &DeviceMatrix, groups: u64) -> Result<()> {
        let argument = &matrix.argument;
        let maxima = self.device.upload(&vec![0u32; usize::try_from(groups)?])?;
        let rows_per_block = 1u32 << argument.row_shift.min(7);
        let launch = Launch {
            grid: (
                u32::try_from(argument.rows.div_ceil(u64::from(rows_per_block)))?,
                u32::try_from(argument.cols.div_ceil(128))?,
                1,
            ),
            block: (128, 1, 1),
            shared_bytes: 0,
        };
        let arguments: [&dyn Argument; 4] = [argument, &self.quantiles, &maxima, &rows_per_block];
        self.shop.launch("groupMaxima", launch, &arguments)?;
        let arguments: [&dyn Argument; 5] = [
            argument,
            &self.quantiles,
            &maxima,
            &matrix.codes,
            &matrix.scales,
        ];
        self.shop
            .launch("encode", encoding(argument)?, &arguments)?;
        // The maxima must outlive the launch.
        self.device.synchronize()?;
        Ok(())
    }

    fn integers(&self, recipe: &Recipe, matrix: &DeviceMatrix, scales: Vec<f32>) -> Result<()> {
        let code = |value: f32| {
            let code = recipe.format.encode(value, Ties::Even);
            u32::from(code.expect("small integers have codes in every format"))
        };
        let four = [-2.0, -1.0, 1.0, 2.0]
            .iter()
            .enumerate()
            .fold(0, |word, (i, &value)| word | code(value) << (8 * i));
        let argument = &matrix.argument;
        let arguments: [&dyn Argument; 3] = [argument, &four, &matrix.codes];
        self.shop
            .launch("encodeIntegers", encoding(argument)?, &arguments)?;
        let staged = self.device.upload(&scales)?;
        let words = scales.len() as u64;
        self.shop
            .linear("copyWords", words, &[&staged, &matrix.scales, &words])?;
        self.device.synchronize()?;
        Ok(())
    }
}

/// Scales of ½, 1 and 2, as the host draws them.
fn mixed_scales(seed: u64, stream: Stream, groups: u64) -> Vec<f32> {
    (0..groups)
        .map(|i| inputs::power(mix(seed, stream, i)))
        .collect()
}

/// One thread a byte of codes.
fn encoding(argument: &MatrixArgument) -> Result<Launch> {
    let row = if argument.fp4 == 1 {
        argument.cols.div_ceil(2)
    } else {
        argument.cols
    };
    Ok(Launch {
        grid: (
            u32::try_from(argument.rows)?,
            u32::try_from(row.div_ceil(128))?,
            1,
        ),
        block: (128, 1, 1),
        shared_bytes: 0,
    })
}
