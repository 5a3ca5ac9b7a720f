//! Submits a command in order with all other uses of its operands, without a wait on the host.

use super::access_log::{Access, AccessLog, Tracked};
use super::recording::{self, Recording};
use super::shared_on::SharedOn;
use super::views::Views;
use crate::device::{Event, Queue};
use crate::error::Result;
use crate::runtime::interrupt::uninterruptible;
use crate::runtime::{ForkMutex, checks};
use crate::trace::tell::hold_back;
use crate::trace::{Reason, with_reason};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// The access log, the queues on which another library may use the memory without an entry in the log, and the views of
/// the host.
#[derive(Default)]
pub(crate) struct Log {
    pub(super) access: AccessLog<Event>,
    pub(super) shared_on: SharedOn,
    pub(super) views: Views,
}

impl Log {
    /// The log of memory whose first user must wait for `event`.
    pub(super) fn after(event: Option<Event>) -> Self {
        Self { access: AccessLog::after(event), shared_on: SharedOn::default(), views: Views::default() }
    }
}

impl Tracked for Event {
    fn in_order_queue(&self) -> Option<usize> {
        Self::in_order_queue(self).map(Queue::id)
    }

    fn is_complete(&self) -> bool {
        Self::is_complete(self)
    }
}

/// Memory whose uses are ordered.
pub(crate) trait Logged: Any + Send + Sync {
    /// Its addresses.
    fn range(&self) -> Range<usize>;

