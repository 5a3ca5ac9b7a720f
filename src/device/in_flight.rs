//! The commands of usmq on one queue that may be in flight.
//!
//! usmq never queries whether a queue is empty. The runtime's OpenCL adapter answers for an in-order queue
//! from the event of its last command, which a submission of another thread frees meanwhile, and for an
//! out-of-order queue with a marker of its own, beside such a submission: both crash the process at times.
//! Event queries are always safe.

use super::command::Command;
use super::host_event::HostEvent;
use crate::completion;
use crate::error::{Error, Result};
use crate::ffi::EventStatus;
use crate::runtime::CountedWait;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The commands of one queue that are not known to be complete, and some that are. Of an in-order queue the last one is
/// enough, but the order of submissions that overlap is not known.
#[derive(Default)]
pub(super) struct InFlight {
    list: Mutex<List>,
    /// Whether it holds more commands than the last one.
    several: AtomicBool,
    /// The number of submissions that have begun, times [`BEGUN`], and of those that have not ended.
    submissions: AtomicU64,
    /// The number of milestones.
    milestones: AtomicUsize,
}

/// One begun submission in `InFlight::submissions`.
const BEGUN: u64 = 1 << 32;

/// The time from before a submission until its command has been added.
pub(super) struct Submission<'a> {
    to: &'a InFlight,
    /// The value of `submissions` before this one.
    before: u64,
    /// Whether its command is a kernel that may print.
    pub(super) prints: bool,
    /// Whether its command follows one of another queue that may have printed.
    pub(super) follows_output: bool,
    /// The number of commands that its event stands for: several for a replay.
    pub(super) commands: usize,
    /// Those of its wait list that a host thread completes.
    pub(super) host_events: SmallVec<[Arc<HostEvent>; 1]>,
    has_submitted: Cell<bool>,
}

impl Submission<'_> {
    /// Call with its command, before the end of the submission.
    pub(super) fn has_submitted(&self, command: &Arc<Command>) {
        self.host_events.iter().for_each(|host| host.is_waited_for_by(command));
        self.has_submitted.set(true);
    }

    /// Whether no other submission to the queue overlaps this one: the commands added so far come before its command.
    fn is_alone(&self) -> bool {
        let others = self.before % BEGUN;
        others == 0
            && self.to.submissions.load(Ordering::Acquire) / BEGUN == (self.before / BEGUN + 1) % BEGUN
    }
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        if !self.has_submitted.get() {
            // It failed, perhaps after a part of it was submitted.
            self.host_events.iter().for_each(|host| host.is_waited_for_by_others());
        }
        self.to.submissions.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Default)]
struct List {
    commands: Vec<Arc<Command>>,
    /// At this length, complete commands are removed.
    full: usize,
    /// Whether the completion service tidies the list.
    is_watched: bool,
    /// The number of commands added since the last milestone.
    since: usize,
    /// One of every [`STEP`] commands, while it is not known to be complete. They show how many are in flight, which the
    /// list does not: of an in-order queue it has the last one only.
    milestones: Vec<Arc<Command>>,
}

/// The number of commands from one milestone to the next.
const STEP: usize = 1024;

/// With more milestones than this in flight, a submission waits: 3.6 KiB for each command are 30 MiB then.
const MOST: usize = 8;

/// Up to this many commands are kept without a query of their state.
const FEW: usize = 8;

/// A list of more commands is tidied after its last one, even if the queue is not used again.
const MANY: usize = 64;

/// The list that a command was added to, as its queue must treat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// It is the first command of the queue.
    First,
    Some,
    /// It has become long: the queue watches it.
    Many,
}

impl List {
    /// The last command stays, so that the number of events of an idle queue does not depend on chance.
    fn remove_complete(&mut self, counted: &CountedWait) -> Vec<Arc<Command>> {
        let is_complete = |command: &mut Arc<Command>| {
            matches!(command.status_under_lock(counted), Ok(EventStatus::Complete))
        };
        let last = self.commands.pop();
        let gone = self.commands.extract_if(.., is_complete).collect();
        self.commands.extend(last);
        self.milestones.retain(|command| is_in_flight(command.status_under_lock(counted)));
        self.full = FEW.max(2 * self.commands.len());
        gone
    }
}

