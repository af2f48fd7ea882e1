//! Fills of 1, 2 and 4 byte patterns, linear and in rows.

use super::code::Code;
use super::context::current;
use super::ffi::Outcome;
use super::guard::entries;
use super::handles::Handle;
use super::stream::{PER_THREAD, per_thread, resolve};
use super::transfer::Fill;

/// Rows of `width` elements; `blocking` for the forms without a stream.
fn fill(
    to: u64,
    pitch: usize,
    pattern: &[u8],
    [width, height]: [usize; 2],
    stream: Handle,
    blocking: bool,
) -> Outcome {
    current()?;
    let stream = resolve(stream)?;
    if height > 1 && width.saturating_mul(pattern.len()) > pitch {
        return Err(Code::INVALID_VALUE);
    }
    let fill = Fill {
        to,
        pattern: pattern.to_vec(),
        width: width as u64,
        height: height as u64,
        pitch: pitch as u64,
    };
    fill.submit(&stream, blocking)
}

/// The eight entry points of one element size.
macro_rules! memsets {
    ($ty:ty: $flat:ident $flat_ptds:ident $flat_async:ident $flat_ptsz:ident
     $rows:ident $rows_ptds:ident $rows_async:ident $rows_ptsz:ident) => {
        entries! {
            $flat(to: u64, value: $ty, n: usize) =>
                fill(to, 0, &value.to_le_bytes(), [n, 1], 0, true);
            $flat_ptds(to: u64, value: $ty, n: usize) =>
                fill(to, 0, &value.to_le_bytes(), [n, 1], PER_THREAD, true);
            $flat_async(to: u64, value: $ty, n: usize, stream: Handle) =>
                fill(to, 0, &value.to_le_bytes(), [n, 1], stream, false);
            $flat_ptsz(to: u64, value: $ty, n: usize, stream: Handle) =>
                fill(to, 0, &value.to_le_bytes(), [n, 1], per_thread(stream), false);
            $rows(to: u64, pitch: usize, value: $ty, width: usize, height: usize) =>
                fill(to, pitch, &value.to_le_bytes(), [width, height], 0, true);
            $rows_ptds(to: u64, pitch: usize, value: $ty, width: usize, height: usize) =>
                fill(to, pitch, &value.to_le_bytes(), [width, height], PER_THREAD, true);
            $rows_async(
                to: u64, pitch: usize, value: $ty, width: usize, height: usize, stream: Handle,
            ) => fill(to, pitch, &value.to_le_bytes(), [width, height], stream, false);
            $rows_ptsz(
                to: u64, pitch: usize, value: $ty, width: usize, height: usize, stream: Handle,
            ) => fill(to, pitch, &value.to_le_bytes(), [width, height], per_thread(stream), false);
        }
    };
}

memsets!(u8: cuMemsetD8_v2 cuMemsetD8_v2_ptds cuMemsetD8Async cuMemsetD8Async_ptsz
    cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD2D8Async cuMemsetD2D8Async_ptsz);
memsets!(u16: cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD16Async cuMemsetD16Async_ptsz
    cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D16Async cuMemsetD2D16Async_ptsz);
memsets!(u32: cuMemsetD32_v2 cuMemsetD32_v2_ptds cuMemsetD32Async cuMemsetD32Async_ptsz
    cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds cuMemsetD2D32Async cuMemsetD2D32Async_ptsz);
