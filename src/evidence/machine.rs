//! The device that evidence is of.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::run;

/// The device that the binaries see, from `ci_gate --fixed --json`.
#[derive(Debug, Clone, Deserialize)]
pub struct Machine {
    name: String,
    compute_capability: (i32, i32),
    driver: String,
    driver_cuda: (i32, i32),
}

#[derive(Deserialize)]
struct Probe {
    device: Machine,
}

impl Machine {
    /// Asks one of the binaries, so that this process holds no context.
    pub fn of(bin_dir: &Path) -> anyhow::Result<Machine> {
        let program = run::binary(bin_dir, "ci_gate")?;
        let ran = run::command(&[program, "--fixed".into(), "--json".into()])?;
        ensure!(
            ran.exit == 0,
            "ci_gate --fixed ended with {}: {}",
            ran.exit,
            ran.output.trim()
        );
        // stderr is in the output too.
        let document = ran
            .output
            .lines()
            .find(|line| line.starts_with('{'))
            .context("ci_gate --json printed no document")?;
        let probe: Probe = serde_json::from_str(document).context("ci_gate --json")?;
        Ok(probe.device)
    }

    /// Whether kernelgate's CPU driver runs here.
    pub fn is_cpu_driver(&self) -> bool {
        self.driver == "cpu"
    }

    /// The folder below `evidence`: `cpu-driver`, or the device's name.
    pub fn folder(&self) -> String {
        if self.is_cpu_driver() {
            return "cpu-driver".into();
        }
        let words: Vec<String> = self
            .name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        words.join("-")
    }

    /// Name and compute capability, for the head of a transcript.
    pub fn device(&self) -> String {
        let (major, minor) = self.compute_capability;
        format!("{} (sm_{major}{minor})", self.name)
    }

    /// Whose driver, and its version.
    pub fn driver(&self) -> String {
        let (major, minor) = self.driver_cuda;
        let whose = match self.driver.as_str() {
            "cpu" => format!("kernelgate's CPU driver {}", env!("CARGO_PKG_VERSION")),
            "nvidia" => format!("NVIDIA {}", nvidia_version()),
            other => other.to_string(),
        };
        format!("{whose}, CUDA {major}.{minor}")
    }
}

/// From `/proc/driver/nvidia/version`: `NVRM version: … Kernel Module  580.159 …`.
fn nvidia_version() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    text.split_whitespace()
        .find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'))
        .unwrap_or("of unknown version")
        .to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn machine(name: &str, driver: &str) -> Machine {
        Machine {
            name: name.into(),
            compute_capability: (9, 0),
            driver: driver.into(),
            driver_cuda: (13, 0),
        }
    }

    #[test]
    fn the_folder_is_named_after_the_device_or_the_cpu_driver() {
        assert_eq!(machine("NVIDIA H200", "nvidia").folder(), "nvidia-h200");
        assert_eq!(machine("Tesla T4", "nvidia").folder(), "tesla-t4");
        // A profile of the CPU driver may carry a device's name: never its folder.
        assert_eq!(machine("NVIDIA H200", "cpu").folder(), "cpu-driver");
    }
}
