//! The native events behind user events: who waits for them, and their reuse.

use super::command::Command;
use crate::completion::release;
use crate::error::{During, Result};
use crate::ffi::{self, EventStatus};
use crate::runtime::Handle;
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

/// A native event that no event stands for any more, with the commands that wait for it.
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
    /// `counted`: whether the driver keeps an event until no command waits for it.
    pub(super) fn new(context: &ffi::Context, counted: bool) -> Result<Self> {
        let raw = ffi::user_events_new(context).during("creating a user event")?;
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

    /// The number of native events that no event stands for.
    #[cfg(test)]
    pub(super) fn unused(&self) -> usize {
        self.unused.lock().len()
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

/// A native event while an event stands for it, or a thread completes it.
pub(super) struct HostEvent {
    native: ManuallyDrop<Handle<ffi::UserEvent>>,
    of: Arc<UserEvents>,
    waiting: Mutex<Waiting>,
    /// Whether commands may wait for it that are not in `waiting`.
    has_others: AtomicBool,
}

impl HostEvent {
    pub(super) fn new(of: Arc<UserEvents>) -> Result<Self> {
        let native = ManuallyDrop::new(of.native()?);
        Ok(Self { native, of, waiting: Mutex::default(), has_others: AtomicBool::new(false) })
    }

    pub(super) fn native(&self) -> Result<&ffi::UserEvent> {
        self.native.get()
    }

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
