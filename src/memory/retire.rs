//! Keep-alives of foreign memory whose last use is still in flight.

use crate::device::Event;
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What keeps foreign memory alive. Dropped on any thread, once the last of our uses is complete.
pub(crate) type Foreign = Box<dyn Any + Send + Sync>;

type Pending = SmallVec<[Event; 4]>;

static WAITING: Lazy<Mutex<VecDeque<(Foreign, Pending)>>> = Lazy::new(Mutex::default);

/// Entries waiting, so that none costs no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many waiting entries one call looks at, so that no call pays for all of them.
const AT_ONCE: usize = 4;

/// Drops `keep` once `pending` is complete: at once if it is, else in a later [`reap`].
pub(crate) fn keep_until(keep: Foreign, pending: Pending) {
    if pending.is_empty() {
        drop(keep);
    } else {
        put(keep, pending);
    }
}

fn put(keep: Foreign, pending: Pending) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    WAITING.lock().push_back((keep, pending));
}

/// Drops the oldest keep-alives whose events are complete. Neither the question to the runtime nor the drop, which
/// may run another library's code, happens under the lock.
pub(super) fn reap() {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    for _ in 0..AT_ONCE {
        let Some((keep, mut pending)) = WAITING.lock().pop_front() else { return };
        COUNT.fetch_sub(1, Ordering::Relaxed);
        pending.retain(|event| !event.is_complete());
        if !pending.is_empty() {
            put(keep, pending);
        }
    }
}
