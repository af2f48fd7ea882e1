//! Which driver to use: `KERNELGATE_DRIVER=auto|cuda|cpu|PATH`.
//!
//! [`decide`] is a pure function of the request and of what was found, so every
//! row of the decision is tested without a GPU. The probing is in `loader`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::DeviceError;

/// Name of the environment variable.
pub const VARIABLE: &str = "KERNELGATE_DRIVER";

/// What the user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// NVIDIA's driver when it has a usable device, ours otherwise.
    Auto,
    /// NVIDIA's driver or an error.
    Cuda,
    /// Our CPU driver or an error.
    Cpu,
    /// This file, or the `libcuda.so` in this folder.
    Path(PathBuf),
}

impl Request {
    /// Reads the environment variable; unset or empty means [`Request::Auto`].
    pub fn from_env() -> Result<Request, DeviceError> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Request::Auto),
            // A path need not be UTF-8.
            Some(value) if value.as_bytes().contains(&b'/') => Ok(Request::Path(value.into())),
            Some(value) => Request::parse(&value.to_string_lossy()),
        }
    }

    /// Anything with a `/` is a path; other words must be one of the three names.
    pub fn parse(text: &str) -> Result<Request, DeviceError> {
        match text {
            "" | "auto" => Ok(Request::Auto),
            "cuda" => Ok(Request::Cuda),
            "cpu" => Ok(Request::Cpu),
            path if path.contains('/') => Ok(Request::Path(path.into())),
            other => Err(DeviceError::BadRequest {
                message: format!(
                    "{VARIABLE}={other}: expected auto, cuda, cpu or a path with a `/` in it \
                     (a libcuda.so or the folder that holds one)"
                ),
            }),
        }
    }
}

/// What was found when one driver library was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The file, where one was found.
    pub file: Option<PathBuf>,
    /// Whether the library says that it is kernelgate's CPU driver.
    pub ours: bool,
    /// Number of devices, or why there is none to use.
    pub devices: Result<u32, String>,
}

impl Probe {
    /// At least one device answers.
    pub fn usable(&self) -> bool {
        matches!(self.devices, Ok(n) if n > 0)
    }

    /// One line for messages, such as `/usr/lib/libcuda.so.1: 1 device`.
    pub fn describe(&self) -> String {
        let state = match &self.devices {
            Ok(1) => "1 device".to_string(),
            Ok(n) => format!("{n} devices"),
            Err(why) => why.clone(),
        };
        match &self.file {
            Some(file) => format!("{}: {state}", file.display()),
            None => state,
        }
    }
}

/// Whose driver was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// NVIDIA's.
    Nvidia,
    /// kernelgate's CPU driver.
    Cpu,
    /// A file that the user named and that is not ours.
    Named,
}

impl Driver {
    /// In the words of the banner.
    pub fn words(self) -> &'static str {
        match self {
            Driver::Nvidia => "NVIDIA's driver",
            Driver::Cpu => "kernelgate's CPU driver",
            Driver::Named => "the driver named by KERNELGATE_DRIVER",
        }
    }
}

/// The driver to open and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Whose it is.
    pub driver: Driver,
    /// The file to open.
    pub file: PathBuf,
    /// Why this one, for the banner.
    pub why: String,
}

/// Decides between what was found. Both probes are looked at only as far as the
/// request asks; an explicit request never falls back.
pub fn decide(request: &Request, nvidia: &Probe, cpu: &Probe) -> Result<Choice, DeviceError> {
    match request {
        Request::Auto => decide_auto(nvidia, cpu),
        Request::Cuda if nvidia.ours => Err(no_device(
            "KERNELGATE_DRIVER=cuda asks for NVIDIA's driver, but the first libcuda.so.1 on the \
             library path is kernelgate's own",
            &[nvidia],
            "take the folder that `kernelgate driver-path` printed out of LD_LIBRARY_PATH",
        )),
        Request::Cuda => take(nvidia, Driver::Nvidia, "KERNELGATE_DRIVER=cuda").ok_or_else(|| {
            no_device(
                "KERNELGATE_DRIVER=cuda asks for NVIDIA's driver, and it has no usable device",
                &[nvidia],
                "install NVIDIA's driver on a machine with an NVIDIA GPU, or set \
                 KERNELGATE_DRIVER=cpu to run on the CPU",
            )
        }),
        Request::Cpu => take(cpu, Driver::Cpu, "KERNELGATE_DRIVER=cpu").ok_or_else(|| {
            no_device(
                "KERNELGATE_DRIVER=cpu asks for kernelgate's CPU driver, and it has no usable device",
                &[cpu],
                remedy(cpu),
            )
        }),
        // The caller probed the named file as `cpu`: whose it is, the file says.
        Request::Path(path) => {
            let driver = if cpu.ours { Driver::Cpu } else { Driver::Named };
            take(cpu, driver, &format!("KERNELGATE_DRIVER={}", shown(path))).ok_or_else(|| {
                no_device(
                    &format!("KERNELGATE_DRIVER={} has no usable device", path.display()),
                    &[cpu],
                    "name a libcuda.so that has one, or unset the variable",
                )
            })
        }
    }
}

