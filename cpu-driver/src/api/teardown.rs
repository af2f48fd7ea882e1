//! What a context owned is given back when it ends.

use super::driver::Driver;
use super::event::EVENTS;
use super::handles::Handle;
use super::stream::STREAMS;
use crate::check::session::Session;

/// Frees memory and forgets streams, events and modules of `context`, whose work
/// has ended.
pub fn release_owned(driver: &Driver, context: Handle) {
    for stream in STREAMS.all() {
        if stream.context.handle == context {
            let _ = STREAMS.remove(stream.handle);
        }
    }
    for event in EVENTS.all() {
        if event.context.handle == context {
            let _ = EVENTS.remove(event.handle);
        }
    }
    super::module::forget_context(context);
    if let Some(session) = Session::global() {
        session.context_destroyed(&driver.memory.live(Some(context)));
    }
    for allocation in driver.memory.free_context(context) {
        super::pool::forget(allocation.base);
    }
}
