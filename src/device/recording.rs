//! The capture of this thread: it takes the commands of queues instead of the runtime.

use super::kernel_args::KernelArgs;
use super::program::Program;
use super::{Event, Queue};
use crate::error::Result;
use crate::ffi::Extents;
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A command of a queue, over raw addresses.
#[derive(Clone)]
pub(crate) enum Work {
    Barrier,
    Copy { target: usize, source: usize, bytes: usize },
    Fill { target: usize, value: u8, bytes: usize },
    Prefetch { pointer: usize, bytes: usize },
    Advise { pointer: usize, bytes: usize, advice: i32 },
    Launch { program: Program, extents: Extents, args: Box<KernelArgs> },
}

/// The place where a capture keeps its commands.
pub(crate) trait Recorder: Any + Send + Sync {
    /// Records a command, and returns an event that only names it.
    fn command(&self, queue: &Queue, work: Work, name: Option<&Arc<str>>, after: &[Event]) -> Result<Event>;

    /// An error if the capture has recorded a command of the queue, for a wait for the queue.
    fn check_wait(&self, queue: &Queue) -> Result<()>;
}

/// The number of [`Entered`] guards of all threads: without one, a command costs one load.
static ENTERED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Recorder>>> = const { RefCell::new(None) };
}

/// The capture that this thread records into.
#[inline]
pub(crate) fn current() -> Option<Arc<dyn Recorder>> {
    if ENTERED.load(Ordering::Relaxed) == 0 {
        return None;
    }
    of_thread()
}

#[cold]
fn of_thread() -> Option<Arc<dyn Recorder>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Records a command if this thread captures.
#[inline]
pub(super) fn offer(
    queue: &Queue,
    after: &[Event],
    name: Option<&Arc<str>>,
    work: impl FnOnce() -> Work,
) -> Result<Option<Event>> {
    match current() {
        None => Ok(None),
        Some(recorder) => recorder.command(queue, work(), name, after).map(Some),
    }
}

/// Makes this thread record until the guard is dropped.
pub(crate) fn enter(recorder: Arc<dyn Recorder>) -> Entered {
    Entered::new(Some(recorder))
}

/// Makes this thread submit to the runtime until the guard is dropped, also inside a capture.
/// Costs one load without a capture.
#[inline]
pub(crate) fn suspend() -> Option<Entered> {
    (ENTERED.load(Ordering::Relaxed) != 0).then(|| Entered::new(None))
}

/// Restores the capture of this thread, or none.
#[must_use = "the thread records only while the guard lives"]
pub(crate) struct Entered {
    before: Option<Arc<dyn Recorder>>,
    /// It restores state of this thread, so it must not move to another.
    not_send: std::marker::PhantomData<*const ()>,
}

impl Entered {
    fn new(recorder: Option<Arc<dyn Recorder>>) -> Self {
        ENTERED.fetch_add(1, Ordering::Relaxed);
        let before = CURRENT.try_with(|current| current.replace(recorder)).ok().flatten();
        Self { before, not_send: std::marker::PhantomData }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        // Dropped outside the borrow, since it may own arrays.
        drop(CURRENT.try_with(|current| current.replace(before)));
        ENTERED.fetch_sub(1, Ordering::Relaxed);
    }
}
