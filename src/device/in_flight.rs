//! The commands of usmq on one queue that may be in flight.
//!
//! usmq never queries whether a queue is empty. The runtime's OpenCL adapter answers for an in-order queue
//! from the event of its last command, which a submission of another thread frees meanwhile, and for an
//! out-of-order queue with a marker of its own, beside such a submission: both crash the process at times.
//! Event queries are always safe.

use super::brief::Launch;
use crate::error::{During, Error, Result};
use crate::ffi::{self, EventStatus};
use crate::runtime::Handle;
use cxx::UniquePtr;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A command, shared by all handles to its event. It has no handle to its queue.
pub(super) struct Command {
    pub(super) raw: Handle<ffi::Event>,
    /// Completion is final, so the runtime is queried only until it reports it.
    done: AtomicBool,
    /// The number of its trace record; 0 without one.
    pub(super) record: AtomicU64,
    /// Its number among the commands of an in-order queue; 0 on other queues.
    pub(super) number: u64,
    /// Set for a kernel launch with interruptible waits.
    pub(super) launch: Option<Launch>,
    /// Whether the queue was exposed when the command was submitted. Host tasks submitted later cannot delay it.
    pub(super) exposed: bool,
}

impl Command {
    pub(super) fn new(
        raw: UniquePtr<ffi::Event>,
        number: u64,
        launch: Option<Launch>,
        exposed: bool,
    ) -> Self {
        let (done, record) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { raw: Handle::new(raw), done, record, number, launch, exposed }
    }

    /// Whether it is known to be complete.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    pub(super) fn note_done(&self) {
        self.done.store(true, Ordering::Release);
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

/// The commands of one queue that are not known to be complete, and some that are.
#[derive(Default)]
pub(super) struct InFlight(Mutex<List>);

#[derive(Default)]
struct List {
    commands: Vec<Arc<Command>>,
    /// At this length, complete commands are removed.
    full: usize,
}

/// Up to this many commands are kept without a query of their state.
const FEW: usize = 8;

impl InFlight {
    /// True for the first command.
    pub(super) fn add(&self, command: &Arc<Command>) -> bool {
        let mut list = self.0.lock();
        let first = list.full == 0;
        if list.commands.len() >= list.full {
            list.commands.retain(|command| !matches!(command.status(), Ok(EventStatus::Complete)));
            list.full = FEW.max(2 * list.commands.len());
        }
        list.commands.push(command.clone());
        first
    }

    /// Whether all are complete.
    ///
    /// # Errors
    /// [`Error::Sycl`](crate::Error::Sycl) if the runtime cannot answer, as for a command that has failed: only the
    /// runtime's own wait knows when the queue has ended the commands behind it.
    pub(super) fn is_empty(&self) -> Result<bool> {
        let list = self.0.lock();
        for command in list.commands.iter().rev() {
            match command.status()? {
                EventStatus::Complete => {}
                EventStatus::Submitted | EventStatus::Running => return Ok(false),
                _ => return Err(failed()),
            }
        }
        Ok(true)
    }
}

fn failed() -> Error {
    Error::Sycl {
        operation: "querying the state of a queue".to_owned(),
        code: "unknown".to_owned(),
        message: "a command has failed".to_owned(),
    }
}
