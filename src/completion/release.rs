//! The jobs that run foreign code or free memory: on the release thread, or, where tasks wait for them, on the wake
//! thread.

use super::worker::{Queued, Worker};
use crate::error::Result;
use crate::runtime::exit;
use std::time::{Duration, Instant};

static RELEASE: Worker = Worker::new("usmq-release");
static WAKE: Worker = Worker::new("usmq-wake");

/// Runs `job` on the release thread: a free of runtime memory, or the drop of a runtime object.
pub(crate) fn release(job: impl FnOnce() + Send + 'static) {
    RELEASE.put(Queued { job: Box::new(job), foreign: false, urgent: false });
}

/// As [`release`], for a job that runs another library's code. It never runs after [`close`].
pub(crate) fn release_foreign(job: impl FnOnce() + Send + 'static) {
    RELEASE.put(Queued { job: Box::new(job), foreign: true, urgent: false });
}

/// Runs code of the user, for which a thread may wait: as [`release_foreign`], but without a delay.
pub(crate) fn call_back(callback: impl FnOnce() + Send + 'static) {
    RELEASE.put(Queued { job: Box::new(callback), foreign: true, urgent: true });
}

/// Wakes a task of an executor or an event loop. The code is theirs and may take the GIL, so the signal thread cannot
/// run it; a deleter or callback may take any time, so the release thread cannot.
pub(crate) fn wake(waker: impl FnOnce() + Send + 'static) {
    WAKE.put(Queued { job: Box::new(waker), foreign: true, urgent: true });
}

/// Waits, at most this long, until the jobs of the release thread that are due now have run. Never call it with a lock
/// that a job needs.
pub(crate) fn drain(at_most: Duration) -> bool {
    RELEASE.drain(at_most)
}

/// Starts the threads.
pub(super) fn start() -> Result<()> {
    RELEASE.start()?;
    WAKE.start()
}

/// Stops foreign code before the interpreter exits. Waits a second for the code that runs, and says so if it goes on. The
/// caller must not hold the GIL, which that code may need.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn close() {
    let deadline = Instant::now() + exit::FOREIGN_AT_EXIT;
    let ended = [&WAKE, &RELEASE].map(|worker| worker.close(deadline));
    if ended != [true; 2] {
        exit::ends_without_foreign_code();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_run_in_order_on_another_thread() {
        let (sender, ran) = channel();
        for number in 0..3 {
            let sender = sender.clone();
            release(move || sender.send((number, std::thread::current().id())).unwrap());
        }
        let all: Vec<_> = (0..3).map(|_| ran.recv().unwrap()).collect();
        assert_eq!(all.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(all.iter().all(|(_, thread)| *thread != std::thread::current().id()));
    }

    #[test]
    fn a_panicking_job_does_not_stop_other_jobs() {
        let (sender, ran) = channel();
        release(|| panic!("in a deleter"));
        release_foreign(move || sender.send(()).unwrap());
        ran.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_blocked_release_delays_no_waker() {
        let (sender, woken) = channel();
        let (end, blocked) = channel::<()>();
        release(move || {
            blocked.recv().ok();
        });
        wake(move || sender.send(()).unwrap());
        woken.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(end);
    }

    #[test]
    fn drain_returns_after_all_due_jobs() {
        let (sender, ran) = channel();
        release(move || {
            std::thread::sleep(Duration::from_millis(20));
            sender.send(()).unwrap();
        });
        assert!(drain(Duration::from_secs(10)));
        ran.try_recv().unwrap();
    }
}
