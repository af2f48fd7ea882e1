//! Copies, in every direction and shape.

use super::code::Code;
use super::context::{by_handle, current};
use super::driver::driver;
use super::ffi::{In, Outcome, plain};
use super::guard::entries;
use super::handles::Handle;
use super::stream::{PER_THREAD, per_thread, resolve};
use super::transfer::{Rows, Transfer};

/// Which side of a copy the caller says is on the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Host,
    Device,
    /// Told by the address.
    Any,
}

fn check_side(address: u64, side: Side) -> Outcome {
    let memory = &driver()?.memory;
    let known = memory.is_device_address(address) || memory.find(address).is_some();
    match side {
        Side::Device if !known => Err(Code::INVALID_VALUE),
        // A device address is no host memory; pinned memory is both.
        Side::Host if memory.is_device_address(address) => Err(Code::INVALID_VALUE),
        _ => Ok(()),
    }
}

/// One row from `from` to `to`, on `stream`.
fn linear(
    to: (u64, Side),
    from: (u64, Side),
    bytes: usize,
    stream: Handle,
    blocking: bool,
) -> Outcome {
    current()?;
    let stream = resolve(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    if to.0 == 0 || from.0 == 0 {
        return Err(Code::INVALID_VALUE);
    }
    check_side(to.0, to.1)?;
    check_side(from.0, from.1)?;
    Transfer::linear(&driver()?.memory, to.0, from.0, bytes as u64).submit(&stream, blocking)
}

/// A function of one direction.
macro_rules! directions {
    ($($name:ident: $from:ident to $to:ident;)*) => {$(
        fn $name(to: u64, from: u64, bytes: usize, stream: Handle, blocking: bool) -> Outcome {
            linear((to, Side::$to), (from, Side::$from), bytes, stream, blocking)
        }
    )*};
}

directions! {
    to_device: Host to Device;
    to_host: Device to Host;
    on_device: Device to Device;
    anywhere: Any to Any;
}

/// Between the devices of two contexts: one address space, so a plain copy.
fn peer(
    (to, to_context): (u64, Handle),
    (from, from_context): (u64, Handle),
    bytes: usize,
    stream: Handle,
    blocking: bool,
) -> Outcome {
    by_handle(to_context)?.state.check()?;
    by_handle(from_context)?.state.check()?;
    on_device(to, from, bytes, stream, blocking)
}

/// `CUDA_MEMCPY2D`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2d {
    pub from: Plane,
    pub to: Plane,
    pub width: usize,
    pub height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Plane {
    pub x: usize,
    pub y: usize,
    /// `CUmemorytype`
    pub kind: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub pitch: usize,
}

/// `CUDA_MEMCPY3D`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3d {
    pub from: Volume,
    pub to: Volume,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// One side of a 3D copy; the peer form keeps a context in `context`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Volume {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub lod: usize,
    pub kind: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub context: u64,
    pub pitch: usize,
    pub height: usize,
}
plain!(Copy2d, Copy3d);

/// The address that a side of kind `kind` starts from.
fn start(kind: u32, host: u64, device: u64) -> Result<u64, Code> {
    let (address, side) = match kind {
        1 => (host, Side::Host),
        2 => (device, Side::Device),
        4 => (device, Side::Any),
        // Arrays, which no kernel here can read.
        3 => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_VALUE),
    };
    check_side(address, side)?;
    Ok(address)
}

impl Volume {
    fn rows(&self, width: usize, height: usize) -> Result<Rows, Code> {
        let address = start(self.kind, self.host, self.device)?;
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let lines = if self.height == 0 {
            height
        } else {
            self.height
        };
        if self.x.checked_add(width).is_none_or(|end| end > pitch) {
            return Err(Code::INVALID_VALUE);
        }
        let slice = pitch.checked_mul(lines).ok_or(Code::INVALID_VALUE)?;
        let skip = self.y.checked_mul(pitch).and_then(|lines| {
            let slices = self.z.checked_mul(slice)?;
            self.x.checked_add(lines)?.checked_add(slices)
        });
        let skip = skip.ok_or(Code::INVALID_VALUE)? as u64;
        let first = address.checked_add(skip).ok_or(Code::INVALID_VALUE)?;
        Ok(Rows::new(
            &driver()?.memory,
            first,
            pitch as u64,
            slice as u64,
        ))
    }
}

impl Copy3d {
    /// The transfer that this describes.
    pub fn transfer(&self) -> Result<Transfer, Code> {
        let from = self.from.rows(self.width, self.height)?;
        let to = self.to.rows(self.width, self.height)?;
        let extent = [self.width, self.height, self.depth].map(|n| n as u64);
        Ok(Transfer::boxed(from, to, extent))
    }

    fn submit(&self, stream: Handle, blocking: bool) -> Outcome {
        current()?;
        let stream = resolve(stream)?;
        if self.width == 0 || self.height == 0 || self.depth == 0 {
            return Ok(());
        }
        self.transfer()?.submit(&stream, blocking)
    }
}

