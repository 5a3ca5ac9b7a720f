//! Order between contexts: represents an event of one context in another.
//!
//! In SYCL a command may depend on any event, but libsycl 9 corrupts its graph when such dependencies between
//! OpenCL contexts form a chain (segmentation faults at random and at exit, in plain C++ too). A proxy event
//! replaces the source event: a user event of the target's context, which the signal thread signals when the
//! source is complete. Between contexts of Level Zero libsycl uses host tasks, whose cost grows with the length of a chain.

use super::event::Assistance;
use super::{Event, Queue, UserEvent};
use crate::completion::{Progress, Watched, watch};
use crate::error::Result;
use crate::runtime::{Patience, Pending};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

struct Proxy {
    source: Event,
    /// The queue whose commands wait for the proxy.
    target: Queue,
    event: UserEvent,
    /// Keeps the runtime alive until the proxy is signalled.
    pending: Pending,
}

/// The proxies of each queue's events, in the order of submission, by the queue's id. A proxy keeps the queue
/// alive.
static PROXIES: Lazy<Mutex<HashMap<usize, VecDeque<Proxy>>>> = Lazy::new(Mutex::default);

/// An event of `queue`'s context that completes after `source`, an event of another context.
pub(super) fn proxy_event(source: &Event, queue: &Queue) -> Result<Event> {
    // The runtime orders the commands where the backend has no user events.
    let Some((user_event, event)) = UserEvent::new(queue)? else { return Ok(source.clone()) };
    source.wait_while_held_back_for(queue)?;
    source.queue().flush();
    queue.waits_for_proxies().fetch_add(1, Ordering::AcqRel);
    let proxy =
        Proxy { source: source.clone(), target: queue.clone(), event: user_event, pending: Pending::new() };
    let mut proxies = PROXIES.lock();
    let waiting = proxies.entry(source.queue().id()).or_default();
    waiting.push_back(proxy);
    let first = waiting.len() == 1;
    drop(proxies);
    if first {
        let queue = source.queue().clone();
        watch(Box::new(ProxySignaller {
            queue,
            assistance: Assistance::new(),
            patience: Patience::default(),
        }));
    }
    Ok(event)
}

/// Signals the proxies of one queue's events. Exists while the queue has proxies.
struct ProxySignaller {
    queue: Queue,
    /// Of the oldest source.
    assistance: Assistance,
    /// Bounds the retries of failed queries for the state of a source. Without it commands could wait forever.
    patience: Patience,
}

impl Watched for ProxySignaller {
    fn poll(&mut self) -> Progress {
        let mut progress = Progress::None;
        let mut at = 0;
        loop {
            let source = {
                let proxies = PROXIES.lock();
                proxies
                    .get(&self.queue.id())
                    .and_then(|waiting| waiting.get(at))
                    .map(|proxy| proxy.source.clone())
            };
            let Some(source) = source else { break };
            let error = match source.result() {
                // Events of an in-order queue complete in order.
                Ok(None) if self.queue.in_order() => {
                    self.patience.renew();
                    self.assistance.offer(&source);
                    break;
                }
                Ok(None) => {
                    at += 1;
                    continue;
                }
                Ok(Some(())) => None,
                Err(_) if !self.patience.is_over() => break,
                Err(error) => Some(error),
            };
            progress = Progress::Some;
            if self.signal(at, error) {
                return Progress::Complete;
            }
            self.assistance = Assistance::new();
            self.patience.renew();
        }
        progress
    }

    fn needed_at_exit(&self) -> bool {
        true
    }
}

impl ProxySignaller {
    /// Signals a proxy. True if it was the last one, and the queue no longer has a signaller.
    fn signal(&self, at: usize, error: Option<crate::error::Error>) -> bool {
        let mut proxies = PROXIES.lock();
        let proxy = proxies.get_mut(&self.queue.id()).and_then(|waiting| waiting.remove(at));
        let last = proxies.get(&self.queue.id()).is_none_or(VecDeque::is_empty);
        if last {
            proxies.remove(&self.queue.id());
        }
        drop(proxies);
        let Some(Proxy { source, target, event, pending }) = proxy else { return last };
        if let Some(error) = error {
            // Commands that wait for the proxy run anyway, so a wait for them reports the error.
            target.store_error(&error);
        }
        event.signal();
        target.waits_for_proxies().fetch_sub(1, Ordering::AcqRel);
        // Drops runtime handles on the release thread, and before the runtime may be torn down.
        crate::completion::release(move || drop((source, target)));
        drop(pending);
        last
    }
}
