//! Owners of foreign memory, dropped after the last use of the memory, on the release thread if that may run code.

use crate::completion::{Progress, Watched, release_foreign, watch};
use crate::device::Event;
use crate::runtime::python_lock;
use smallvec::SmallVec;
use std::any::Any;

/// Keeps foreign memory alive until the last use by usmq is complete.
pub(crate) type ForeignOwner = Box<dyn Any + Send + Sync>;

pub(super) type Pending = SmallVec<[Event; 4]>;

struct DeferredDrop {
    owner: ForeignOwner,
    pending: Pending,
}

impl Watched for DeferredDrop {
    fn poll(&mut self) -> Progress {
        Progress::complete_if(self.pending.iter().all(Event::is_complete))
    }

    fn finish(self: Box<Self>) {
        drop_after(self.owner, Pending::new());
    }
}

/// Drops `owner` on the release thread once `pending` is complete. An object that Python code still uses needs no thread:
/// its owner only drops one reference.
pub(crate) fn drop_after(mut owner: ForeignOwner, pending: Pending) {
    if !pending.is_empty() {
        watch(Box::new(DeferredDrop { owner, pending }));
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
