//! Scopes for futures: the scope is open during each poll, on any thread.

use super::Scope;
use crate::device::Queue;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Adds `in_queue` to every future.
///
/// ```
/// use usmq::{InQueue, Queue, current_queue};
///
/// let queue = Queue::get("cpu")?;
/// let scoped = async { current_queue() }.in_queue(&queue);
/// # assert_eq!(futures::executor::block_on(scoped)?, queue);
/// # Ok::<(), usmq::Error>(())
/// ```
pub trait InQueue: Future + Sized {
    /// Runs this future with `queue` as the current one. An executor may move it between threads and
    /// interleave it with others: no future sees another's queue. A future that is dropped early also drops
    /// its locals with `queue` as the current one.
    ///
    /// ```
    /// use usmq::InQueue;
    ///
    /// let queue = usmq::Queue::new("cpu", None, Default::default())?;
    /// let work = async { usmq::current_queue() }.in_queue(&queue);
    /// assert_eq!(futures::executor::block_on(work)?, queue);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    fn in_queue(self, queue: &Queue) -> Scoped<Self> {
        Scoped { future: ManuallyDrop::new(self), scope: queue.scope() }
    }
}

impl<F: Future> InQueue for F {}

/// A future inside a scope; see [`InQueue::in_queue`].
///
/// ```
/// use usmq::{InQueue, Queue, Scoped};
///
/// /// Stores a future of a library with its scope.
/// struct Job<F>(Scoped<F>);
///
/// let job = Job(async { 3 }.in_queue(&Queue::get("cpu")?));
/// # assert_eq!(futures::executor::block_on(job.0), 3);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Scoped<F> {
    /// Dropped by `drop` and nowhere else.
    future: ManuallyDrop<F>,
    scope: Scope,
}

impl<F> Drop for Scoped<F> {
    /// A destructor of the future's locals may query the current queue, as its body does.
    fn drop(&mut self) {
        let future = &mut self.future;
        // SAFETY: this runs once, nothing uses the future after it, and a pinned one is dropped where it is.
        self.scope.enter_within(|| unsafe { ManuallyDrop::drop(future) });
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let scope = self.scope.clone();
        // SAFETY: `future` is pinned whenever `self` is: nothing here moves it out, `drop` drops it in its
        // place, and `Scoped` is Unpin only when `F` is.
        let future = unsafe { self.map_unchecked_mut(|scoped| &mut *scoped.future) };
        scope.enter_within(|| future.poll(context))
    }
}
