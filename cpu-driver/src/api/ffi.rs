//! The border to C: typed pointer arguments that are read and written without
//! trusting them.
//!
//! Every pointer that a client hands in is accessed through
//! `process_vm_readv`/`process_vm_writev` on our own process: a wild one gives
//! `EFAULT`, hence an error code, where a plain access would end the process.
//! Where a sandbox forbids these calls, plain copies are made instead and a wild
//! pointer faults as it would under any other driver.

use std::ffi::c_void;
use std::sync::OnceLock;

use super::code::Code;

pub type Outcome = Result<(), Code>;

/// Types of which every bit pattern is a value, so that they may be read from
/// and written to foreign memory.
///
/// # Safety
/// No references, no niches, no uninitialised padding that matters.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty),* $(,)?) => {
        // SAFETY: integers, floats, raw pointers and optional C functions (null
        // is `None`) take every bit pattern.
        $(unsafe impl $crate::api::ffi::Plain for $ty {})*
    };
}
pub(super) use plain;

plain!(
    u8,
    i8,
    u16,
    u32,
    i32,
    u64,
    i64,
    usize,
    f32,
    *const c_void,
    [u8; 16],
    [u64; 2]
);

/// Where a result goes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Out<T>(pub *mut T);

// SAFETY: it is an address; nothing is reached but through `peek` and `poke`.
unsafe impl<T> Send for Out<T> {}

impl<T: Plain> Out<T> {
    pub fn set(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: `value` is alive and as long as said.
        unsafe { poke(self.0 as u64, (&raw const value).cast(), size_of::<T>()) }
    }

    /// For results that a client may leave out.
    pub fn set_if_wanted(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Ok(());
        }
        self.set(value)
    }

    /// Fills an array of `values.len()` elements.
    pub fn set_all(self, values: &[T]) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the slice is alive and as long as said.
        unsafe { poke(self.0 as u64, values.as_ptr().cast(), size_of_val(values)) }
    }

    pub fn get(self) -> Result<T, Code> {
        In(self.0.cast_const()).get()
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn element(self, index: usize) -> Out<T> {
        Out(self.0.wrapping_add(index))
    }
}

/// Where an argument stands.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct In<T>(pub *const T);

impl<T: Plain> In<T> {
    pub fn get(self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        // SAFETY: the target is as long as said; every bit pattern is a `T`, and
        // all of it is written when `peek` succeeds.
        unsafe {
            peek(self.0 as u64, value.as_mut_ptr().cast(), size_of::<T>())?;
            Ok(value.assume_init())
        }
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn element(self, index: usize) -> In<T> {
        In(self.0.wrapping_add(index))
    }

    /// `count` elements; none for a null pointer with `count` 0.
    pub fn all(self, count: usize) -> Result<Vec<T>, Code> {
        let bytes = count.checked_mul(size_of::<T>());
        // A count that no array in an address space can have is a bad argument,
        // not a reason to run out of memory.
        if bytes.is_none_or(|bytes| bytes > 1 << 40) || (self.0.is_null() && count > 0) {
            return Err(Code::INVALID_VALUE);
        }
        let mut values: Vec<T> = Vec::new();
        values
            .try_reserve_exact(count)
            .map_err(|_| Code::OUT_OF_MEMORY)?;
        // SAFETY: the vector has room for `count`; `peek` writes all of them.
        unsafe {
            peek(
                self.0 as u64,
                values.as_mut_ptr().cast(),
                count * size_of::<T>(),
            )?;
            values.set_len(count);
        }
        Ok(values)
    }
}

/// Longest text that is taken for one.
const MAX_TEXT: usize = 1 << 30;

/// A C string.
pub type Text = In<u8>;

impl In<u8> {
    /// The bytes up to the terminating zero.
    pub fn bytes_to_zero(self) -> Result<Vec<u8>, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut found: Vec<u8> = Vec::new();
        let mut at = self.0 as u64;
        while found.len() < MAX_TEXT {
            // Up to the end of the page: the next one may not exist.
            let step = 4096 - (at % 4096) as usize;
            let chunk = In(at as *const u8).all(step)?;
            if let Some(end) = chunk.iter().position(|&byte| byte == 0) {
                found.extend_from_slice(&chunk[..end]);
                return Ok(found);
            }
            found.extend_from_slice(&chunk);
            at = at.wrapping_add(step as u64);
        }
        Err(Code::INVALID_VALUE)
    }

