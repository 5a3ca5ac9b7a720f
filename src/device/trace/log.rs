//! The log of what was recorded: one for the process. A session is a window of it, so that sessions may nest and
//! overlap, and each sees what happened, on any thread, while it was open.
//!
//! The poller sees when recorded commands end: after each wait of the host, and now and then from a thread of its own.
//! The state of events is asked for, never waited for: two threads that wait at once for out-of-order queues can lock
//! up the OpenCL driver for CPUs.

use super::record::Record;
use crate::device::Event;
use crate::runtime::{Pending, exit};
use once_cell::sync::OnceCell;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

/// The most records that are kept at once; what comes later is counted only.
pub(crate) const LIMIT: usize = 1 << 18;

type Guard<T> = MutexGuard<'static, T>;

/// The lock is std's: who waits for one of parking_lot's stands in a table that a forked child may find locked.
fn lock<T>(mutex: &'static Mutex<T>) -> Guard<T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Open sessions.
static OPEN: AtomicUsize = AtomicUsize::new(0);

static LOG: Mutex<Log> = Mutex::new(Log { records: Vec::new(), first: 1, dropped: 0 });

struct Log {
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
    start_poller();
    window
}

/// A child must find no lock held by a thread that it does not have, so who forks holds them meanwhile.
fn watch_for_fork() {
    static ONCE: OnceCell<()> = OnceCell::new();
    type Held = (Frozen, Guard<Log>);
    thread_local! {
        static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    }
    extern "C" fn before() {
        let held = (freeze_poller(), lock(&LOG));
        HELD.with(|place| place.replace(Some(held)));
    }
    extern "C" fn in_parent() {
        HELD.with(RefCell::take);
    }
    extern "C" fn in_child() {
        OPEN.store(0, Ordering::Relaxed);
        stop_poller();
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
    forget_commands();
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
fn note_ends(commands: &[(u64, u64, Option<[u64; 3]>)]) {
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

/// How long the thread sleeps between two polls: the error of times that the host observes.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// From how many queues on those without work are forgotten.
const MANY: usize = 32;

/// Looks so far, by whomever.
static POLLS: AtomicU64 = AtomicU64::new(0);

/// Commands that are not known to be complete, by queue, oldest first.
static IN_FLIGHT: Mutex<Vec<InFlightQueue>> = Mutex::new(Vec::new());

struct InFlightQueue {
    queue: usize,
    in_order: bool,
    commands: Vec<(u64, Event)>,
}

/// Held by whoever polls.
static POLLING: Mutex<()> = Mutex::new(());

pub(super) fn add(id: u64, event: &Event) {
    let queue = event.queue();
    let mut queues = lock(&IN_FLIGHT);
    if !on() {
        return;
    }
    match queues.iter_mut().find(|in_flight| in_flight.queue == queue.id()) {
        Some(in_flight) => {
            if in_flight.commands.is_empty() {
                // It may be another queue, at the address of one that is gone.
                in_flight.in_order = queue.in_order();
            }
            in_flight.commands.push((id, event.clone()));
        }
        None => queues.push(InFlightQueue {
            queue: queue.id(),
            in_order: queue.in_order(),
            commands: vec![(id, event.clone())],
        }),
    }
}

/// Notes the commands that have ended by now, and says whether one with a number below `to` has not.
pub(crate) fn poll(to: u64) -> bool {
    // Whoever polls just now sees the same.
    let _alone = match POLLING.try_lock() {
        Ok(alone) => alone,
        Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
        Err(TryLockError::WouldBlock) => return true,
    };
    POLLS.fetch_add(1, Ordering::Relaxed);
    let mut queues = std::mem::take(&mut *lock(&IN_FLIGHT));
    let mut ended = Vec::new();
    for in_flight in &mut queues {
        if in_flight.in_order {
            let running = in_flight.commands.iter().position(|(_, event)| !is_over(event));
            let over = in_flight.commands.drain(..running.unwrap_or(in_flight.commands.len()));
            ended.extend(over.map(end_of));
        } else {
            let (over, running) = in_flight.commands.drain(..).partition(|(_, event)| is_over(event));
            in_flight.commands = running;
            let over: Vec<(u64, Event)> = over;
            ended.extend(over.into_iter().map(end_of));
        }
    }
    note_ends(&ended);
    if queues.len() > MANY {
        queues.retain(|in_flight| !in_flight.commands.is_empty());
    }
    let waiting = queues.iter().any(|in_flight| in_flight.commands.iter().any(|(id, _)| *id < to));
    put_back(queues);
    waiting
}

/// Lets go of the commands that no session polls at any more.
fn forget_commands() {
    let mut queues = lock(&IN_FLIGHT);
    // Another one may have begun meanwhile.
    if !on() {
        let gone = std::mem::take(&mut *queues);
        drop(queues);
        drop(gone);
    }
}

/// What was submitted meanwhile comes after what was looked at.
fn put_back(queues: Vec<InFlightQueue>) {
    let mut now = lock(&IN_FLIGHT);
    if !on() {
        // Events may be the last to know of their queues, which go outside the lock.
        drop(now);
        return drop(queues);
    }
    if now.is_empty() {
        *now = queues;
        return;
    }
    for mut in_flight in queues {
        match now.iter_mut().find(|other| other.queue == in_flight.queue) {
            Some(other) => {
                in_flight.commands.append(&mut other.commands);
                other.commands = in_flight.commands;
            }
            None => now.push(in_flight),
        }
    }
}

/// An event that cannot be asked has no end to wait for.
fn is_over(event: &Event) -> bool {
    event.done().unwrap_or(true)
}

fn end_of((id, event): (u64, Event)) -> (u64, u64, Option<[u64; 3]>) {
    (id, now(), event.recorded_timestamps())
}

static POLLER_RUNS: AtomicBool = AtomicBool::new(false);

/// Starts the thread, unless it runs. Without one, ends are seen at waits only.
fn start_poller() {
    if POLLER_RUNS.swap(true, Ordering::AcqRel) {
        return;
    }
    let watch = || {
        exit::help_to_the_end();
        loop {
            while poll_once() {}
            POLLER_RUNS.store(false, Ordering::Release);
            // A session that was opened just now may have seen this thread still running.
            if !on() || POLLER_RUNS.swap(true, Ordering::AcqRel) {
                break;
            }
        }
    };
    if thread::Builder::new().name("usmq-profile".to_owned()).spawn(watch).is_err() {
        POLLER_RUNS.store(false, Ordering::Release);
    }
}

/// Whether to go on.
fn poll_once() -> bool {
    if !on() {
        return false;
    }
    let busy = match Pending::unless_leaving() {
        Some(_pending) => poll(u64::MAX),
        None => return false,
    };
    let polls = POLLS.load(Ordering::Relaxed);
    thread::sleep(POLL_INTERVAL);
    // While nothing runs, or others look all the time, this thread would only be in their way.
    if !busy || POLLS.load(Ordering::Relaxed) > polls {
        thread::sleep(POLL_INTERVAL * 4);
    }
    true
}

type Frozen = (Guard<()>, Guard<Vec<InFlightQueue>>);

/// Holds what a forked child must find whole.
fn freeze_poller() -> Frozen {
    (lock(&POLLING), lock(&IN_FLIGHT))
}

/// There is no thread in a child.
fn stop_poller() {
    POLLER_RUNS.store(false, Ordering::Release);
}
