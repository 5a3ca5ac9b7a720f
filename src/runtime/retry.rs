//! Bounded retries: for calls whose failure cannot be reported, and for queries of a state.

use std::time::{Duration, Instant};

/// Together long enough for a memory shortage to pass, and for work in flight on a device that has stopped
/// answering.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Retries until success or the last attempt; returns whether it succeeded.
pub(crate) fn retry(mut attempt: impl FnMut() -> bool) -> bool {
    for number in 0..ATTEMPTS {
        if number > 0 {
            std::thread::sleep(PAUSE);
        }
        if attempt() {
            return true;
        }
    }
    false
}

/// For how long a query of a state may fail before the failure counts as the answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// The time of the first failure of a repeated query since its last answer.
#[derive(Debug, Default)]
pub(crate) struct Patience(Option<Instant>);

impl Patience {
    /// Called after a failed query. True if it has failed for long enough.
    pub(crate) fn is_over(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() > PATIENCE
    }

    /// Called after an answer.
    pub(crate) fn renew(&mut self) {
        self.0 = None;
    }
}
