//! The text of a PTX file: what nvcc wrote, made independent of the machine.

use crate::kernel_source::{KernelSource, parse_isa};
use std::ops::Range;
use std::path::Path;

const DIGEST_LINE: &str = "// kernelgate: sources sha256 ";

/// Renders nvcc's output as it is embedded and checked in:
///
/// - a header with the declaration and the digest of the sources;
/// - `.file` paths relative to the package (`kernels/reduce.cu`) or to the
///   toolkit, so that neither the checkout nor the machine shows in the bytes;
/// - the module id in the names of internal functions, a hash of the output
///   folder, replaced by zeros;
/// - `.version` lowered to the declared ISA. nvcc always writes its own newest,
///   which an older driver refuses whether or not the code needs it.
pub fn render(
    nvcc_output: &str,
    source: &KernelSource,
    root: &Path,
    toolkit: &Path,
) -> Result<String, String> {
    let path = source.source_path();
    let mut text = format!(
        "// kernelgate: {path}, target {}, isa {}.{}\n{DIGEST_LINE}{}\n",
        source.target, source.isa.0, source.isa.1, source.digest
    );
    let (mut seen_version, mut seen_target) = (false, false);
    for line in nvcc_output.lines() {
        if let Some(emitted) = line.strip_prefix(".version ") {
            let emitted = parse_isa(emitted)
                .ok_or_else(|| format!("{path}: nvcc wrote an unreadable `{line}`"))?;
            let isa = emitted.min(source.isa);
            text += &format!(".version {}.{}", isa.0, isa.1);
            seen_version = true;
        } else if let Some(target) = line.strip_prefix(".target ") {
            if target.trim() != source.target {
                return Err(format!(
                    "{path}: expected PTX for {}, nvcc wrote `{line}`",
                    source.target
                ));
            }
            text += line;
            seen_target = true;
        } else if let Some(file) = file_directive(line, root, toolkit) {
            text += &file;
        } else {
            text += line;
        }
        text.push('\n');
    }
    if !(seen_version && seen_target) {
        return Err(format!("{path}: nvcc wrote no `.version` and `.target`"));
    }
    Ok(without_module_id(&text))
}

/// The digest in the header of checked-in PTX.
pub fn recorded_digest(text: &str) -> Option<&str> {
    text.lines()
        .take(4)
        .find_map(|line| line.strip_prefix(DIGEST_LINE))
        .map(str::trim)
}

/// The compiler's version, `13.0.88`, from the comment that nvcc writes on top.
pub fn compiler(text: &str) -> Option<&str> {
    text.lines()
        .take_while(|line| !line.starts_with(".version"))
        .filter(|line| line.contains("compilation tools"))
        .find_map(|line| line.rsplit_once(", V"))
        .map(|(_, version)| version.trim())
}

/// `.file N "PATH"` (with or without a size and a date) with PATH made portable.
fn file_directive(line: &str, root: &Path, toolkit: &Path) -> Option<String> {
    let rest = line.trim_start().strip_prefix(".file")?;
    let (number, rest) = rest.split_once('"')?;
    let (path, _) = rest.split_once('"')?;
    Some(format!(
        "\t.file\t{} \"{}\"",
        number.trim(),
        portable(path, root, toolkit)
    ))
}

fn portable(path: &str, root: &Path, toolkit: &Path) -> String {
    let path = Path::new(path);
    // nvcc names its own headers as `bin/..//include/...`.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let below = |folder: &Path| {
        let folder = folder.canonicalize().ok()?;
        Some(path.strip_prefix(folder).ok()?.to_path_buf())
    };
    let short = if let Some(own) = below(root).filter(|p| !p.starts_with(".cuda")) {
        own
    } else if let Some(header) = below(toolkit) {
        // targets/x86_64-linux/include/x.h and include/x.h are the same file.
        let name = header.file_name().unwrap_or_default().to_owned();
        Path::new("cuda/include").join(name)
    } else {
        Path::new("host/include").join(path.file_name().unwrap_or_default())
    };
    short.to_string_lossy().replace('\\', "/")
}

/// nvcc names an internal function `_INTERNAL_9cef0918_9_square_cu_...`, with a
/// hash of its command line in it, and an anonymous namespace `_GLOBAL__N__` with
/// another. Such a name stands in the text where it is a symbol, and as decimal
/// bytes where it is a debug string.
const MARKS: [&str; 2] = ["_INTERNAL_", "_GLOBAL__N__"];
const ID_DIGITS: usize = 8;

fn without_module_id(text: &str) -> String {
    let mut text = text.to_owned();
    for mark in MARKS {
        for (at, _) in text.clone().match_indices(mark) {
            let id = at + mark.len()..at + mark.len() + ID_DIGITS;
            if text.get(id.clone()).is_some_and(is_hex) {
                text.replace_range(id, &"0".repeat(ID_DIGITS));
            }
        }
        // From the back, so that the ranges still to come stay right.
        for digit in encoded_id_digits(&text, mark).into_iter().rev() {
            text.replace_range(digit, &b'0'.to_string());
        }
    }
    text
}

fn is_hex(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_hexdigit())
}

/// Where in `text` the digits of the id after `mark` stand as decimal byte values. A string
/// may go over several `.b8` lines.
fn encoded_id_digits(text: &str, mark: &str) -> Vec<Range<usize>> {
    let numbers = byte_values(text);
    let values: Vec<u8> = numbers.iter().map(|(value, _)| *value).collect();
    let mut found = Vec::new();
    for start in 0..values.len().saturating_sub(mark.len() + ID_DIGITS) {
        let id = start + mark.len()..start + mark.len() + ID_DIGITS;
        if values[start..id.start] == *mark.as_bytes()
            && values[id.clone()].iter().all(u8::is_ascii_hexdigit)
        {
            found.extend(numbers[id].iter().map(|(_, range)| range.clone()));
        }
    }
    found
}

/// Every number of the `.b8` lines of `text` with its place.
fn byte_values(text: &str) -> Vec<(u8, Range<usize>)> {
    let mut values = Vec::new();
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        if let Some(list) = line.trim_end().strip_prefix(".b8 ") {
            let mut at = line_start + ".b8 ".len();
            for item in list.split(',') {
                if let Ok(value) = item.parse() {
                    values.push((value, at..at + item.len()));
                }
                at += item.len() + 1;
            }
        }
        line_start += line.len();
    }
    values
}
