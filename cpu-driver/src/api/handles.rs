//! Live objects by handle. Handles are numbers that no address equals; an
//! unknown one is an error, never a dereference.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::code::Code;

/// An opaque handle as C sees it: a pointer that nobody follows.
pub type Handle = u64;

/// Non-canonical on every x86-64 and AArch64 user space, so that a client
/// which follows a handle faults at once.
const FIRST: u64 = 0x4b47_0000_0000_0010;

static NEXT: AtomicU64 = AtomicU64::new(FIRST);

/// A handle that was never used before, for any kind of object.
pub fn fresh() -> Handle {
    NEXT.fetch_add(16, Ordering::Relaxed)
}

/// The live objects of one kind.
pub struct Registry<T> {
    live: RwLock<BTreeMap<Handle, Arc<T>>>,
}

impl<T> Registry<T> {
    pub const fn new() -> Self {
        Registry {
            live: RwLock::new(BTreeMap::new()),
        }
    }

    pub fn insert(&self, handle: Handle, object: Arc<T>) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.insert(handle, object);
    }

    /// # Errors
    /// `INVALID_HANDLE` for one that does not name a live object of this kind.
    pub fn get(&self, handle: Handle) -> Result<Arc<T>, Code> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.get(&handle).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// # Errors
    /// `INVALID_HANDLE` as for [`Registry::get`].
    pub fn remove(&self, handle: Handle) -> Result<Arc<T>, Code> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.remove(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// All live objects in order of creation.
    pub fn all(&self) -> Vec<Arc<T>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.values().cloned().collect()
    }
}
