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
//! `KERNELGATE_MEMORY` overrides it ([`crate::settings`]).

mod attributes;
mod machine;

use std::fmt;
use std::sync::OnceLock;

use crate::ptx::ast::Target;
use crate::settings::{self, Settings};

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
    /// The profile that `settings` asks for, with the memory that this machine
    /// can give it. The first call of a process decides.
    pub fn of(settings: &Settings) -> &'static Self {
        static CHOSEN: OnceLock<Profile> = OnceLock::new();
        CHOSEN.get_or_init(|| choose(settings, machine::memory()))
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

fn choose(settings: &Settings, available: Option<u64>) -> Profile {
    let known = PROFILES.iter().find(|known| known.id == settings.profile);
    let mut chosen = known.unwrap_or(&PROFILES[0]).clone();
    chosen.total_memory = match settings.memory {
        Some(bytes) => bytes,
        None => chosen.total_memory.min(available.unwrap_or(u64::MAX)),
    };
    chosen
}

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
             for that or lower, or choose another device with {}",
            self.target.sm,
            self.device,
            self.own,
            settings::PROFILE
        )
    }
}

impl std::error::Error for TargetError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(id: &'static str) -> Profile {
        let settings = Settings {
            profile: id,
            ..Settings::default()
        };
        choose(&settings, None)
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
        let memory = |memory, available| {
            let settings = Settings {
                profile: "t4",
                memory,
                ..Settings::default()
            };
            choose(&settings, available).total_memory
        };
        assert_eq!(memory(None, Some(1 << 30)), 1 << 30);
        assert_eq!(memory(None, Some(1 << 40)), 15_360 << 20);
        assert_eq!(memory(Some(64 << 30), Some(1 << 30)), 64 << 30);
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
