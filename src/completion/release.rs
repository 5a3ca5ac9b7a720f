//! The release thread: runs deleters, frees and callbacks in the order in which they became due.

use crate::runtime::{self, CountedWait, exit};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce() + Send>;

struct Queued {
    job: Job,
    /// Runs code of another library, which may need Python.
    foreign: bool,
}

struct State {
    due: VecDeque<Queued>,
    /// Whether the thread runs. It runs as long as the process.
    started: bool,
    /// Whether the thread polls for jobs, so that a new job need not wake it.
    awake: bool,
    /// The number of jobs taken from `due` that have returned.
    finished: u64,
    accepted: u64,
    /// Whether foreign code must not run any more, because the interpreter is about to exit.
    closed: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    due: VecDeque::new(),
    started: false,
    awake: false,
    finished: 0,
    accepted: 0,
    closed: false,
});

/// After a job the thread stays awake for a while and polls for more with pauses: no job is urgent, and
/// waking a thread costs the thread that drops an array microseconds.
const AWAKE: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(1);

static DUE: Condvar = Condvar::new();
static FINISHED: Condvar = Condvar::new();

/// Runs `job` on the release thread: a free of runtime memory, or the drop of a runtime object.
pub(crate) fn release(job: impl FnOnce() + Send + 'static) {
    put(Queued { job: Box::new(job), foreign: false });
}

/// As [`release`], for a job that runs another library's code. It never runs after [`close`].
pub(crate) fn release_foreign(job: impl FnOnce() + Send + 'static) {
    put(Queued { job: Box::new(job), foreign: true });
}

/// Runs code of the user, for which a thread may wait: as [`release_foreign`], but without a delay.
pub(crate) fn call_back(callback: impl FnOnce() + Send + 'static) {
    put(Queued { job: Box::new(callback), foreign: true });
    DUE.notify_one();
}

fn put(queued: Queued) {
    if runtime::not_forked().is_err() {
        // The threads exist in the parent only, and the memory belongs to the parent's devices.
        return std::mem::forget(queued.job);
    }
    let mut state = STATE.lock();
    if queued.foreign && state.closed {
        drop(state);
        return std::mem::forget(queued.job);
    }
    state.due.push_back(queued);
    state.accepted += 1;
    if !state.started {
        // Without a thread, jobs stay until `drain` or the next attempt to start one.
        state.started = std::thread::Builder::new().name("usmq-release".to_owned()).spawn(run).is_ok();
    }
    let wake = !state.awake;
    drop(state);
    if wake {
        DUE.notify_one();
    }
}

fn run() {
    exit::help_to_the_end();
    let mut state = STATE.lock();
    let mut last = Instant::now();
    loop {
        if let Some(queued) = state.due.pop_front() {
            state.awake = true;
            run_one(&mut state, queued);
            last = Instant::now();
        } else if state.awake && last.elapsed() < AWAKE {
            DUE.wait_for(&mut state, PAUSE);
        } else {
            state.awake = false;
            DUE.wait(&mut state);
        }
    }
}

/// Runs a job outside the lock, unless it is no longer needed.
fn run_one(state: &mut MutexGuard<'_, State>, Queued { job, foreign }: Queued) {
    let skip = foreign && state.closed;
    MutexGuard::unlocked(state, || match CountedWait::unless_leaving() {
        // A deleter that panics has freed what it could; the thread continues with others.
        Some(_pending) if !skip => drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job))),
        // The end of the process frees the rest.
        _ => std::mem::forget(job),
    });
    state.finished += 1;
    FINISHED.notify_all();
}

/// Waits, at most this long, until the jobs that are due now have run. Never call it with a lock that a job
/// needs.
pub(crate) fn drain(at_most: Duration) -> bool {
    if runtime::not_forked().is_err() {
        return true;
    }
    let deadline = Instant::now() + at_most;
    let mut state = STATE.lock();
    let due = state.accepted;
    DUE.notify_one();
    while state.finished < due {
        if !state.started {
            let Some(queued) = state.due.pop_front() else { break };
            run_one(&mut state, queued);
        } else if FINISHED.wait_until(&mut state, deadline).timed_out() {
            return state.finished >= due;
        }
    }
    true
}

/// Stops foreign code before the interpreter exits. Waits, at most this long, for the running job. The caller
/// must not hold the GIL, which that job may need.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn close(at_most: Duration) {
    if runtime::not_forked().is_err() {
        return;
    }
    STATE.lock().closed = true;
    // Jobs that are due are skipped, which takes no time.
    drain(at_most);
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
