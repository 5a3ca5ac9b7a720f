//! The log of records: one per process. A session is a window of it, so sessions may nest and overlap, and
//! each contains the events of all threads while it was open.
//!
//! The poller detects the end of recorded commands: after each wait of the host, and periodically on a thread
//! of its own. A thread that submits to an in-order queue looks at its oldest command, too: events are freed
//! several times faster by the thread that made them. All query the state of events and never wait for them: two
//! threads that wait for out-of-order queues at the same time can deadlock the OpenCL CPU driver.

use super::record::{Completion, Record};
use crate::runtime::{CountedWait, exit};
use once_cell::sync::OnceCell;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

/// The maximum number of records; later ones are only counted.
pub(crate) const LIMIT: usize = 1 << 18;

type Guard<T> = MutexGuard<'static, T>;

/// Uses std's lock: threads that wait for a lock of parking_lot are in a table that a forked child may find
/// locked.
fn lock<T>(mutex: &'static Mutex<T>) -> Guard<T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of open sessions.
static OPEN: AtomicUsize = AtomicUsize::new(0);

static SESSIONS: AtomicU64 = AtomicU64::new(0);

static LOG: Mutex<Log> = Mutex::new(Log { records: Vec::new(), first: 1, dropped: 0 });

struct Log {
    records: Vec<Record>,
    /// The number of the first record; numbers are never reused, and 0 means none.
    first: u64,
    dropped: u64,
}

impl Log {
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }
}

/// Whether recording is on.
pub(crate) fn on() -> bool {
    OPEN.load(Ordering::Relaxed) != 0
}

/// The number of times so far that recording was turned on.
pub(super) fn sessions() -> u64 {
    SESSIONS.load(Ordering::Relaxed)
}

/// Nanoseconds of the host's steady clock, which is also `std::chrono::steady_clock`'s.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for writes; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A session's part of the log.
pub(crate) struct Window {
    from: u64,
    dropped: u64,
    /// By the host's clock.
    pub opened: u64,
    process: u32,
}

