//! What must happen before the SYCL runtime's own destructors run at the end of the process.

use super::{EXITING, FORKED, STATE};
use once_cell::sync::OnceCell;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

/// Threads inside a wait of the runtime, and work that such a thread has yet to begin.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Counts one wait while it lives.
pub(crate) struct Pending(());

impl Pending {
    pub(crate) fn new() -> Self {
        PENDING.fetch_add(1, Ordering::AcqRel);
        Self(())
    }

    /// As [`Pending::new`], for a thread that need not go on while the process ends: then there is none.
    pub(crate) fn unless_leaving() -> Option<Self> {
        let pending = Self::new();
        // Either `leave` sees this count, or this thread sees that the process ends.
        fence(Ordering::SeqCst);
        (STATE.load(Ordering::Acquire) != EXITING).then_some(pending)
    }

    /// As [`Pending::new`], for a wait of any thread. While the process ends, only its leaver and helpers come through.
    /// To be asked for after the object to wait for: the question for that may stop the thread, too, and what is
    /// counted must go on.
    pub(crate) fn for_wait() -> Self {
        Self::unless_leaving().unwrap_or_else(|| {
            park_if_exiting();
            Self::new()
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        PENDING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What waits for the work that is still in flight at the end of the process.
static FINISH: OnceCell<fn()> = OnceCell::new();

pub(crate) fn finish_with(finish: fn()) {
    // Only the first one counts, and there is only one.
    let _ = FINISH.set(finish);
}

/// Puts a handler before all destructors that are registered so far. Called once the runtime has registered its own, and
/// again after each load of a library that it calls; only the first handler that runs has something to do.
pub(crate) fn guard() {
    unsafe extern "C" {
        /// glibc: as `atexit`, with the exit status for the handler.
        fn on_exit(
            handler: extern "C" fn(libc::c_int, *mut libc::c_void),
            data: *mut libc::c_void,
        ) -> libc::c_int;
    }
    // SAFETY: the handler is a function of this library, which is never unloaded. Should it not be registered, for
    // want of memory, the process ends as it would without it.
    unsafe { on_exit(leave, std::ptr::null_mut()) };
}

/// The thread that ends the process.
static LEAVER: AtomicUsize = AtomicUsize::new(0);

fn this_thread() -> usize {
    // SAFETY: only tells who is asking.
    unsafe { libc::pthread_self() as usize }
}

thread_local! {
    static HELPS: Cell<bool> = const { Cell::new(false) };
}

/// For threads of ours that others' work waits for: they may go on while the process ends.
pub(crate) fn help_to_the_end() {
    HELPS.set(true);
}

/// Stops every thread but the one that ends the process and its helpers: the runtime is going away, and so are they.
pub(super) fn park_if_exiting() {
    while !HELPS.get() && LEAVER.load(Ordering::Acquire) != this_thread() {
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
        // Drivers tear themselves down under commands that still run.
        if let Some(finish) = FINISH.get() {
            finish();
        }
        // A thread that still waits would find the runtime gone. Its work ends by itself, as the runtime's destructors
        // would also wait for it.
        while PENDING.load(Ordering::Acquire) != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        return;
    }
    // In a forked child the runtime's destructors wait for threads that exist only in the parent.
    // SAFETY: flushes the C streams, which `exit` would have done after the destructors.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: ends the process with the status that `exit` was given.
    unsafe { libc::_exit(status) }
}
