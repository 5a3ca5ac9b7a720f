//! Scopes for futures: the scope is open during each poll, whichever thread polls.

use super::Scope;
use crate::device::Queue;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Gives every future `in_queue`.
pub trait InQueue: Future + Sized {
    /// Runs this future with `queue` as the current one. An executor may move it between threads and interleave it
    /// with others: none of them sees another's queue.
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
        Scoped { future: self, scope: queue.scope() }
    }
}

impl<F: Future> InQueue for F {}

/// A future inside a scope; see [`InQueue::in_queue`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Scoped<F> {
    future: F,
    scope: Scope,
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let scope = self.scope.clone();
        // SAFETY: `future` is pinned whenever `self` is: nothing here moves it out, `Scoped` has no Drop of its own,
        // and it is Unpin only when `F` is.
        let future = unsafe { self.map_unchecked_mut(|scoped| &mut scoped.future) };
        scope.enter_within(|| future.poll(context))
    }
}
