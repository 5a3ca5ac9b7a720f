//! The signal thread: polls work in flight, each item at intervals that grow with its age.

use super::release;
use crate::error::{Error, Result};
use crate::runtime::{self, CountedWait, exit};
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// The pause between two polls of an item as a fraction of its age, which bounds the delay of detection.
const PART: u32 = 32;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(10);

/// A round that polls more than a few items is followed by a pause of at least this many times its length:
/// with any number of items in flight the thread uses about 1 % of a core. For a few items the schedule alone
/// suffices.
const REST: u32 = 120;
const FEW: usize = 8;

/// The result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    None,
    /// Progress that other items may have waited for.
    Some,
    Complete,
}

impl Progress {
    pub(crate) fn complete_if(over: bool) -> Self {
        if over { Self::Complete } else { Self::None }
    }
}

/// Something in flight that the signal thread polls.
pub(crate) trait Watched: Send {
    /// The current progress. Runs on the signal thread: it must not block, submit, free or call foreign code.
    fn poll(&mut self) -> Progress;

    /// Runs on the release thread after completion, and may block.
    fn finish(self: Box<Self>) {}

    /// The time until the first poll.
    fn first_poll(&self) -> Duration {
        SHORTEST
    }

    /// Whether other work still waits for it while the process exits. It then counts as
    /// [`Pending`](crate::runtime::Pending) until it is complete, which keeps the runtime alive.
    fn needed_at_exit(&self) -> bool {
        false
    }
}

struct Item {
    watched: Box<dyn Watched>,
    since: Instant,
    due: Instant,
}

impl Item {
    fn new(watched: Box<dyn Watched>) -> Self {
        let since = Instant::now();
        Self { due: since + watched.first_poll(), watched, since }
    }

    /// Polls, and schedules the next poll.
    fn poll(&mut self, now: Instant) -> Progress {
        let progress = self.watched.poll();
        if progress != Progress::None {
            self.since = now;
        }
        self.due = now + ((now - self.since) / PART).clamp(SHORTEST, LONGEST);
        progress
    }
}

/// Items that the thread has not taken yet.
#[derive(Default)]
struct Inbox {
    items: Vec<Item>,
    started: bool,
    /// Set while the thread sleeps; the inner value is the end of the sleep, if the thread has items to poll.
    asleep: Option<Option<Instant>>,
    /// The numbers of requested and of completed rounds over all items.
    asked: u64,
    done: u64,
}

static INBOX: Mutex<Inbox> =
    Mutex::new(Inbox { items: Vec::new(), started: false, asleep: None, asked: 0, done: 0 });
static WAKE: Condvar = Condvar::new();
static DONE: Condvar = Condvar::new();

/// Starts the thread if it does not run.
pub(super) fn start() -> Result<()> {
    start_locked(&mut INBOX.lock())
}

fn start_locked(inbox: &mut Inbox) -> Result<()> {
    const NAME: &str = "usmq-signal";
    if !inbox.started {
        let thread = std::thread::Builder::new().name(NAME.to_owned());
        thread.spawn(run).map_err(|reason| Error::no_thread(NAME, &reason))?;
        inbox.started = true;
    }
    Ok(())
}

/// Polls `watched` on the signal thread until it is complete; the release thread then finishes it.
pub(crate) fn watch(watched: Box<dyn Watched>) {
    if runtime::not_forked().is_err() {
        return std::mem::forget(watched);
    }
    let item = Item::new(watched);
    let mut inbox = INBOX.lock();
    // Without a thread, which only work before the first use of a device can meet, items stay until the next attempt.
    let _ = start_locked(&mut inbox);
    let in_time = item.due + if item.watched.needed_at_exit() { Duration::ZERO } else { LONGEST };
    let wake = inbox.asleep.is_some_and(|until| until.is_none_or(|until| until > in_time));
    inbox.items.push(item);
    drop(inbox);
    if wake {
        WAKE.notify_one();
    }
}

/// Requests a poll of every item, and waits for it at most this long.
pub(super) fn poll_now(at_most: Duration) {
    if runtime::not_forked().is_err() {
        return;
    }
    let deadline = Instant::now() + at_most;
    let mut inbox = INBOX.lock();
    if !inbox.started {
        return;
    }
    inbox.asked += 1;
    let asked = inbox.asked;
    WAKE.notify_one();
    while inbox.done < asked && !DONE.wait_until(&mut inbox, deadline).timed_out() {}
}

