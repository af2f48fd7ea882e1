//! The logic of `build.rs` on made-up packages: no nvcc, no cargo.

#[allow(dead_code)]
#[path = "../build/checked_in.rs"]
mod checked_in;
#[allow(dead_code)]
#[path = "../build/kernel_source.rs"]
mod kernel_source;
#[allow(dead_code)]
#[path = "../build/nvcc.rs"]
mod nvcc;
#[allow(dead_code)]
#[path = "../build/ptx_text.rs"]
mod ptx_text;

use kernel_source::{KernelSource, declaration, discover};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

const KERNEL: &str = "// kernelgate: target sm_75, isa 8.0\n#include \"half.cuh\"\nint x;\n";

/// A package with one kernel and one header.
fn package() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "kernels/probe.cu", KERNEL);
    write(root.path(), "kernels/half.cuh", "#define HALF 0.5f\n");
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn only(root: &Path) -> KernelSource {
    let mut sources = discover(root).unwrap();
    assert_eq!(sources.len(), 1);
    sources.remove(0)
}

/// What nvcc 13 writes, in miniature.
fn nvcc_output(root: &Path) -> String {
    format!(
        "//\n// Cuda compilation tools, release 13.0, V13.0.88\n//\n\n.version 9.0\n.target sm_75\n\
         .address_size 64\n.visible .entry k() {{ ret; }}\n\t.file\t1 \"{}/kernels/probe.cu\"\n",
        root.display()
    )
}

fn check_in(root: &Path) {
    let source = only(root);
    let text = ptx_text::render(&nvcc_output(root), &source, root, Path::new("/toolkit")).unwrap();
    checked_in::write_all(root, &[("probe".to_owned(), text)].into()).unwrap();
}

#[test]
fn matching_checked_in_ptx_is_taken() {
    let root = package();
    check_in(root.path());
    let ptx = checked_in::read_all(root.path(), &discover(root.path()).unwrap()).unwrap();
    assert!(ptx["probe"].contains(".entry k()"));
}

#[test]
fn a_change_without_nvcc_is_an_error_that_names_file_and_command() {
    let changes: [(&str, &str, &str); 4] = [
        (
            "kernel",
            "kernels/probe.cu",
            "// kernelgate: target sm_75, isa 8.0\n#include \"half.cuh\"\nint y;\n",
        ),
        (
            "isa",
            "kernels/probe.cu",
            "// kernelgate: target sm_75, isa 8.1\n#include \"half.cuh\"\nint x;\n",
        ),
        ("header", "kernels/half.cuh", "#define HALF 0.25f\n"),
        ("no digest", "kernels/ptx/probe.ptx", ".version 8.0\n"),
    ];
    for (what, path, text) in changes {
        let root = package();
        check_in(root.path());
        write(root.path(), path, text);
        let error =
            checked_in::read_all(root.path(), &discover(root.path()).unwrap()).expect_err(what);
        assert!(error.contains("kernels/probe.cu"), "{what}: {error}");
        assert!(error.contains(nvcc::INSTALL), "{what}: {error}");
    }
}

#[test]
fn a_new_kernel_without_ptx_is_an_error_that_names_both() {
    let root = package();
    let error = checked_in::read_all(root.path(), &discover(root.path()).unwrap()).unwrap_err();
    assert!(error.contains("kernels/probe.cu"), "{error}");
    assert!(error.contains("kernels/ptx/probe.ptx"), "{error}");
}

#[test]
fn a_checkout_with_other_line_endings_has_the_same_digest() {
    let root = package();
    let before = only(root.path()).digest;
    write(
        root.path(),
        "kernels/probe.cu",
        &KERNEL.replace('\n', "\r\n"),
    );
    assert_eq!(only(root.path()).digest, before);
}

#[test]
fn refreshing_removes_ptx_that_no_kernel_stands_behind() {
    let root = package();
    write(root.path(), "kernels/ptx/gone.ptx", "");
    check_in(root.path());
    assert!(!root.path().join("kernels/ptx/gone.ptx").exists());
    assert!(root.path().join("kernels/ptx/probe.ptx").exists());
}

#[test]
fn declarations_are_read_or_refused_with_the_expected_form() {
    let good = [
        ("// kernelgate: target sm_75, isa 8.0\nx", ("sm_75", (8, 0))),
        ("// kernelgate: target sm_90a, isa 8.4", ("sm_90a", (8, 4))),
    ];
    for (text, (target, isa)) in good {
        assert_eq!(declaration(text), Ok((target.to_owned(), isa)), "{text}");
    }
    for text in [
        "",
        "// block sum\n// kernelgate: target sm_75, isa 8.0",
        "// kernelgate: target sm_75",
        "// kernelgate: target compute_75, isa 8.0",
        "// kernelgate: target sm_, isa 8.0",
        "// kernelgate: target sm_75, isa 8",
        "// kernelgate: target sm_75, isa 8.0.1",
    ] {
        let error = declaration(text).expect_err(text);
        assert!(error.contains("target sm_75, isa 8.0"), "{text}: {error}");
    }
}

