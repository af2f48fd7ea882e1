//! Descriptors of bulk tensor copies (Hopper and later).

use std::ffi::c_void;

use cudarc::driver::sys;

use super::context::Device;
use super::error::DeviceError;
use super::module::Argument;

/// A matrix of bytes that bulk copies fetch in boxes of 128 bytes a row.
///
/// Passed to a kernel by value, as a `__grid_constant__` of 128 bytes.
#[derive(Clone, Copy)]
pub struct TensorMap(sys::CUtensorMap);

impl Device {
    /// Describes `rows` × `row_bytes` bytes at `address`, row after row, in boxes
    /// of `box_rows` × 128 bytes with the 128-byte swizzle. What a box holds past
    /// the matrix arrives as zeros.
    ///
    /// # Errors
    /// [`DeviceError::BadRequest`] unless address and rows are whole multiples of
    /// 16 bytes and the sizes fit the format; the driver's refusal otherwise.
    pub fn tensor_map(
        &self,
        address: u64,
        rows: u64,
        row_bytes: u64,
        box_rows: u32,
    ) -> Result<TensorMap, DeviceError> {
        if !address.is_multiple_of(16) || !row_bytes.is_multiple_of(16) {
            return Err(DeviceError::BadRequest {
                message: format!(
                    "a bulk copy needs an address and rows of whole 16 bytes; \
                     found address {address:#x} and rows of {row_bytes} bytes"
                ),
            });
        }
        if rows == 0 || row_bytes == 0 || !(1..=256).contains(&box_rows) {
            return Err(DeviceError::BadRequest {
                message: format!(
                    "a bulk copy needs at least one row and byte and boxes of 1 to 256 rows; \
                     found {rows} rows of {row_bytes} bytes, boxes of {box_rows} rows"
                ),
            });
        }
        self.shared.enter()?;
        let mut map = std::mem::MaybeUninit::<sys::CUtensorMap>::zeroed();
        let (sizes, strides) = ([row_bytes, rows], [row_bytes]);
        let (extent, step) = ([128u32, box_rows], [1u32, 1]);
        // SAFETY: rank 2, and every array has as many entries as rank 2 asks for;
        // the driver only writes the map.
        let encoded = unsafe {
            sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr(),
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
                2,
                address as *mut c_void,
                sizes.as_ptr(),
                strides.as_ptr(),
                extent.as_ptr(),
                step.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        self.shared
            .check("cuTensorMapEncodeTiled", encoded.result())?;
        // SAFETY: the driver wrote the map, and zeros were valid before.
        Ok(TensorMap(unsafe { map.assume_init() }))
    }
}

impl Argument for TensorMap {
    fn bytes(&self) -> *mut c_void {
        std::ptr::from_ref(&self.0).cast_mut().cast()
    }
    fn size(&self) -> usize {
        size_of::<sys::CUtensorMap>()
    }
}
