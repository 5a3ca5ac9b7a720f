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
pub(crate) use signal::{Progress, Watched, watch};

use std::time::Duration;

/// Waits, at most about this long, until the release of completed work has finished.
pub(crate) fn collect(at_most: Duration) {
    signal::poll_now(at_most);
    // A job may schedule another one.
    let _done = release::drain(at_most) && release::drain(at_most);
}
