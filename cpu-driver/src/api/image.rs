//! What a module may be loaded from: PTX text or a fat binary that holds some.
//!
//! A fat binary is a header (magic `BA55ED50`) and entries, each with a header
//! of its own size: kind 1 is PTX, kind 2 machine code, which nothing here can
//! run. PTX may be packed with LZ4 or zstd. The wrapper (magic `466243B1`) that
//! nvcc puts into host programs points to one.

use super::code::Code;
use super::ffi::In;
use crate::profile::Profile;

const WRAPPER: u32 = 0x4662_43B1;
const FATBIN: u32 = 0xBA55_ED50;
const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");

const KIND_PTX: u16 = 1;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// Largest fat binary, and largest unpacked PTX, that is believed.
const MOST_BYTES: u64 = 1 << 31;

/// Reads an image at a client's address and returns its PTX.
///
/// # Errors
/// A code and a line for the error log.
pub fn ptx_at(image: In<u8>, profile: &Profile) -> Result<String, (Code, String)> {
    let plain = |code| (code, "the image cannot be read".to_owned());
    match In(image.0.cast::<u32>()).get().map_err(plain)? {
        WRAPPER => {
            let data = In(image.0.wrapping_add(8).cast::<u64>());
            ptx_at(In(data.get().map_err(plain)? as *const u8), profile)
        }
        FATBIN => {
            let header = image.all(16).map_err(plain)?;
            let size = u64::from(u16_at(&header, 6).unwrap_or(0))
                .saturating_add(u64_at(&header, 8).unwrap_or(0));
            if size > MOST_BYTES {
                return Err(damaged("its size is absurd"));
            }
            from_fatbin(&image.all(size as usize).map_err(plain)?, profile)
        }
        ELF => Err(machine_code()),
        _ => image.text().map_err(plain),
    }
}

/// As [`ptx_at`] for bytes of known length (a file, data for the linker).
///
/// # Errors
/// As for [`ptx_at`].
pub fn ptx_in(bytes: &[u8], profile: &Profile) -> Result<String, (Code, String)> {
    match u32_at(bytes, 0) {
        Some(FATBIN) => from_fatbin(bytes, profile),
        Some(ELF) => Err(machine_code()),
        _ => {
            let end = bytes.iter().position(|&byte| byte == 0);
            let text = &bytes[..end.unwrap_or(bytes.len())];
            Ok(String::from_utf8_lossy(text).into_owned())
        }
    }
}

fn machine_code() -> (Code, String) {
    let text = "the image holds machine code only (a cubin); this driver runs PTX: compile with \
                -gencode arch=compute_75,code=compute_75";
    (Code::NO_BINARY_FOR_GPU, text.to_owned())
}

fn damaged(how: &str) -> (Code, String) {
    (Code::INVALID_IMAGE, format!("damaged fat binary: {how}"))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*field))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*field))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*field))
}

/// An entry of a fat binary.
struct Entry<'a> {
    kind: u16,
    /// 75 for sm_75.
    arch: u32,
    flags: u64,
    payload: &'a [u8],
    unpacked: u64,
}

/// The entry that starts at `at`, and where the next one does.
fn entry(bytes: &[u8], at: usize) -> Option<(Entry<'_>, usize)> {
    let header = bytes.get(at..)?;
    let header_size = u32_at(header, 4)? as usize;
    let padded = usize::try_from(u64_at(header, 8)?).ok()?;
    let packed = u32_at(header, 16)? as usize;
    let flags = u64_at(header, 40)?;
    let whole = header.get(header_size..header_size.checked_add(padded)?)?;
    let payload = match flags & (FLAG_LZ4 | FLAG_ZSTD) {
        0 => whole,
        _ => whole.get(..packed)?,
    };
    let entry = Entry {
        kind: u16_at(header, 0)?,
        arch: u32_at(header, 28)?,
        flags,
        payload,
        unpacked: u64_at(header, 56)?,
    };
    let next = at.checked_add(header_size)?.checked_add(padded)?;
    // An entry without length would never end.
    (next > at).then_some((entry, next))
}

fn from_fatbin(bytes: &[u8], profile: &Profile) -> Result<String, (Code, String)> {
    let header = u16_at(bytes, 6).map(usize::from);
    let length = u64_at(bytes, 8).and_then(|length| usize::try_from(length).ok());
    let (Some(mut at), Some(length)) = (header, length) else {
        return Err(damaged("its header is cut off"));
    };
    let end = at.saturating_add(length).min(bytes.len());
    let (major, minor) = profile.compute_capability;
    let mut best: Option<Entry> = None;
    let mut seen = Vec::new();
    while at < end {
        let Some((entry, next)) = entry(&bytes[..end], at) else {
            return Err(damaged("an entry does not fit into it"));
        };
        at = next;
        if entry.kind != KIND_PTX {
            continue;
        }
        seen.push(format!("sm_{}", entry.arch));
        let usable = entry.arch <= major * 10 + minor;
        if usable && best.as_ref().is_none_or(|best| best.arch <= entry.arch) {
            best = Some(entry);
        }
    }
    match best {
        Some(entry) => unpack(&entry),
        None if seen.is_empty() => Err(machine_code()),
        None => Err((
            Code::NO_BINARY_FOR_GPU,
            format!(
                "the fat binary has PTX for {}, the device is sm_{major}{minor}",
                seen.join(", ")
            ),
        )),
    }
}

fn unpack(entry: &Entry<'_>) -> Result<String, (Code, String)> {
    if entry.unpacked > MOST_BYTES {
        return Err(damaged("its PTX has an absurd size"));
    }
    let size = entry.unpacked as usize;
    let bytes = if entry.flags & FLAG_LZ4 != 0 {
        lz4_flex::block::decompress(entry.payload, size)
            .map_err(|error| damaged(&format!("LZ4: {error}")))?
    } else if entry.flags & FLAG_ZSTD != 0 {
        unpack_zstd(entry.payload, size)?
    } else {
        entry.payload.to_vec()
    };
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = &bytes[..end.unwrap_or(bytes.len())];
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn unpack_zstd(packed: &[u8], size: usize) -> Result<Vec<u8>, (Code, String)> {
    use std::io::Read;
    let wrong = |error: &dyn std::fmt::Display| damaged(&format!("zstd: {error}"));
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
    let mut bytes = Vec::new();
    decoder
        .map_err(|error| wrong(&error))?
        .take(size as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(&error))?;
    Ok(bytes)
}
