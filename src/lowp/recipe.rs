//! Quantisation recipes: which elements share a scale, and how it is stored.
//!
//! A matrix is rows × cols, row-major, with K along the columns (except where a
//! k-grouped GEMM quantises per channel: see [`Granularity::PerChannel`]).
//! scale = max(amax, [`AMAX_FLOOR`]) / largest code, in FP32; rounded up to a
//! power of two first where the scale format is UE8M0; then each element is
//! x / scale, rounded to the code by the format's rule. Source: the casts of
//! DeepGEMM's `math.py`, re-derived in facts of numbers only.

#[cfg(test)]
mod tests;

use super::minifloat::{E2M1, E4M3, E5M2, Minifloat, Ties, pack_nibbles};
use super::ue8m0;

/// Group maxima below this count as this: keeps the scale of a zero group away
/// from zero.
pub const AMAX_FLOOR: f32 = 1e-4;

/// Group sizes that recipes in use have.
pub const GROUP_SIZES: [usize; 4] = [16, 32, 64, 128];

/// Which elements share a scale. The last group of a row or column may be
/// ragged: it holds what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// 1 × g: along the columns of each row.
    PerToken(usize),
    /// g × 1: along the rows of each column. A K × m operand quantised so is,
    /// once transposed, an m × K operand quantised per token.
    PerChannel(usize),
    /// g × g.
    PerBlock(usize),
    /// One scale for everything.
    Tensor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleFormat {
    F32,
    /// A power of two, rounded up before the elements are quantised.
    Ue8m0,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    pub format: Minifloat,
    pub granularity: Granularity,
    pub scale: ScaleFormat,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RecipeError {
    Length {
        rows: usize,
        cols: usize,
        found: usize,
    },
    NotFinite {
        row: usize,
        col: usize,
        value: f32,
    },
    GroupSize {
        found: usize,
    },
}

impl std::fmt::Display for RecipeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecipeError::Length { rows, cols, found } => write!(
                f,
                "a {rows} × {cols} matrix holds {} elements, found {found}",
                rows * cols
            ),
            RecipeError::NotFinite { row, col, value } => write!(
                f,
                "element ({row}, {col}) is {value}: recipes are defined for finite values; \
                 plant NaN as a code, after quantising"
            ),
            RecipeError::GroupSize { found } => {
                write!(f, "group size {found}: expected one of 16, 32, 64, 128")
            }
        }
    }
}

impl std::error::Error for RecipeError {}

impl Granularity {
    /// Rows and columns of one group within a rows × cols matrix.
    pub fn group(self, rows: usize, cols: usize) -> (usize, usize) {
        match self {
            Granularity::PerToken(g) => (1, g),
            Granularity::PerChannel(g) => (g, 1),
            Granularity::PerBlock(g) => (g, g),
            Granularity::Tensor => (rows.max(1), cols.max(1)),
        }
    }

    /// # Errors
    /// A group size that no recipe in use has; 0 among them.
    pub fn check(self) -> Result<(), RecipeError> {
        match self {
            Granularity::Tensor => Ok(()),
            Granularity::PerToken(g) | Granularity::PerChannel(g) | Granularity::PerBlock(g) => {
                if GROUP_SIZES.contains(&g) {
                    Ok(())
                } else {
                    Err(RecipeError::GroupSize { found: g })
                }
            }
        }
    }
}

impl std::fmt::Display for Granularity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Granularity::PerToken(g) => write!(f, "1x{g}"),
            Granularity::PerChannel(g) => write!(f, "{g}x1"),
            Granularity::PerBlock(g) => write!(f, "{g}x{g}"),
            Granularity::Tensor => write!(f, "tensor"),
        }
    }
}

impl std::fmt::Display for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scale = match self.scale {
            ScaleFormat::F32 => "f32",
            ScaleFormat::Ue8m0 => "ue8m0",
        };
        write!(f, "{} {} {scale}", self.format.name, self.granularity)
    }
}

/// A quantised matrix: codes one a byte, and the scale of each group.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantised {
    pub rows: usize,
    pub cols: usize,
    pub recipe: Recipe,
    /// rows × cols, one code a byte for every format.
    pub codes: Vec<u8>,
    /// scale_rows × scale_cols, row-major; powers of two under UE8M0.
    pub scales: Vec<f32>,
    pub scale_rows: usize,
    pub scale_cols: usize,
}

impl Recipe {
    pub fn new(format: Minifloat, granularity: Granularity, scale: ScaleFormat) -> Recipe {
        Recipe {
            format,
            granularity,
            scale,
        }
    }

    fn ties(&self) -> Ties {
        if self.format == E2M1 {
            Ties::SmallerMagnitude
        } else {
            Ties::Even
        }
    }

    /// The scale of a group whose largest magnitude is `amax`.
    pub fn scale_for(&self, amax: f32) -> f32 {
        let scale = amax.max(AMAX_FLOOR) / self.format.max() as f32;
        match self.scale {
            ScaleFormat::F32 => scale,
            ScaleFormat::Ue8m0 => ue8m0::decode(ue8m0::encode_up(scale)),
        }
    }