/// What to do about a CPU driver without a device: build it, or look at what it was told.
fn remedy(cpu: &Probe) -> &'static str {
    if cpu.ours {
        "unset KERNELGATE_DEVICES and KERNELGATE_MEMORY, which say how many devices and how \
         much memory it has"
    } else {
        "`cargo build --workspace` puts libcuda.so beside the binaries"
    }
}

fn decide_auto(nvidia: &Probe, cpu: &Probe) -> Result<Choice, DeviceError> {
    if nvidia.ours {
        if let Some(choice) = take(nvidia, Driver::Cpu, "it is first on the library path") {
            return Ok(choice);
        }
    } else if let Some(choice) = take(nvidia, Driver::Nvidia, "it has a usable device") {
        return Ok(choice);
    }
    let why = match &nvidia.file {
        Some(file) => format!("{} has no usable device", file.display()),
        None => "no libcuda.so.1 of NVIDIA's was found".to_string(),
    };
    take(cpu, Driver::Cpu, &why).ok_or_else(|| {
        no_device(
            "no usable CUDA device",
            &[nvidia, cpu],
            &format!(
                "use a machine with an NVIDIA GPU and its driver, or the CPU driver: {}",
                remedy(cpu)
            ),
        )
    })
}

fn take(probe: &Probe, driver: Driver, why: &str) -> Option<Choice> {
    let file = probe.file.clone().filter(|_| probe.usable())?;
    Some(Choice {
        driver,
        file,
        why: why.to_string(),
    })
}

fn no_device(what: &str, looked_for: &[&Probe], todo: &str) -> DeviceError {
    let found: Vec<String> = looked_for.iter().map(|p| p.describe()).collect();
    DeviceError::NoDevice {
        message: format!("{what}. Looked for: {}. To do: {todo}", found.join("; ")),
    }
}

/// A path for the banner: relative to the working directory where it lies below
/// it, so that a transcript says `target/release/deps/libcuda.so` on any machine.
pub fn shown(path: &Path) -> String {
    let below = std::env::current_dir()
        .ok()
        .and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf));
    below
        .unwrap_or_else(|| path.to_path_buf())
        .display()
        .to_string()
}

