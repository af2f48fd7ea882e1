//! The order of asynchronous work.
//!
//! Every operation gets a serial number and the serials it waits for: the tail
//! of its stream, the tails that the legacy default stream's rules add, events,
//! and the edges of a graph. One worker thread a device takes the first ready
//! operation in order of submission, so the device's results depend on the
//! order of calls alone. A host function runs on a thread of its own and holds
//! up only what waits for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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
    after: Vec<Serial>,
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

    /// The first operation of `device` that nothing holds up.
    fn ready(&self, device: u32) -> Option<Serial> {
        let ready = self.live.iter().find(|(_, pending)| {
            pending.work.is_some()
                && pending.context.device == device
                && !pending
                    .after
                    .iter()
                    .any(|serial| self.live.contains_key(serial))
        });
        ready.map(|(&serial, _)| serial)
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
            queue.last += 1;
            let serial = queue.last;
            let mut after: Vec<Serial> = step.after.iter().map(|&i| first + i as u64).collect();
            if after.is_empty() {
                after.clone_from(&before);
            }
            let pending = Pending {
                context: Arc::clone(&stream.context),
                after,
                work: Some(step.work),
            };
            queue.live.insert(serial, pending);
        }
        let serial = queue.last;
        let tail = Tail {
            serial,
            context: stream.context.handle,
            kind: stream.kind,
        };
        queue.tails.insert(stream.handle, tail);
        self.start_worker(&mut queue, stream.context.device);
        drop(queue);
        self.submitted.notify_all();
        serial
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
            let Some(serial) = queue.ready(device) else {
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
                self.carry_out(serial, work, context);
            }
            queue = self.lock();
        }
    }

    fn carry_out(&'static self, serial: Serial, work: Work, context: Arc<ContextState>) {
        if !work.is_host_function() {
            run_caught(&work, &context);
            self.finish(serial);
            return;
        }
        let started = std::thread::Builder::new()
            .name("host function".to_owned())
            .spawn(move || {
                run_caught(&work, &context);
                self.finish(serial);
            });
        if let Err(error) = started {
            super::guard::note(&format!("cannot start a host function: {error}"));
            self.finish(serial);
        }
    }

    fn finish(&self, serial: Serial) {
        self.lock().live.remove(&serial);
        self.finished.notify_all();
        // What waited for it may be ready on any device.
        self.submitted.notify_all();
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
