//! Tracks whether the runtime may still be called: not after the process has begun to exit, when the SYCL runtime's
//! destructors may run, and not in a forked child.

use crate::error::{Error, Result};
use crate::ffi;
use once_cell::sync::OnceCell;
use std::cell::Cell;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

/// Whether the runtime may still be called.
static STATE: AtomicU8 = AtomicU8::new(ALIVE);

const ALIVE: u8 = 0;
/// In a child that was forked after the runtime had started.
const FORKED: u8 = 1;
/// The process is ending: its exit handler waits for work.
const EXITING: u8 = 2;
/// The exit handler has run. As in a forked child, no call may use an object of the runtime.
const ENDED: u8 = 3;

/// An error where the runtime may not be called: in a child that was forked after the runtime had started, whose threads
/// and device state are gone, and after the exit handler. While that runs, most threads stop here.
pub(crate) fn ensure_usable() -> Result<()> {
    match STATE.load(Ordering::Relaxed) {
        ALIVE => Ok(()),
        FORKED => Err(Error::Fork),
        _ => pass_or_park(),
    }
}

/// As [`ensure_usable`], for code that makes no call of the runtime: it may continue while the process exits.
pub(crate) fn not_forked() -> Result<()> {
    match STATE.load(Ordering::Relaxed) {
        FORKED => Err(Error::Fork),
        ENDED => Err(Error::Exit),
        _ => Ok(()),
    }
}

/// Whether the exit handler has run: memory of the runtime must not be touched, but host memory is as before.
pub(crate) fn has_ended() -> bool {
    STATE.load(Ordering::Acquire) == ENDED
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
    /// # Errors
    /// As [`ensure_usable`]: while the process exits, only the exiting thread, its helpers, foreign code and threads
    /// that are counted already pass.
    pub(crate) fn begin() -> Result<Self> {
        let counted = Self::counted();
        // Either `leave` sees this count, or this thread sees that the process is exiting.
        fence(Ordering::SeqCst);
        if STATE.load(Ordering::Acquire) == ALIVE {
            return Ok(counted);
        }
        drop(counted);
        ensure_usable()?;
        let counted = Self::counted();
        fence(Ordering::SeqCst);
        not_forked().map(|()| counted)
    }

    /// For a thread that need not continue while the process exits; then it returns None, also in a forked child.
    pub(crate) fn unless_leaving() -> Option<Self> {
        let counted = Self::counted();
        fence(Ordering::SeqCst);
        (STATE.load(Ordering::Acquire) == ALIVE).then_some(counted)
    }

    fn counted() -> Self {
        watch_this_thread();
        // A thread that is ending has no count of its own any more; it is not parked before this wait is over.
        let _ = WAITS.try_with(|waits| waits.set(waits.get() + 1));
        Self { _pending: Pending::new(), _of_this_thread: PhantomData }
    }
}

impl Drop for CountedWait {
    fn drop(&mut self) {
        let _ = WAITS.try_with(|waits| waits.set(waits.get() - 1));
    }
}

/// The number of builds of kernels in flight.
static BUILDS: AtomicUsize = AtomicUsize::new(0);

/// Counts a build while it lives. A build may load a compiler, or be the first that uses a part of it: the destructors of
/// that part must run after usmq's handler, which is therefore registered again at the end of the build.
pub(crate) struct Building {
    _counted: CountedWait,
}

