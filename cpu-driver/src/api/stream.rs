//! Streams, the two default streams included.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::capture::{self, Membership};
use super::code::Code;
use super::context::{Context, ContextState, current, current_or_lost};
use super::driver::driver;
use super::ffi::{Out, Outcome};
use super::guard::entries;
use super::handles::{Handle, Registry, fresh};
use super::scheduler::{Serial, Step};
use super::work::{StreamCallback, Work};

/// Stream priorities: lower numbers go first on hardware. Here they are only
/// remembered, since one thread a device runs everything in order.
pub const LEAST_PRIORITY: i32 = 0;
pub const GREATEST_PRIORITY: i32 = -5;

/// `CU_STREAM_LEGACY`
const LEGACY: Handle = 1;
/// `CU_STREAM_PER_THREAD`
pub const PER_THREAD: Handle = 2;

/// How a stream relates to the legacy default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    Legacy,
    Blocking,
    NonBlocking,
}

pub struct Stream {
    pub handle: Handle,
    pub context: Arc<ContextState>,
    pub kind: StreamKind,
    pub priority: i32,
    pub capture: Mutex<Option<Membership>>,
}

pub static STREAMS: Registry<Stream> = Registry::new();

thread_local! {
    /// This thread's default stream in each context that it used one in.
    static OWN: RefCell<BTreeMap<Handle, Arc<Stream>>> = const { RefCell::new(BTreeMap::new()) };
}

impl Stream {
    fn new(context: Arc<ContextState>, kind: StreamKind, priority: i32) -> Arc<Stream> {
        Arc::new(Stream {
            handle: fresh(),
            context,
            kind,
            priority,
            capture: Mutex::new(None),
        })
    }

    pub fn legacy(context: Arc<ContextState>) -> Arc<Stream> {
        Stream::new(context, StreamKind::Legacy, LEAST_PRIORITY)
    }

    fn own(context: &Context) -> Arc<Stream> {
        OWN.with_borrow_mut(|own| {
            let stream = own.entry(context.state.handle).or_insert_with(|| {
                Stream::new(
                    Arc::clone(&context.state),
                    StreamKind::Blocking,
                    LEAST_PRIORITY,
                )
            });
            Arc::clone(stream)
        })
    }

    /// Queues `work`, or adds it to the graph that is being captured.
    pub fn enqueue(&self, work: Work) -> Outcome {
        self.enqueue_after(&[], work).map(drop)
    }

    /// As [`Stream::enqueue`], behind `extra` too. Returns the serial to wait
    /// for; `None` when captured.
    pub fn enqueue_after(&self, extra: &[Serial], work: Work) -> Result<Option<Serial>, Code> {
        self.context.check()?;
        let Some(work) = capture::intercept(self, work)? else {
            return Ok(None);
        };
        let step = Step {
            work,
            after: Vec::new(),
        };
        let scheduler = &driver()?.scheduler;
        Ok(Some(scheduler.submit(self, extra, vec![step])))
    }

    /// Waits for everything submitted so far.
    pub fn synchronize(&self) -> Outcome {
        capture::refuse_on_captured(self)?;
        let scheduler = &driver()?.scheduler;
        scheduler.wait(&scheduler.before(self));
        self.context.observe()
    }
}

/// A stream by handle: 0 and 1 are the legacy default stream, 2 is the
/// calling thread's.
///
/// # Errors
/// `INVALID_HANDLE`, and the context's sticky error.
pub fn resolve(handle: Handle) -> Result<Arc<Stream>, Code> {
    let stream = resolve_or_lost(handle)?;
    stream.context.check()?;
    Ok(stream)
}

fn resolve_or_lost(handle: Handle) -> Result<Arc<Stream>, Code> {
    driver()?;
    match handle {
        0 | LEGACY => Ok(Arc::clone(&current_or_lost()?.legacy)),
        PER_THREAD => Ok(Stream::own(&*current_or_lost()?)),
        _ => STREAMS.get(handle),
    }
}

/// The handle that the `_ptsz` and `_ptds` variants mean.
pub fn per_thread(handle: Handle) -> Handle {
    match handle {
        0 => PER_THREAD,
        _ => handle,
    }
}

fn create(out: Out<Handle>, flags: u32, priority: i32) -> Outcome {
    let context = current()?;
    let kind = match flags {
        0 => StreamKind::Blocking,
        1 => StreamKind::NonBlocking,
        _ => return Err(Code::INVALID_VALUE),
    };
    let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    let stream = Stream::new(Arc::clone(&context.state), kind, priority);
    out.set(stream.handle)?;
    STREAMS.insert(stream.handle, stream);
    Ok(())
}

fn destroy(handle: Handle) -> Outcome {
    let driver = driver()?;
    let stream = STREAMS.get(handle)?;
    stream.context.check()?;
    capture::refuse_on_captured(&stream)?;
    STREAMS.remove(handle)?;
    // Work in flight goes on; hardware releases the stream behind it.
    driver.scheduler.forget_destroyed(&stream);
    Ok(())
}

fn query(handle: Handle) -> Outcome {
    let stream = resolve(handle)?;
    capture::refuse_on_captured(&stream)?;
    match driver()?.scheduler.before(&stream).is_empty() {
        true => stream.context.observe(),
        false => Err(Code::NOT_READY),
    }
}

fn flags(handle: Handle, out: Out<u32>) -> Outcome {
    let stream = resolve(handle)?;
    out.set(u32::from(stream.kind == StreamKind::NonBlocking))
}

fn host_function(handle: Handle, function: u64, data: u64) -> Outcome {
    if function == 0 {
        return Err(Code::INVALID_VALUE);
    }
    resolve(handle)?.enqueue(Work::HostFunction { function, data })
}

