//! External programs: where they are looked for, and their versions.

use std::path::{Path, PathBuf};
use std::process::Command;

use kernelgate::children::die_with_parent;

/// A program that kernelgate can use but does not need.
pub struct Program {
    /// File name.
    pub name: &'static str,
    /// Environment variable that names it outright.
    pub variable: &'static str,
    /// Folders below a CUDA toolkit's root.
    pub below_toolkit: &'static [&'static str],
}

pub const NVCC: Program = Program {
    name: "nvcc",
    variable: "NVCC",
    below_toolkit: &["bin"],
};

pub const COMPUTE_SANITIZER: Program = Program {
    name: "compute-sanitizer",
    variable: "COMPUTE_SANITIZER",
    below_toolkit: &["bin", "compute-sanitizer"],
};

impl Program {
    /// The first existing file: the variable, `PATH`, the toolkit that `CUDA_PATH`
    /// or `CUDA_HOME` names, `/usr/local/cuda`, and the project-local `.cuda`.
    ///
    /// A variable that names no file finds nothing: it was asked for by name.
    pub fn find(&self) -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(named) = set(self.variable) {
            return Some(PathBuf::from(named)).filter(|p| p.is_file());
        }
        let path = set("PATH").unwrap_or_default();
        let on_path: Vec<PathBuf> = std::env::split_paths(&path)
            .map(|folder| folder.join(self.name))
            .collect();
        let roots = ["CUDA_PATH", "CUDA_HOME"]
            .into_iter()
            .filter_map(set)
            .map(PathBuf::from)
            .chain([PathBuf::from("/usr/local/cuda"), PathBuf::from(".cuda")])
            .chain(project_local());
        let in_toolkits = roots.flat_map(|root| {
            self.below_toolkit
                .iter()
                .map(move |folder| root.join(folder).join(self.name))
        });
        on_path.into_iter().chain(in_toolkits).find(|p| p.is_file())
    }

    /// The file that the variable names, where there is none: a misspelt name is no wish
    /// for another program.
    pub fn misnamed(&self) -> Option<PathBuf> {
        std::env::var_os(self.variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .filter(|file| !file.is_file())
    }

    /// The version line that the program prints, or why there is none.
    pub fn version(&self, file: &Path) -> String {
        match die_with_parent(Command::new(file).arg("--version")).output() {
            Ok(output) => version_line(&String::from_utf8_lossy(&output.stdout))
                .unwrap_or_else(|| "prints no version".into()),
            Err(error) => format!("does not start: {error}"),
        }
    }

    /// Where it is looked for, for messages.
    pub fn places(&self) -> String {
        format!(
            "{}, PATH, CUDA_PATH, CUDA_HOME, /usr/local/cuda, .cuda",
            self.variable
        )
    }
}

/// pip puts a toolkit into `.cuda/nvidia/cu13`.
fn project_local() -> Vec<PathBuf> {
    std::fs::read_dir(".cuda/nvidia")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// nvcc: `Cuda compilation tools, release 13.0, V13.0.88`; compute-sanitizer:
/// `Version 2025.3.0.0 (build …)`.
fn version_line(text: &str) -> Option<String> {
    let is_version = |line: &&str| {
        let lower = line.to_lowercase();
        lower.contains("version") || lower.contains("release")
    };
    text.lines()
        .map(str::trim)
        .find(is_version)
        .map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_taken_from_either_wording() {
        let nvcc = "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c)\nCuda compilation tools, release 13.0, V13.0.88\nBuild x\n";
        assert_eq!(
            version_line(nvcc).unwrap(),
            "Cuda compilation tools, release 13.0, V13.0.88"
        );
        let sanitizer = "NVIDIA (R) Compute Sanitizer\nCopyright\nVersion 2025.3.0.0 (build 1)\n";
        assert_eq!(
            version_line(sanitizer).unwrap(),
            "Version 2025.3.0.0 (build 1)"
        );
        assert_eq!(version_line("nothing\n"), None);
    }
}