    /// Passes its log; several if it overlaps other memory with logs of their own.
    fn each_log<'a>(&'a self, take: &mut dyn FnMut(&'a ForkMutex<Log>));

    /// The error for readers and writers of memory that could not be filled.
    fn check(&self) -> Result<()>;
}

/// The result of a submission.
trait Submitted {
    /// The event to record; `None` if the command was complete on return.
    fn event(&self) -> Option<&Event>;
}

impl Submitted for Event {
    fn event(&self) -> Option<&Event> {
        Some(self)
    }
}

impl Submitted for Option<Event> {
    fn event(&self) -> Option<&Event> {
        self.as_ref()
    }
}

/// Calls `submit` with the events that the command must wait for, and records the event it returns.
///
/// Holds the logs of all operands meanwhile, in the order of their addresses: two threads that submit work on
/// the same arrays do so one after the other; otherwise one would miss the other's command. `submit` locks no
/// other log and calls no foreign code: subscribers of `tracing` are told after it.
pub(crate) fn ordered<M: Logged>(
    queue: &Queue,
    operands: &[(&Arc<M>, Access)],
    submit: impl FnOnce(&[Event]) -> Result<Event>,
) -> Result<Event> {
    ordered_all(queue, operands, |after, _| submit(after))
}

/// As [`ordered`], for a `submit` that submits several commands to the queue. It adds the events of all but
/// the last to its second argument, so that the logs record them if a later one fails.
pub(crate) fn ordered_all<M: Logged>(
    queue: &Queue,
    operands: &[(&Arc<M>, Access)],
    submit: impl FnOnce(&[Event], &mut Vec<Event>) -> Result<Event>,
) -> Result<Event> {
    run(queue, queue.in_order().then(|| queue.id()), queue.in_order(), operands, submit)
}

/// As [`ordered_all`], for a `submit` that also uses other queues before it ends with an event of `queue`: no
/// queue's own order is relied on.
pub(crate) fn ordered_across<M: Logged>(
    queue: &Queue,
    operands: &[(&Arc<M>, Access)],
    submit: impl FnOnce(&[Event], &mut Vec<Event>) -> Result<Event>,
) -> Result<Event> {
    run(queue, None, false, operands, submit)
}

/// As [`ordered_across`], for a `submit` that returns `None` if its work is complete. Callers refuse captures first.
pub(crate) fn ordered_or_complete<M: Logged>(
    queue: &Queue,
    operands: &[(&Arc<M>, Access)],
    submit: impl FnOnce(&[Event], &mut Vec<Event>) -> Result<Option<Event>>,
) -> Result<Option<Event>> {
    debug_assert!(recording::current().is_none());
    submit_now(queue, None, false, operands, submit)
}

/// As [`ordered_all`], for a `submit` whose commands are on several queues, or on `queue` alone if `is_alone`. It ends
/// with an event of `queue`.
pub(crate) fn ordered_as_one<M: Logged>(
    queue: &Queue,
    is_alone: bool,
    operands: &[(&Arc<M>, Access)],
    submit: impl FnOnce(&[Event], &mut Vec<Event>) -> Result<Event>,
) -> Result<Event> {
    let in_order = is_alone && queue.in_order();
    run(queue, in_order.then(|| queue.id()), in_order, operands, submit)
}

/// The event of a barrier after which the operands may be read; `None` without a barrier if they may be read now. The logs
/// know that, unless another library works on the queue or on memory that it shares.
pub(crate) fn after_writes<M: Logged>(
    queue: &Queue,
    operands: &[(&Arc<M>, Access)],
) -> Result<Option<Event>> {
    checks::submits();
    let (mut writes, mut shared) = (SmallVec::new(), queue.is_exposed());
    for (memory, _) in operands {
        memory.check()?;
        let mut logs: SmallVec<[&ForkMutex<Log>; 1]> = SmallVec::new();
        memory.each_log(&mut |log| logs.push(log));
        for log in logs {
            let log = log.lock()?;
            log.access.dependencies(Access::Read, None, &mut writes);
            shared |= !log.shared_on.is_empty();
        }
    }
    if writes.is_empty() && !shared {
        return Ok(None);
    }
    ordered(queue, operands, |after| queue.barrier_now(after)).map(Some)
}

/// Records the commands of `submit` in the capture of this thread.
#[cold]
fn record<M: Logged>(
    recording: &Recording,
    own: Option<usize>,
    operands: &[(&Arc<M>, Access)],
    submit: impl FnOnce(&[Event], &mut Vec<Event>) -> Result<Event>,
) -> Result<Event> {
    let mut logs: Vec<(usize, Access)> = Vec::new();
    let mut held = Vec::with_capacity(operands.len());
    for (memory, access) in operands {
        memory.each_log(&mut |log| {
            let log = std::ptr::from_ref(log).addr();
            match logs.iter_mut().find(|(known, _)| *known == log) {
                Some((_, all)) => *all = all.and(*access),
                None => logs.push((log, *access)),
            }
        });
        let range = memory.range();
        held.push(recording::Operand { memory: (*memory).clone(), range, access: *access });
    }
    recording.ordered(own, held, &logs, submit)
}

fn run<M: Logged>(
    queue: &Queue,
    own: Option<usize>,
    orders_itself: bool,
    operands: &[(&Arc<M>, Access)],
    submit: impl FnOnce(&[Event], &mut Vec<Event>) -> Result<Event>,
) -> Result<Event> {
    match recording::current() {
        None => submit_now(queue, own, orders_itself, operands, submit),
        Some(recording) => check(operands).and_then(|()| record(&recording, own, operands, submit)),
    }
}

fn check<M: Logged>(operands: &[(&Arc<M>, Access)]) -> Result<()> {
    checks::submits();
    operands.iter().try_for_each(|(memory, _)| memory.check())
}

fn submit_now<M: Logged, S: Submitted>(
    queue: &Queue,
    own: Option<usize>,
    orders_itself: bool,
    operands: &[(&Arc<M>, Access)],
    submit: impl FnOnce(&[Event], &mut Vec<Event>) -> Result<S>,
) -> Result<S> {
    check(operands)?;
    queue.make_room()?;
    let _held = hold_back();
    let mut uses: SmallVec<[(&ForkMutex<Log>, Access); 6]> = SmallVec::new();
    for (allocation, access) in operands {
        allocation.each_log(&mut |log| uses.push((log, *access)));
    }
    uses.sort_unstable_by_key(|(log, _)| std::ptr::from_ref(*log));
    uses.dedup_by(|(later, again), (first, access)| {
        let same = std::ptr::eq(*later, *first);
        if same {
            *access = access.and(*again);
        }
        same
    });
    let mut logs: SmallVec<[(MutexGuard<'_, Log>, Access); 6]> = SmallVec::new();
    for (log, access) in &uses {
        logs.push((log.lock()?, *access));
    }

    let mut wait_for = SmallVec::new();
    for (log, access) in &logs {
        log.views.check(*access)?;
        log.access.dependencies(*access, own, &mut wait_for);
    }
    let unseen = queues_of_other_libraries(queue, orders_itself, &logs);
    for other in &unseen {
        let _why = with_reason(Reason::Order);
        wait_for.push(other.barrier_now(&[])?);
    }
    let mut sent = Vec::new();
    let submitted = submit(&wait_for, &mut sent).inspect_err(|_| {
        // Submitted commands still use the operands. Recorded as reads, they delay writers and releases, but
        // not readers, to which a half-written array is useless anyway.
        for event in &sent {
            logs.iter_mut().for_each(|(log, _)| log.access.record(Access::Read, event.clone()));
        }
        if !sent.is_empty() {
            // The caller gets the first error.
            let _ = followed_on(&unseen, &sent);
        }
    })?;
    if let Some(event) = submitted.event() {
        for (log, access) in &mut logs {
            log.access.record(*access, event.clone());
        }
        followed_on(&unseen, std::slice::from_ref(event))?;
    }
    Ok(submitted)
}

/// Makes later work on these queues follow the events.
fn followed_on(queues: &[Queue], events: &[Event]) -> Result<()> {
    for queue in queues {
        let _why = with_reason(Reason::Order);
        if let Err(error) = queue.barrier_now(events) {
            // The commands run and cannot be cancelled. If they are complete on return, later work of the other
            // library follows them too.
            let wait = || events.iter().try_for_each(Event::wait_quietly);
            uninterruptible(wait).map_err(|_| error)?;
        }
    }
    Ok(())
}

/// Queues on which another library may be using an operand. Its pending work is unknown to usmq, so usmq's
/// command is enclosed by two barriers on such a queue; only the command's own in-order queue needs none.
fn queues_of_other_libraries(
    queue: &Queue,
    orders_itself: bool,
    logs: &[(MutexGuard<'_, Log>, Access)],
) -> SmallVec<[Queue; 1]> {
    let mut unseen: SmallVec<[Queue; 1]> = SmallVec::new();
    for (log, _) in logs {
        for other in log.shared_on.queues() {
            let is_ordered = orders_itself && other == queue;
            if !is_ordered && !unseen.contains(other) {
                unseen.push(other.clone());
            }
        }
    }
    unseen
}
