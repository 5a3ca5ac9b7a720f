//! A thread that runs jobs in the order in which they became due.

use crate::error::{Error, Result};
use crate::runtime::exit::{self, ForeignCode};
use crate::runtime::{self, CountedWait};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Queued {
    pub(super) job: Job,
    /// Runs code of another library, which may need Python.
    pub(super) foreign: bool,
    /// Whether a thread may wait for it.
    pub(super) urgent: bool,
}

/// The thread starts before the first use of a device, or with an earlier job, and runs as long as the process.
pub(super) struct Worker {
    name: &'static str,
    state: Mutex<State>,
    due: Condvar,
    finished: Condvar,
}

struct State {
    due: VecDeque<Queued>,
    /// Whether the thread runs.
    started: bool,
    /// Whether the thread polls for jobs, so that a new job need not wake it.
    awake: bool,
    /// The number of jobs taken from `due` that have returned.
    finished: u64,
    accepted: u64,
    /// Whether foreign code runs now.
    is_in_foreign_code: bool,
    /// Whether foreign code must not run any more, because the interpreter is about to exit.
    closed: bool,
}

/// After a job the thread stays awake for a while and polls for more with pauses: most jobs are not urgent, and
/// waking a thread costs the thread that drops an array microseconds.
const AWAKE: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(1);

impl Worker {
    pub(super) const fn new(name: &'static str) -> Self {
        let state = State {
            due: VecDeque::new(),
            started: false,
            awake: false,
            finished: 0,
            accepted: 0,
            is_in_foreign_code: false,
            closed: false,
        };
        Self { name, state: Mutex::new(state), due: Condvar::new(), finished: Condvar::new() }
    }

    /// Starts the thread if it does not run.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub(super) fn start(&'static self) -> Result<()> {
        self.start_locked(&mut self.state.lock())
    }

    fn start_locked(&'static self, state: &mut State) -> Result<()> {
        if !state.started {
            let thread = std::thread::Builder::new().name(self.name.to_owned());
            thread.spawn(|| self.run()).map_err(|reason| Error::no_thread(self.name, &reason))?;
            state.started = true;
        }
        Ok(())
    }

    /// Adds a job, and does not wait.
    pub(super) fn put(&'static self, queued: Queued) {
        if runtime::not_forked().is_err() {
            // The threads exist in the parent only, and the memory belongs to the parent's devices.
            return std::mem::forget(queued.job);
        }
        let mut state = self.state.lock();
        if queued.foreign && state.closed {
            drop(state);
            return std::mem::forget(queued.job);
        }
        let urgent = queued.urgent;
        state.due.push_back(queued);
        state.accepted += 1;
        // Without a thread, which only a job before the first use of a device can meet, jobs stay until `drain` or the next
        // attempt to start one.
        let _ = self.start_locked(&mut state);
        let wake = urgent || !state.awake;
        drop(state);
        if wake {
            self.due.notify_one();
        }
    }

    fn run(&self) {
        exit::help_to_the_end();
        let mut state = self.state.lock();
        let mut last = Instant::now();
        loop {
            if let Some(queued) = state.due.pop_front() {
                state.awake = true;
                self.run_one(&mut state, queued);
                last = Instant::now();
            } else if state.awake && last.elapsed() < AWAKE {
                self.due.wait_for(&mut state, PAUSE);
            } else {
                state.awake = false;
                self.due.wait(&mut state);
            }
        }
    }

    /// Runs a job outside the lock, unless it is no longer needed.
    fn run_one(&self, state: &mut MutexGuard<'_, State>, Queued { job, foreign, .. }: Queued) {
        let skip = foreign && state.closed;
        state.is_in_foreign_code = foreign && !skip;
        MutexGuard::unlocked(state, || {
            // The end of the process waits for the runtime, but not long for foreign code.
            let counted = if foreign { None } else { CountedWait::unless_leaving() };
            let entered = if foreign { ForeignCode::enter() } else { None };
            if skip || (counted.is_none() && entered.is_none()) {
                // The end of the process frees the rest.
                return std::mem::forget(job);
            }
            // A deleter that panics has freed what it could; the thread continues with others.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)));
        });
        state.is_in_foreign_code = false;
        state.finished += 1;
        self.finished.notify_all();
    }

    /// Waits, at most this long, until the jobs that are due now have run. Never call it with a lock that a job
    /// needs.
    pub(super) fn drain(&self, at_most: Duration) -> bool {
        if runtime::not_forked().is_err() {
            return true;
        }
        let deadline = Instant::now() + at_most;
        let mut state = self.state.lock();
        let due = state.accepted;
        self.due.notify_one();
        while state.finished < due {
            if !state.started {
                let Some(queued) = state.due.pop_front() else { break };
                self.run_one(&mut state, queued);
            } else if self.finished.wait_until(&mut state, deadline).timed_out() {
                return state.finished >= due;
            }
        }
        true
    }

    /// Stops foreign code: none begins after this call. Waits until `deadline` for the code that runs; returns whether it has
    /// ended.
    pub(super) fn close(&self, deadline: Instant) -> bool {
        if runtime::not_forked().is_err() {
            return true;
        }
        let mut state = self.state.lock();
        state.closed = true;
        while state.is_in_foreign_code {
            if self.finished.wait_until(&mut state, deadline).timed_out() {
                return !state.is_in_foreign_code;
            }
        }
        true
    }
}
