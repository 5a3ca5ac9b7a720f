//! Order between contexts: an event of one context as an event of another.
//!
//! SYCL lets a command depend on any event, but libsycl 9 corrupts its own graph when such dependencies between OpenCL
//! contexts form a chain (segmentation faults at random and at exit, in plain C++ too). A user event of the target's
//! context stands in instead. A thread of ours completes it once the source event is complete.
//!
//! The threads, one per source context, take requests in order. That cannot lock up: an event waits only for stand-ins
//! that were asked for before it was submitted. One that has had nothing to do for a while ends.

use super::insist::insist;
use super::{ContextKey, Event, Promise, Queue, record};
use crate::error::Result;
use crate::runtime::interrupt::shielded;
use crate::runtime::{Lock, exit};
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

struct Request {
    source: Event,
    /// Whose commands wait for it.
    target: Queue,
    promise: Promise,
}

/// How long a thread waits for the next request.
const IDLE: Duration = Duration::from_secs(1);

/// Requests are sent, and threads end, under the lock: none is left behind.
static THREADS: Lazy<Lock<HashMap<ContextKey, Sender<Request>>>> = Lazy::new(Lock::default);

/// An event of `queue`'s context that completes after `source`, an event of another context.
pub(super) fn stand_in(source: &Event, queue: &Queue) -> Result<Event> {
    let Some((promise, event)) = Promise::new(queue)? else {
        // Elsewhere the runtime's own way is the only one.
        return Ok(source.clone());
    };
    let request = Request { source: source.clone(), target: queue.clone(), promise };
    if let Err(request) = send(request)? {
        // No thread could be started, so this one waits, to the end: others wait for its answer.
        shielded(|| answer(request));
    }
    Ok(event)
}

fn send(request: Request) -> Result<Result<(), Request>> {
    let context = request.source.queue().context().key();
    let mut threads = THREADS.lock()?;
    let thread = threads.entry(context).or_insert_with(|| {
        let (sender, requests) = channel();
        // Without a thread the receiver is dropped, and sending fails.
        let _ = std::thread::Builder::new()
            .name("usmq-bridge".to_owned())
            .spawn(move || serve(context, &requests));
        sender
    });
    Ok(thread.send(request).map_err(|failed| {
        threads.remove(&context);
        failed.0
    }))
}

fn serve(context: ContextKey, requests: &Receiver<Request>) {
    exit::help_to_the_end();
    loop {
        match requests.recv_timeout(IDLE) {
            Ok(request) => answer(request),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Ok(mut threads) = THREADS.lock() else { return };
                let Ok(request) = requests.try_recv() else {
                    threads.remove(&context);
                    return;
                };
                drop(threads);
                answer(request);
            }
        }
    }
}

fn answer(Request { source, target, promise }: Request) {
    let own = record::begin();
    if let Err(error) = source.wait_quietly() {
        // What waits for the event runs all the same, so whoever waits for that is told.
        target.store_error(&error);
        insist(|| source.is_complete() || source.wait_quietly().is_ok());
    }
    drop(own);
    // Once the promise is gone, the runtime may go, too.
    drop((source, target));
    promise.keep();
}
