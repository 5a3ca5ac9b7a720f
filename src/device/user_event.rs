//! Events that a host thread completes, which SYCL lacks: user events of OpenCL and Level Zero.

use super::host_event::HostEvent;
use super::{Event, Queue};
use crate::error::{During, Result};
use crate::ffi;
use crate::runtime::{Pending, retry};
use std::sync::Arc;

/// Completes an event, at the latest when dropped, since commands would otherwise wait for it forever.
pub(crate) struct UserEvent {
    host: Arc<HostEvent>,
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
        let host = Arc::new(HostEvent::new(queue.context().user_events()?)?);
        let event = ffi::user_event_event(host.native()?).during("creating a user event")?;
        let event = Event::of_host(event, queue, host.clone());
        Ok(Some((Self { host, signalled: false, _pending: Pending::new() }, event)))
    }

    /// Completes the event. It cannot be completed with an error: the OpenCL CPU driver then silently skips
    /// the commands that wait for the event, and at times crashes in its in-order queues. The queue reports
    /// errors instead ([`Queue::store_error`]).
    pub(crate) fn signal(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if !std::mem::replace(&mut self.signalled, true)
            && let Ok(native) = self.host.native()
        {
            // Commands would otherwise wait for the event forever.
            retry(|| ffi::user_event_signal(native).is_ok());
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

    #[test]
    fn a_native_event_is_used_again_after_the_commands_that_wait_for_it() -> Result<()> {
        const NAME: &str =
            "device::user_event::tests::a_native_event_is_used_again_after_the_commands_that_wait_for_it";
        if !is_own_process(NAME) {
            return Ok(());
        }
        let counted = |device: &crate::Device| device.capabilities().holds_waiting_commands;
        let found =
            devices()?.into_iter().find(|device| device.capabilities().user_events && !counted(device));
        let Some(device) = found else {
            println!("skipped: no device whose driver leaves the count of waiting commands to usmq");
            return Ok(());
        };
        let queue = Queue::create(&device.default_context()?, &device, Default::default())?;
        let events = queue.context().user_events()?;
        let unused = || {
            crate::completion::collect(Duration::from_secs(10));
            events.unused()
        };
        let pair = || UserEvent::new(&queue).map(|pair| pair.expect("the device has user events"));
        let ((first, first_event), (second, second_event)) = (pair()?, pair()?);
        queue.barrier(&[first_event, second_event])?;
        first.signal();
        assert_eq!(unused(), 1, "the barrier still waits for it");
        let third = pair()?;
        assert_eq!(unused(), 1, "the barrier still waits for the second one");
        second.signal();
        queue.wait()?;
        assert_eq!(unused(), 2);
        let _fourth = pair()?;
        assert_eq!(unused(), 1, "one of the two is used again");
        drop(third);
        for _ in 0..1000 {
            let (user_event, event) = pair()?;
            let last = queue.barrier(&[event])?;
            user_event.signal();
            last.wait()?;
        }
        assert!(unused() <= 10, "{} native events for one at a time", unused());
        Ok(())
    }
}
