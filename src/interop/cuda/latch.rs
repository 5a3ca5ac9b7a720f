//! A latch that work of a CUDA stream stands at until a host thread opens it.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// Closed until [`Latch::open`], then open for good.
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

/// Opens a latch when it goes, however that comes about: a stream must not wait for a transfer that failed.
pub(super) struct OpenOnDrop(pub(super) Arc<Latch>);

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        self.0.open();
    }
}
