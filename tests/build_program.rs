//! The built build script, started as cargo starts it, on made-up packages and
//! with a made-up nvcc: what it tells cargo, and that it never panics.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const KERNEL: &str = "// kernelgate: target sm_75, isa 8.0\n#include \"half.cuh\"\nint x;\n";

/// Writes PTX that quotes the header, so that a stale output can be told.
const WORKING_NVCC: &str = r#"#!/bin/sh
[ "$1" = --list-gpu-code ] && { echo sm_75; echo sm_90; exit 0; }
while [ $# -gt 0 ]; do
  case $1 in
    --gpu-architecture=*) target=${1#*=} ;;
    --output-directory) folder=$2; shift ;;
    kernels/*) kernel=$1 ;;
  esac
  shift
done
name=$(basename "$kernel" .cu)
{
  echo ".version 9.0"
  echo ".target $target"
  echo "// header: $(cat kernels/half.cuh)"
  printf '\t.file\t1 "%s"\n' "$PWD/$kernel"
} > "$folder/$name.ptx"
"#;

const FAILING_NVCC: &str = r#"#!/bin/sh
[ "$1" = --list-gpu-code ] && { echo sm_75; exit 0; }
echo 'kernels/probe.cu(3): error: expected a ";"' >&2
exit 2
"#;

struct Package {
    root: TempDir,
}

struct Told {
    errors: String,
    warnings: String,
    everything: String,
}

impl Package {
    fn new(nvcc: Option<&str>) -> Package {
        let package = Package {
            root: tempfile::tempdir().unwrap(),
        };
        package.write("kernels/probe.cu", KERNEL);
        package.write("kernels/half.cuh", "0.5");
        if let Some(script) = nvcc {
            let file = package.write(".cuda/bin/nvcc", script);
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        package
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let file = self.root.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join(path)).unwrap_or_default()
    }

    /// Runs the build script with `KERNELGATE_PTX=wish`; it must end by itself.
    fn build(&self, wish: &str) -> Told {
        fs::create_dir_all(self.root.path().join("out")).unwrap();
        let output = Command::new(build_script())
            .current_dir(self.root.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("CARGO_MANIFEST_DIR", self.root.path())
            .env("OUT_DIR", self.root.path().join("out"))
            .env("KERNELGATE_PTX", wish)
            .output()
            .unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let everything = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{everything}");
        assert!(!everything.contains("panicked"), "{everything}");
        let told = |key: &str| {
            let lines = stdout.lines().filter_map(|line| line.strip_prefix(key));
            lines.collect::<Vec<_>>().join("\n")
        };
        Told {
            errors: told("cargo::error="),
            warnings: told("cargo::warning="),
            everything,
        }
    }
}

/// The newest `build-script-build` beside this test: cargo has just made it.
fn build_script() -> PathBuf {
    let profile = Path::new(env!("CARGO_BIN_EXE_testing")).parent().unwrap();
    fs::read_dir(profile.join("build"))
        .unwrap()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("kernelgate-"))
        .map(|e| e.path().join("build-script-build"))
        .filter(|file| file.is_file())
        .max_by_key(|file| file.metadata().and_then(|m| m.modified()).unwrap())
        .expect("the build script of this package")
}

#[test]
fn without_nvcc_and_ptx_cargo_is_told_the_file_and_the_command() {
    let told = Package::new(None).build("");
    for part in [
        "kernels/probe.cu",
        "kernels/ptx/probe.ptx",
        "python3 -m pip install --target .cuda -r kernels/nvcc.txt",
    ] {
        assert!(told.errors.contains(part), "{part}: {}", told.everything);
    }
}

#[test]
fn refreshed_ptx_builds_without_nvcc_until_a_source_changes() {
    let package = Package::new(Some(WORKING_NVCC));
    assert_eq!(package.build("refresh").errors, "");
    let compiled = package.read("out/probe.ptx");
    assert!(
        compiled.contains(".version 8.0\n.target sm_75\n"),
        "{compiled}"
    );
    assert!(compiled.contains("\"kernels/probe.cu\""), "{compiled}");

    fs::remove_dir_all(package.root.path().join(".cuda")).unwrap();
    fs::remove_dir_all(package.root.path().join("out")).unwrap();
    assert_eq!(package.build("").errors, "");
    assert_eq!(package.read("out/probe.ptx"), compiled);
    let modules = package.read("out/kernel_modules.rs");
    assert!(
        modules.contains("pub const PROBE: KernelModule"),
        "{modules}"
    );
    assert!(modules.contains("checked in"), "{modules}");

    package.write("kernels/half.cuh", "0.25");
    let told = package.build("");
    assert!(
        told.errors.contains("kernels/probe.cu"),
        "{}",
        told.everything
    );
}

#[test]
fn a_changed_header_is_compiled_again_although_the_old_output_is_newer() {
    let package = Package::new(Some(WORKING_NVCC));
    assert_eq!(package.build("refresh").errors, "");
    package.write("kernels/half.cuh", "0.25");
    let told = package.build("auto");
    assert_eq!(told.errors, "");
    assert!(package.read("out/probe.ptx").contains("header: 0.25"));
    assert!(
        told.warnings
            .contains("KERNELGATE_PTX=refresh cargo build --lib"),
        "{}",
        told.everything
    );
}

#[test]
fn checked_in_leaves_nvcc_alone() {
    let package = Package::new(Some(WORKING_NVCC));
    assert_eq!(package.build("refresh").errors, "");
    package.write(".cuda/bin/nvcc", FAILING_NVCC);
    assert_eq!(package.build("checked-in").errors, "");
}

#[test]
fn a_compiler_error_is_told_in_the_compilers_words() {
    let told = Package::new(Some(FAILING_NVCC)).build("");
    assert!(
        told.errors
            .contains("kernels/probe.cu(3): error: expected a \";\""),
        "{}",
        told.everything
    );
}

#[test]
fn a_wish_that_does_not_exist_is_an_error_that_lists_the_wishes() {
    let told = Package::new(Some(WORKING_NVCC)).build("fresh");
    for part in ["fresh", "auto", "checked-in", "refresh"] {
        assert!(told.errors.contains(part), "{part}: {}", told.everything);
    }
}
