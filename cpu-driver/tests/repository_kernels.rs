//! Every PTX file that the repository checks in decodes without a refusal.

use std::path::{Path, PathBuf};

use cuda::program::Program;

fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("folder of PTX files");
    for entry in entries {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            texts(&path, found);
        } else if path.extension().is_some_and(|e| e == "ptx") {
            found.push(path);
        }
    }
}

/// Kernels and refusals of the files below a folder whose target has the
/// suffix `a` (architecture-specific: `wgmma`, tensor copies) or has not.
fn decode(folder: &str, specific: bool) -> (usize, Vec<String>) {
    let mut files = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder);
    texts(&root, &mut files);
    let (mut kernels, mut refusals) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("PTX text");
        let module = cuda::ptx::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        if (module.target.suffix == Some('a')) != specific {
            continue;
        }
        let program = Program::link(&[module])
            .unwrap_or_else(|e| panic!("{}: {}", file.display(), e.message));
        for kernel in program.instantiate(&|_| Some(1 << 20)).expect("addresses") {
            kernels += 1;
            let code = kernel.code();
            for op in &code.ops {
                let site = &code.sites[op.site as usize];
                assert!(
                    !site.text.is_empty(),
                    "{}: an operation without a site",
                    kernel.name
                );
            }
            for refusal in &code.refusals {
                refusals.push(format!("{}: {}: {refusal}", file.display(), kernel.name));
            }
        }
    }
    (kernels, refusals)
}

#[test]
fn the_kernels_of_the_repository_decode_without_a_refusal() {
    let (kernels, refusals) = decode("kernels/ptx", false);
    assert!(kernels >= 7, "only {kernels} kernels found");
    assert!(refusals.is_empty(), "{refusals:#?}");
}

#[test]
fn the_instruction_forms_decode_without_a_refusal() {
    let (kernels, refusals) = decode("forms", false);
    assert!(kernels >= 1900, "only {kernels} forms found");
    assert!(refusals.is_empty(), "{refusals:#?}");
}

#[test]
fn real_compiler_output_decodes_without_a_refusal() {
    let (kernels, refusals) = decode("cpu-driver/tests/ptx", false);
    assert!(kernels >= 1, "no kernels found");
    assert!(refusals.is_empty(), "{refusals:#?}");
}

/// When this fails, the instructions of sm_90a have been implemented: drop the
/// distinction.
#[test]
fn only_architecture_specific_kernels_have_refusals() {
    let (kernels, refusals) = decode("kernels/ptx", true);
    assert!(kernels >= 1, "no kernels found");
    assert!(!refusals.is_empty());
}
