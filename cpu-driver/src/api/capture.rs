//! Stream capture: what is submitted to a capturing stream becomes a node of a
//! graph instead of running.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use super::code::Code;
use super::event::Event;
use super::ffi::{In, Out, Outcome};
use super::graph::{GRAPHS, Graph};
use super::guard::entries;
use super::handles::{Handle, fresh};
use super::stream::{STREAMS, Stream, StreamKind, per_thread, resolve};
use super::work::Work;

/// `CUstreamCaptureMode`: which threads must not make calls that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

/// One capture sequence, shared by the streams that joined it.
pub struct Capture {
    pub id: u64,
    pub graph: Arc<Graph>,
    /// The stream it began in, and has to end in.
    origin: Handle,
    context: Handle,
    mode: Mode,
    thread: ThreadId,
    broken: AtomicBool,
    /// Lists that were handed out.
    told: Mutex<Vec<Box<[Handle]>>>,
}

/// A stream's part in a capture: the nodes that its next node depends on.
pub struct Membership {
    pub capture: Arc<Capture>,
    pub tail: Vec<Handle>,
}

impl Capture {
    /// The address of a copy of `nodes` that lives as long as the capture.
    fn keep(&self, nodes: &[Handle]) -> u64 {
        let copy: Box<[Handle]> = nodes.into();
        let address = copy.as_ptr() as u64;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.push(copy);
        address
    }

    /// True where this thread must not make calls that may wait.
    fn forbids_waiting(&self) -> bool {
        match self.mode {
            Mode::Global => true,
            Mode::ThreadLocal => self.thread == std::thread::current().id(),
            Mode::Relaxed => false,
        }
    }
}

/// Captures under way, for calls that must not happen meanwhile.
static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());