impl Building {
    /// # Errors
    /// As [`CountedWait::begin`].
    pub(crate) fn begin() -> Result<Self> {
        let _counted = CountedWait::begin()?;
        BUILDS.fetch_add(1, Ordering::AcqRel);
        Ok(Self { _counted })
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        guard();
        BUILDS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for builds when the main thread ends. `exit` destroys the calling thread's local variables before it calls the
/// first handler (glibc, `__run_exit_handlers`), so the compiler's destructors have not run yet.
struct EndOfThread;

thread_local! {
    static END_OF_THREAD: EndOfThread = const { EndOfThread };
}

impl Drop for EndOfThread {
    fn drop(&mut self) {
        // SAFETY: only queries the calling thread.
        let thread = unsafe { libc::gettid() };
        let is_main = u32::try_from(thread) == Ok(std::process::id());
        while is_main && BUILDS.load(Ordering::Acquire) > 0 && STATE.load(Ordering::Acquire) == ALIVE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Lets the end of this thread wait for builds if it is the main thread, which usually ends the process.
pub(crate) fn watch_this_thread() {
    // Fails only while the thread ends.
    let _ = END_OF_THREAD.try_with(|_| ());
}

/// The number of threads of usmq that run code of the user or of another library.
static IN_FOREIGN_CODE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is one of them.
    static IS_IN_FOREIGN_CODE: Cell<bool> = const { Cell::new(false) };
}

/// Marks foreign code on a thread of usmq while it lives: a callback, a waker or the drop of an owner. The end of the
/// process waits for it, at most [`FOREIGN_AT_EXIT`].
pub(crate) struct ForeignCode(PhantomData<*const ()>);

impl ForeignCode {
    /// None while the process exits: then no foreign code begins.
    pub(crate) fn enter() -> Option<Self> {
        IN_FOREIGN_CODE.fetch_add(1, Ordering::AcqRel);
        IS_IN_FOREIGN_CODE.set(true);
        ffi::set_foreign_code(true);
        let entered = Self(PhantomData);
        fence(Ordering::SeqCst);
        (STATE.load(Ordering::Acquire) == ALIVE).then_some(entered)
    }
}

impl Drop for ForeignCode {
    fn drop(&mut self) {
        ffi::set_foreign_code(false);
        IS_IN_FOREIGN_CODE.set(false);
        IN_FOREIGN_CODE.fetch_sub(1, Ordering::AcqRel);
    }
}

fn is_in_foreign_code() -> bool {
    IS_IN_FOREIGN_CODE.try_with(Cell::get).unwrap_or(false)
}

/// The longest time that the end of the process waits for foreign code.
pub(crate) const FOREIGN_AT_EXIT: Duration = Duration::from_secs(1);

/// Whether [`ends_without_foreign_code`] has written its line.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Says once that the process ends while foreign code runs.
pub(crate) fn ends_without_foreign_code() {
    if !TOLD.swap(true, Ordering::AcqRel) {
        // This fails only if standard error is closed.
        let _ = writeln!(
            std::io::stderr(),
            "usmq: the process ends while a callback, a waker or the release of foreign memory still runs on a thread of \
             usmq; usmq waited {} s for it. Let it return earlier, or run it on a thread of your own",
            FOREIGN_AT_EXIT.as_secs()
        );
    }
}

/// Waits for the work in flight at process exit.
static FINISH: OnceCell<fn()> = OnceCell::new();

pub(crate) fn finish_with(finish: fn()) {
    // Only the first call has an effect; all pass the same function.
    let _ = FINISH.set(finish);
}

/// Registers a handler that runs before all destructors registered so far. Called after the runtime has
/// registered its own, and again after each build, which may load a library; only the first handler that runs
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

/// Whether this thread is one of those.
pub(crate) fn is_helper() -> bool {
    HELPS.try_with(Cell::get).unwrap_or(false)
}

/// Stops a thread while the process exits, except the exiting one, its helpers, foreign code and those that it waits for,
/// since the runtime is being torn down.
#[cold]
fn pass_or_park() -> Result<()> {
    let continues = is_helper()
        || WAITS.try_with(Cell::get).unwrap_or(0) > 0
        || is_in_foreign_code()
        || LEAVER.load(Ordering::Acquire) == this_thread();
    // A stopped thread reports no errors while the process ends. An exit handler or a static destructor may wait for it,
    // so it gets the error if the process still lives a second after the end of the runtime.
    static IS_LATE: AtomicBool = AtomicBool::new(false);
    let mut had_ended = false;
    while !continues && !IS_LATE.load(Ordering::Acquire) {
        std::thread::sleep(PARKED);
        IS_LATE.fetch_or(had_ended, Ordering::AcqRel);
        had_ended = has_ended();
    }
    not_forked()
}

/// How long threads stay parked after the exit handler has run.
const PARKED: Duration = Duration::from_secs(1);

extern "C" fn leave(status: libc::c_int, _: *mut libc::c_void) {
    match STATE.compare_exchange(ALIVE, EXITING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => end(),
        Err(FORKED) => {
            // In a forked child the runtime's destructors would wait for threads that exist only in the parent.
            // SAFETY: flushes the C streams, which `exit` would have done after the destructors.
            unsafe { libc::fflush(std::ptr::null_mut()) };
            // SAFETY: exits with the status that `exit` received.
            unsafe { libc::_exit(status) }
        }
        // Another thread ends the process.
        Err(_) => {
            while LEAVER.load(Ordering::Acquire) != this_thread() {
                std::thread::sleep(PARKED);
            }
        }
    }
}

/// Waits for everything that uses the runtime, and closes it.
fn end() {
    LEAVER.store(this_thread(), Ordering::Release);
    fence(Ordering::SeqCst);
    // Foreign code may call the C library's `exit` on another thread meanwhile. The handler stops that thread.
    guard();
    // Drivers tear themselves down while commands still run.
    if let Some(finish) = FINISH.get() {
        finish();
    }
    // The exit may have been called by foreign code, or below a wait.
    let own_waits = WAITS.try_with(Cell::get).unwrap_or(0);
    let own_code = usize::from(is_in_foreign_code());
    let begun = Instant::now();
    let foreign_code_runs = || {
        if IN_FOREIGN_CODE.load(Ordering::Acquire) <= own_code || TOLD.load(Ordering::Acquire) {
            return false;
        }
        let waits = begun.elapsed() < FOREIGN_AT_EXIT;
        if !waits {
            ends_without_foreign_code();
        }
        waits
    };
    // A waiting thread would use a destroyed runtime. Its work completes; the runtime's destructors would
    // wait for it too.
    let is_in_use = || PENDING.load(Ordering::Acquire) > own_waits;
    while foreign_code_runs() || is_in_use() {
        std::thread::sleep(Duration::from_millis(1));
    }
    STATE.store(ENDED, Ordering::Release);
    ffi::end_foreign_calls();
    fence(Ordering::SeqCst);
    // Foreign code that still runs may be in a wait or another call of the runtime.
    while is_in_use() || ffi::foreign_calls() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}
