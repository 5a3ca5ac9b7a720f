//! Keep-alives of foreign memory whose last use is still in flight.

use crate::device::Event;
use crate::runtime::Lock;
use once_cell::sync::Lazy;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What keeps foreign memory alive. Dropped on any thread, once the last of our uses is complete.
pub(crate) type Foreign = Box<dyn Any + Send + Sync>;

type Pending = SmallVec<[Event; 4]>;

static WAITING: Lazy<Waiting> = Lazy::new(Waiting::default);

/// How many waiting entries one call looks at, so that no call pays for all of them.
const AT_ONCE: usize = 4;

/// The count is there so that none costs no lock.
#[derive(Default)]
struct Waiting {
    entries: Lock<VecDeque<(Foreign, Pending)>>,
    count: AtomicUsize,
}

impl Waiting {
    fn put(&self, keep: Foreign, pending: Pending) {
        match self.entries.lock() {
            Ok(mut entries) => {
                self.count.fetch_add(1, Ordering::Relaxed);
                entries.push_back((keep, pending));
            }
            // In a forked child nothing tells any more when it may go.
            Err(_) => std::mem::forget(keep),
        }
    }

    fn reap(&self) {
        if self.count.load(Ordering::Relaxed) == 0 || UNDISTURBED.try_with(Cell::get).unwrap_or(true) {
            return;
        }
        for _ in 0..AT_ONCE {
            let entry = self.entries.lock().ok().and_then(|mut entries| entries.pop_front());
            let Some((keep, mut pending)) = entry else { return };
            self.count.fetch_sub(1, Ordering::Relaxed);
            pending.retain(|event| !event.is_complete());
            if !pending.is_empty() {
                self.put(keep, pending);
            }
        }
    }
}

/// Drops `keep` once `pending` is complete: at once if it is, else in a later [`reap`].
pub(crate) fn keep_until(keep: Foreign, pending: Pending) {
    if pending.is_empty() {
        drop(keep);
    } else {
        WAITING.put(keep, pending);
    }
}

/// Drops the oldest keep-alives whose events are complete. Neither the question to the runtime nor the drop, which
/// may run another library's code, happens under the lock.
pub(super) fn reap() {
    WAITING.reap();
}

thread_local! {
    static UNDISTURBED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`, in which this thread releases nothing of other libraries that waits for that: it might need Python's lock,
/// and whoever holds that might be waiting for the caller.
pub(crate) fn undisturbed<T>(body: impl FnOnce() -> T) -> T {
    let before = UNDISTURBED.replace(true);
    let done = body();
    UNDISTURBED.set(before);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn nothing_is_released_where_it_would_disturb() {
        let (waiting, owner) = (Waiting::default(), Arc::new(()));
        waiting.put(Box::new(owner.clone()), Pending::new());
        undisturbed(|| {
            undisturbed(|| waiting.reap());
            waiting.reap();
        });
        assert_eq!(Arc::strong_count(&owner), 2);
        waiting.reap();
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