#[test]
fn an_undeclared_kernel_is_an_error_at_its_first_line() {
    let root = package();
    write(root.path(), "kernels/probe.cu", "int x;\n");
    let error = discover(root.path()).unwrap_err();
    assert!(error.starts_with("kernels/probe.cu:1:"), "{error}");
}

#[test]
fn the_isa_is_lowered_and_never_raised() {
    let root = package();
    for (emitted, declared, want) in [("9.0", (8, 0), "8.0"), ("7.8", (8, 0), "7.8")] {
        let mut source = only(root.path());
        source.isa = declared;
        let output = nvcc_output(root.path()).replace("9.0", emitted);
        let text = ptx_text::render(&output, &source, root.path(), Path::new("/t")).unwrap();
        assert!(text.contains(&format!("\n.version {want}\n")), "{text}");
    }
}

#[test]
fn ptx_for_another_device_is_refused() {
    let root = package();
    let output = nvcc_output(root.path()).replace("sm_75", "sm_90");
    let error =
        ptx_text::render(&output, &only(root.path()), root.path(), Path::new("/t")).unwrap_err();
    assert!(error.contains("expected PTX for sm_75"), "{error}");
}

#[test]
fn the_bytes_depend_neither_on_the_checkout_nor_on_the_toolkit_folder() {
    let rendered = |header: &str, id: &str| {
        let root = package();
        let toolkit = tempfile::tempdir().unwrap();
        write(toolkit.path(), header, "");
        let own = nvcc_output(root.path());
        let toolkit_file = toolkit.path().join("bin/..").join(header);
        fs::create_dir_all(toolkit.path().join("bin")).unwrap();
        // The debug string `_INTERNAL_` + id, split over two lines as nvcc does.
        let bytes: Vec<String> = format!("_INTERNAL_{id}_x")
            .bytes()
            .map(|b| b.to_string())
            .collect();
        let output = format!(
            "{own}\t.file\t2 \"{}\"\n\t.file\t3 \"/opt/gcc/include/c++/new.h\"\n.b8 {}\n.b8 {},0\n// _INTERNAL_{id}_y\n",
            toolkit_file.display(),
            bytes[..13].join(","),
            bytes[13..].join(","),
        );
        ptx_text::render(&output, &only(root.path()), root.path(), toolkit.path()).unwrap()
    };
    let one = rendered("include/cuda_fp16.hpp", "9cef0918");
    let two = rendered("targets/x86_64-linux/include/cuda_fp16.hpp", "01a79554");
    assert_eq!(one, two);
    assert!(one.contains(".file\t1 \"kernels/probe.cu\""), "{one}");
    assert!(
        one.contains(".file\t2 \"cuda/include/cuda_fp16.hpp\""),
        "{one}"
    );
    assert!(one.contains("_INTERNAL_00000000_y"), "{one}");
}

/// A toolkit folder with an executable file `bin/nvcc`.
fn toolkit(root: &Path, folder: &str) -> std::path::PathBuf {
    write(root, &format!("{folder}/bin/nvcc"), "#!/bin/sh\n");
    root.join(folder).canonicalize().unwrap()
}

#[test]
fn nvcc_is_looked_for_in_the_documented_places_and_order() {
    let places = tempfile::tempdir().unwrap();
    let root = places.path();
    let [named, on_path, cuda_path, cuda_home] =
        ["named", "path", "cuda_path", "cuda_home"].map(|f| toolkit(root, f));
    let local = toolkit(root, ".cuda/nvidia/cu13");
    let mut environment: Vec<(&str, OsString)> = vec![
        ("CUDA_HOME", cuda_home.clone().into()),
        ("CUDA_PATH", cuda_path.clone().into()),
        ("PATH", on_path.join("bin").into()),
        ("NVCC", named.join("bin/nvcc").into()),
    ];
    for expected in [named, on_path, cuda_path, cuda_home, local] {
        let get = |name: &str| {
            let entry = environment.iter().find(|(n, _)| *n == name);
            entry.map(|(_, value)| value.clone())
        };
        let found = nvcc::find(root, &get).unwrap().expect("no nvcc found");
        assert_eq!(found.toolkit, expected);
        environment.pop();
    }
    let bare = tempfile::tempdir().unwrap();
    assert_eq!(nvcc::find(bare.path(), &|_| None), Ok(None));
}

#[test]
fn a_link_to_nvcc_leads_to_the_real_toolkit() {
    let root = tempfile::tempdir().unwrap();
    let real = toolkit(root.path(), "cuda-13.0");
    fs::create_dir_all(root.path().join("bin")).unwrap();
    symlink(real.join("bin/nvcc"), root.path().join("bin/nvcc")).unwrap();
    let path: OsString = root.path().join("bin").into();
    let get = |name: &str| (name == "PATH").then(|| path.clone());
    let found = nvcc::find(root.path(), &get).unwrap().unwrap();
    assert_eq!(found.toolkit, real);
}

#[test]
fn an_nvcc_asked_for_by_name_has_no_fallback() {
    let root = tempfile::tempdir().unwrap();
    toolkit(root.path(), ".cuda");
    let get = |name: &str| (name == "NVCC").then(|| OsString::from("/nowhere/nvcc"));
    let error = nvcc::find(root.path(), &get).unwrap_err();
    assert!(error.contains("/nowhere/nvcc"), "{error}");
}
