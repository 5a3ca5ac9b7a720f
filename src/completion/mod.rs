//! The completion service: threads that finish the work that is due after commands, so that destructors and waits do
//! not have to.
//!
//! The *signal thread* polls work in flight ([`watch`]) and acts immediately where other work depends on it:
//! it signals the proxy events between contexts. It does not take the GIL, free runtime memory or call
//! foreign code. The *release thread* runs deleters, frees and callbacks ([`release`]), which may block.
//! Work that must make progress never waits for the release thread. The *wake thread* wakes tasks that await an event
//! ([`wake`]). The threads start before the first use of a device ([`start`]), where an error can be reported if the system
//! refuses one, and sleep while no work is in flight.

mod release;
mod signal;
mod worker;

#[cfg(feature = "python")]
pub(crate) use release::close;
pub(crate) use release::{call_back, release, release_foreign, wake};
pub(crate) use signal::{Progress, Watched, watch};

use crate::error::Result;
use once_cell::sync::OnceCell;
use std::time::Duration;

/// Starts the threads that do not run. Call before each first use of a device: later calls cannot fail for lack of a thread.
///
/// # Errors
/// [`Error::Thread`](crate::Error::Thread).
pub(crate) fn start() -> Result<()> {
    static STARTED: OnceCell<()> = OnceCell::new();
    STARTED.get_or_try_init(|| signal::start().and_then(|()| release::start())).map(drop)
}

/// A completed item schedules the drop of its owner, which schedules the release of a Python object.
const JOBS_OF_AN_ITEM: usize = 3;

/// Waits, at most about this long, until the release of completed work has finished.
pub(crate) fn collect(at_most: Duration) {
    signal::poll_now(at_most);
    let _done = (0..JOBS_OF_AN_ITEM).all(|_| release::drain(at_most));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    #[test]
    fn collect_waits_for_every_job_of_a_complete_item() {
        struct Owned(Sender<()>);
        impl Watched for Owned {
            fn poll(&mut self) -> Progress {
                Progress::Complete
            }

            fn finish(self: Box<Self>) {
                let slow = || std::thread::sleep(Duration::from_millis(20));
                release_foreign(move || {
                    slow();
                    release_foreign(move || {
                        slow();
                        self.0.send(()).unwrap();
                    });
                });
            }
        }
        let (sender, finished) = channel();
        watch(Box::new(Owned(sender)));
        collect(Duration::from_secs(10));
        finished.try_recv().unwrap();
    }
}
