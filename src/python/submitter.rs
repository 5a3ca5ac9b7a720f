//! Submits commands for Python threads while other Python threads compete for the GIL.
//!
//! usmq submits without the GIL, because a host task of another library may need it. Beside a thread that runs Python, a
//! thread that releases the GIL for some microseconds often gets it back only after Python's switch interval of
//! 5 ms. After such a loss, the *submitter* thread submits for a tenth of a second, and the calling thread keeps the GIL.
//! That wait is bounded: after [`PATIENCE`] the caller releases the GIL as usual, so it cannot deadlock.

use super::gil::detach;
use crate::Queue;
use crate::runtime::{exit, not_forked};
use crate::trace::log;
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A thread that gets the GIL back later than this has lost it to another thread.
const LOST: Duration = Duration::from_millis(1);

/// The time after a loss during which the GIL counts as contended.
const CONTENDED: Duration = Duration::from_millis(100);

/// The longest wait that keeps the GIL.
const PATIENCE: Duration = Duration::from_micros(200);

/// Nanoseconds since the first call of this function.
fn now() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Until when the GIL counts as contended, as by [`now`].
static UNTIL: AtomicU64 = AtomicU64::new(0);

fn is_contended() -> bool {
    let until = UNTIL.load(Ordering::Relaxed);
    until != 0 && now() < until
}

/// A closure on the stack of a caller that waits until it has run.
struct Job(*mut (dyn FnMut() + Send));

// SAFETY: the closure is Send, and only the submitter thread calls it.
unsafe impl Send for Job {}

#[derive(Default)]
struct State {
    started: bool,
    job: Option<Job>,
}

static STATE: Mutex<State> = Mutex::new(State { started: false, job: None });
static SUBMITTED: Condvar = Condvar::new();
static FINISHED: Condvar = Condvar::new();
/// Whether a caller uses the submitter thread.
static IN_USE: AtomicBool = AtomicBool::new(false);
/// Whether the job of that caller has run. It is set with `STATE` locked.
static DONE: AtomicBool = AtomicBool::new(false);

/// Requests short time slices, so that the thread runs soon after it was woken on a busy machine. Linux 6.12 or newer;
/// others ignore it.
fn run_soon() {
    const SLICE: Duration = Duration::from_micros(100);
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    // SAFETY: writes a struct of this size, about this thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } == 0;
    // A thread of another class, such as SCHED_FIFO, keeps its attributes.
    if known && attributes.policy == libc::SCHED_OTHER as u32 {
        attributes.runtime = SLICE.as_nanos() as u64;
        // SAFETY: reads a struct of the size that it gives, and changes this thread only.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

fn serve() {
    // The thread that ends the process may submit, too.
    exit::help_to_the_end();
    run_soon();
    let mut state = STATE.lock();
    loop {
        let Some(job) = state.job.take() else {
            SUBMITTED.wait(&mut state);
            continue;
        };
        drop(state);
        // SAFETY: the caller keeps the closure until `DONE`, and does not touch it meanwhile.
        unsafe { (*job.0)() };
        state = STATE.lock();
        DONE.store(true, Ordering::Release);
        FINISHED.notify_all();
    }
}

/// The submitter thread, reserved for one caller.
struct Reserved(());

impl Reserved {
    fn get() -> Option<Self> {
        if IN_USE.swap(true, Ordering::Acquire) {
            return None;
        }
        let reserved = Self(());
        let mut state = STATE.lock();
        if !state.started {
            let thread = std::thread::Builder::new().name("usmq-submit".to_owned());
            state.started = thread.spawn(serve).is_ok();
        }
        state.started.then_some(reserved)
    }

    /// Runs `f` on the submitter thread.
    fn run<T: Send>(self, py: Python<'_>, f: impl FnOnce() -> T + Send) -> T {
        let (mut f, mut result) = (Some(f), None);
        let mut job = || result = f.take().map(|f| catch_unwind(AssertUnwindSafe(f)));
        let job: *mut (dyn FnMut() + Send + '_) = &raw mut job;
        // SAFETY: changes only the lifetime. `wait` returns after the closure has run.
        let job =
            unsafe { std::mem::transmute::<*mut (dyn FnMut() + Send + '_), *mut (dyn FnMut() + Send)>(job) };
        DONE.store(false, Ordering::Relaxed);
        STATE.lock().job = Some(Job(job));
        SUBMITTED.notify_one();
        Self::wait(py);
        drop(self);
        match result {
            Some(Ok(value)) => value,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("the submitter thread has run the job"),
        }
    }

    fn wait(py: Python<'_>) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if DONE.load(Ordering::Acquire) {
                return;
            }
            // The submitter may need this core.
            std::thread::yield_now();
        }
        detach(py, || {
            let mut state = STATE.lock();
            while !DONE.load(Ordering::Acquire) {
                FINISHED.wait(&mut state);
            }
        });
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        IN_USE.store(false, Ordering::Release);
    }
}

/// Runs `f`, which submits a command to the queue, without the GIL.
pub(super) fn submit<T: Send>(py: Python<'_>, queue: &Queue, f: impl FnOnce() -> T + Send) -> T {
    // Records belong to the thread that calls usmq, so it submits itself while a profile is open.
    if is_contended()
        && !log::on()
        && !super::capture_scope::is_any_open()
        && not_forked().is_ok()
        // A signal can interrupt the wait for room on this thread only.
        && !queue.is_full()
        && let Some(reserved) = Reserved::get()
    {
        return reserved.run(py, f);
    }
    let (value, ended) = detach(py, || (f(), Instant::now()));
    if ended.elapsed() > LOST {
        UNTIL.store(now() + CONTENDED.as_nanos() as u64, Ordering::Relaxed);
    }
    value
}

/// Whether `done` returns true, now or, while the GIL is contended, within [`PATIENCE`].
pub(super) fn done_soon(done: impl Fn() -> bool) -> bool {
    if done() {
        return true;
    }
    if !is_contended() {
        return false;
    }
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if done() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}
