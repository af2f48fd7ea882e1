//! Devices and what they report.

use super::code::Code;
use super::driver::driver;
use super::ffi::{Out, Outcome, Text, plain};
use super::guard::entries;

fn name(out: Out<u8>, room: i32, device: i32) -> Outcome {
    let device = driver()?.device(device)?;
    let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
    let name = device.profile.name.as_bytes();
    let kept = name
        .len()
        .min(room.checked_sub(1).ok_or(Code::INVALID_VALUE)?);
    let mut bytes = name[..kept].to_vec();
    bytes.push(0);
    out.set_all(&bytes)
}

/// Not a real device's: the letters say whose it is, the last byte counts.
fn uuid(out: Out<[u8; 16]>, device: i32) -> Outcome {
    let device = driver()?.device(device)?;
    let mut bytes = *b"kernelgate-cpu-\0";
    bytes[15] = device.ordinal as u8;
    out.set(bytes)
}

/// PCI buses of made-up devices start where real ones hardly are.
const FIRST_BUS: u32 = 0xc0;

fn pci_text(ordinal: u32) -> String {
    format!("0000:{:02x}:00.0", FIRST_BUS + ordinal)
}

fn pci_id(out: Out<u8>, room: i32, device: i32) -> Outcome {
    let device = driver()?.device(device)?;
    let mut bytes = pci_text(device.ordinal).into_bytes();
    bytes.push(0);
    if usize::try_from(room).is_ok_and(|room| room < bytes.len()) || room <= 0 {
        return Err(Code::INVALID_VALUE);
    }
    out.set_all(&bytes)
}

fn by_pci_id(out: Out<i32>, text: Text) -> Outcome {
    let wanted = text.text()?.to_ascii_lowercase();
    let devices = &driver()?.devices;
    let found = devices.iter().find(|device| {
        let full = pci_text(device.ordinal);
        wanted == full || full.strip_prefix("0000:") == Some(wanted.as_str())
    });
    out.set(found.ok_or(Code::INVALID_DEVICE)?.ordinal as i32)
}

const PCI_BUS: i32 = 33;
const MULTI_BOARD_GROUP: i32 = 85;

fn attribute(out: Out<i32>, number: i32, device: i32) -> Outcome {
    let device = driver()?.device(device)?;
    let value = device
        .profile
        .attribute(number)
        .ok_or(Code::INVALID_VALUE)?;
    out.set(match number {
        PCI_BUS => (FIRST_BUS + device.ordinal) as i32,
        MULTI_BOARD_GROUP => device.ordinal as i32,
        _ => value,
    })
}

/// `CUdevprop`
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    max_threads: i32,
    max_block: [i32; 3],
    max_grid: [i32; 3],
    shared: i32,
    constant: i32,
    warp: i32,
    pitch: i32,
    registers: i32,
    clock: i32,
    texture_align: i32,
}
plain!(Properties);

fn properties(out: Out<Properties>, device: i32) -> Outcome {
    let profile = driver()?.device(device)?.profile;
    let get = |number| profile.attribute(number).unwrap_or(0);
    out.set(Properties {
        max_threads: get(1),
        max_block: [2, 3, 4].map(get),
        max_grid: [5, 6, 7].map(get),
        shared: get(8),
        constant: get(9),
        warp: get(10),
        pitch: get(11),
        registers: get(12),
        clock: get(13),
        texture_align: get(14),
    })
}

fn capability(major: Out<i32>, minor: Out<i32>, device: i32) -> Outcome {
    let profile = driver()?.device(device)?.profile;
    major.set(profile.compute_capability.0 as i32)?;
    minor.set(profile.compute_capability.1 as i32)
}

fn can_access(out: Out<i32>, device: i32, peer: i32) -> Outcome {
    let driver = driver()?;
    let (device, peer) = (driver.device(device)?, driver.device(peer)?);
    out.set(i32::from(device.ordinal != peer.ordinal))
}

/// Performance rank, access, native atomics, array access.
fn peer_attribute(out: Out<i32>, number: u32, device: i32, peer: i32) -> Outcome {
    let driver = driver()?;
    let (device, peer) = (driver.device(device)?, driver.device(peer)?);
    if device.ordinal == peer.ordinal {
        return Err(Code::INVALID_DEVICE);
    }
    match number {
        1 | 4 => out.set(0),
        2 | 3 => out.set(1),
        _ => Err(Code::INVALID_VALUE),
    }
}

entries! {
    cuDeviceGetCount(out: Out<i32>) => out.set(driver()?.devices.len() as i32);
    cuDeviceGet(out: Out<i32>, ordinal: i32) => out.set(driver()?.device(ordinal)?.ordinal as i32);
    cuDeviceGetName(out: Out<u8>, room: i32, device: i32) => name(out, room, device);
    cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) => uuid(out, device);
    cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) => uuid(out, device);
    cuDeviceTotalMem_v2(out: Out<usize>, device: i32) =>
        out.set(driver()?.device(device)?.profile.total_memory as usize);
    cuDeviceGetAttribute(out: Out<i32>, number: i32, device: i32) =>
        attribute(out, number, device);
    cuDeviceGetProperties(out: Out<Properties>, device: i32) => properties(out, device);
    cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) =>
        capability(major, minor, device);
    cuDeviceGetPCIBusId(out: Out<u8>, room: i32, device: i32) => pci_id(out, room, device);
    cuDeviceGetByPCIBusId(out: Out<i32>, text: Text) => by_pci_id(out, text);
    cuDeviceCanAccessPeer(out: Out<i32>, device: i32, peer: i32) => can_access(out, device, peer);
    cuDeviceGetP2PAttribute(out: Out<i32>, number: u32, device: i32, peer: i32) =>
        peer_attribute(out, number, device, peer);
    cuDeviceGetExecAffinitySupport(out: Out<i32>, _kind: u32, device: i32) => {
        driver()?.device(device)?;
        out.set(0)
    };
}
