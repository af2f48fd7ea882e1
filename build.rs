//! `kernels/*.cu` to PTX: compiled where nvcc is found, checked in otherwise.
//!
//! `KERNELGATE_PTX` chooses: `auto` (the default), `checked-in` (leave nvcc
//! alone), `refresh` (compile and rewrite `kernels/ptx/`). Both ways end in the
//! same bytes, so a build without nvcc tests the kernels that a build with it
//! tests. Every problem is a build error that says what to do.

// Printing is how a build script talks to Cargo.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "build/checked_in.rs"]
mod checked_in;
#[path = "build/compile.rs"]
mod compile;
#[path = "build/kernel_source.rs"]
mod kernel_source;
#[path = "build/nvcc.rs"]
mod nvcc;
#[path = "build/ptx_text.rs"]
mod ptx_text;

use kernel_source::KernelSource;
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let mut arguments = env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|a| a == compile::CHILD_ARGUMENT)
    {
        return compile::child(arguments);
    }
    if let Err(message) = build() {
        for line in message.lines() {
            println!("cargo::error={line}");
        }
    }
}

/// PTX by kernel name, and where it came from.
struct Modules {
    ptx: BTreeMap<String, String>,
    origin: String,
}

fn build() -> Result<(), String> {
    // PATH is left out: a change of it alone cannot change the result, because
    // checked-in PTX is only taken when it matches its sources.
    for variable in [
        "KERNELGATE_PTX",
        "NVCC",
        "CUDA_PATH",
        "CUDA_HOME",
        "NVCC_CCBIN",
    ] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    for path in ["build.rs", "build", "kernels"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let root = folder("CARGO_MANIFEST_DIR")?;
    let out = folder("OUT_DIR")?;
    let sources = kernel_source::discover(&root)?;
    for header in sources.iter().flat_map(|source| &source.headers) {
        println!("cargo::rerun-if-changed={}", header.display());
    }
    let modules = choose(&root, &out, &sources)?;
    write_modules(&out, &sources, &modules)
}

fn folder(variable: &str) -> Result<PathBuf, String> {
    env::var_os(variable)
        .map(PathBuf::from)
        .ok_or_else(|| format!("cargo did not set {variable}"))
}

fn choose(root: &Path, out: &Path, sources: &[KernelSource]) -> Result<Modules, String> {
    let wish = env::var("KERNELGATE_PTX").unwrap_or_default();
    let found = match wish.as_str() {
        "" | "auto" | "refresh" => nvcc::find(root, &|name| env::var_os(name))?,
        "checked-in" => None,
        other => {
            return Err(format!(
                "KERNELGATE_PTX is `{other}`; expected auto, checked-in or refresh"
            ));
        }
    };
    let Some(found) = found else {
        if wish == "refresh" {
            return Err(format!(
                "KERNELGATE_PTX=refresh needs nvcc; install it with: {}",
                nvcc::INSTALL
            ));
        }
        return Ok(Modules {
            ptx: checked_in::read_all(root, sources)?,
            origin: "checked in".to_owned(),
        });
    };
    let ptx = compile_all(&found, root, out, sources)?;
    if wish == "refresh" {
        checked_in::write_all(root, &ptx)?;
    }
    for problem in sources
        .iter()
        .filter_map(|s| checked_in::read(root, s).err())
    {
        println!(
            "cargo::warning={problem}; refresh it with: {}",
            checked_in::REFRESH
        );
    }
    // For tests/ptx.rs, which assembles with the ptxas beside this nvcc.
    println!("cargo::rustc-env=KERNELGATE_NVCC={}", found.path.display());
    let origin = ptx.values().find_map(|text| ptx_text::compiler(text));
    Ok(Modules {
        origin: origin.map_or("compiled by nvcc".to_owned(), |v| {
            format!("compiled by nvcc {v}")
        }),
        ptx,
    })
}

fn compile_all(
    found: &nvcc::Nvcc,
    root: &Path,
    out: &Path,
    sources: &[KernelSource],
) -> Result<BTreeMap<String, String>, String> {
    let compiled = compile::compile(found, root, sources, &out.join("nvcc"))?;
    for warning in compiled.warnings {
        println!("cargo::warning={warning}");
    }
    let mut ptx = BTreeMap::new();
    for source in sources {
        let raw = &compiled.ptx[&source.name];
        let text = ptx_text::render(raw, source, root, &found.toolkit)?;
        ptx.insert(source.name.clone(), text);
    }
    Ok(ptx)
}

/// Writes `kernel_modules.rs` for `src/kernels.rs`, one constant a kernel file.
fn write_modules(out: &Path, sources: &[KernelSource], modules: &Modules) -> Result<(), String> {
    let mut rust = format!(
        "/// Where the PTX of this build came from.\npub const PTX_ORIGIN: &str = {:?};\n",
        modules.origin
    );
    let mut all = Vec::new();
    for source in sources {
        let file = out.join(format!("{}.ptx", source.name));
        write_if_changed(&file, &modules.ptx[&source.name])?;
        let constant = source.name.to_uppercase();
        writeln!(
            rust,
            "/// `{}`.\npub const {constant}: KernelModule = KernelModule {{ name: {:?}, \
             ptx: include_str!({:?}), target: {:?}, least_isa: {:?} }};",
            source.source_path(),
            source.name,
            file,
            source.target,
            source.isa,
        )
        .map_err(|e| e.to_string())?;
        all.push(constant);
    }
    rust += &format!(
        "/// Every kernel file, by name.\npub const ALL: &[KernelModule] = &[{}];\n",
        all.join(", ")
    );
    write_if_changed(&out.join("kernel_modules.rs"), &rust)
}

fn write_if_changed(path: &Path, text: &str) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}
