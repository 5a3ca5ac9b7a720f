//! Events that a host thread completes. SYCL has none; OpenCL's user events become SYCL events.

use super::insist::insist;
use super::{Event, Queue};
use crate::error::{During, Result};
use crate::ffi;
use crate::runtime::{Handle, Pending};

/// The duty to complete an event. It is done at the latest when this is dropped, or what waits would wait for ever.
pub(crate) struct Promise {
    raw: Handle<ffi::Promise>,
    kept: bool,
    /// Keeps the process from tearing the runtime down before that.
    _pending: Pending,
}

impl Promise {
    /// A promise and its event, in the queue's context but outside the queue's order. `None` where the backend has no
    /// such events.
    pub(crate) fn new(queue: &Queue) -> Result<Option<(Self, Event)>> {
        if queue.device().backend() != "opencl" {
            return Ok(None);
        }
        let raw = ffi::promise_new(queue.context().raw()?).during("making an event for a host thread")?;
        let raw = Handle::new(raw);
        let event = ffi::promise_event(raw.get()?).during("making an event for a host thread")?;
        Ok(Some((Self { raw, kept: false, _pending: Pending::new() }, Event::outside(event, queue))))
    }

    /// Completes the event. There is no other end: given an error, the OpenCL driver for CPUs leaves out what waits for
    /// the event without a word, and at times crashes in its in-order queues. So what went wrong is for the queue to
    /// tell ([`Queue::store_error`]).
    pub(crate) fn keep(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if !std::mem::replace(&mut self.kept, true)
            && let Ok(raw) = self.raw.get()
        {
            // Whoever waits for the event would do so for ever.
            insist(|| ffi::promise_keep(raw).is_ok());
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::devices;
    use crate::runtime::with_interrupt;
    use std::time::Duration;

    const IN_CHILD: &str = "USMQ_TEST_PROMISE";

    /// In a process of its own: other tests of this one need a runtime that has not started.
    #[test]
    fn a_wait_that_can_be_interrupted_ends_with_the_promise() -> Result<()> {
        if std::env::var_os(IN_CHILD).is_none() {
            let name = "device::promise::tests::a_wait_that_can_be_interrupted_ends_with_the_promise";
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            let output = command.args(["--exact", name]).env(IN_CHILD, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return Ok(());
        }
        let Some(device) = devices()?.into_iter().find(|device| device.backend() == "opencl") else {
            return Ok(());
        };
        let queue = Queue::create(&device.default_context()?, &device, Default::default())?;
        let Some((promise, event)) = Promise::new(&queue)? else { return Ok(()) };
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            promise.keep();
        });
        with_interrupt(|| false, || event.wait())
    }
}
