//! memcheck: every access inside one live allocation and aligned, or a finding.

use super::config::DestroyOnDeviceError;
use super::finding::{Access, Finding, Heap};
use super::host_stack::Captured;
use super::session::Session;
use crate::machine::memory::{Memory, Nearest, Relation};
use crate::machine::observe::{HeapError, Observer, Reaction, Violation, ViolationKind};
use crate::ptx::ast::StateSpace;

/// A launch that the filters let through.
#[derive(Debug, Clone)]
pub struct CheckedLaunch {
    pub(super) launched: Captured,
}

/// The observer of one checked launch.
pub struct Memcheck<'a> {
    session: &'a Session,
    memory: &'a Memory,
    launch: CheckedLaunch,
}

impl<'a> Memcheck<'a> {
    #[must_use]
    pub fn new(session: &'a Session, memory: &'a Memory, launch: CheckedLaunch) -> Self {
        Self {
            session,
            memory,
            launch,
        }
    }

    fn reaction(&self) -> Reaction {
        match self.session.config().destroy_on_device_error {
            DestroyOnDeviceError::Context => Reaction::EndLaunch,
            DestroyOnDeviceError::Kernel => Reaction::KillWarp,
        }
    }

    /// The allocation to name in the report. An access that begins inside one
    /// and ends outside is named by its first byte outside.
    fn neighbour(&self, violation: &Violation) -> Option<Nearest> {
        if !matches!(violation.space, StateSpace::Global | StateSpace::Const) {
            return None;
        }
        self.memory.nearest(violation.address)
    }

    fn finding(&self, violation: &Violation) -> Access {
        let nearest = self.neighbour(violation);
        let launched = self.session.resolve(&self.launch.launched);
        let mut access = Access::new(violation, nearest.as_ref(), launched);
        self.session.strip(&mut access.place);
        if violation.kind == ViolationKind::UseAfterFree
            && let Some(Nearest {
                allocation,
                relation: Relation::Inside(_),
            }) = &nearest
        {
            access.freed = self.session.freed_at(allocation.serial);
        }
        access
    }
}

impl Observer for Memcheck<'_> {
    const STRICT: bool = true;
    const EVENTS: bool = false;

    fn violation(&mut self, violation: &Violation) -> Reaction {
        self.session
            .report(None, || Finding::Access(self.finding(violation)));
        self.reaction()
    }

    fn heap_error(&mut self, error: &HeapError) -> Option<Reaction> {
        self.session.report(None, || {
            let launched = self.session.resolve(&self.launch.launched);
            let mut heap = Heap::new(error, launched);
            self.session.strip(&mut heap.place);
            Finding::Heap(heap)
        });
        Some(self.reaction())
    }
}
