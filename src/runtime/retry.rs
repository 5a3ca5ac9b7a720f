//! Bounded retries for calls whose failure cannot be reported.

use std::time::Duration;

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
