//! Small copies and fills of memory that the host may access, which the calling thread does itself: a command takes five
//! times as long, or more.
//!
//! The order is that of the command: after the uses in the logs, and after all earlier commands of the queue. A kernel may
//! use addresses that no log knows, which an in-order queue or a barrier orders.

use super::allocation::{Allocation, Operand};
use super::ordered_submit::{Logged, ordered_or_complete};
use super::recording::is_capturing;
use super::sharing::is_shared;
use crate::device::{Event, MemoryKind, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::runtime::not_forked;
use crate::trace::{Completion, Kind, Label, recorder};
use smallvec::SmallVec;

/// Up to this many bytes, the work takes less time than submitting a command.
const AT_ONCE: usize = 32 << 10;

/// Up to this many bytes, a copy takes less time than a command and the wait for it.
const WAITED: usize = 128 << 10;

/// Does the work of a small command now, if the command could start now. False without a call of `work` if a command must
/// be submitted. `work` uses only the memory of the operands, and memory of the caller.
pub(crate) fn at_once(
    queue: &Queue,
    operands: &[Operand<'_>],
    (kind, bytes): (Kind, usize),
    work: impl FnOnce(),
) -> Result<bool> {
    if bytes > AT_ONCE || !is_admitted(queue, operands)? || !is_idle(queue) {
        return Ok(false);
    }
    run(queue, operands, (kind, bytes), work)
}

/// As [`at_once`], for a copy: target, source, bytes.
///
/// # Safety
/// The ranges belong to the operands or to the caller, and do not overlap.
pub(crate) unsafe fn copy_at_once(
    queue: &Queue,
    operands: &[Operand<'_>],
    (to, from, bytes): (usize, usize, usize),
) -> Result<bool> {
    at_once(queue, operands, (Kind::Copy, bytes), || {
        // SAFETY: the caller's promise; the memory is the host's, and no command uses it.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) }
    })
}

/// As [`at_once`], for a copy that the caller waits for. Waits for the work before it if `may_wait`, and raises the errors
/// that the queue has stored.
pub(crate) fn waited_copy(
    queue: &Queue,
    operand: Operand<'_>,
    (bytes, may_wait): (usize, bool),
    copy: impl FnOnce(),
) -> Result<bool> {
    if bytes > WAITED || !is_admitted(queue, &[operand])? {
        return Ok(false);
    }
    let is_free = if may_wait { wait_for_turn(queue, operand)? } else { is_idle(queue) };
    if !is_free || !run(queue, &[operand], (Kind::Copy, bytes), copy)? {
        return Ok(false);
    }
    queue.write_output(false);
    queue.raise_errors().map(|()| true)
}

/// Whether the host may do the work of a command, at the time when the command could start.
fn is_admitted(queue: &Queue, operands: &[Operand<'_>]) -> Result<bool> {
    if queue.is_exposed() || is_capturing() || !operands.iter().all(|(memory, _)| is_of_host(memory)) {
        return Ok(false);
    }
    // Before a lock that a thread of a parent may hold for ever.
    not_forked()?;
    for (memory, _) in operands {
        if is_shared(memory)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the memory is the host's: host USM, system memory, and all memory of devices that share it with the host. Shared
/// USM of other devices would move to the host, and back for the next kernel.
fn is_of_host(memory: &Allocation) -> bool {
    match (memory.kind(), memory.place()) {
        (MemoryKind::System | MemoryKind::Usm(UsmKind::Host), _) => true,
        (MemoryKind::Usm(_), Some((_, device))) => device.host_reads_device_memory(),
        (MemoryKind::Usm(_), None) => false,
    }
}

/// False also for a queue with a failed command, whose state only a wait knows.
fn is_idle(queue: &Queue) -> bool {
    queue.is_idle().unwrap_or(false)
}

/// Waits for the commands before a copy. False if a command must be submitted.
fn wait_for_turn(queue: &Queue, (memory, access): Operand<'_>) -> Result<bool> {
    memory.check()?;
    let mut events = SmallVec::<[Event; 4]>::new();
    let mut checked = Ok(());
    memory.each_log(&mut |log| {
        let found = log.lock().and_then(|log| {
            events.extend(log.access.before_host(access));
            log.views.check(access)
        });
        checked = std::mem::replace(&mut checked, Ok(())).and(found);
    });
    checked?;
    for event in events {
        let begun = recorder::begin();
        let waited = event.wait_quietly();
        recorder::waited(begun, event.queue(), Some(event.record()));
        match waited {
            Err(error @ (Error::Interrupted | Error::Fork)) => return Err(error),
            // The command gets the event, or follows it on the queue.
            Err(_) => break,
            Ok(()) => {}
        }
    }
    if is_idle(queue) {
        return Ok(true);
    }
    // On an out-of-order queue a copy need not follow all earlier commands.
    if queue.in_order() { queue.wait().map(|()| true) } else { Ok(false) }
}

fn run(
    queue: &Queue,
    operands: &[Operand<'_>],
    (kind, bytes): (Kind, usize),
    work: impl FnOnce(),
) -> Result<bool> {
    let mut done = false;
    ordered_or_complete(queue, operands, |after, _| {
        if after.iter().all(Event::is_complete) {
            let begun = recorder::begin();
            work();
            done = true;
            recorder::done_by_host(begun, Label::new(kind, bytes), queue);
        }
        Ok(None)
    })?;
    Ok(done)
}
