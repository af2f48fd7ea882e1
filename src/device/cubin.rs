//! Parameter sizes of kernels, read from a cubin.
//!
//! A cubin is an ELF file; section `.nv.info.NAME` lists attributes of kernel NAME, one
//! of them (0x17, with twelve bytes of value) a parameter: its ordinal, its offset and,
//! in the upper 14 bits of the last word, its size. Layout as `cuobjdump -elf` shows it,
//! read from cubins of nvcc 13.0; not documented by NVIDIA. A kernel whose parameters
//! are listed in another way cannot be launched: its arguments could not be checked.

use std::collections::BTreeMap;

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const INFO: &str = ".nv.info.";
/// Bytes of a section header.
const HEADER: usize = 64;
/// Attribute format "a 16-bit length and as many bytes"; others are four bytes in all.
const SIZED: u8 = 4;
const PARAMETER: u8 = 0x17;

/// Whether `image` is a 64-bit little-endian ELF file.
pub(super) fn is_elf(image: &[u8]) -> bool {
    image.starts_with(MAGIC)
}

/// Sizes in bytes of the parameters of each kernel, in order.
///
/// # Errors
/// What is not as expected, in words.
pub(super) fn parameters(image: &[u8]) -> Result<BTreeMap<String, Vec<usize>>, String> {
    if !is_elf(image) {
        return Err("it does not begin as a 64-bit ELF file".to_owned());
    }
    let cut = || "it is cut off: a section lies past its end".to_owned();
    let word = |at: usize, bytes: usize| number(image, at, bytes).ok_or_else(cut);
    let (table, entry) = (word(0x28, 8)?, word(0x3a, 2)?);
    let (count, names) = (word(0x3c, 2)?, word(0x3e, 2)?);
    let section = |index: usize| {
        let at = index
            .checked_mul(entry)
            .and_then(|offset| table.checked_add(offset))
            .filter(|&at| {
                image
                    .len()
                    .checked_sub(at)
                    .is_some_and(|left| left >= HEADER)
            })
            .ok_or_else(cut)?;
        Ok::<_, String>((word(at, 4)?, word(at + 0x18, 8)?, word(at + 0x20, 8)?))
    };
    let (_, names, _) = section(names)?;
    let mut kernels = BTreeMap::new();
    for index in 0..count {
        let (name, start, size) = section(index)?;
        let text = names
            .checked_add(name)
            .and_then(|at| image.get(at..))
            .and_then(|rest| rest.split(|&byte| byte == 0).next())
            .ok_or_else(cut)?;
        if let Some(kernel) = String::from_utf8_lossy(text).strip_prefix(INFO) {
            let end = start.checked_add(size).ok_or_else(cut)?;
            let attributes = image.get(start..end).ok_or_else(cut)?;
            kernels.insert(kernel.to_owned(), sizes(attributes).ok_or_else(cut)?);
        }
    }
    Ok(kernels)
}

fn number(image: &[u8], at: usize, bytes: usize) -> Option<usize> {
    let field = image.get(at..at.checked_add(bytes)?)?;
    let value = field
        .iter()
        .rev()
        .fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    usize::try_from(value).ok()
}

fn sizes(attributes: &[u8]) -> Option<Vec<usize>> {
    let mut sizes = BTreeMap::new();
    let mut at = 0;
    while at < attributes.len() {
        let (format, attribute) = (*attributes.get(at)?, *attributes.get(at + 1)?);
        let length = number(attributes, at + 2, 2)?;
        at += 4;
        if format != SIZED {
            continue;
        }
        let value = attributes.get(at..at + length)?;
        if attribute == PARAMETER {
            sizes.insert(number(value, 4, 2)?, number(value, 8, 4)? >> 18);
        }
        at += length;
    }
    Some(sizes.into_values().collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An ELF file with one section of attributes: kernel `own` with these parameters,
    /// listed last to first as compilers do.
    pub(crate) fn image(parameters: &[u32]) -> Vec<u8> {
        let names = b"\0.names\0.nv.info.own\0";
        let mut info = vec![4, 0x37, 4, 0, 0x82, 0, 0, 0, 3, 0x1b, 0xff, 0];
        for (ordinal, size) in parameters.iter().enumerate().rev() {
            info.extend([4, PARAMETER, 12, 0, 0, 0, 0, 0]);
            info.extend((ordinal as u32).to_le_bytes());
            info.extend((size << 18 | 0x1f000).to_le_bytes());
        }
        let mut file = vec![0u8; 64];
        file[..MAGIC.len()].copy_from_slice(MAGIC);
        let starts = (64, 64 + names.len());
        let table = starts.1 + info.len();
        file[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
        file[0x3a] = 64;
        file[0x3c] = 2;
        file.extend(names);
        file.extend(&info);
        for (name, start, size) in [(1u32, starts.0, names.len()), (8, starts.1, info.len())] {
            let mut section = [0u8; 64];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[0x18..0x20].copy_from_slice(&(start as u64).to_le_bytes());
            section[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            file.extend(section);
        }
        file
    }

    #[test]
    fn sizes_come_in_the_order_of_the_parameters() {
        let found = parameters(&image(&[8, 8, 4, 32])).unwrap();
        assert_eq!(found["own"], [8, 8, 4, 32]);
        assert_eq!(parameters(&image(&[])).unwrap()["own"], [0usize; 0]);
    }

    #[test]
    fn a_file_that_is_cut_or_no_elf_is_refused_at_every_length() {
        let whole = image(&[8, 4]);
        for length in 0..whole.len() {
            let found = parameters(&whole[..length]);
            assert!(
                found.is_err(),
                "{length} of {} bytes: {found:?}",
                whole.len()
            );
        }
        assert!(parameters(b".version 8.0").unwrap_err().contains("ELF"));
        let mut wild = whole;
        wild[0x28..0x30].fill(0xff);
        assert!(parameters(&wild).unwrap_err().contains("cut off"));
    }
}
