//! Callbacks after a command, and the future of an event.

use super::Event;
use super::event::Assistance;
use crate::completion::{Progress, Watched, call_back, wake, watch};
use crate::error::Result;
use crate::runtime::Patience;
use parking_lot::Mutex;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

impl Event {
    /// Calls `callback` once, after the command is complete or has failed. Returns immediately.
    ///
    /// A thread of usmq runs all callbacks, one after the other, also if the command is already complete. A
    /// callback may submit work and wait for it, but other callbacks and the release of memory wait
    /// meanwhile: pass longer work to a thread of your own. A panic ends only its callback. To learn the
    /// result, call [`Event::wait`], which does not block any more. The callbacks of work that is in flight when the
    /// process exits do not run, nor those in a forked child. A callback may call [`std::process::exit`]. The end of the
    /// process waits for a running one, but at most a second.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use usmq::{Array, Elementwise};
    ///
    /// // SAFETY: work-item i touches element i of x only.
    /// let double = unsafe { Elementwise::new("float *x", "x[i] *= 2") }?;
    /// let x = Array::from_slice(&[1f32, 2.0])?;
    /// let event = double.launch(&[(&x).into()])?;
    /// let (sender, done) = channel();
    /// event.on_complete(move || sender.send("complete").unwrap());
    /// assert_eq!(done.recv(), Ok("complete"));
    /// assert!(event.done()?);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    pub fn on_complete(&self, callback: impl FnOnce() + Send + 'static) {
        let printed = self.expects_output().then(|| self.clone());
        let callback = move || {
            if let Some(event) = printed {
                event.write_output();
            }
            callback();
        };
        if self.is_complete() {
            return call_back(callback);
        }
        self.call_later(callback, false);
    }

    /// As [`Event::on_complete`], for a short callback that wakes a task: no other callback and no release delays it.
    pub(crate) fn wake_on_complete(&self, waker: impl FnOnce() + Send + 'static) {
        if self.is_complete() {
            return wake(waker);
        }
        self.call_later(waker, true);
    }

    fn call_later(&self, callback: impl FnOnce() + Send + 'static, wakes: bool) {
        self.queue().flush();
        watch(Box::new(Callback {
            event: self.clone(),
            callback: Some(Box::new(callback)),
            wakes,
            assistance: Assistance::new(),
            patience: Patience::default(),
        }));
    }
}

struct Callback {
    event: Event,
    /// Taken when it is called.
    callback: Option<Box<dyn FnOnce() + Send>>,
    /// Whether it wakes a task.
    wakes: bool,
    assistance: Assistance,
    /// Bounds the retries of failed queries for the state.
    patience: Patience,
}

impl Watched for Callback {
    fn poll(&mut self) -> Progress {
        let over = match self.event.done() {
            Ok(true) => true,
            Ok(false) => {
                self.patience.renew();
                self.assistance.offer(&self.event);
                false
            }
            Err(_) => self.patience.is_over(),
        };
        if over && self.wakes {
            self.callback.take().into_iter().for_each(wake);
        }
        Progress::complete_if(over)
    }

    fn finish(self: Box<Self>) {
        let Self { event, callback, .. } = *self;
        drop(event);
        callback.into_iter().for_each(call_back);
    }
}

/// The future of an event: ready with the result of [`Event::wait`] when the command is complete.
///
/// It works on every executor and blocks no thread. Dropping it ends the wait; the command continues.
///
/// ```
/// use usmq::{Array, Elementwise};
///
/// // SAFETY: work-item i touches element i of x only.
/// let double = unsafe { Elementwise::new("float *x", "x[i] *= 2") }?;
/// let x = Array::from_slice(&[1f32, 2.0])?;
/// futures::executor::block_on(async {
///     double.launch(&[(&x).into()])?.await?;
///     assert_eq!(x.to_vec_async::<f32>().await?, [2.0, 4.0]);
///     Ok::<(), usmq::Error>(())
/// })?;
/// # Ok::<(), usmq::Error>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct EventFuture {
    event: Event,
    /// Created with the first poll that finds the command in flight.
    shared: Option<Arc<Shared>>,
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    over: bool,
    waker: Option<Waker>,
}

impl Shared {
    /// Records that the command is over and wakes the task. A waker may run any code, so the lock is free by then.
    fn end(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.over = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sets the waker of the task; true if the command is already over.
    fn is_over_or_wakes(&self, waker: &Waker) -> bool {
        let replaced = waker.clone();
        let mut state = self.0.lock();
        if state.over {
            drop(state);
            drop(replaced);
            return true;
        }
        let replaced = state.waker.replace(replaced);
        drop(state);
        drop(replaced);
        false
    }
}

impl EventFuture {
    /// The event that this future waits for.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }
}

impl Future for EventFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.event.done()? {
            return Poll::Ready(this.event.wait());
        }
        let shared = this.shared.get_or_insert_with(|| {
            let shared = Arc::new(Shared::default());
            let end = shared.clone();
            this.event.wake_on_complete(move || end.end());
            shared
        });
        match shared.is_over_or_wakes(context.waker()) {
            true => Poll::Ready(this.event.wait()),
            false => Poll::Pending,
        }
    }
}

impl Drop for EventFuture {
    /// The task may be gone before the command ends.
    fn drop(&mut self) {
        let waker = self.shared.as_ref().and_then(|shared| shared.0.lock().waker.take());
        drop(waker);
    }
}

impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = EventFuture;

    fn into_future(self) -> EventFuture {
        EventFuture { event: self, shared: None }
    }
}

impl IntoFuture for &Event {
    type Output = Result<()>;
    type IntoFuture = EventFuture;

    fn into_future(self) -> EventFuture {
        self.clone().into_future()
    }
}

impl fmt::Debug for EventFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventFuture({:?})", self.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Queue, default_device};
    use crate::error::Error;

    #[test]
    fn awaiting_an_event_reports_the_error_that_its_queue_stored() -> Result<()> {
        let name = "device::future::tests::awaiting_an_event_reports_the_error_that_its_queue_stored";
        if !crate::runtime::is_own_process(name) {
            return Ok(());
        }
        let device = default_device()?;
        let queue = Queue::create(&device.default_context()?, &device, Default::default())?;
        let event = queue.barrier_now(&[])?;
        queue.store_error(&Error::value("the work failed"));
        let error = futures::executor::block_on(event.clone().into_future()).unwrap_err();
        assert!(error.to_string().contains("the work failed"), "{error}");
        // Each error is reported once, as by `wait`.
        futures::executor::block_on(event.into_future())
    }
}