impl From<Copy2d> for Copy3d {
    fn from(flat: Copy2d) -> Copy3d {
        let volume = |plane: Plane| Volume {
            x: plane.x,
            y: plane.y,
            z: 0,
            lod: 0,
            kind: plane.kind,
            host: plane.host,
            device: plane.device,
            array: plane.array,
            context: 0,
            pitch: plane.pitch,
            height: 0,
        };
        Copy3d {
            from: volume(flat.from),
            to: volume(flat.to),
            width: flat.width,
            height: flat.height,
            depth: 1,
        }
    }
}

fn copy_2d(copy: In<Copy2d>, stream: Handle, blocking: bool) -> Outcome {
    Copy3d::from(copy.get()?).submit(stream, blocking)
}

fn copy_3d(copy: In<Copy3d>, stream: Handle, blocking: bool) -> Outcome {
    copy.get()?.submit(stream, blocking)
}

entries! {
    cuMemcpy(to: u64, from: u64, bytes: usize) => anywhere(to, from, bytes, 0, true);
    cuMemcpy_ptds(to: u64, from: u64, bytes: usize) => anywhere(to, from, bytes, PER_THREAD, true);
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) =>
        anywhere(to, from, bytes, stream, false);
    cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) =>
        anywhere(to, from, bytes, per_thread(stream), false);
    cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) => to_device(to, from, bytes, 0, true);
    cuMemcpyHtoD_v2_ptds(to: u64, from: u64, bytes: usize) =>
        to_device(to, from, bytes, PER_THREAD, true);
    cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) =>
        to_device(to, from, bytes, stream, false);
    cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) =>
        to_device(to, from, bytes, per_thread(stream), false);
    cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) => to_host(to, from, bytes, 0, true);
    cuMemcpyDtoH_v2_ptds(to: u64, from: u64, bytes: usize) =>
        to_host(to, from, bytes, PER_THREAD, true);
    cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) =>
        to_host(to, from, bytes, stream, false);
    cuMemcpyDtoHAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) =>
        to_host(to, from, bytes, per_thread(stream), false);
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) => on_device(to, from, bytes, 0, true);
    cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize) =>
        on_device(to, from, bytes, PER_THREAD, true);
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) =>
        on_device(to, from, bytes, stream, false);
    cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) =>
        on_device(to, from, bytes, per_thread(stream), false);
    cuMemcpyPeer(to: u64, tc: Handle, from: u64, fc: Handle, bytes: usize) =>
        peer((to, tc), (from, fc), bytes, 0, true);
    cuMemcpyPeer_ptds(to: u64, tc: Handle, from: u64, fc: Handle, bytes: usize) =>
        peer((to, tc), (from, fc), bytes, PER_THREAD, true);
    cuMemcpyPeerAsync(to: u64, tc: Handle, from: u64, fc: Handle, bytes: usize, stream: Handle) =>
        peer((to, tc), (from, fc), bytes, stream, false);
    cuMemcpyPeerAsync_ptsz(
        to: u64, tc: Handle, from: u64, fc: Handle, bytes: usize, stream: Handle,
    ) => peer((to, tc), (from, fc), bytes, per_thread(stream), false);
    cuMemcpy2D_v2(copy: In<Copy2d>) => copy_2d(copy, 0, true);
    cuMemcpy2D_v2_ptds(copy: In<Copy2d>) => copy_2d(copy, PER_THREAD, true);
    cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) => copy_2d(copy, 0, true);
    cuMemcpy2DUnaligned_v2_ptds(copy: In<Copy2d>) => copy_2d(copy, PER_THREAD, true);
    cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: Handle) => copy_2d(copy, stream, false);
    cuMemcpy2DAsync_v2_ptsz(copy: In<Copy2d>, stream: Handle) =>
        copy_2d(copy, per_thread(stream), false);
    cuMemcpy3D_v2(copy: In<Copy3d>) => copy_3d(copy, 0, true);
    cuMemcpy3D_v2_ptds(copy: In<Copy3d>) => copy_3d(copy, PER_THREAD, true);
    cuMemcpy3DAsync_v2(copy: In<Copy3d>, stream: Handle) => copy_3d(copy, stream, false);
    cuMemcpy3DAsync_v2_ptsz(copy: In<Copy3d>, stream: Handle) =>
        copy_3d(copy, per_thread(stream), false);
    // The peer form has the same layout, a context where the plain one reserves.
    cuMemcpy3DPeer(copy: In<Copy3d>) => copy_3d(copy, 0, true);
    cuMemcpy3DPeer_ptds(copy: In<Copy3d>) => copy_3d(copy, PER_THREAD, true);
    cuMemcpy3DPeerAsync(copy: In<Copy3d>, stream: Handle) => copy_3d(copy, stream, false);
    cuMemcpy3DPeerAsync_ptsz(copy: In<Copy3d>, stream: Handle) =>
        copy_3d(copy, per_thread(stream), false);
}