impl InFlight {
    /// Call before a submission, and drop the result after the command was added.
    pub(super) fn begin(&self) -> Submission<'_> {
        let before = self.submissions.fetch_add(BEGUN + 1, Ordering::AcqRel);
        Submission {
            to: self,
            before,
            prints: false,
            follows_output: false,
            commands: 1,
            host_events: SmallVec::new(),
            has_submitted: Cell::new(false),
        }
    }

    pub(super) fn add(&self, command: &Arc<Command>, submission: Option<&Submission<'_>>) -> Added {
        let mut list = self.list.lock();
        let (mut last, mut gone) = (None, Vec::new());
        // Host tasks of another library could be among the commands of an exposed queue.
        if command.number != 0 && !command.exposed && submission.is_some_and(Submission::is_alone) {
            last = list.commands.pop();
            if !list.commands.is_empty() {
                gone = std::mem::take(&mut list.commands);
            }
        } else if list.commands.last().is_some_and(|last| last.is_done()) {
            // A loop that waits for each command then destroys an event right after its use, while the processor caches
            // it.
            last = list.commands.pop();
        }
        let mut added = if list.full == 0 { Added::First } else { Added::Some };
        if list.commands.len() >= list.full {
            drop(list);
            // Counted before the lock is taken: the end of the process needs the lock, too.
            let counted = CountedWait::begin();
            list = self.list.lock();
            // After the exit handler the commands stay.
            gone.extend(counted.into_iter().flat_map(|counted| list.remove_complete(&counted)));
        }
        list.commands.push(command.clone());
        list.since += submission.map_or(1, |submission| submission.commands);
        if list.since >= STEP {
            list.since = 0;
            list.milestones.push(command.clone());
            self.milestones.store(list.milestones.len(), Ordering::Relaxed);
        }
        self.several.store(list.commands.len() > 1, Ordering::Relaxed);
        if list.commands.len() > MANY && !std::mem::replace(&mut list.is_watched, true) {
            added = Added::Many;
        }
        drop(list);
        drop((last, gone));
        added
    }

    /// After a wait: removes complete commands, which would otherwise stay until further ones are added.
    pub(super) fn tidy(&self) {
        if !self.several.load(Ordering::Relaxed) && self.milestones.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Ok(counted) = CountedWait::begin() else { return };
        let mut list = self.list.lock();
        let gone = list.remove_complete(&counted);
        self.several.store(list.commands.len() > 1, Ordering::Relaxed);
        self.milestones.store(list.milestones.len(), Ordering::Relaxed);
        drop(list);
        // Destroying an event takes up to a microsecond.
        if gone.len() > FEW {
            completion::release(move || drop(gone));
        }
    }

    /// Whether the last command is over, so that [`tidy_now`](Self::tidy_now) is due.
    pub(super) fn is_over(&self) -> bool {
        let Ok(counted) = CountedWait::begin() else { return true };
        let list = self.list.lock();
        let is_over = |last: &Arc<Command>| !is_in_flight(last.status_under_lock(&counted));
        list.commands.last().is_none_or(is_over)
    }

    /// Removes complete commands on the release thread. Returns whether many remain: those of an out-of-order queue.
    pub(super) fn tidy_now(&self) -> bool {
        let Ok(counted) = CountedWait::begin() else { return false };
        let mut list = self.list.lock();
        let gone = list.remove_complete(&counted);
        // A failed command is never removed, so a list of those is not watched for ever.
        let many = list.commands.len() > MANY && !gone.is_empty();
        list.is_watched = many;
        drop(list);
        drop(gone);
        many
    }

    /// Whether so many commands may be in flight that a submission has to wait; [`milestone`](Self::milestone) knows.
    pub(super) fn is_full(&self) -> bool {
        self.milestones.load(Ordering::Relaxed) > MOST
    }

    /// A command to wait for before the next submission; `None` if few enough are in flight.
    pub(super) fn milestone(&self) -> Option<Arc<Command>> {
        let all = self.list.lock().milestones.clone();
        let over: Vec<_> = all.iter().filter(|command| !is_in_flight(command.status())).collect();
        let mut list = self.list.lock();
        list.milestones.retain(|command| !over.iter().any(|over| Arc::ptr_eq(over, command)));
        self.milestones.store(list.milestones.len(), Ordering::Relaxed);
        list.milestones.first().filter(|_| list.milestones.len() > MOST).cloned()
    }

    /// The commands added so far, except those known to be complete.
    pub(super) fn commands(&self) -> Vec<Arc<Command>> {
        self.list.lock().commands.iter().filter(|command| !command.is_done()).cloned().collect()
    }

    /// Whether all are complete.
    ///
    /// # Errors
    /// [`Error::Sycl`](crate::Error::Sycl) if the runtime cannot answer, as for a command that has failed: only the
    /// runtime's own wait knows when the queue has ended the commands behind it.
    pub(super) fn is_empty(&self) -> Result<bool> {
        let counted = CountedWait::begin()?;
        let list = self.list.lock();
        for command in list.commands.iter().rev() {
            match command.status_under_lock(&counted)? {
                EventStatus::Complete => {}
                EventStatus::Submitted | EventStatus::Running => return Ok(false),
                _ => return Err(failed()),
            }
        }
        Ok(true)
    }
}

