//! The log of what was recorded: one for the process. A session is a window of it, so that sessions may nest and
//! overlap, and each sees what happened, on any thread, while it was open.

use super::watch;
use super::what::Record;
use once_cell::sync::OnceCell;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most records that are kept at once; what comes later is counted only.
pub(crate) const LIMIT: usize = 1 << 18;

pub(super) type Guard<T> = MutexGuard<'static, T>;

/// The lock is std's: who waits for one of parking_lot's stands in a table that a forked child may find locked.
pub(super) fn lock<T>(mutex: &'static Mutex<T>) -> Guard<T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Open sessions.
static OPEN: AtomicUsize = AtomicUsize::new(0);

static LOG: Mutex<Log> = Mutex::new(Log { records: Vec::new(), first: 1, dropped: 0 });

pub(super) struct Log {
    records: Vec<Record>,
    /// The number of the first record; numbers are never used again, and 0 is none.
    first: u64,
    dropped: u64,
}

impl Log {
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }
}

/// Whether anything is to be recorded.
pub(crate) fn on() -> bool {
    OPEN.load(Ordering::Relaxed) != 0
}

/// Nanoseconds of the host's steady clock, which is also `std::chrono::steady_clock`'s.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is there to be written; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A session's part of the log.
pub(crate) struct Window {
    from: u64,
    dropped: u64,
    /// Of the host's clock.
    pub opened: u64,
    process: u32,
}

impl Window {
    /// Whether this is a child that was forked while the session was open. Recording has stopped there.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

/// Starts recording for one more session.
pub(crate) fn open() -> Window {
    watch_for_fork();
    let (window, _inherited) = {
        let mut log = lock(&LOG);
        let mut inherited = Vec::new();
        if OPEN.fetch_add(1, Ordering::Relaxed) == 0 {
            // In a child, what its parent recorded.
            log.first = log.next();
            inherited = std::mem::take(&mut log.records);
            log.dropped = 0;
        }
        let (from, dropped) = (log.next(), log.dropped);
        (Window { from, dropped, opened: now(), process: std::process::id() }, inherited)
    };
    watch::start();
    window
}

/// A child must find no lock held by a thread that it does not have, so who forks holds them meanwhile.
fn watch_for_fork() {
    static ONCE: OnceCell<()> = OnceCell::new();
    type Held = (watch::Frozen, Guard<Log>);
    thread_local! {
        static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    }
    extern "C" fn before() {
        let held = (watch::freeze(), lock(&LOG));
        HELD.with(|place| place.replace(Some(held)));
    }
    extern "C" fn in_parent() {
        HELD.with(RefCell::take);
    }
    extern "C" fn in_child() {
        OPEN.store(0, Ordering::Relaxed);
        watch::in_child();
        HELD.with(RefCell::take);
    }
    ONCE.get_or_init(|| {
        // SAFETY: the handlers lock, unlock and store. It fails only for want of memory; then a child may lock up.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

/// The end of a window: what comes later belongs to it no more.
pub(crate) fn next() -> u64 {
    lock(&LOG).next()
}

/// Ends a session, and gives its records up to `to` and the number of those that were not kept.
pub(crate) fn close(window: &Window, to: u64) -> (Vec<Record>, u64) {
    let mut log = lock(&LOG);
    let last = OPEN.fetch_sub(1, Ordering::Relaxed) == 1;
    let dropped = log.dropped - window.dropped;
    let place = |id: u64| id.saturating_sub(log.first).min(log.records.len() as u64) as usize;
    let from = place(window.from);
    // A session that is given up closes at 0, though others may have recorded something before it.
    let to = place(to).max(from);
    if !last {
        return (log.records[from..to].to_vec(), dropped);
    }
    log.first = log.next();
    let mut records = std::mem::take(&mut log.records);
    drop(log);
    watch::forget();
    records.truncate(to);
    records.drain(..from);
    (records, dropped)
}

/// The number that the record gets; None when there are too many.
pub(super) fn push(mut record: Record) -> Option<u64> {
    let mut log = lock(&LOG);
    if log.records.len() >= LIMIT {
        log.dropped += 1;
        return None;
    }
    record.id = log.next();
    let id = record.id;
    log.records.push(record);
    Some(id)
}

/// The ends of some commands, each with the device's own times where there are any.
pub(super) fn ended(commands: &[(u64, u64, Option<[u64; 3]>)]) {
    let mut log = lock(&LOG);
    let first = log.first;
    for (id, seen, stamps) in commands {
        let place = id.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        // A command of a session that is over is in no log.
        if let Some(record) = place.and_then(|place| log.records.get_mut(place)) {
            (record.seen, record.stamps) = (*seen, *stamps);
        }
    }
}
