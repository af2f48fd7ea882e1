//! The order of asynchronous work.
//!
//! Every operation gets a serial number and waits for others: the tail of its
//! stream, the tails that the legacy default stream's rules add, events, and the
//! edges of a graph. One worker thread a device takes the first ready operation
//! in order of submission, so the device's results depend on the order of calls
//! alone. What takes no time (an event's stamp) happens as soon as it is ready,
//! also while the device is busy; a host function runs on a thread of its own
//! and holds up only what waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::context::ContextState;
use super::handles::Handle;
use super::stream::{Stream, StreamKind};
use super::work::Work;

pub type Serial = u64;

/// One step of a submission: what to do and which earlier steps of the same
/// submission it waits for (none: only for what the submission waits for).
pub struct Step {
    pub work: Work,
    pub after: Vec<usize>,
}

struct Pending {
    context: Arc<ContextState>,
    /// Operations that have to end first.
    blocked_by: usize,
    /// Operations that this one holds up.
    waiters: Vec<Serial>,
    /// Taken by the thread that runs it.
    work: Option<Work>,
}

struct Tail {
    serial: Serial,
    context: Handle,
    kind: StreamKind,
}

#[derive(Default)]
struct Queue {
    last: Serial,
    live: BTreeMap<Serial, Pending>,
    /// Operations that a device may start, by device.
    ready: BTreeMap<u32, BTreeSet<Serial>>,
    /// Latest operation by stream handle.
    tails: BTreeMap<Handle, Tail>,
    workers: Vec<u32>,
}

#[derive(Default)]
pub struct Scheduler {
    queue: Mutex<Queue>,
    submitted: Condvar,
    finished: Condvar,
}

impl Queue {
    /// What new work on `stream` has to wait for.
    fn before(&self, stream: &Stream, extra: &[Serial]) -> Vec<Serial> {
        let context = stream.context.handle;
        let mut after = extra.to_vec();
        after.extend(self.tails.get(&stream.handle).map(|tail| tail.serial));
        // The legacy stream and the blocking streams of a context wait for each
        // other; non-blocking streams take no part.
        let mates = self.tails.values().filter(|tail| tail.context == context);
        match stream.kind {
            StreamKind::Legacy => after.extend(
                mates
                    .filter(|tail| tail.kind != StreamKind::NonBlocking)
                    .map(|tail| tail.serial),
            ),
            StreamKind::Blocking => after.extend(
                mates
                    .filter(|tail| tail.kind == StreamKind::Legacy)
                    .map(|tail| tail.serial),
            ),
            StreamKind::NonBlocking => {}
        }
        after.retain(|serial| self.live.contains_key(serial));
        after.sort_unstable();
        after.dedup();
        after
    }

    /// Enters an operation that waits for `after`.
    fn enter(&mut self, context: Arc<ContextState>, after: &[Serial], work: Work) {
        self.last += 1;
        let serial = self.last;
        let mut blocked_by = 0;
        for earlier in after {
            // A graph's edge may point to a later step, which is not there yet.
            if let Some(pending) = self.live.get_mut(earlier) {
                pending.waiters.push(serial);
                blocked_by += 1;
            }
        }
        let pending = Pending {
            context,
            blocked_by,
            waiters: Vec::new(),
            work: Some(work),
        };
        self.live.insert(serial, pending);
    }

    /// Takes a finished operation away. Returns what is no longer held up.
    fn remove(&mut self, serial: Serial) -> Vec<Serial> {
        let Some(done) = self.live.remove(&serial) else {
            return Vec::new();
        };
        let mut freed = Vec::new();
        for waiter in done.waiters {
            if let Some(pending) = self.live.get_mut(&waiter) {
                pending.blocked_by -= 1;
                if pending.blocked_by == 0 {
                    freed.push(waiter);
                }
            }
        }
        freed
    }
}

impl Scheduler {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `steps` behind `stream`'s earlier work and behind `extra`.
    /// Returns the serial that stands for all of them.
    pub fn submit(
        &'static self,
        stream: &Stream,
        extra: &[Serial],
        mut steps: Vec<Step>,
    ) -> Serial {
        if steps.len() != 1 {
            let after = (0..steps.len()).collect();
            steps.push(Step {
                work: Work::Nothing,
                after,
            });
        }
        let mut queue = self.lock();
        let before = queue.before(stream, extra);
        let first = queue.last + 1;
        for step in steps {
            let after: Vec<Serial> = step.after.iter().map(|&i| first + i as u64).collect();
            let after = if after.is_empty() { &before } else { &after };
            queue.enter(Arc::clone(&stream.context), after, step.work);
        }
        let serial = queue.last;
        let tail = Tail {
            serial,
            context: stream.context.handle,
            kind: stream.kind,
        };
        queue.tails.insert(stream.handle, tail);
        self.start_worker(&mut queue, stream.context.device);
        let free = (first..=serial).filter(|new| queue.live[new].blocked_by == 0);
        let free = free.collect();
        self.release(&mut queue, free);
        drop(queue);
        self.submitted.notify_all();
        serial
    }