fn add_callback(handle: Handle, function: u64, data: u64, flags: u32) -> Outcome {
    if function == 0 || flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let stream = resolve(handle)?;
    capture::refuse_on_captured(&stream)?;
    let callback = StreamCallback {
        function,
        stream: handle,
        data,
    };
    stream.enqueue(Work::Callback(callback))
}

fn context_of(handle: Handle, out: Out<Handle>) -> Outcome {
    out.set(resolve(handle)?.context.handle)
}

/// `CUstreamAttrValue` is 64 bytes; nothing in it changes what runs here.
fn get_attribute(handle: Handle, _attribute: u32, value: Out<[u64; 2]>) -> Outcome {
    resolve(handle)?;
    (0..4).try_for_each(|part| value.element(part).set([0; 2]))
}

fn write_value(handle: Handle, address: u64, bytes: &[u8]) -> Outcome {
    let value = bytes.to_vec();
    resolve(handle)?.enqueue(Work::WriteValue { address, value })
}

entries! {
    cuStreamCreate(out: Out<Handle>, flags: u32) => create(out, flags, LEAST_PRIORITY);
    cuStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32) =>
        create(out, flags, priority);
    cuStreamDestroy(stream: Handle) => destroy(stream);
    cuStreamDestroy_v2(stream: Handle) => destroy(stream);
    cuStreamSynchronize(stream: Handle) => resolve(stream)?.synchronize();
    cuStreamSynchronize_ptsz(stream: Handle) => resolve(per_thread(stream))?.synchronize();
    cuStreamQuery(stream: Handle) => query(stream);
    cuStreamQuery_ptsz(stream: Handle) => query(per_thread(stream));
    cuStreamGetFlags(stream: Handle, out: Out<u32>) => flags(stream, out);
    cuStreamGetFlags_ptsz(stream: Handle, out: Out<u32>) => flags(per_thread(stream), out);
    cuStreamGetPriority(stream: Handle, out: Out<i32>) => out.set(resolve(stream)?.priority);
    cuStreamGetPriority_ptsz(stream: Handle, out: Out<i32>) =>
        out.set(resolve(per_thread(stream))?.priority);
    cuStreamGetId(stream: Handle, out: Out<u64>) => out.set(resolve(stream)?.handle >> 4);
    cuStreamGetId_ptsz(stream: Handle, out: Out<u64>) =>
        out.set(resolve(per_thread(stream))?.handle >> 4);
    cuStreamGetCtx(stream: Handle, out: Out<Handle>) => context_of(stream, out);
    cuStreamGetCtx_ptsz(stream: Handle, out: Out<Handle>) => context_of(per_thread(stream), out);
    cuStreamGetDevice(stream: Handle, out: Out<i32>) =>
        out.set(resolve(stream)?.context.device as i32);
    cuStreamGetDevice_ptsz(stream: Handle, out: Out<i32>) =>
        out.set(resolve(per_thread(stream))?.context.device as i32);
    cuLaunchHostFunc(stream: Handle, function: u64, data: u64) =>
        host_function(stream, function, data);
    cuLaunchHostFunc_ptsz(stream: Handle, function: u64, data: u64) =>
        host_function(per_thread(stream), function, data);
    cuStreamAddCallback(stream: Handle, function: u64, data: u64, flags: u32) =>
        add_callback(stream, function, data, flags);
    cuStreamAddCallback_ptsz(stream: Handle, function: u64, data: u64, flags: u32) =>
        add_callback(per_thread(stream), function, data, flags);
    // All memory is visible to all streams, so attaching changes nothing.
    cuStreamAttachMemAsync(stream: Handle, address: u64, _length: usize, _flags: u32) =>
        resolve(stream)?.enqueue(Work::Nothing).and(super::memory::known(address).map(drop));
    cuStreamAttachMemAsync_ptsz(stream: Handle, address: u64, _length: usize, _flags: u32) =>
        resolve(per_thread(stream))?.enqueue(Work::Nothing)
            .and(super::memory::known(address).map(drop));
    cuStreamGetAttribute(stream: Handle, attribute: u32, value: Out<[u64; 2]>) =>
        get_attribute(stream, attribute, value);
    cuStreamGetAttribute_ptsz(stream: Handle, attribute: u32, value: Out<[u64; 2]>) =>
        get_attribute(per_thread(stream), attribute, value);
    cuStreamSetAttribute(stream: Handle, _attribute: u32, _value: u64) => resolve(stream).map(drop);
    cuStreamSetAttribute_ptsz(stream: Handle, _attribute: u32, _value: u64) =>
        resolve(per_thread(stream)).map(drop);
    cuStreamCopyAttributes(to: Handle, from: Handle) => resolve(to).and(resolve(from)).map(drop);
    cuStreamCopyAttributes_ptsz(to: Handle, from: Handle) =>
        resolve(per_thread(to)).and(resolve(per_thread(from))).map(drop);
    cuStreamWriteValue32_v2(stream: Handle, address: u64, value: u32, _flags: u32) =>
        write_value(stream, address, &value.to_le_bytes());
    cuStreamWriteValue32_v2_ptsz(stream: Handle, address: u64, value: u32, _flags: u32) =>
        write_value(per_thread(stream), address, &value.to_le_bytes());
    cuStreamWriteValue64_v2(stream: Handle, address: u64, value: u64, _flags: u32) =>
        write_value(stream, address, &value.to_le_bytes());
    cuStreamWriteValue64_v2_ptsz(stream: Handle, address: u64, value: u64, _flags: u32) =>
        write_value(per_thread(stream), address, &value.to_le_bytes());
}
