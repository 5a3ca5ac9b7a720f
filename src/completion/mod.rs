//! The completion service: two threads that finish work after its commands, so that destructors and waits
//! need not.
//!
//! The *signal thread* polls work in flight ([`watch`]) and acts immediately where other work depends on it:
//! it signals the proxy events between contexts. It does not take the GIL, free runtime memory or call
//! foreign code. The *release thread* runs deleters, frees and callbacks ([`release`]), which may block.
//! Nothing that must make progress waits for it. Both threads start with the first work and sleep while
//! nothing is in flight.

mod release;
mod signal;

#[cfg(feature = "python")]
pub(crate) use release::close;
pub(crate) use release::{release, release_foreign};
pub(crate) use signal::watch;

use std::time::Duration;

/// Waits, at most about this long, until the release of completed work has finished.
pub(crate) fn collect(at_most: Duration) {
    signal::poll_now(at_most);
    // A job may schedule another one.
    let _done = release::drain(at_most) && release::drain(at_most);
}

/// The result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    None,
    /// Progress that other items may have waited for.
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
    /// The current progress. Runs on the signal thread: it must not block, submit, free or call foreign code.
    fn poll(&mut self) -> Progress;

    /// Runs on the release thread after completion, and may block.
    fn finish(self: Box<Self>) {}

    /// Whether other work still waits for it while the process exits. It then counts as
    /// [`Pending`](crate::runtime::Pending) until it is complete, which keeps the runtime alive.
    fn needed_at_exit(&self) -> bool {
        false
    }
}
