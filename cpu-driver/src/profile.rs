//! Device profiles: what the driver reports and which PTX targets it accepts.
//!
//! `KERNELGATE_PROFILE` chooses `h200` (the default: it accepts every target
//! that our kernels use) or `t4`. A profile decides numbers that programs plan
//! with (multiprocessors, shared memory, compute capability), never speed. The
//! name says that it is no such device, so that no transcript can be taken for
//! one. Numbers are those of the data sheets and of NVIDIA's deviceQuery; a
//! capability that this driver does not implement is reported as absent.
//!
//! Device memory is the profile's, or what this machine has where that is less;
//! `KERNELGATE_MEMORY` (bytes, or with the suffix `MiB` or `GiB`) overrides it.

mod attributes;
mod machine;

use std::fmt;
use std::sync::OnceLock;

use crate::ptx::ast::Target;

const PROFILE_VARIABLE: &str = "KERNELGATE_PROFILE";
const MEMORY_VARIABLE: &str = "KERNELGATE_MEMORY";

/// A device as the driver reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// What `KERNELGATE_PROFILE` calls it.
    pub id: &'static str,
    pub name: &'static str,
    /// (9, 0) for sm_90.
    pub compute_capability: (u32, u32),
    /// Bytes of device memory.
    pub total_memory: u64,
    numbers: attributes::Numbers,
}

/// The profiles there are, with their full memory.
pub const PROFILES: [Profile; 2] = [
    Profile {
        id: "h200",
        name: "NVIDIA H200 (kernelgate CPU driver)",
        compute_capability: (9, 0),
        total_memory: 143_771 << 20,
        numbers: attributes::H200,
    },
    Profile {
        id: "t4",
        name: "Tesla T4 (kernelgate CPU driver)",
        compute_capability: (7, 5),
        total_memory: 15_360 << 20,
        numbers: attributes::T4,
    },
];

impl Profile {
    /// The profile that the environment asks for, with the memory that this
    /// machine can give it. Read once a process.
    ///
    /// # Errors
    /// An unknown profile, or a memory size that is none.
    pub fn from_environment() -> Result<&'static Self, ProfileError> {
        static CHOSEN: OnceLock<Result<Profile, ProfileError>> = OnceLock::new();
        CHOSEN
            .get_or_init(|| {
                let variable = |name| std::env::var(name).ok();
                choose(
                    variable(PROFILE_VARIABLE).as_deref(),
                    variable(MEMORY_VARIABLE).as_deref(),
                    machine::memory(),
                )
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// The value of a `CUdevice_attribute`; `None` for a number that is none.
    #[must_use]
    pub fn attribute(&self, number: i32) -> Option<i32> {
        let (major, minor) = self.compute_capability;
        self.numbers.attribute(number, major as i32, minor as i32)
    }

    /// May PTX of this target run on the device? Its `.version` does not matter.
    ///
    /// A plain target runs on its own and on every later architecture, `a` on
    /// its own only, `f` on later members of its family.
    ///
    /// # Errors
    /// [`TargetError`]; the real driver answers `CUDA_ERROR_INVALID_PTX` (218)
    /// and puts a line like this one's text into the JIT error log.
    pub fn accepts(&self, target: &Target) -> Result<(), TargetError> {
        let (major, minor) = self.compute_capability;
        let own = major * 10 + minor;
        let fits = match target.suffix {
            Some('a') => target.sm == own,
            Some('f') => target.sm <= own && target.sm / 10 == major,
            _ => target.sm <= own,
        };
        if fits {
            return Ok(());
        }
        Err(TargetError {
            target: target.clone(),
            device: self.name,
            own,
        })
    }
}

fn choose(
    profile: Option<&str>,
    memory: Option<&str>,
    available: Option<u64>,
) -> Result<Profile, ProfileError> {
    let wanted = profile.map_or("h200", str::trim);
    let mut chosen = PROFILES
        .iter()
        .find(|known| known.id.eq_ignore_ascii_case(wanted))
        .cloned()
        .ok_or_else(|| ProfileError {
            variable: PROFILE_VARIABLE,
            expected: "h200 or t4",
            found: wanted.to_owned(),
        })?;
    match memory {
        Some(text) => {
            chosen.total_memory = parse_bytes(text).ok_or_else(|| ProfileError {
                variable: MEMORY_VARIABLE,
                expected: "a number of bytes, MiB or GiB, such as 4GiB",
                found: text.to_owned(),
            })?;
        }
        None => {
            if let Some(available) = available {
                chosen.total_memory = chosen.total_memory.min(available);
            }
        }
    }
    Ok(chosen)
}

fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match text[digits.len()..].trim() {
        "" | "B" => 0,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes > 0).then_some(bytes)
}

/// An environment variable that says nothing usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    variable: &'static str,
    expected: &'static str,
    found: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: expected {}, found `{}`",
            self.variable, self.expected, self.found
        )
    }
}