impl Window {
    /// Whether this is a child that was forked while the session was open. It does not record.
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
            SESSIONS.fetch_add(1, Ordering::Relaxed);
            // In a child, the records are those of its parent.
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

/// The thread that forks holds the locks meanwhile, so that the child finds no lock held by a thread that it
/// lacks.
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
        // SAFETY: the handlers lock, unlock and store. Registration fails only if memory is short; then a
        // child may deadlock.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

/// The end of a window: the number of the next record.
pub(crate) fn next() -> u64 {
    lock(&LOG).next()
}

/// Ends a session; returns its records up to `to` and the number of records that were not kept.
pub(crate) fn close(window: &Window, to: u64) -> (Vec<Record>, u64) {
    let mut log = lock(&LOG);
    let last = OPEN.fetch_sub(1, Ordering::Relaxed) == 1;
    let dropped = log.dropped - window.dropped;
    let place = |id: u64| id.saturating_sub(log.first).min(log.records.len() as u64) as usize;
    let from = place(window.from);
    // An abandoned session closes at 0, though others may have recorded something before it.
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

/// The number of the new record; None if the log is full.
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

/// Records the ends of commands, with the device's timestamps if available.
fn note_ends(commands: &[End]) {
    let mut log = lock(&LOG);
    let first = log.first;
    for (id, seen, stamps) in commands {
        let place = id.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        // A command of a closed session is not in the log.
        if let Some(record) = place.and_then(|place| log.records.get_mut(place)) {
            (record.seen, record.stamps) = (*seen, *stamps);
        }
    }
}

/// The interval between two polls of the thread: the error of times that the host observes.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// From this number of queues on, idle ones are removed.
const MANY: usize = 32;

/// From this number of commands of an in-order queue on, each submission looks at the oldest one.
const FEW: usize = 8;

/// The number of polls so far, by any thread.
static POLLS: AtomicU64 = AtomicU64::new(0);

/// Commands that are not known to be complete, by queue, oldest first.
static IN_FLIGHT: Mutex<Vec<InFlightQueue>> = Mutex::new(Vec::new());

type Command = Arc<dyn Completion>;

struct InFlightQueue {
    queue: usize,
    in_order: bool,
    commands: VecDeque<(u64, Command)>,
}

/// The number of a command, when its end was observed, and its timestamps.
type End = (u64, u64, Option<[u64; 3]>);

impl InFlightQueue {
    /// Removes the commands that have ended.
    fn take_ended(&mut self, ended: &mut Vec<End>) {
        if self.in_order {
            let running = self.commands.iter().position(|(_, command)| !command.is_over());
            ended.extend(self.commands.drain(..running.unwrap_or(self.commands.len())).map(end_of));
            return;
        }
        for (id, command) in std::mem::take(&mut self.commands) {
            if command.is_over() {
                ended.push(end_of((id, command)));
            } else {
                self.commands.push_back((id, command));
            }
        }
    }
}

/// Held by the thread that polls.
static POLLING: Mutex<()> = Mutex::new(());

pub(super) fn add(id: u64, command: Command) {
    let queue = command.queue_handle();
    let mut queues = lock(&IN_FLIGHT);
    if !on() {
        return;
    }
    let known = queues.iter().position(|in_flight| in_flight.queue == queue.id());
    let place = known.unwrap_or_else(|| {
        queues.push(InFlightQueue { queue: queue.id(), in_order: false, commands: VecDeque::new() });
        queues.len() - 1
    });
    let in_flight = &mut queues[place];
    if in_flight.commands.is_empty() {
        // It may be another queue at the address of a freed one.
        in_flight.in_order = queue.in_order();
    }
    in_flight.commands.push_back((id, command));
    // Timestamps are read by the poller only, since libsycl waits for the event there.
    if in_flight.commands.len() < FEW || !in_flight.in_order || queue.keeps_timestamps() {
        return;
    }
    let oldest = in_flight.commands.front().cloned();
    drop(queues);
    if let Some((id, command)) = oldest
        && command.is_over()
    {
        note_ends(&[(id, now(), None)]);
        drop(remove_oldest(queue.id(), id));
    }
}

/// Takes this command out, unless a poll has taken it meanwhile.
fn remove_oldest(queue: usize, id: u64) -> Option<(u64, Command)> {
    let mut queues = lock(&IN_FLIGHT);
    let in_flight = queues.iter_mut().find(|in_flight| in_flight.queue == queue)?;
    let is_there = in_flight.commands.front().is_some_and(|oldest| oldest.0 == id);
    if is_there { in_flight.commands.pop_front() } else { None }
}

/// Records commands that have ended; returns whether one with a number below `to` has not.
pub(crate) fn poll(to: u64) -> bool {
    poll_those(to, |_| true)
}

/// As [`poll`], but returns whether one of usmq's own commands has not ended.
pub(crate) fn poll_own(to: u64) -> bool {
    poll_those(to, |command| !command.is_foreign())
}

fn poll_those(to: u64, counts: impl Fn(&Command) -> bool) -> bool {
    // A concurrent poll by another thread has the same result.
    let _alone = match POLLING.try_lock() {
        Ok(alone) => alone,
        Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
        Err(TryLockError::WouldBlock) => return true,
    };
    POLLS.fetch_add(1, Ordering::Relaxed);
    let mut queues = std::mem::take(&mut *lock(&IN_FLIGHT));
    let mut ended = Vec::new();
    for in_flight in &mut queues {
        in_flight.take_ended(&mut ended);
    }
    note_ends(&ended);
    if queues.len() > MANY {
        queues.retain(|in_flight| !in_flight.commands.is_empty());
    }
    let waits = |(id, command): &(u64, Command)| *id < to && counts(command);
    let waiting = queues.iter().any(|in_flight| in_flight.commands.iter().any(waits));
    put_back(queues);
    waiting
}

/// Drops the commands that no session polls any more.
fn forget_commands() {
    let mut queues = lock(&IN_FLIGHT);
    // Another session may have opened meanwhile.
    if !on() {
        let gone = std::mem::take(&mut *queues);
        drop(queues);
        drop(gone);
    }
}

/// Appends commands submitted meanwhile to those that were polled.
fn put_back(queues: Vec<InFlightQueue>) {
    let mut now = lock(&IN_FLIGHT);
    if !on() {
        // Commands may hold the last handle to their queue, which must be dropped outside the lock.
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

fn end_of((id, command): (u64, Command)) -> End {
    (id, now(), command.recorded_timestamps())
}

static POLLER_RUNS: AtomicBool = AtomicBool::new(false);

/// Starts the thread, unless it runs. Without it, ends are detected at waits only.
fn start_poller() {
    if POLLER_RUNS.swap(true, Ordering::AcqRel) {
        return;
    }
    let watch = || {
        exit::help_to_the_end();
        loop {
            while poll_once() {}
            POLLER_RUNS.store(false, Ordering::Release);
            // A session that was just opened may have found this thread still running.
            if !on() || POLLER_RUNS.swap(true, Ordering::AcqRel) {
                break;
            }
        }
    };
    if thread::Builder::new().name("usmq-profile".to_owned()).spawn(watch).is_err() {
        POLLER_RUNS.store(false, Ordering::Release);
    }
}

/// Whether to continue.
fn poll_once() -> bool {
    if !on() {
        return false;
    }
    let busy = match CountedWait::unless_leaving() {
        Some(_pending) => poll(u64::MAX),
        None => return false,
    };
    let polls = POLLS.load(Ordering::Relaxed);
    thread::sleep(POLL_INTERVAL);
    // If no command runs, or other threads poll constantly, this thread would only delay them.
    if !busy || POLLS.load(Ordering::Relaxed) > polls {
        thread::sleep(POLL_INTERVAL * 4);
    }
    true
}

type Frozen = (Guard<()>, Guard<Vec<InFlightQueue>>);

/// Locks the state that a forked child must find consistent.
fn freeze_poller() -> Frozen {
    (lock(&POLLING), lock(&IN_FLIGHT))
}

/// The thread does not exist in a child.
fn stop_poller() {
    POLLER_RUNS.store(false, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::super::record::{DeviceHandle, QueueHandle, TracedQueue};
    use super::*;
    use crate::runtime::Interned;
    use std::fmt;
    use std::time::Instant;

    struct InOrderQueue;

    impl fmt::Display for InOrderQueue {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a queue of the tests")
        }
    }

    impl TracedQueue for InOrderQueue {
        fn id(&self) -> usize {
            std::ptr::from_ref(self).addr()
        }

        fn in_order(&self) -> bool {
            true
        }

        fn device(&self) -> DeviceHandle {
            unreachable!("only records name the device")
        }

        fn keeps_timestamps(&self) -> bool {
            false
        }
    }

    /// A command that counts itself while it lives.
    struct Counted {
        queue: QueueHandle,
        alive: Arc<AtomicUsize>,
        is_over: Arc<AtomicBool>,
        record: AtomicU64,
    }

    impl Completion for Counted {
        fn queue_handle(&self) -> QueueHandle {
            self.queue.clone()
        }

        fn record(&self) -> &AtomicU64 {
            &self.record
        }

        fn is_over(&self) -> bool {
            self.is_over.load(Ordering::Relaxed)
        }

        fn recorded_timestamps(&self) -> Option<[u64; 3]> {
            None
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.alive.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn submissions_free_the_ended_commands_of_their_queue() {
        let queue = Interned::Counted(Arc::new(InOrderQueue) as Arc<dyn TracedQueue>);
        let (alive, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let submit = || {
            alive.fetch_add(1, Ordering::Relaxed);
            let (queue, counter, is_over) = (queue.clone(), alive.clone(), is_over.clone());
            // No record has this number.
            add(0, Arc::new(Counted { queue, alive: counter, is_over, record: AtomicU64::new(0) }));
            alive_now(&alive)
        };
        let window = open();
        // The poller may hold some, too.
        let most = (0..10_000).map(|_| submit()).max();
        assert!(most <= Some(4 * FEW), "{most:?} commands were kept");

        is_over.store(false, Ordering::Relaxed);
        let before = alive_now(&alive);
        for _ in 0..100 {
            submit();
        }
        let kept = alive_now(&alive);
        assert!(kept >= 100 && kept <= 100 + before, "{kept} commands are running");
        is_over.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while poll(u64::MAX) || alive_now(&alive) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} commands remain", alive_now(&alive));
            thread::sleep(POLL_INTERVAL);
        }
        close(&window, next());
    }

    fn alive_now(alive: &AtomicUsize) -> usize {
        alive.load(Ordering::Relaxed)
    }
}
