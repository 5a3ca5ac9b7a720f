//! Tracks whether the runtime may still be called: not after the process has begun to exit, when the SYCL runtime's
//! destructors may run, and not in a forked child.

use crate::error::{Error, Result};
use once_cell::sync::OnceCell;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering, fence};
use std::time::Duration;

/// Whether the runtime may still be called.
static STATE: AtomicU8 = AtomicU8::new(ALIVE);

const ALIVE: u8 = 0;
/// In a child that was forked after the runtime had started.
const FORKED: u8 = 1;
/// The process is ending.
const EXITING: u8 = 2;

/// An error in a child that was forked after the runtime had started: its threads and device state are gone.
pub(crate) fn ensure_usable() -> Result<()> {
    match STATE.load(Ordering::Relaxed) {
        ALIVE => Ok(()),
        FORKED => Err(Error::Fork),
        _ => {
            park_if_exiting();
            Ok(())
        }
    }
}

/// As [`ensure_usable`], for code that makes no call of the runtime: it may continue during process exit.
pub(crate) fn not_forked() -> Result<()> {
    if STATE.load(Ordering::Relaxed) == FORKED { Err(Error::Fork) } else { Ok(()) }
}

pub(super) fn watch_for_fork() {
    extern "C" fn in_child() {
        STATE.store(FORKED, Ordering::Relaxed);
        guard();
    }
    // SAFETY: the handler stores to a static atomic and registers a function.
    let status = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    debug_assert_eq!(status, 0, "pthread_atfork fails only if no memory is left");
}

/// The number of waits inside the runtime, and of work that a thread will begin: the process does not exit before.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Counts work that another thread will end, while it lives.
pub(crate) struct Pending(());

impl Pending {
    pub(crate) fn new() -> Self {
        PENDING.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        PENDING.fetch_sub(1, Ordering::AcqRel);
    }
}

thread_local! {
    /// The number of counted waits of this thread.
    static WAITS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a wait of this thread while it lives. The exiting thread waits for it, so this thread is not parked meanwhile.
pub(crate) struct CountedWait {
    _pending: Pending,
    _of_this_thread: PhantomData<*const ()>,
}

impl CountedWait {
    /// During process exit, only the exiting thread and its helpers pass, and threads that are counted already.
    pub(crate) fn begin() -> Self {
        Self::unless_leaving().unwrap_or_else(|| {
            park_if_exiting();
            Self::counted()
        })
    }

    /// As [`CountedWait::begin`], for a thread that need not continue during process exit; then it returns None.
    pub(crate) fn unless_leaving() -> Option<Self> {
        let counted = Self::counted();
        // Either `leave` sees this count, or this thread sees that the process is exiting.
        fence(Ordering::SeqCst);
        (STATE.load(Ordering::Acquire) != EXITING).then_some(counted)
    }

    fn counted() -> Self {
        WAITS.set(WAITS.get() + 1);
        Self { _pending: Pending::new(), _of_this_thread: PhantomData }
    }
}

impl Drop for CountedWait {
    fn drop(&mut self) {
        WAITS.set(WAITS.get() - 1);
    }
}

/// Waits for the work in flight at process exit.
static FINISH: OnceCell<fn()> = OnceCell::new();

pub(crate) fn finish_with(finish: fn()) {
    // Only the first call has an effect; all pass the same function.
    let _ = FINISH.set(finish);
}

/// Registers a handler that runs before all destructors registered so far. Called after the runtime has
/// registered its own, and again after each load of a library that it calls; only the first handler that runs
/// has an effect.
pub(crate) fn guard() {
    unsafe extern "C" {
        /// glibc: as `atexit`, with the exit status for the handler.
        fn on_exit(
            handler: extern "C" fn(libc::c_int, *mut libc::c_void),
            data: *mut libc::c_void,
        ) -> libc::c_int;
    }
    // SAFETY: the handler is a function of this library, which is never unloaded. If registration fails
    // because memory is short, the process exits as it would without it.
    unsafe { on_exit(leave, std::ptr::null_mut()) };
}

/// The thread that runs the process exit.
static LEAVER: AtomicUsize = AtomicUsize::new(0);

fn this_thread() -> usize {
    // SAFETY: only queries the calling thread.
    unsafe { libc::pthread_self() as usize }
}

thread_local! {
    static HELPS: Cell<bool> = const { Cell::new(false) };
}

/// For usmq threads that other work waits for: they may continue during process exit.
pub(crate) fn help_to_the_end() {
    HELPS.set(true);
}

/// Parks every thread except the exiting one, its helpers, and those that it waits for, since the runtime is being torn
/// down.
fn park_if_exiting() {
    while !HELPS.get() && WAITS.get() == 0 && LEAVER.load(Ordering::Acquire) != this_thread() {
        std::thread::sleep(Duration::from_secs(1));
    }
}

extern "C" fn leave(status: libc::c_int, _: *mut libc::c_void) {
    let state = STATE.load(Ordering::Acquire);
    if state == EXITING {
        return;
    }
    if state != FORKED {
        LEAVER.store(this_thread(), Ordering::Release);
        STATE.store(EXITING, Ordering::Release);
        fence(Ordering::SeqCst);
        // Drivers tear themselves down while commands still run.
        if let Some(finish) = FINISH.get() {
            finish();
        }
        // A waiting thread would use a destroyed runtime. Its work completes; the runtime's destructors would
        // wait for it too.
        while PENDING.load(Ordering::Acquire) != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        return;
    }
    // In a forked child the runtime's destructors would wait for threads that exist only in the parent.
    // SAFETY: flushes the C streams, which `exit` would have done after the destructors.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: exits with the status that `exit` received.
    unsafe { libc::_exit(status) }
}
