//! What an asynchronous operation does when its turn comes.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use super::code::{Code, SUCCESS};
use super::context::ContextState;
use super::driver::driver;
use super::event::{Event, Stamp};
use super::ffi::Outcome;
use super::handles::Handle;
use super::launch::Launch;
use super::transfer::{Fill, Transfer};

/// `cuStreamAddCallback`: told the stream and its status.
#[derive(Debug, Clone)]
pub struct StreamCallback {
    pub function: u64,
    pub stream: Handle,
    pub data: u64,
}

#[derive(Clone)]
pub enum Work {
    /// Only its dependencies matter.
    Nothing,
    Launch(Arc<Launch>),
    Transfer(Transfer),
    Fill(Fill),
    HostFunction {
        function: u64,
        data: u64,
    },
    Callback(StreamCallback),
    Stamp(Stamp),
    /// An event-record node of a graph.
    RecordEvent(Arc<Event>),
    Free(u64),
    WriteValue {
        address: u64,
        value: Vec<u8>,
    },
}

impl Work {
    /// Needs no turn on the device: it is over as soon as what it waits for is.
    pub fn takes_no_time(&self) -> bool {
        matches!(self, Work::Nothing | Work::Stamp(_))
    }

    /// Runs on a thread of its own, since the client's code may take its time.
    pub fn is_host_function(&self) -> bool {
        matches!(self, Work::HostFunction { .. } | Work::Callback(_))
    }

    /// Does it. A failure loses the context; a lost context does nothing more,
    /// except that callbacks are told.
    pub fn run(&self, context: &ContextState) {
        if let Work::Callback(callback) = self {
            call_back(callback, context.fault().map_or(SUCCESS, |code| code.0));
            return;
        }
        if context.fault().is_some() {
            return;
        }
        if let Err(code) = self.attempt(context) {
            context.poison(code);
        }
    }

    fn attempt(&self, context: &ContextState) -> Outcome {
        let memory = &driver()?.memory;
        match self {
            Work::Nothing | Work::Callback(_) => Ok(()),
            Work::Launch(launch) => launch.run(memory, context),
            Work::Transfer(transfer) => transfer.run(memory),
            Work::Fill(fill) => fill.run(memory),
            Work::HostFunction { function, data } => {
                call_host(*function, *data);
                Ok(())
            }
            Work::Stamp(stamp) => {
                let _ = stamp.set(Instant::now());
                Ok(())
            }
            Work::RecordEvent(event) => {
                event.stamp_now();
                Ok(())
            }
            Work::Free(address) => super::pool::finish_free(memory, *address),
            Work::WriteValue { address, value } => memory
                .write(*address, value)
                .map_err(|_| Code::ILLEGAL_ADDRESS),
        }
    }
}

fn call_host(function: u64, data: u64) {
    // SAFETY: the client gave this as a `CUhostFn` and says that it may be
    // called with `data`; null was refused at submission.
    let function: extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(function) };
    function(data as *mut c_void);
}

fn call_back(callback: &StreamCallback, status: i32) {
    // SAFETY: the client gave this as a `CUstreamCallback`; null was refused.
    let function: extern "C" fn(Handle, i32, *mut c_void) =
        unsafe { std::mem::transmute(callback.function) };
    function(callback.stream, status, callback.data as *mut c_void);
}
