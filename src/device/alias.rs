//! A tiny ELF library that answers to one name and needs another library.
//!
//! cudarc asks the loader for `libcuda.so` first. Under `cargo run` the library
//! path starts with `target/<profile>/deps`, where our own driver lies under that
//! very name; a CUDA toolkit's `stubs` folder does the same. So when NVIDIA's
//! driver is the choice, its `libcuda.so.1` must be what `libcuda.so` means in
//! this process. The loader takes a library that is already loaded under a SONAME
//! before it searches any folder, and looks symbols up in what a library needs: an
//! empty library with SONAME `libcuda.so` that needs `libcuda.so.1` is enough.
//!
//! Layout of the file: ELF header, two program headers (one read-only load
//! segment, one dynamic segment), dynamic table, empty symbol table, strings.
//! Source: the System V ABI, chapters 4 and 5. 64-bit little-endian Linux only.

const EHDR: u64 = 64;
const PHDR: u64 = 56;
const DYN_ENTRIES: u64 = 7;
const DYN: u64 = DYN_ENTRIES * 16;
const SYM: u64 = 24;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PF_R: u32 = 4;
const PF_RW: u32 = 6;
/// glibc relocates the dynamic table in place, so its page must be private and
/// writable.
const SEGMENT_ALIGN: u64 = 0x10000;

#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(not(target_arch = "aarch64"))]
const MACHINE: u16 = 62;

/// The bytes of a library named `soname` that needs `needed`.
pub(crate) fn library(soname: &str, needed: &str) -> Vec<u8> {
    let dynamic_at = EHDR + 2 * PHDR;
    let symbols_at = dynamic_at + DYN;
    let strings_at = symbols_at + SYM;

    let mut strings = vec![0u8];
    let soname_at = push_string(&mut strings, soname);
    let needed_at = push_string(&mut strings, needed);
    let size = strings_at + strings.len() as u64;

    let mut file = header();
    push_segment(&mut file, PT_LOAD, PF_RW, 0, size, SEGMENT_ALIGN);
    push_segment(&mut file, PT_DYNAMIC, PF_R, dynamic_at, DYN, 8);
    let table: [(u64, u64); DYN_ENTRIES as usize] = [
        (14, soname_at),            // DT_SONAME
        (1, needed_at),             // DT_NEEDED
        (5, strings_at),            // DT_STRTAB
        (10, strings.len() as u64), // DT_STRSZ
        (6, symbols_at),            // DT_SYMTAB
        (11, SYM),                  // DT_SYMENT
        (0, 0),                     // DT_NULL
    ];
    for (tag, value) in table {
        file.extend(tag.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.extend([0u8; SYM as usize]);
    file.extend(strings);
    file
}

fn push_string(strings: &mut Vec<u8>, text: &str) -> u64 {
    let at = strings.len() as u64;
    strings.extend(text.as_bytes());
    strings.push(0);
    at
}

fn header() -> Vec<u8> {
    let mut h = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    h.extend([0u8; 8]);
    h.extend(3u16.to_le_bytes()); // ET_DYN
    h.extend(MACHINE.to_le_bytes());
    h.extend(1u32.to_le_bytes()); // version
    h.extend(0u64.to_le_bytes()); // no entry point
    h.extend(EHDR.to_le_bytes()); // program headers follow
    h.extend(0u64.to_le_bytes()); // no section headers
    h.extend(0u32.to_le_bytes()); // flags
    for half in [EHDR as u16, PHDR as u16, 2, 64, 0, 0] {
        h.extend(half.to_le_bytes());
    }
    h
}

fn push_segment(file: &mut Vec<u8>, kind: u32, flags: u32, at: u64, size: u64, align: u64) {
    file.extend(kind.to_le_bytes());
    file.extend(flags.to_le_bytes());
    for word in [at, at, at, size, size, align] {
        file.extend(word.to_le_bytes());
    }
}
