//! Events that a host thread completes, which SYCL lacks: user events of OpenCL.

use super::{Event, Queue};
use crate::error::{During, Result};
use crate::ffi;
use crate::runtime::{Handle, Pending, retry};

/// Completes an event, at the latest when dropped, since commands would otherwise wait for it forever.
pub(crate) struct UserEvent {
    raw: Handle<ffi::UserEvent>,
    signalled: bool,
    /// Keeps the runtime alive until then.
    _pending: Pending,
}

impl UserEvent {
    /// A user event and its event, in the queue's context but outside the queue's order. `None` if the
    /// backend has no such events.
    pub(crate) fn new(queue: &Queue) -> Result<Option<(Self, Event)>> {
        if !queue.device().capabilities().user_events {
            return Ok(None);
        }
        let raw = ffi::user_event_new(queue.context().raw()?).during("creating a user event")?;
        let raw = Handle::new(raw);
        let event = ffi::user_event_event(raw.get()?).during("creating a user event")?;
        Ok(Some((Self { raw, signalled: false, _pending: Pending::new() }, Event::outside(event, queue))))
    }

    /// Completes the event. It cannot be completed with an error: the OpenCL CPU driver then silently skips
    /// the commands that wait for the event, and at times crashes in its in-order queues. The queue reports
    /// errors instead ([`Queue::store_error`]).
    pub(crate) fn signal(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if !std::mem::replace(&mut self.signalled, true)
            && let Ok(raw) = self.raw.get()
        {
            // Commands would otherwise wait for the event forever.
            retry(|| ffi::user_event_signal(raw).is_ok());
        }
    }
}

impl Drop for UserEvent {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::devices;
    use crate::runtime::{is_own_process, with_interrupt};
    use std::time::Duration;

    #[test]
    fn an_interruptible_wait_ends_with_the_user_event() -> Result<()> {
        if !is_own_process("device::user_event::tests::an_interruptible_wait_ends_with_the_user_event") {
            return Ok(());
        }
        let Some(device) = devices()?.into_iter().find(|device| device.capabilities().user_events) else {
            return Ok(());
        };
        let queue = Queue::create(&device.default_context()?, &device, Default::default())?;
        let Some((user_event, event)) = UserEvent::new(&queue)? else { return Ok(()) };
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            user_event.signal();
        });
        with_interrupt(|| false, || event.wait())
    }
}