    fn encode(&self, x: f32) -> u8 {
        let code = self
            .format
            .encode(x, self.ties())
            .expect("finite values have a code in every format");
        // The FP4 recipe in use has no minus zero.
        if self.format == E2M1 && code == 0x8 {
            0
        } else {
            code
        }
    }

    /// Quantises a rows × cols matrix.
    pub fn quantise(&self, x: &[f32], rows: usize, cols: usize) -> Result<Quantised, RecipeError> {
        self.granularity.check()?;
        if x.len() != rows * cols {
            return Err(RecipeError::Length {
                rows,
                cols,
                found: x.len(),
            });
        }
        if let Some(at) = x.iter().position(|value| !value.is_finite()) {
            let (row, col) = (at / cols, at % cols);
            return Err(RecipeError::NotFinite {
                row,
                col,
                value: x[at],
            });
        }
        let (group_rows, group_cols) = self.granularity.group(rows, cols);
        let (scale_rows, scale_cols) = (rows.div_ceil(group_rows), cols.div_ceil(group_cols));
        let mut amax = vec![0f32; scale_rows * scale_cols];
        for (row, values) in x.chunks(cols.max(1)).enumerate() {
            let groups = &mut amax[row / group_rows * scale_cols..][..scale_cols];
            for (col, value) in values.iter().enumerate() {
                let group = &mut groups[col / group_cols];
                *group = group.max(value.abs());
            }
        }
        let scales: Vec<f32> = amax.into_iter().map(|amax| self.scale_for(amax)).collect();
        let mut codes = Vec::with_capacity(x.len());
        for (row, values) in x.chunks(cols.max(1)).enumerate() {
            let groups = &scales[row / group_rows * scale_cols..][..scale_cols];
            for (col, value) in values.iter().enumerate() {
                codes.push(self.encode(value / groups[col / group_cols]));
            }
        }
        Ok(Quantised {
            rows,
            cols,
            recipe: *self,
            codes,
            scales,
            scale_rows,
            scale_cols,
        })
    }
}

impl Quantised {
    /// The scale that element (row, col) shares.
    pub fn scale_at(&self, row: usize, col: usize) -> f32 {
        let (group_rows, group_cols) = self.recipe.granularity.group(self.rows, self.cols);
        self.scales[row / group_rows * self.scale_cols + col / group_cols]
    }

    /// The raw value of each code, before scaling.
    pub fn decoded(&self) -> Vec<f64> {
        let table = decode_table(&self.recipe.format);
        self.codes
            .iter()
            .map(|&code| table[usize::from(code)])
            .collect()
    }

    /// Code × scale, in f64: exact, as a code has at most 4 significant bits and
    /// an FP32 scale 24.
    pub fn dequantise(&self) -> Vec<f64> {
        let table = decode_table(&self.recipe.format);
        let (group_rows, group_cols) = self.recipe.granularity.group(self.rows, self.cols);
        let mut values = Vec::with_capacity(self.codes.len());
        for (row, codes) in self.codes.chunks(self.cols.max(1)).enumerate() {
            let scales = &self.scales[row / group_rows * self.scale_cols..][..self.scale_cols];
            for (col, &code) in codes.iter().enumerate() {
                values.push(table[usize::from(code)] * f64::from(scales[col / group_cols]));
            }
        }
        values
    }

    /// The bytes a kernel reads: two codes a byte for E2M1, one otherwise.
    pub fn packed(&self) -> Vec<u8> {
        if self.recipe.format.bits == 4 {
            pack_nibbles(&self.codes, self.cols)
        } else {
            self.codes.clone()
        }
    }

    /// The transpose of a per-channel quantised matrix: per token, same group.
    pub fn transposed(&self) -> Quantised {
        let flip = |data: &[u8]| transpose(data, self.rows, self.cols);
        let granularity = match self.recipe.granularity {
            Granularity::PerChannel(g) => Granularity::PerToken(g),
            Granularity::PerToken(g) => Granularity::PerChannel(g),
            other => other,
        };
        Quantised {
            rows: self.cols,
            cols: self.rows,
            recipe: Recipe {
                granularity,
                ..self.recipe
            },
            codes: flip(&self.codes),
            scales: transpose(&self.scales, self.scale_rows, self.scale_cols),
            scale_rows: self.scale_cols,
            scale_cols: self.scale_rows,
        }
    }
}

fn transpose<T: Copy>(data: &[T], rows: usize, cols: usize) -> Vec<T> {
    (0..cols)
        .flat_map(|col| (0..rows).map(move |row| data[row * cols + col]))
        .collect()
}

fn decode_table(format: &Minifloat) -> Vec<f64> {
    debug_assert!([E4M3, E5M2, E2M1].contains(format));
    (0..=255u8)
        .map(|code| f64::from(format.decode(code)))
        .collect()
}
