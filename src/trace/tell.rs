//! Events for subscribers of `tracing`: told outside of locks and destructors of usmq, since a subscriber may use usmq.

use super::record::{Kind, QueueHandle};
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::sync::Arc;
use tracing::Level;

/// One event.
enum Told {
    Command { kind: Kind, name: Option<Arc<str>>, bytes: usize, queue: QueueHandle, waits_for: usize },
    Memory { kind: Kind, bytes: usize, usm: &'static str, device: String },
}

struct Here {
    /// The number of guards that hold events back.
    guards: Cell<u32>,
    held: RefCell<Vec<Told>>,
}

thread_local! {
    static HERE: Here = const { Here { guards: Cell::new(0), held: RefCell::new(Vec::new()) } };
}

/// Holds back the events of this thread while it lives.
#[must_use = "events are held back while the guard lives"]
pub(crate) struct HeldBack {
    is_active: bool,
}

/// Create the guard before locks are taken: it must live longer than they are held.
pub(crate) fn hold_back() -> HeldBack {
    let is_active = tracing::level_enabled!(Level::DEBUG)
        && HERE.try_with(|here| here.guards.set(here.guards.get() + 1)).is_ok();
    HeldBack { is_active }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        if !self.is_active {
            return;
        }
        let end = |here: &Here| {
            here.guards.set(here.guards.get() - 1);
            if here.guards.get() == 0 { here.held.take() } else { Vec::new() }
        };
        HERE.try_with(end).unwrap_or_default().into_iter().for_each(Told::tell);
    }
}

impl Told {
    /// Tells now, or when the last guard of this thread ends.
    fn tell_or_hold(self) {
        let mut told = Some(self);
        // A thread that is ending holds nothing back.
        let _ = HERE.try_with(|here| {
            if here.guards.get() > 0 {
                here.held.borrow_mut().extend(told.take());
            }
        });
        told.into_iter().for_each(Self::tell);
    }

    fn tell(self) {
        match self {
            Self::Command { kind, name, bytes, queue, waits_for } => tracing::debug!(
                target: "usmq",
                kind = kind.name(),
                name = name.as_deref(),
                bytes,
                queue = %*queue,
                waits_for,
                "submitted"
            ),
            Self::Memory { kind, bytes, usm, device } => {
                tracing::trace!(target: "usmq", kind = kind.name(), bytes, usm, %device, "memory");
            }
        }
    }
}

#[cold]
pub(super) fn of_command(
    (kind, name, bytes): (Kind, Option<&Arc<str>>, usize),
    queue: QueueHandle,
    waits_for: usize,
) {
    Told::Command { kind, name: name.cloned(), bytes, queue, waits_for }.tell_or_hold();
}

#[cold]
pub(super) fn of_memory(kind: Kind, bytes: usize, device: &dyn Display, usm: &'static str) {
    Told::Memory { kind, bytes, usm, device: device.to_string() }.tell_or_hold();
}
