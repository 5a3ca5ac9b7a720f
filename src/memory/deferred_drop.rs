//! Owners of foreign memory, dropped after the last use of the memory, on the release thread if that may run code.

use crate::completion::{Progress, Watched, release_foreign, watch};
use crate::device::Event;
use crate::runtime::python_lock;
use smallvec::SmallVec;
use std::any::Any;

/// Keeps foreign memory alive until the last use by usmq is complete.
pub(crate) type ForeignOwner = Box<dyn Any + Send + Sync>;

pub(super) type Pending = SmallVec<[Event; 4]>;

struct DeferredDrop<F> {
    owner: ForeignOwner,
    /// Returns the last uses, once they are known.
    uses: F,
    pending: Option<Pending>,
}

impl<F: FnMut() -> Option<Pending> + Send> DeferredDrop<F> {
    fn end(self) {
        // What it refers to goes before another allocation may get the memory.
        drop(self.uses);
        drop_after(self.owner, Pending::new());
    }
}

impl<F: FnMut() -> Option<Pending> + Send> Watched for DeferredDrop<F> {
    fn poll(&mut self) -> Progress {
        if self.pending.is_none() {
            self.pending = (self.uses)();
        }
        let complete = |pending: &Pending| pending.iter().all(Event::is_complete);
        Progress::complete_if(self.pending.as_ref().is_some_and(complete))
    }

    fn finish(self: Box<Self>) {
        self.end();
    }
}

/// As [`drop_after`]; `uses` returns the pending uses, or `None` while they cannot be known without a wait.
pub(super) fn drop_after_uses(owner: ForeignOwner, uses: impl FnMut() -> Option<Pending> + Send + 'static) {
    let mut deferred = DeferredDrop { owner, uses, pending: None };
    if deferred.poll() == Progress::Complete { deferred.end() } else { watch(Box::new(deferred)) }
}

/// Drops `owner` on the release thread once `pending` is complete. An object that Python code still uses needs no thread:
/// its owner only drops one reference.
pub(crate) fn drop_after(mut owner: ForeignOwner, pending: Pending) {
    if !pending.is_empty() {
        watch(Box::new(DeferredDrop { owner, uses: || None, pending: Some(pending) }));
    } else if !python_lock::drop_shared(&mut *owner) {
        release_foreign(move || drop(owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    #[test]
    fn an_owner_is_dropped_on_the_release_thread() {
        struct DropProbe(std::sync::mpsc::SyncSender<ThreadId>);
        impl Drop for DropProbe {
            fn drop(&mut self) {
                self.0.send(thread::current().id()).unwrap();
            }
        }
        let (sender, dropped) = std::sync::mpsc::sync_channel(1);
        drop_after(Box::new(DropProbe(sender)), Pending::new());
        assert_ne!(dropped.recv_timeout(Duration::from_secs(10)).unwrap(), thread::current().id());
        let (_unused, _) = channel::<()>();
    }
}