fn run() {
    exit::help_to_the_end();
    precise_sleep();
    let mut items: Vec<Item> = Vec::new();
    let mut rested = Instant::now();
    loop {
        let asked = sleep_until_due(&mut items, rested);
        let begun = Instant::now();
        // During process exit, only items that others wait for are polled: the runtime is about to be torn
        // down.
        let counted = CountedWait::unless_leaving();
        if counted.is_none() {
            items.extract_if(.., |item| !item.watched.needed_at_exit()).for_each(std::mem::forget);
        }
        let due = |item: &Item| asked.is_some() || item.due <= begun;
        let (mut progressed, mut polled) = (false, 0);
        let complete = |item: &mut Item| {
            if !due(item) {
                return false;
            }
            polled += 1;
            let progress = item.poll(begun);
            progressed |= progress != Progress::None && item.watched.needed_at_exit();
            progress == Progress::Complete
        };
        for item in items.extract_if(.., complete) {
            release::release(move || item.watched.finish());
        }
        if progressed {
            // A chain of commands between contexts continues immediately, regardless of the age of its last item.
            let others = items.iter_mut().filter(|item| item.watched.needed_at_exit());
            others.for_each(|item| (item.since, item.due) = (begun, begun));
        }
        if let Some(asked) = asked {
            INBOX.lock().done = asked;
            DONE.notify_all();
        }
        drop(counted);
        let end = Instant::now();
        rested = if progressed || polled <= FEW { end } else { end + (end - begun) * REST };
    }
}

/// Sleeps until an item is due and the rest pause is over, and takes new items. Returns the number of the
/// round if every item is to be polled.
fn sleep_until_due(items: &mut Vec<Item>, rested: Instant) -> Option<u64> {
    // The next item often follows soon. A thread that stays awake finds it without a system call to wake it.
    let linger = Instant::now() + LONGEST;
    let mut inbox = INBOX.lock();
    loop {
        items.append(&mut inbox.items);
        let now = Instant::now();
        let due = items.iter().map(|item| item.due).min().map(|due| due.max(rested));
        let asked = (inbox.done < inbox.asked).then_some(inbox.asked);
        if asked.is_some() || due.is_some_and(|due| due <= now) {
            inbox.asleep = None;
            return asked;
        }
        let until = due.or_else(|| (now < linger).then_some(linger));
        inbox.asleep = Some(until);
        match until {
            Some(until) => drop(WAKE.wait_until(&mut inbox, until)),
            None => WAKE.wait(&mut inbox),
        }
    }
}

/// Linux adds 50 µs to each sleep of a thread unless the thread requests a smaller slack.
fn precise_sleep() {
    // SAFETY: sets an integer property of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}

#[cfg(test)]
mod tests {
    use super::super::{Watched, watch};
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::{Sender, channel};

    struct After {
        polls: Arc<AtomicU32>,
        at: Instant,
        seen: Sender<Instant>,
        finished: Sender<()>,
    }

    impl Watched for After {
        fn poll(&mut self) -> Progress {
            self.polls.fetch_add(1, Ordering::Relaxed);
            let over = Instant::now() >= self.at;
            if over {
                self.seen.send(Instant::now()).unwrap();
            }
            Progress::complete_if(over)
        }

        fn finish(self: Box<Self>) {
            self.finished.send(()).unwrap();
        }
    }

    #[test]
    fn completion_is_detected_soon_with_growing_poll_intervals() {
        let (polls, (seen, when), (finished, done)) = (Arc::new(AtomicU32::new(0)), channel(), channel());
        let at = Instant::now() + Duration::from_millis(200);
        watch(Box::new(After { polls: polls.clone(), at, seen, finished }));
        let late = when.recv_timeout(Duration::from_secs(10)).unwrap() - at;
        assert!(late < Duration::from_millis(100), "{late:?}");
        done.recv_timeout(Duration::from_secs(10)).unwrap();
        // Constant pauses of 20 µs would be 10,000 polls.
        assert!(polls.load(Ordering::Relaxed) < 2_000, "{polls:?}");
    }

    #[test]
    fn a_blocking_release_does_not_delay_other_items() {
        let (blocked, (finished, seen)) = (Instant::now(), channel());
        release::release(|| std::thread::sleep(Duration::from_millis(300)));
        struct Signals(Sender<Instant>);
        impl Watched for Signals {
            fn poll(&mut self) -> Progress {
                self.0.send(Instant::now()).unwrap();
                Progress::Complete
            }
        }
        watch(Box::new(Signals(finished)));
        let signalled = seen.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(signalled - blocked < Duration::from_millis(200), "{:?}", signalled - blocked);
    }
}
