//! `cuLink*` over PTX: the parts are checked and the result is PTX again.
//!
//! PTX texts cannot simply be joined (each has its own header), so the result
//! carries them one after the other behind a mark, and loading takes them apart.

use std::sync::{Arc, Mutex, PoisonError};

use super::code::Code;
use super::driver::driver;
use super::ffi::{In, Out, Outcome, Text};
use super::guard::entries;
use super::handles::{Handle, Registry, fresh};
use super::jit::Options;
use super::module::prepare;
use crate::profile::Profile;

/// Stands between linked parts; a PTX comment, so that one part is plain PTX.
pub const SEPARATOR: &str = "\n// kernelgate: next linked part\n";

/// `CUjitInputType`
const CUBIN: u32 = 0;
const PTX: u32 = 1;
const FATBIN: u32 = 2;
const NVVM: u32 = 5;

struct Link {
    state: Mutex<State>,
}

struct State {
    parts: Vec<String>,
    log: Options,
    /// What `cuLinkComplete` handed out; lives as long as the link.
    image: Option<Vec<u8>>,
}

static LINKS: Registry<Link> = Registry::new();

fn create(log: Options, out: Out<Handle>) -> Outcome {
    driver()?;
    let handle = fresh();
    let state = State {
        parts: Vec::new(),
        log,
        image: None,
    };
    out.set(handle)?;
    let link = Link {
        state: Mutex::new(state),
    };
    LINKS.insert(handle, Arc::new(link));
    Ok(())
}

fn profile() -> Result<&'static Profile, Code> {
    Ok(driver()?.device(0)?.profile)
}

fn add(link: Handle, kind: u32, bytes: &[u8]) -> Outcome {
    let link = LINKS.get(link)?;
    let mut state = link.state.lock().unwrap_or_else(PoisonError::into_inner);
    let profile = profile()?;
    let text = match kind {
        PTX | FATBIN | CUBIN => super::image::ptx_in(bytes, profile),
        0..=NVVM => Err((
            Code::INVALID_IMAGE,
            "only PTX and fat binaries with PTX can be linked".to_owned(),
        )),
        _ => return Err(Code::INVALID_VALUE),
    };
    let checked = text.map_err(|(code, line)| {
        state.log.error(&line);
        code
    });
    let checked = checked.and_then(|text| {
        super::module::check_text(&text, profile, &mut state.log)?;
        Ok(text)
    });
    state.log.finish()?;
    state.parts.push(checked?);
    Ok(())
}

fn add_data(link: Handle, kind: u32, data: In<u8>, bytes: usize) -> Outcome {
    add(link, kind, &data.all(bytes)?)
}

fn add_file(link: Handle, kind: u32, name: Text) -> Outcome {
    LINKS.get(link)?;
    let path = name.text()?;
    match std::fs::read(&path) {
        Ok(bytes) => add(link, kind, &bytes),
        Err(_) => Err(Code::FILE_NOT_FOUND),
    }
}

fn complete(link: Handle, image: Out<u64>, bytes: Out<usize>) -> Outcome {
    let link = LINKS.get(link)?;
    let mut state = link.state.lock().unwrap_or_else(PoisonError::into_inner);
    if state.parts.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    let State { parts, log, .. } = &mut *state;
    let linked = prepare(parts, profile()?, log);
    log.info("linked by the kernelgate CPU driver");
    log.finish()?;
    linked?;
    let mut joined = state.parts.join(SEPARATOR).into_bytes();
    bytes.set_if_wanted(joined.len())?;
    joined.push(0);
    let joined = state.image.insert(joined);
    image.set(joined.as_ptr() as u64)
}

entries! {
    cuLinkCreate_v2(count: u32, keys: In<u32>, values: Out<u64>, out: Out<Handle>) =>
        create(Options::read(count, keys, values)?, out);
    cuLinkAddData_v2(
        link: Handle, kind: u32, data: In<u8>, bytes: usize, _name: u64, _count: u32, _keys: u64,
        _values: u64,
    ) => add_data(link, kind, data, bytes);
    cuLinkAddFile_v2(
        link: Handle, kind: u32, name: Text, _count: u32, _keys: u64, _values: u64,
    ) => add_file(link, kind, name);
    cuLinkComplete(link: Handle, image: Out<u64>, bytes: Out<usize>) =>
        complete(link, image, bytes);
    cuLinkDestroy(link: Handle) => LINKS.remove(link).map(drop);
}
