//! A submitted command, and its state.

use super::brief::Launch;
use crate::error::{During, Result};
use crate::ffi::{self, EventStatus};
use crate::runtime::{CountedWait, Handle};
use cxx::UniquePtr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A command, shared by all handles to its event. It has no handle to its queue.
pub(super) struct Command {
    pub(super) raw: Handle<ffi::Event>,
    /// Completion is final, so the runtime is queried only until it reports it.
    done: AtomicBool,
    /// Whether a caller has asked for its state.
    is_queried: AtomicBool,
    /// The number of its trace record; 0 without one.
    pub(super) record: AtomicU64,
    /// Its number among the commands of an in-order queue; 0 on other queues.
    pub(super) number: u64,
    /// Set for a kernel launch with interruptible waits.
    pub(super) launch: Option<Launch>,
    /// Whether the queue was exposed when the command was submitted. Host tasks submitted later cannot delay it.
    pub(super) exposed: bool,
    /// Whether it is a kernel that may print.
    pub(super) prints: bool,
}

impl Command {
    pub(super) fn new(
        raw: UniquePtr<ffi::Event>,
        number: u64,
        launch: Option<Launch>,
        exposed: bool,
    ) -> Self {
        let (done, is_queried, record) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        Self { raw: Handle::new(raw), done, is_queried, record, number, launch, exposed, prints: false }
    }

    /// Whether it is known to be complete.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// True once.
    pub(super) fn is_first_query(&self) -> bool {
        !self.is_queried.swap(true, Ordering::Relaxed)
    }

    pub(super) fn note_done(&self) {
        self.done.store(true, Ordering::Release);
    }

    /// As [`Command::status`], for a thread that holds a lock: it must not be parked, since others may wait for the lock.
    pub(super) fn status_under_lock(&self, _counted: &CountedWait) -> Result<EventStatus> {
        self.status()
    }

    /// Takes no lock, not even one of libsycl.
    pub(super) fn status(&self) -> Result<EventStatus> {
        if self.is_done() {
            return Ok(EventStatus::Complete);
        }
        let status = ffi::event_status(self.raw.get()?).during("querying the state of an event")?;
        if status == EventStatus::Complete {
            self.note_done();
        }
        Ok(status)
    }
}
