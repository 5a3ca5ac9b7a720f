//! The completion service: two threads that finish work after its commands, so that destructors and waits need not.
//!
//! The *signal thread* polls what is in flight ([`watch`]) and acts at once where others wait for that: it signals the
//! proxy events between contexts. It takes no lock of Python, frees nothing at the runtime and calls no foreign code.
//! The *release thread* runs deleters, frees and callbacks ([`release`]), which may block. Nothing that must make
//! progress waits for it. Both threads start with the first work and sleep while nothing is in flight.

mod release;
mod signal;

#[cfg(feature = "python")]
pub(crate) use release::close;
pub(crate) use release::{release, release_foreign};
pub(crate) use signal::watch;

use std::time::Duration;

/// Waits, at most about this long, until what is complete by now is finished.
pub(crate) fn collect(at_most: Duration) {
    signal::poll_now(at_most);
    // A job may leave another one behind.
    let _done = release::drain(at_most) && release::drain(at_most);
}

/// What a poll has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    None,
    /// Something has happened that other items may have waited for.
    Some,
    Complete,
}

impl Progress {
    pub(crate) fn complete_if(over: bool) -> Self {
        if over { Self::Complete } else { Self::None }
    }
}

/// Something in flight that the signal thread polls.
pub(crate) trait Watched: Send {
    /// How far it is. Runs on the signal thread: it must not block, submit, free or call foreign code.
    fn poll(&mut self) -> Progress;

    /// Runs on the release thread once it is complete, and may block.
    fn finish(self: Box<Self>) {}

    /// Whether others still wait for it while the process ends. It then counts as [`Pending`](crate::runtime::Pending)
    /// until it is complete, which keeps the runtime.
    fn needed_at_exit(&self) -> bool {
        false
    }
}
