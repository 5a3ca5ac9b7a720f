//! Events that a host thread completes, which SYCL lacks: user events of OpenCL and Level Zero.

use super::in_flight::Command;
use super::{Context, Event, Queue};
use crate::completion::release;
use crate::error::{During, Result};
use crate::ffi::{self, EventStatus};
use crate::runtime::{Handle, Pending, retry};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Waiting = SmallVec<[Arc<Command>; 2]>;

/// The user events of one context. Level Zero's are used again once no command waits for them.
pub(super) struct UserEvents {
    raw: Handle<ffi::UserEvents>,
    /// Whether the driver keeps an event until no command waits for it.
    counted: bool,
    unused: Mutex<VecDeque<Unused>>,
}

/// A native event that no [`Event`] stands for any more, with the commands that wait for it.
struct Unused {
    native: Handle<ffi::UserEvent>,
    waiting: Waiting,
}

impl Unused {
    /// Whether no command waits for it.
    fn is_free(&mut self) -> bool {
        let is_over = |command: &Arc<Command>| matches!(command.status(), Ok(EventStatus::Complete));
        if self.waiting.iter().all(is_over) {
            self.waiting = Waiting::new();
        }
        self.waiting.is_empty()
    }
}

impl UserEvents {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let raw = ffi::user_events_new(context.raw()?).during("creating a user event")?;
        let counted = context.capabilities().holds_waiting_commands;
        Ok(Self { raw: Handle::new(raw), counted, unused: Mutex::default() })
    }

    fn native(&self) -> Result<Handle<ffi::UserEvent>> {
        let oldest = self.unused.lock().pop_front();
        if let Some(mut oldest) = oldest {
            if oldest.is_free() {
                // If it cannot be reset, it is destroyed.
                if ffi::user_event_reset(oldest.native.get()?).is_ok() {
                    return Ok(oldest.native);
                }
            } else {
                self.unused.lock().push_back(oldest);
            }
        }
        ffi::user_event_new(self.raw.get()?).during("creating a user event").map(Handle::new)
    }

    /// Keeps a native event, and frees completed commands of two others: so few are kept after a burst.
    fn keep(&self, unused: Unused) {
        self.unused.lock().push_back(unused);
        for _ in 0..2 {
            let Some(mut oldest) = self.unused.lock().pop_front() else { return };
            oldest.is_free();
            self.unused.lock().push_back(oldest);
        }
    }
}

/// A native event while an [`Event`] stands for it, or a thread completes it.
pub(super) struct HostEvent {
    native: ManuallyDrop<Handle<ffi::UserEvent>>,
    of: Arc<UserEvents>,
    waiting: Mutex<Waiting>,
    /// Whether commands may wait for it that are not in `waiting`.
    has_others: AtomicBool,
}

impl HostEvent {
    /// Call for each command that was submitted with it in its wait list.
    pub(super) fn is_waited_for_by(&self, command: &Arc<Command>) {
        if !self.of.counted {
            self.waiting.lock().push(command.clone());
        }
    }

    /// Call if commands may wait for it that usmq does not know: those of another library, or after an error.
    pub(super) fn is_waited_for_by_others(&self) {
        self.has_others.store(true, Ordering::Release);
    }
}

impl Drop for HostEvent {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and nothing uses it after.
        let native = unsafe { ManuallyDrop::take(&mut self.native) };
        if self.of.counted {
            return;
        }
        if self.has_others.load(Ordering::Acquire) {
            // Without the end of those commands nothing may reset or destroy it.
            return std::mem::forget(native);
        }
        let (of, waiting) = (self.of.clone(), std::mem::take(self.waiting.get_mut()));
        release(move || of.keep(Unused { native, waiting }));
    }
}

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
        let of = queue.context().user_events()?;
        let native = of.native()?;
        let event = ffi::user_event_event(native.get()?).during("creating a user event")?;
        let native = ManuallyDrop::new(native);
        let host = HostEvent { native, of, waiting: Mutex::default(), has_others: AtomicBool::new(false) };
        let host = Arc::new(host);
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
            && let Ok(native) = self.host.native.get()
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
            events.unused.lock().len()
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
