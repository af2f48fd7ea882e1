//! Events: recorded on streams, waited for, and timed.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::capture::{self, Capture};
use super::code::Code;
use super::context::{ContextState, current};
use super::driver::driver;
use super::ffi::{Out, Outcome};
use super::guard::entries;
use super::handles::{Handle, Registry, fresh};
use super::scheduler::Serial;
use super::stream::{per_thread, resolve};
use super::work::Work;

const DISABLE_TIMING: u32 = 2;
const ALL_FLAGS: u32 = 1 | DISABLE_TIMING | 4;

/// When the operation that records an event was reached.
pub type Stamp = Arc<OnceLock<Instant>>;

#[derive(Clone)]
enum Recorded {
    Never,
    On {
        serial: Serial,
        stamp: Stamp,
    },
    Captured {
        capture: Arc<Capture>,
        nodes: Vec<Handle>,
    },
}

pub struct Event {
    pub handle: Handle,
    pub context: Arc<ContextState>,
    timed: bool,
    recorded: Mutex<Recorded>,
}

pub static EVENTS: Registry<Event> = Registry::new();

impl Event {
    fn state(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_recorded(&self) -> bool {
        matches!(*self.state(), Recorded::On { .. })
    }

    /// What the record was; `CAPTURED_EVENT` inside a capture.
    fn outside_capture(&self) -> Result<Option<(Serial, Stamp)>, Code> {
        match self.state().clone() {
            Recorded::Never => Ok(None),
            Recorded::On { serial, stamp } => Ok(Some((serial, stamp))),
            Recorded::Captured { .. } => Err(Code::CAPTURED_EVENT),
        }
    }

    /// Marks the event as recorded by a graph node that runs now.
    pub fn stamp_now(&self) {
        let stamp = Stamp::default();
        let _ = stamp.set(Instant::now());
        *self.state() = Recorded::On { serial: 0, stamp };
    }
}

fn find(handle: Handle) -> Result<Arc<Event>, Code> {
    driver()?;
    let event = EVENTS.get(handle)?;
    event.context.check()?;
    Ok(event)
}

fn create(out: Out<Handle>, flags: u32) -> Outcome {
    let context = current()?;
    // Sharing between processes needs an event without timing.
    if flags & !ALL_FLAGS != 0 || (flags & 4 != 0 && flags & DISABLE_TIMING == 0) {
        return Err(Code::INVALID_VALUE);
    }
    let event = Arc::new(Event {
        handle: fresh(),
        context: Arc::clone(&context.state),
        timed: flags & DISABLE_TIMING == 0,
        recorded: Mutex::new(Recorded::Never),
    });
    out.set(event.handle)?;
    EVENTS.insert(event.handle, event);
    Ok(())
}

fn destroy(handle: Handle) -> Outcome {
    find(handle)?;
    EVENTS.remove(handle).map(drop)
}

fn record(handle: Handle, stream: Handle) -> Outcome {
    let event = find(handle)?;
    let stream = resolve(stream)?;
    if event.context.handle != stream.context.handle {
        return Err(Code::INVALID_HANDLE);
    }
    if let Some((capture, nodes)) = capture::mark(&stream) {
        *event.state() = Recorded::Captured { capture, nodes };
        return Ok(());
    }
    let stamp = Stamp::default();
    let mut state = event.state();
    let serial = stream.enqueue_after(&[], Work::Stamp(Arc::clone(&stamp)))?;
    if let Some(serial) = serial {
        *state = Recorded::On { serial, stamp };
    }
    Ok(())
}

fn stream_wait(stream: Handle, handle: Handle, flags: u32) -> Outcome {
    if flags & !1 != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let event = find(handle)?;
    let stream = resolve(stream)?;
    let recorded = event.state().clone();
    match recorded {
        Recorded::Never => Ok(()),
        Recorded::Captured { capture, nodes } => capture::join(&stream, &capture, &nodes),
        Recorded::On { serial, .. } => {
            capture::refuse_foreign(&stream, &event)?;
            stream.enqueue_after(&[serial], Work::Nothing).map(drop)
        }
    }
}

fn query(handle: Handle) -> Outcome {
    let event = find(handle)?;
    match event.outside_capture()? {
        Some((serial, _)) if !driver()?.scheduler.is_done(serial) => Err(Code::NOT_READY),
        _ => event.context.observe(),
    }
}

fn synchronize(handle: Handle) -> Outcome {
    let event = find(handle)?;
    if let Some((serial, _)) = event.outside_capture()? {
        driver()?.scheduler.wait(&[serial]);
    }
    event.context.observe()
}

fn elapsed(out: Out<f32>, start: Handle, end: Handle) -> Outcome {
    let (start, end) = (find(start)?, find(end)?);
    if !start.timed || !end.timed {
        return Err(Code::INVALID_HANDLE);
    }
    let (Some((_, start)), Some((_, end))) = (start.outside_capture()?, end.outside_capture()?)
    else {
        return Err(Code::INVALID_HANDLE);
    };
    let (Some(start), Some(end)) = (start.get(), end.get()) else {
        return Err(Code::NOT_READY);
    };
    let forward = end.saturating_duration_since(*start).as_secs_f64();
    let backward = start.saturating_duration_since(*end).as_secs_f64();
    out.set(((forward - backward) * 1e3) as f32)
}

entries! {
    cuEventCreate(out: Out<Handle>, flags: u32) => create(out, flags);
    cuEventDestroy(event: Handle) => destroy(event);
    cuEventDestroy_v2(event: Handle) => destroy(event);
    cuEventRecord(event: Handle, stream: Handle) => record(event, stream);
    cuEventRecord_ptsz(event: Handle, stream: Handle) => record(event, per_thread(stream));
    cuEventRecordWithFlags(event: Handle, stream: Handle, _flags: u32) => record(event, stream);
    cuEventRecordWithFlags_ptsz(event: Handle, stream: Handle, _flags: u32) =>
        record(event, per_thread(stream));
    cuEventQuery(event: Handle) => query(event);
    cuEventSynchronize(event: Handle) => synchronize(event);
    cuEventElapsedTime(out: Out<f32>, start: Handle, end: Handle) => elapsed(out, start, end);
    cuEventElapsedTime_v2(out: Out<f32>, start: Handle, end: Handle) => elapsed(out, start, end);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) =>
        stream_wait(stream, event, flags);
    cuStreamWaitEvent_ptsz(stream: Handle, event: Handle, flags: u32) =>
        stream_wait(per_thread(stream), event, flags);
}