    /// Starts what nothing holds up any more, and what that sets free in turn.
    fn release(&'static self, queue: &mut Queue, mut free: Vec<Serial>) {
        while let Some(serial) = free.pop() {
            let Some(pending) = queue.live.get_mut(&serial) else {
                continue;
            };
            let context = Arc::clone(&pending.context);
            match &pending.work {
                Some(work) if work.takes_no_time() => {
                    run_caught(work, &context);
                    free.extend(queue.remove(serial));
                }
                Some(work) if work.is_host_function() => {
                    let work = pending.work.take();
                    if !work.is_some_and(|work| self.start_host(serial, work, context)) {
                        free.extend(queue.remove(serial));
                    }
                }
                _ => {
                    queue
                        .ready
                        .entry(context.device)
                        .or_default()
                        .insert(serial);
                }
            }
        }
    }

    fn start_worker(&'static self, queue: &mut Queue, device: u32) {
        if queue.workers.contains(&device) {
            return;
        }
        queue.workers.push(device);
        let name = format!("device {device}");
        let started = std::thread::Builder::new()
            .name(name)
            .spawn(move || self.work_for(device));
        if let Err(error) = started {
            super::guard::note(&format!("cannot start the device's thread: {error}"));
            queue.workers.retain(|&worker| worker != device);
        }
    }

    fn work_for(&'static self, device: u32) {
        let mut queue = self.lock();
        loop {
            let first = queue.ready.get_mut(&device).and_then(BTreeSet::pop_first);
            let Some(serial) = first else {
                queue = self
                    .submitted
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(pending) = queue.live.get_mut(&serial) else {
                continue;
            };
            let context = Arc::clone(&pending.context);
            let work = pending.work.take();
            drop(queue);
            if let Some(work) = work {
                run_caught(&work, &context);
            }
            queue = self.finish(serial);
        }
    }

    /// Runs client code on a thread of its own; false where there is none to be
    /// had, and the operation is given up.
    fn start_host(&'static self, serial: Serial, work: Work, context: Arc<ContextState>) -> bool {
        let started = std::thread::Builder::new()
            .name("host function".to_owned())
            .spawn(move || {
                run_caught(&work, &context);
                drop(self.finish(serial));
            });
        if let Err(error) = &started {
            super::guard::note(&format!("cannot start a host function: {error}"));
        }
        started.is_ok()
    }

    fn finish(&'static self, serial: Serial) -> MutexGuard<'static, Queue> {
        let mut queue = self.lock();
        let free = queue.remove(serial);
        self.release(&mut queue, free);
        self.finished.notify_all();
        // What waited for it may be ready on any device.
        self.submitted.notify_all();
        queue
    }

    pub fn is_done(&self, serial: Serial) -> bool {
        !self.lock().live.contains_key(&serial)
    }

    /// Waits until none of `serials` is left.
    pub fn wait(&self, serials: &[Serial]) {
        let mut queue = self.lock();
        while serials.iter().any(|serial| queue.live.contains_key(serial)) {
            queue = self
                .finished
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(queue);
        crate::machine::printf::flush();
    }

    /// Waits until nothing is left, or for as long as `patience` lasts.
    pub fn drain(&self, patience: Duration) {
        let queue = self.lock();
        let waited = self
            .finished
            .wait_timeout_while(queue, patience, |queue| !queue.live.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// What new work on `stream` would have to wait for.
    pub fn before(&self, stream: &Stream) -> Vec<Serial> {
        self.lock().before(stream, &[])
    }

    /// Everything of one context that is not finished.
    pub fn of_context(&self, context: Handle) -> Vec<Serial> {
        let queue = self.lock();
        let mine = queue
            .live
            .iter()
            .filter(|(_, p)| p.context.handle == context);
        mine.map(|(&serial, _)| serial).collect()
    }

    /// Drops a destroyed stream's tail once nothing of it is left, so that
    /// programs which make streams without end do not fill the table.
    pub fn forget_destroyed(&self, stream: &Stream) {
        let mut queue = self.lock();
        let tail = queue.tails.get(&stream.handle).map(|tail| tail.serial);
        if tail.is_some_and(|serial| !queue.live.contains_key(&serial)) {
            queue.tails.remove(&stream.handle);
        }
    }

    /// Forgets a context's streams; its work is finished.
    pub fn forget_context(&self, context: Handle) {
        self.lock().tails.retain(|_, tail| tail.context != context);
    }
}

fn run_caught(work: &Work, context: &ContextState) {
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.run(context)));
    if ran.is_err() {
        super::guard::note("an operation failed inside the driver; its context is lost");
        context.poison(super::code::Code::UNKNOWN);
    }
}
