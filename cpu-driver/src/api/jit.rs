//! Options of the just-in-time compiler: only the logs and the wall time have an
//! effect, since nothing is compiled.

use std::time::Instant;

use super::code::Code;
use super::ffi::{In, Out, Outcome};

const WALL_TIME: u32 = 2;
const INFO_LOG: u32 = 3;
const INFO_LOG_SIZE: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_SIZE: u32 = 6;
/// Options in CUDA 13.0.
const COUNT: u32 = 35;

/// What a client asked for, and where answers go.
pub struct Options {
    keys: Vec<u32>,
    values: Vec<u64>,
    slots: Out<u64>,
    started: Instant,
    info: String,
    errors: String,
}

impl Options {
    pub fn none() -> Options {
        Options {
            keys: Vec::new(),
            values: Vec::new(),
            slots: Out(std::ptr::null_mut()),
            started: Instant::now(),
            info: String::new(),
            errors: String::new(),
        }
    }

    /// # Errors
    /// `INVALID_VALUE` for arrays that cannot be read or an unknown option.
    pub fn read(count: u32, keys: In<u32>, values: Out<u64>) -> Result<Options, Code> {
        if count > 4 * COUNT {
            return Err(Code::INVALID_VALUE);
        }
        let keys = keys.all(count as usize)?;
        if keys.iter().any(|&key| key >= COUNT) {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Options {
            values: In(values.0.cast_const()).all(count as usize)?,
            keys,
            slots: values,
            ..Options::none()
        })
    }

    pub fn info(&mut self, line: &str) {
        self.info.push_str(line);
        self.info.push('\n');
    }

    /// A line for the error log, and one for whoever runs the program.
    pub fn error(&mut self, line: &str) {
        super::guard::note(line);
        self.errors.push_str(line);
        self.errors.push('\n');
    }

    fn value(&self, key: u32) -> Option<u64> {
        let at = self.keys.iter().position(|&known| known == key)?;
        self.values.get(at).copied()
    }

    fn answer(&self, key: u32, value: u64) -> Outcome {
        match self.keys.iter().position(|&known| known == key) {
            Some(at) => self.slots.element(at).set(value),
            None => Ok(()),
        }
    }

    fn write_log(&self, text: &str, buffer: u32, size: u32) -> Outcome {
        let (Some(address), Some(room)) = (self.value(buffer), self.value(size)) else {
            return Ok(());
        };
        // The size is a 32-bit number in a pointer's place.
        let room = room as u32 as usize;
        if address == 0 || room == 0 {
            return Ok(());
        }
        let kept = text.len().min(room - 1);
        let mut bytes = text.as_bytes()[..kept].to_vec();
        bytes.push(0);
        Out(address as *mut u8).set_all(&bytes)?;
        self.answer(size, kept as u64)
    }

    /// Writes the logs and the wall time where the client wants them.
    pub fn finish(&self) -> Outcome {
        self.write_log(&self.info, INFO_LOG, INFO_LOG_SIZE)?;
        self.write_log(&self.errors, ERROR_LOG, ERROR_LOG_SIZE)?;
        let milliseconds = self.started.elapsed().as_secs_f32() * 1e3;
        self.answer(WALL_TIME, u64::from(milliseconds.to_bits()))
    }
}
