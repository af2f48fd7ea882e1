//! What `kernels/` holds: each `.cu` file with its declaration and its digest.
//!
//! The first line of a kernel file declares the oldest device and the oldest
//! PTX ISA (and so the oldest driver) it is meant for:
//!
//! ```text
//! // kernelgate: target sm_75, isa 8.0
//! ```

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Flags of every compilation. They are part of the digest: PTX made with other
/// flags is other PTX.
pub const NVCC_FLAGS: &[&str] = &["-lineinfo", "-std=c++17"];

/// A PTX ISA version, `.version MAJOR.MINOR`.
pub type Isa = (u32, u32);

#[derive(Debug, Clone, PartialEq)]
pub struct KernelSource {
    /// File name without extension; in upper case it is the Rust constant.
    pub name: String,
    /// Device of the PTX, such as `sm_75` or `sm_90a`.
    pub target: String,
    pub isa: Isa,
    /// SHA-256 over flags, declaration, the `.cu` file and the local headers it
    /// includes. A line ending counts as `\n` whatever the checkout made of it.
    pub digest: String,
    /// The headers, relative to the package root.
    pub headers: Vec<PathBuf>,
}

impl KernelSource {
    /// `kernels/NAME.cu`, the path that a sanitizer should print.
    pub fn source_path(&self) -> String {
        format!("kernels/{}.cu", self.name)
    }

    /// `kernels/ptx/NAME.ptx`.
    pub fn ptx_path(&self) -> String {
        format!("kernels/ptx/{}.ptx", self.name)
    }
}

/// Every `kernels/*.cu` under `root`, by name.
pub fn discover(root: &Path) -> Result<Vec<KernelSource>, String> {
    let folder = root.join("kernels");
    let entries = fs::read_dir(&folder)
        .map_err(|e| format!("cannot list {}: {e}", folder.display()))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("cannot list {}: {e}", folder.display()))?;
    let mut sources = Vec::new();
    for path in entries.into_iter().map(|entry| entry.path()) {
        if path.extension().is_some_and(|e| e == "cu") {
            sources.push(read(root, &path)?);
        }
    }
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    if sources.is_empty() {
        return Err(format!("{} holds no .cu file", folder.display()));
    }
    Ok(sources)
}

fn read(root: &Path, path: &Path) -> Result<KernelSource, String> {
    let name = path
        .file_stem()
        .and_then(|s| s.to_str())
        .filter(|s| is_identifier(s))
        .ok_or_else(|| {
            format!(
                "{}: expected a file name of lower-case letters, digits and `_`, \
                 because it becomes a Rust constant",
                path.display()
            )
        })?
        .to_owned();
    let text = read_text(path)?;
    let (target, isa) = declaration(&text).map_err(|e| format!("kernels/{name}.cu:1: {e}"))?;

    let mut headers = BTreeSet::new();
    collect_headers(root, path, &text, &mut headers)?;
    let mut hash = Sha256::new();
    absorb(&mut hash, "flags", &NVCC_FLAGS.join(" "));
    absorb(&mut hash, "target", &target);
    absorb(&mut hash, &format!("kernels/{name}.cu"), &text);
    for header in &headers {
        absorb(
            &mut hash,
            &header.to_string_lossy(),
            &read_text(&root.join(header))?,
        );
    }
    Ok(KernelSource {
        name,
        target,
        isa,
        digest: hex(&hash.finalize()),
        headers: headers.into_iter().collect(),
    })
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn read_text(path: &Path) -> Result<String, String> {
    let text =
        fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    Ok(text.replace("\r\n", "\n"))
}

/// Parses the first line, `// kernelgate: target sm_75, isa 8.0`.
pub fn declaration(text: &str) -> Result<(String, Isa), String> {
    const FORM: &str = "// kernelgate: target sm_75, isa 8.0";
    let line = text.lines().next().unwrap_or("");
    let parse = || {
        let (target, isa) = line
            .strip_prefix("// kernelgate: target ")?
            .split_once(", isa ")?;
        let digits = target
            .strip_prefix("sm_")?
            .trim_end_matches(|c: char| c.is_ascii_lowercase());
        digits.parse::<u32>().ok()?;
        Some((target.to_owned(), parse_isa(isa)?))
    };
    parse().ok_or_else(|| format!("expected a declaration like `{FORM}`, found `{line}`"))
}

/// `8.0` as `(8, 0)`.
pub fn parse_isa(text: &str) -> Option<Isa> {
    let (major, minor) = text.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Adds each `#include "..."` that exists beside its includer, and theirs. What
/// does not exist there is the toolkit's, which the compiler's version covers.
fn collect_headers(
    root: &Path,
    includer: &Path,
    text: &str,
    found: &mut BTreeSet<PathBuf>,
) -> Result<(), String> {
    for quoted in text.lines().filter_map(quoted_include) {
        let Some(folder) = includer.parent() else {
            continue;
        };
        let Ok(header) = folder.join(quoted).canonicalize() else {
            continue;
        };
        let shown = header.display().to_string();
        let relative = root
            .canonicalize()
            .ok()
            .and_then(|root| header.strip_prefix(root).ok().map(Path::to_path_buf))
            .ok_or_else(|| format!("{shown}: a kernel may only include headers of this package"))?;
        if found.insert(relative) {
            let text = read_text(&header)?;
            collect_headers(root, &header, &text, found)?;
        }
    }
    Ok(())
}

fn quoted_include(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let rest = rest.strip_prefix("include")?.trim_start();
    rest.strip_prefix('"')?
        .split_once('"')
        .map(|(path, _)| path)
}

/// Hashes a labelled part with its length, so that no two lists of parts give
/// the same stream of bytes.
fn absorb(hash: &mut Sha256, label: &str, text: &str) {
    hash.update(format!("{label} {}\n", text.len()));
    hash.update(text);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