/// False for a failed command, and if the runtime cannot answer.
fn is_in_flight(status: Result<EventStatus>) -> bool {
    matches!(status, Ok(EventStatus::Submitted | EventStatus::Running))
}

fn failed() -> Error {
    Error::Sycl {
        operation: "querying the state of a queue".to_owned(),
        code: "unknown".to_owned(),
        message: "a command has failed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::user_event::UserEvent;
    use crate::device::{Queue, QueueProperties, discovery};
    use cxx::UniquePtr;
    use std::time::{Duration, Instant};

    /// The numbers of events that are kept while the work of a burst cannot start, and after it without a wait or another
    /// use of the queue.
    fn kept_by_a_burst(properties: QueueProperties) -> Result<Option<(usize, usize)>> {
        let devices = discovery::devices()?;
        let queue = Queue::create(&devices[0].default_context()?, &devices[0], properties)?;
        let Some((gate, event)) = UserEvent::new(&queue)? else { return Ok(None) };
        for _ in 0..40 * MANY {
            queue.barrier(std::slice::from_ref(&event))?;
        }
        let kept = || queue.in_flight().list.lock().commands.len();
        let during = kept();
        gate.signal();
        let begun = Instant::now();
        while kept() > MANY && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Some((during, kept())))
    }

    #[test]
    fn submissions_that_overlap_keep_each_other() {
        let commands = InFlight::default();
        let add = |submission: Option<&Submission<'_>>| {
            let command = Arc::new(Command::new(UniquePtr::null(), 1, None, false));
            commands.add(&command, submission);
            commands.list.lock().commands.len()
        };
        let alone = commands.begin();
        assert_eq!(add(Some(&alone)), 1);
        drop(alone);
        let first = commands.begin();
        let second = commands.begin();
        assert_eq!(add(Some(&second)), 2, "the first may have been submitted before or after it");
        drop(second);
        assert_eq!(add(Some(&first)), 3);
        drop(first);
        let next = commands.begin();
        assert_eq!(add(Some(&next)), 1, "it comes after all of them");
        assert_eq!(add(None), 2);
    }

    #[test]
    fn a_queue_frees_the_events_of_a_burst_without_a_wait() {
        const NAME: &str = "device::in_flight::tests::a_queue_frees_the_events_of_a_burst_without_a_wait";
        if !crate::runtime::is_own_process(NAME) {
            return;
        }
        for in_order in [true, false] {
            let kept = kept_by_a_burst(QueueProperties { in_order, ..QueueProperties::default() }).unwrap();
            let Some((during, after)) = kept else { return };
            let expected = if in_order { 1 } else { 40 * MANY };
            assert!(
                during == expected && after <= MANY,
                "in_order {in_order}: {during}, then {after} events"
            );
        }
    }
}