impl std::error::Error for ProfileError {}

/// PTX for another device.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetError {
    target: Target,
    device: &'static str,
    own: u32,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = self.target.suffix.map_or_else(String::new, String::from);
        write!(
            f,
            "PTX with .target sm_{}{suffix} cannot be compiled for {}, which is sm_{}; compile \
             for that or lower, or choose another device with {PROFILE_VARIABLE}",
            self.target.sm, self.device, self.own
        )
    }
}

impl std::error::Error for TargetError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(id: &str) -> Profile {
        choose(Some(id), None, None).expect(id)
    }

    fn target(name: &str) -> Target {
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        Target {
            sm: digits.parse().unwrap(),
            suffix: name.chars().last().filter(char::is_ascii_alphabetic),
            options: Vec::new(),
        }
    }

    #[test]
    fn targets_up_to_the_device_are_accepted_and_others_are_not() {
        for (id, name, accepted) in [
            ("t4", "sm_50", true),
            ("t4", "sm_75", true),
            ("t4", "sm_80", false),
            ("t4", "sm_90a", false),
            ("h200", "sm_75", true),
            ("h200", "sm_89", true),
            ("h200", "sm_90", true),
            ("h200", "sm_90a", true),
            ("h200", "sm_90f", true),
            ("h200", "sm_80a", false),
            ("h200", "sm_100", false),
            ("h200", "sm_100f", false),
            ("h200", "sm_120a", false),
        ] {
            let answer = profile(id).accepts(&target(name));
            assert_eq!(answer.is_ok(), accepted, "{name} on {id}");
            if let Err(error) = answer {
                let text = error.to_string();
                assert!(text.contains(name), "{text}");
                assert!(text.contains("CPU driver"), "{text}");
            }
        }
    }

    #[test]
    fn no_profile_can_be_taken_for_the_device_itself() {
        for profile in PROFILES {
            assert!(profile.name.contains("kernelgate CPU driver"));
        }
    }

    #[test]
    fn memory_is_capped_by_the_machine_and_settable() {
        let memory = |text, available| choose(Some("t4"), text, available).map(|p| p.total_memory);
        assert_eq!(memory(None, Some(1 << 30)), Ok(1 << 30));
        assert_eq!(memory(None, Some(1 << 40)), Ok(15_360 << 20));
        assert_eq!(memory(Some("64GiB"), Some(1 << 30)), Ok(64 << 30));
        assert_eq!(memory(Some(" 5 MiB "), None), Ok(5 << 20));
        assert_eq!(memory(Some("4096"), None), Ok(4096));
        for wrong in ["", "x", "0", "-1", "4TiB", "99999999999GiB"] {
            assert!(memory(Some(wrong), None).is_err(), "{wrong}");
        }
        let error = choose(Some("h100"), None, None).unwrap_err().to_string();
        assert!(error.contains("h100") && error.contains("t4"), "{error}");
    }

    #[test]
    fn attributes_agree_with_the_compute_capability() {
        const WARP: i32 = 10;
        const MULTIPROCESSORS: i32 = 16;
        const MAJOR: i32 = 75;
        const MINOR: i32 = 76;
        const SHARED_OPTIN: i32 = 97;
        for (id, expected) in [
            ("t4", [32, 40, 7, 5, 65_536]),
            ("h200", [32, 132, 9, 0, 232_448]),
        ] {
            let profile = profile(id);
            let found = [WARP, MULTIPROCESSORS, MAJOR, MINOR, SHARED_OPTIN]
                .map(|number| profile.attribute(number).unwrap());
            assert_eq!(found, expected);
            assert!((1..=147).all(|number| profile.attribute(number).is_some()));
            for number in [0, -1, 148, i32::MAX] {
                assert_eq!(profile.attribute(number), None);
            }
        }
    }
}