/// Where our library may lie, for an executable in `exe_dir`: Cargo's folders
/// first (`deps` is where a dependency's cdylib goes), then an installed tree.
pub fn places(exe_dir: &Path) -> [PathBuf; 4] {
    [
        exe_dir.join("deps/libcuda.so"),
        exe_dir.join("libcuda.so"),
        exe_dir.join("../deps/libcuda.so"),
        exe_dir.join("../lib/kernelgate/libcuda.so"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(file: Option<&str>, ours: bool, devices: Result<u32, &str>) -> Probe {
        Probe {
            file: file.map(PathBuf::from),
            ours,
            devices: devices.map_err(String::from),
        }
    }

    /// Rows: request, NVIDIA's probe, our probe, and the driver or what the error
    /// must say.
    #[test]
    fn every_row_of_the_choice_is_as_documented() {
        let gpu = probe(Some("/usr/lib/libcuda.so.1"), false, Ok(1));
        let idle = probe(
            Some("/usr/lib/libcuda.so.1"),
            false,
            Err("cuInit returned 100"),
        );
        let no_gpus = probe(Some("/usr/lib/libcuda.so.1"), false, Ok(0));
        let none = probe(None, false, Err("libcuda.so.1 not found"));
        let shadowed = probe(Some("/x/libcuda.so.1"), true, Ok(1));
        let ours = probe(Some("/t/deps/libcuda.so"), true, Ok(1));
        let empty = probe(Some("/t/deps/libcuda.so"), true, Err("cuInit returned 100"));
        let no_ours = probe(None, false, Err("no libcuda.so beside the program"));
        let foreign = probe(Some("/o/libcuda.so"), false, Ok(2));
        let path = Request::Path("/o/libcuda.so".into());

        let rows: Vec<(&Request, &Probe, &Probe, Result<Driver, &str>)> = vec![
            (&Request::Auto, &gpu, &ours, Ok(Driver::Nvidia)),
            (&Request::Auto, &idle, &ours, Ok(Driver::Cpu)),
            (&Request::Auto, &no_gpus, &ours, Ok(Driver::Cpu)),
            (&Request::Auto, &none, &ours, Ok(Driver::Cpu)),
            (&Request::Auto, &shadowed, &ours, Ok(Driver::Cpu)),
            (&Request::Auto, &idle, &no_ours, Err("cuInit returned 100")),
            (&Request::Auto, &none, &no_ours, Err("To do:")),
            (&Request::Cuda, &gpu, &ours, Ok(Driver::Nvidia)),
            (&Request::Cuda, &idle, &ours, Err("cuInit returned 100")),
            (&Request::Cuda, &none, &ours, Err("KERNELGATE_DRIVER=cpu")),
            (&Request::Cuda, &shadowed, &ours, Err("LD_LIBRARY_PATH")),
            (&Request::Cpu, &gpu, &ours, Ok(Driver::Cpu)),
            (&Request::Cpu, &gpu, &no_ours, Err("cargo build")),
            (&Request::Cpu, &none, &empty, Err("KERNELGATE_DEVICES")),
            (&Request::Auto, &none, &empty, Err("KERNELGATE_DEVICES")),
            (&path, &gpu, &foreign, Ok(Driver::Named)),
            (&path, &gpu, &ours, Ok(Driver::Cpu)),
            (&path, &gpu, &no_ours, Err("/o/libcuda.so")),
        ];
        for (request, nvidia, cpu, want) in rows {
            let label = format!("{request:?} {nvidia:?} {cpu:?}");
            match (decide(request, nvidia, cpu), want) {
                (Ok(choice), Ok(driver)) => {
                    assert_eq!(choice.driver, driver, "{label}");
                    assert!(!choice.why.is_empty(), "{label}");
                }
                (Err(DeviceError::NoDevice { message }), Err(part)) => {
                    assert!(message.contains(part), "{label}: {message}")
                }
                (got, want) => panic!("{label}: got {got:?}, want {want:?}"),
            }
        }
    }

    #[test]
    fn a_library_without_a_device_is_named_when_ours_is_taken() {
        let idle = probe(Some("/usr/lib/libcuda.so.1"), false, Ok(0));
        let ours = probe(Some("/t/deps/libcuda.so"), true, Ok(1));
        let choice = decide(&Request::Auto, &idle, &ours).unwrap();
        assert_eq!(choice.file, PathBuf::from("/t/deps/libcuda.so"));
        assert!(choice.why.contains("/usr/lib/libcuda.so.1"));
    }

    #[test]
    fn a_path_is_shown_relative_to_the_working_directory_where_it_can_be() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(shown(&here.join("target/libcuda.so")), "target/libcuda.so");
        assert_eq!(
            shown(Path::new("/usr/lib/libcuda.so.1")),
            "/usr/lib/libcuda.so.1"
        );
    }

    #[test]
    fn a_misspelt_request_is_an_error_and_not_a_path() {
        assert_eq!(Request::parse("auto").unwrap(), Request::Auto);
        assert_eq!(Request::parse("").unwrap(), Request::Auto);
        assert_eq!(
            Request::parse("./x/libcuda.so").unwrap(),
            Request::Path("./x/libcuda.so".into())
        );
        for wrong in ["CUDA", "gpu", "cpu ", "libcuda.so"] {
            assert!(
                matches!(Request::parse(wrong), Err(DeviceError::BadRequest { .. })),
                "{wrong}"
            );
        }
    }
}