fn active() -> MutexGuard<'static, Vec<Arc<Capture>>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn membership(stream: &Stream) -> MutexGuard<'_, Option<Membership>> {
    stream
        .capture
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Gives `work` back where `stream` is not capturing; otherwise makes it a node.
///
/// # Errors
/// `STREAM_CAPTURE_INVALIDATED`; `STREAM_CAPTURE_IMPLICIT` for work on the legacy
/// stream while a blocking stream of its context is capturing.
pub fn intercept(stream: &Stream, work: Work) -> Result<Option<Work>, Code> {
    let mut membership = membership(stream);
    let Some(member) = membership.as_mut() else {
        drop(membership);
        refuse_implicit(stream)?;
        return Ok(Some(work));
    };
    if member.capture.broken.load(Ordering::Relaxed) {
        return Err(Code::STREAM_CAPTURE_INVALIDATED);
    }
    // A dependency on nothing new needs no node.
    if matches!(work, Work::Nothing) {
        return Ok(None);
    }
    let after = std::mem::take(&mut member.tail);
    let node = member.capture.graph.add(work, after);
    member.tail = vec![node];
    Ok(None)
}

fn refuse_implicit(stream: &Stream) -> Outcome {
    if stream.kind != StreamKind::Legacy {
        return Ok(());
    }
    let mut found = Ok(());
    for capture in active().iter() {
        let origin = STREAMS.get(capture.origin);
        let blocking = origin.is_ok_and(|origin| origin.kind == StreamKind::Blocking);
        if capture.context == stream.context.handle && blocking && capture.forbids_waiting() {
            capture.broken.store(true, Ordering::Relaxed);
            found = Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
    }
    found
}

/// Waiting for a stream that only records work can never end.
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED`; the capture is spoilt, as on hardware.
pub fn refuse_on_captured(stream: &Stream) -> Outcome {
    match membership(stream).as_ref() {
        None => Ok(()),
        Some(member) => {
            member.capture.broken.store(true, Ordering::Relaxed);
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED` while a stream of the context captures in a mode
/// that binds this thread.
pub fn refuse_while_capturing(context: Handle) -> Outcome {
    match active()
        .iter()
        .find(|c| c.context == context && c.forbids_waiting())
    {
        None => Ok(()),
        Some(capture) => {
            capture.broken.store(true, Ordering::Relaxed);
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// The nodes that an event recorded now on `stream` stands for.
pub fn mark(stream: &Stream) -> Option<(Arc<Capture>, Vec<Handle>)> {
    let membership = membership(stream);
    let member = membership.as_ref()?;
    Some((Arc::clone(&member.capture), member.tail.clone()))
}

/// `stream` waits for an event of a capture, and joins it.
///
/// # Errors
/// `STREAM_CAPTURE_MERGE` where it belongs to another capture.
pub fn join(stream: &Stream, capture: &Arc<Capture>, nodes: &[Handle]) -> Outcome {
    let mut membership = membership(stream);
    match membership.as_mut() {
        None => {
            *membership = Some(Membership {
                capture: Arc::clone(capture),
                tail: nodes.to_vec(),
            });
        }
        Some(member) if member.capture.id == capture.id => {
            for node in nodes {
                if !member.tail.contains(node) {
                    member.tail.push(*node);
                }
            }
        }
        Some(_) => return Err(Code::STREAM_CAPTURE_MERGE),
    }
    Ok(())
}

/// A wait, inside a capture, for an event from outside it.
///
/// # Errors
/// `STREAM_CAPTURE_ISOLATION` where the stream is capturing.
pub fn refuse_foreign(stream: &Stream, event: &Event) -> Outcome {
    match membership(stream).as_ref() {
        Some(member) if event.is_recorded() => {
            member.capture.broken.store(true, Ordering::Relaxed);
            Err(Code::STREAM_CAPTURE_ISOLATION)
        }
        _ => Ok(()),
    }
}

fn begin(handle: Handle, mode: u32, graph: Arc<Graph>, tail: Vec<Handle>) -> Outcome {
    let stream = resolve(handle)?;
    let mode = match mode {
        0 => Mode::Global,
        1 => Mode::ThreadLocal,
        2 => Mode::Relaxed,
        _ => return Err(Code::INVALID_VALUE),
    };
    if stream.kind == StreamKind::Legacy {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut membership = membership(&stream);
    if membership.is_some() {
        return Err(Code::ILLEGAL_STATE);
    }
    let capture = Arc::new(Capture {
        id: fresh() >> 4,
        graph,
        origin: stream.handle,
        context: stream.context.handle,
        mode,
        thread: std::thread::current().id(),
        broken: AtomicBool::new(false),
        told: Mutex::default(),
    });
    active().push(Arc::clone(&capture));
    *membership = Some(Membership { capture, tail });
    Ok(())
}

fn begin_to_graph(
    handle: Handle,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    mode: u32,
) -> Outcome {
    let graph = GRAPHS.get(graph)?;
    let tail = match dependencies.is_null() {
        true => Vec::new(),
        false => dependencies.all(count)?,
    };
    begin(handle, mode, graph, tail)
}

fn end(handle: Handle, out: Out<Handle>) -> Outcome {
    let stream = resolve(handle)?;
    let member = {
        let mut membership = membership(&stream);
        match membership.as_ref() {
            None => return Err(Code::ILLEGAL_STATE),
            Some(member) if member.capture.origin != stream.handle => {
                return Err(Code::STREAM_CAPTURE_UNMATCHED);
            }
            Some(_) => membership.take(),
        }
    };
    let Some(member) = member else {
        return Err(Code::ILLEGAL_STATE);
    };
    let unjoined = leave(&member);
    active().retain(|capture| capture.id != member.capture.id);
    if member.capture.broken.load(Ordering::Relaxed) {
        out.set(0)?;
        return Err(Code::STREAM_CAPTURE_INVALIDATED);
    }
    if unjoined {
        out.set(0)?;
        return Err(Code::STREAM_CAPTURE_UNJOINED);
    }
    let graph = &member.capture.graph;
    GRAPHS.insert(graph.handle, Arc::clone(graph));
    out.set(graph.handle)
}

/// Takes the other streams out of the capture; true where one of them holds
/// work that the origin never waited for.
fn leave(origin: &Membership) -> bool {
    let mut unjoined = false;
    for stream in STREAMS.all() {
        let mut other = membership(&stream);
        let Some(member) = other.as_ref() else {
            continue;
        };
        if member.capture.id == origin.capture.id {
            unjoined |= !origin.capture.graph.reaches(&origin.tail, &member.tail);
            *other = None;
        }
    }
    unjoined
}

fn status(member: Option<&Membership>) -> u32 {
    match member {
        None => 0,
        Some(member) if member.capture.broken.load(Ordering::Relaxed) => 2,
        Some(_) => 1,
    }
}

fn is_capturing(handle: Handle, out: Out<u32>) -> Outcome {
    let stream = resolve(handle)?;
    let status = status(membership(&stream).as_ref());
    out.set(status)
}

fn info(handle: Handle, out: Out<u32>, id: Out<u64>, graph: Out<Handle>) -> Outcome {
    let stream = resolve(handle)?;
    let membership = membership(&stream);
    out.set(status(membership.as_ref()))?;
    if let Some(member) = membership.as_ref() {
        id.set_if_wanted(member.capture.id)?;
        let captured = &member.capture.graph;
        GRAPHS.insert(captured.handle, Arc::clone(captured));
        graph.set_if_wanted(captured.handle)?;
    }
    Ok(())
}

/// The nodes that a stream's next node depends on, in memory that stays while
/// the stream captures.
fn info_with_nodes(
    handle: Handle,
    [status, id, graph]: [u64; 3],
    dependencies: Out<u64>,
    edges: Out<u64>,
    count: Out<usize>,
) -> Outcome {
    info(
        handle,
        Out(status as *mut u32),
        Out(id as *mut u64),
        Out(graph as *mut Handle),
    )?;
    edges.set_if_wanted(0)?;
    let stream = resolve(handle)?;
    let membership = membership(&stream);
    let Some(member) = membership.as_ref() else {
        dependencies.set_if_wanted(0)?;
        return count.set_if_wanted(0);
    };
    let nodes = member.capture.keep(&member.tail);
    dependencies.set_if_wanted(nodes)?;
    count.set_if_wanted(member.tail.len())
}

/// `CU_STREAM_ADD_CAPTURE_DEPENDENCIES` (0) or `_SET_` (1).
fn update(handle: Handle, nodes: In<Handle>, count: usize, flags: u32) -> Outcome {
    let stream = resolve(handle)?;
    let nodes = nodes.all(count)?;
    let mut membership = membership(&stream);
    let member = membership.as_mut().ok_or(Code::ILLEGAL_STATE)?;
    if !member.capture.graph.holds(&nodes) {
        return Err(Code::INVALID_VALUE);
    }
    match flags {
        0 => member.tail.extend(nodes),
        1 => member.tail = nodes,
        _ => return Err(Code::INVALID_VALUE),
    }
    member.tail.sort_unstable();
    member.tail.dedup();
    Ok(())
}

fn exchange_mode(mode: Out<u32>) -> Outcome {
    thread_local! {
        static MODE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    let wanted = mode.get()?;
    if wanted > 2 {
        return Err(Code::INVALID_VALUE);
    }
    mode.set(MODE.replace(wanted))
}

const NO_LIST: Out<u64> = Out(std::ptr::null_mut());

entries! {
    cuStreamBeginCapture(stream: Handle) => begin(stream, 0, Graph::new(), Vec::new());
    cuStreamBeginCapture_ptsz(stream: Handle) =>
        begin(per_thread(stream), 0, Graph::new(), Vec::new());
    cuStreamBeginCapture_v2(stream: Handle, mode: u32) =>
        begin(stream, mode, Graph::new(), Vec::new());
    cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: u32) =>
        begin(per_thread(stream), mode, Graph::new(), Vec::new());
    cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, dependencies: In<Handle>, _edges: u64,
        count: usize, mode: u32,
    ) => begin_to_graph(stream, graph, dependencies, count, mode);
    cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, dependencies: In<Handle>, _edges: u64,
        count: usize, mode: u32,
    ) => begin_to_graph(per_thread(stream), graph, dependencies, count, mode);
    cuStreamEndCapture(stream: Handle, out: Out<Handle>) => end(stream, out);
    cuStreamEndCapture_ptsz(stream: Handle, out: Out<Handle>) => end(per_thread(stream), out);
    cuStreamIsCapturing(stream: Handle, out: Out<u32>) => is_capturing(stream, out);
    cuStreamIsCapturing_ptsz(stream: Handle, out: Out<u32>) =>
        is_capturing(per_thread(stream), out);
    cuStreamGetCaptureInfo(stream: Handle, status: Out<u32>, id: Out<u64>) =>
        info(stream, status, id, Out(std::ptr::null_mut()));
    cuStreamGetCaptureInfo_ptsz(stream: Handle, status: Out<u32>, id: Out<u64>) =>
        info(per_thread(stream), status, id, Out(std::ptr::null_mut()));
    cuStreamGetCaptureInfo_v2(
        stream: Handle, status: u64, id: u64, graph: u64, nodes: Out<u64>, count: Out<usize>,
    ) => info_with_nodes(stream, [status, id, graph], nodes, NO_LIST, count);
    cuStreamGetCaptureInfo_v2_ptsz(
        stream: Handle, status: u64, id: u64, graph: u64, nodes: Out<u64>, count: Out<usize>,
    ) => info_with_nodes(per_thread(stream), [status, id, graph], nodes, NO_LIST, count);
    cuStreamGetCaptureInfo_v3(
        stream: Handle, status: u64, id: u64, graph: u64, nodes: Out<u64>, edges: Out<u64>,
        count: Out<usize>,
    ) => info_with_nodes(stream, [status, id, graph], nodes, edges, count);
    cuStreamGetCaptureInfo_v3_ptsz(
        stream: Handle, status: u64, id: u64, graph: u64, nodes: Out<u64>, edges: Out<u64>,
        count: Out<usize>,
    ) => info_with_nodes(per_thread(stream), [status, id, graph], nodes, edges, count);
    cuStreamUpdateCaptureDependencies(
        stream: Handle, nodes: In<Handle>, count: usize, flags: u32,
    ) => update(stream, nodes, count, flags);
    cuStreamUpdateCaptureDependencies_ptsz(
        stream: Handle, nodes: In<Handle>, count: usize, flags: u32,
    ) => update(per_thread(stream), nodes, count, flags);
    cuStreamUpdateCaptureDependencies_v2(
        stream: Handle, nodes: In<Handle>, _edges: u64, count: usize, flags: u32,
    ) => update(stream, nodes, count, flags);
    cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: Handle, nodes: In<Handle>, _edges: u64, count: usize, flags: u32,
    ) => update(per_thread(stream), nodes, count, flags);
    cuThreadExchangeStreamCaptureMode(mode: Out<u32>) => exchange_mode(mode);
}
