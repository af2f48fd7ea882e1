//! The object-safe face of an [`Observer`]: operations are compiled once for
//! each way of observing and not once an observer.

use super::observe::{HeapError, Observer, Reaction, Violation, WarpAccess};

pub trait Listener {
    fn violation(&mut self, violation: &Violation) -> Reaction;
    fn heap_error(&mut self, error: &HeapError) -> Option<Reaction>;
    fn access(&mut self, access: &WarpAccess<'_>);
    fn barrier(&mut self, block: u64, id: u32);
}

impl<O: Observer> Listener for O {
    fn violation(&mut self, violation: &Violation) -> Reaction {
        Observer::violation(self, violation)
    }

    fn heap_error(&mut self, error: &HeapError) -> Option<Reaction> {
        Observer::heap_error(self, error)
    }

    fn access(&mut self, access: &WarpAccess<'_>) {
        Observer::access(self, access);
    }

    fn barrier(&mut self, block: u64, id: u32) {
        Observer::barrier(self, block, id);
    }
}
