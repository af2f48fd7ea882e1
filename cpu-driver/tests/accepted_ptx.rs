//! Every PTX file of the repository loads: the checks refuse nothing that nvcc
//! writes, that ptxas accepted for the instruction forms, or that a test needs.

use std::path::{Path, PathBuf};

use cuda::program::Program;

fn ptx_files(folder: &Path, into: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            ptx_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            into.push(path);
        }
    }
}

#[test]
fn every_checked_in_ptx_file_loads() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut refused = Vec::new();
    for (folder, at_least) in [
        (here.join("tests"), 2),
        (here.join("../kernels"), 10),
        (here.join("../forms"), 300),
    ] {
        let mut files = Vec::new();
        ptx_files(&folder, &mut files);
        assert!(
            files.len() >= at_least,
            "{}: {} files",
            folder.display(),
            files.len()
        );
        for path in files {
            let text = std::fs::read_to_string(&path).expect("text");
            let loaded = cuda::ptx::parse(&text)
                .map_err(|error| error.to_string())
                .and_then(|module| {
                    cuda::ptx::check::check(&module).map_err(|error| error.to_string())?;
                    Program::link(&[module])
                        .map(drop)
                        .map_err(|error| format!("line {}: {}", error.line, error.message))
                });
            if let Err(error) = loaded {
                refused.push(format!("{}: {error}", path.display()));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
