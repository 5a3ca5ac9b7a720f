//! A latch that blocks work of a CUDA stream until a host thread opens it.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// Closed until [`Latch::open`], then permanently open.
#[derive(Default)]
pub(super) struct Latch {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    pub(super) fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    pub(super) fn is_open(&self) -> bool {
        *self.open.lock()
    }

    pub(super) fn wait(&self) {
        let mut open = self.open.lock();
        while !*open {
            self.opened.wait(&mut open);
        }
    }
}

/// Opens a latch on drop, also after a panic: a stream must not wait for a failed transfer.
pub(super) struct OpenOnDrop(pub(super) Arc<Latch>);

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        self.0.open();
    }
}
