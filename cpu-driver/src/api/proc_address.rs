//! `cuGetProcAddress`: entry points by base name, version and stream flavour.

use super::code::Code;
use super::ffi::{Out, Outcome, Text};
use super::guard::entries;
use super::names::driver_names;

/// A public name, the version that brought it, and where it is.
pub struct Symbol {
    pub name: &'static str,
    since: i32,
    pub address: unsafe extern "C" fn(),
}

/// Declares every public name and lists it: a name that nothing defines does not
/// link.
macro_rules! symbols {
    ($($name:ident $since:literal,)*) => {
        // The real signatures stand where the functions are defined.
        #[allow(clashing_extern_declarations)]
        mod linked {
            unsafe extern "C" {
                $(pub fn $name();)*
            }
        }

        const SYMBOLS: &[Symbol] = &[$(Symbol {
            name: stringify!($name),
            since: $since,
            address: linked::$name,
        },)*];
    };
}
driver_names!(symbols);

/// Every public name.
#[cfg(test)]
pub fn symbols() -> &'static [Symbol] {
    SYMBOLS
}

const PER_THREAD_FLAG: u64 = 2;

/// `cuMemAlloc` and `_v2` of `cuMemAlloc_v2`, or nothing for another base.
fn is_form_of(name: &str, base: &str, suffix: &str) -> bool {
    let version = name
        .strip_prefix(base)
        .and_then(|rest| rest.strip_suffix(suffix));
    match version.map(str::as_bytes) {
        Some([]) => true,
        Some([b'_', b'v', digits @ ..]) => {
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

/// The newest form of `base` that a program built for `version` knows.
fn newest(base: &str, suffix: &str, version: i32) -> Option<&'static Symbol> {
    let forms = SYMBOLS
        .iter()
        .filter(|symbol| symbol.since <= version && is_form_of(symbol.name, base, suffix));
    // Later forms of equal age come later in the list.
    forms.max_by_key(|symbol| symbol.since)
}

enum Lookup {
    Found(u64),
    Missing,
    /// The name exists in a later version.
    TooOld,
}

fn look_up(base: &str, version: i32, flags: u64) -> Lookup {
    let version = version.min(super::driver::VERSION);
    let mut found = None;
    if flags & PER_THREAD_FLAG != 0 {
        found = newest(base, "_ptsz", version).or_else(|| newest(base, "_ptds", version));
    }
    match found.or_else(|| newest(base, "", version)) {
        Some(symbol) => Lookup::Found(symbol.address as *const () as u64),
        None if newest(base, "", i32::MAX).is_some() => Lookup::TooOld,
        None => Lookup::Missing,
    }
}

/// `CU_GET_PROC_ADDRESS_SUCCESS`, `_SYMBOL_NOT_FOUND`, `_VERSION_NOT_SUFFICIENT`
fn find(name: Text, out: Out<u64>, version: i32, flags: u64, status: Out<u32>) -> Outcome {
    if out.is_null() || flags & !3 != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let (address, told) = match look_up(&name.text()?, version, flags) {
        Lookup::Found(address) => (address, 0),
        Lookup::Missing => (0, 1),
        Lookup::TooOld => (0, 2),
    };
    out.set(address)?;
    status.set_if_wanted(told)?;
    match told {
        0 => Ok(()),
        _ => Err(Code::NOT_FOUND),
    }
}

const NO_STATUS: Out<u32> = Out(std::ptr::null_mut());

entries! {
    cuGetProcAddress(name: Text, out: Out<u64>, version: i32, flags: u64) =>
        find(name, out, version, flags, NO_STATUS);
    cuGetProcAddress_v2(
        name: Text, out: Out<u64>, version: i32, flags: u64, status: Out<u32>,
    ) => find(name, out, version, flags, status);
    cuGetProcAddress_v2_ptsz(
        name: Text, out: Out<u64>, version: i32, flags: u64, status: Out<u32>,
    ) => find(name, out, version, flags | PER_THREAD_FLAG, status);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(base: &str, version: i32, flags: u64) -> Option<&'static str> {
        let Lookup::Found(address) = look_up(base, version, flags) else {
            return None;
        };
        let found = SYMBOLS
            .iter()
            .find(|s| s.address as *const () as u64 == address);
        found.map(|symbol| symbol.name)
    }

    #[test]
    fn the_version_and_the_stream_flavour_asked_for_are_honoured() {
        for (base, version, flags, expected) in [
            ("cuMemAlloc", 12000, 0, Some("cuMemAlloc_v2")),
            ("cuMemAlloc", 2000, 0, Some("cuMemAlloc")),
            ("cuLaunchKernel", 12000, 0, Some("cuLaunchKernel")),
            ("cuLaunchKernel", 12000, 2, Some("cuLaunchKernel_ptsz")),
            ("cuLaunchKernel", 3000, 0, None),
            ("cuMemcpyHtoD", 13000, 2, Some("cuMemcpyHtoD_v2_ptds")),
            ("cuMemcpyHtoD", 13000, 1, Some("cuMemcpyHtoD_v2")),
            ("cuInit", 13000, 2, Some("cuInit")),
            (
                "cuStreamGetCaptureInfo",
                12030,
                0,
                Some("cuStreamGetCaptureInfo_v3"),
            ),
            ("cuCtxCreate", 13000, 0, Some("cuCtxCreate_v4")),
            ("cuCtxCreate", 12000, 0, Some("cuCtxCreate_v3")),
            ("cuMem", 13000, 0, None),
            ("cuNoSuchThing", 13000, 0, None),
            ("cuCoredumpDeregisterStartCallback", 99999, 0, None),
        ] {
            assert_eq!(
                name_of(base, version, flags),
                expected,
                "{base} {version} {flags}"
            );
        }
    }

    #[test]
    fn every_public_name_has_an_address_of_its_own_or_says_so() {
        assert!(SYMBOLS.len() > 670);
        assert!(SYMBOLS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