    pub fn text(self) -> Result<String, Code> {
        Ok(String::from_utf8_lossy(&self.bytes_to_zero()?).into_owned())
    }
}

/// True where the system lets us reach our own memory by system call.
fn guarded() -> bool {
    static GUARDED: OnceLock<bool> = OnceLock::new();
    *GUARDED.get_or_init(|| {
        let (from, mut to) = (1_u8, 0_u8);
        // SAFETY: both are alive and one byte long.
        let copied = unsafe { vm_read(&raw const from as u64, &raw mut to, 1) };
        copied == 1 && to == 1
    })
}

/// SAFETY of the caller: `to` is writable for `bytes`.
unsafe fn vm_read(from: u64, to: *mut u8, bytes: usize) -> isize {
    let local = libc::iovec {
        iov_base: to.cast(),
        iov_len: bytes,
    };
    let remote = libc::iovec {
        iov_base: from as *mut c_void,
        iov_len: bytes,
    };
    // SAFETY: one vector each; the kernel checks `remote`.
    unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) }
}

/// SAFETY of the caller: `from` is readable for `bytes`.
unsafe fn vm_write(to: u64, from: *const u8, bytes: usize) -> isize {
    let local = libc::iovec {
        iov_base: from.cast_mut().cast(),
        iov_len: bytes,
    };
    let remote = libc::iovec {
        iov_base: to as *mut c_void,
        iov_len: bytes,
    };
    // SAFETY: one vector each; the kernel checks `remote`.
    unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) }
}

/// One system call moves at most this much; larger copies go in steps.
const STEP: usize = 256 << 20;

/// Copies from the client's address `from`.
///
/// # Safety
/// `to` is writable for `bytes`.
///
/// # Errors
/// `INVALID_VALUE` where the process has no readable memory there.
pub unsafe fn peek(from: u64, to: *mut u8, bytes: usize) -> Outcome {
    if bytes > 0 && !guarded() {
        // SAFETY: as far as the client's pointer can be trusted.
        unsafe { std::ptr::copy(from as *const u8, to, bytes) };
        return Ok(());
    }
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(STEP);
        // SAFETY: `done + step <= bytes`.
        let moved = unsafe { vm_read(from.wrapping_add(done as u64), to.add(done), step) };
        done += usize::try_from(moved).map_err(|_| Code::INVALID_VALUE)?;
        if moved == 0 {
            return Err(Code::INVALID_VALUE);
        }
    }
    Ok(())
}

/// Copies to the client's address `to`.
///
/// # Safety
/// `from` is readable for `bytes`.
///
/// # Errors
/// `INVALID_VALUE` where the process has no writable memory there.
pub unsafe fn poke(to: u64, from: *const u8, bytes: usize) -> Outcome {
    if bytes > 0 && !guarded() {
        // SAFETY: as far as the client's pointer can be trusted.
        unsafe { std::ptr::copy(from, to as *mut u8, bytes) };
        return Ok(());
    }
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(STEP);
        // SAFETY: `done + step <= bytes`.
        let moved = unsafe { vm_write(to.wrapping_add(done as u64), from.add(done), step) };
        done += usize::try_from(moved).map_err(|_| Code::INVALID_VALUE)?;
        if moved == 0 {
            return Err(Code::INVALID_VALUE);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wild_pointers_give_an_error_and_no_fault() {
        for address in [0, 1, 0xdead_0000, u64::MAX - 8, 1 << 63] {
            let out = Out(address as *mut u64);
            assert_eq!(out.set(1), Err(Code::INVALID_VALUE), "{address:#x}");
            let source = In(address as *const u64);
            assert_eq!(source.get().err(), Some(Code::INVALID_VALUE));
            assert!(Text::text(In(address as *const u8)).is_err());
        }
        let literal = "read only";
        let out = Out(literal.as_ptr().cast_mut());
        assert_eq!(out.set(b'x'), Err(Code::INVALID_VALUE));
    }

    #[test]
    fn texts_end_at_the_zero_even_across_pages() {
        let mut long = vec![b'a'; 10_000];
        long.push(0);
        long.extend_from_slice(b"rest");
        assert_eq!(In(long.as_ptr()).text().map(|text| text.len()), Ok(10_000));
    }

    #[test]
    fn absurd_counts_are_refused_before_memory_is_taken() {
        let one = 1_u64;
        assert!(In(&raw const one).all(usize::MAX / 4).is_err());
        assert!(In(&raw const one).all(1 << 50).is_err());
    }
}
