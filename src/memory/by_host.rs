//! Copies and fills of memory of the host by the calling thread instead of a command, which takes a fifth of the time of a
//! command for small ones.
//!
//! The order is that of the command: after the uses in the logs and, because a kernel may use addresses that no log knows,
//! after the earlier commands of an in-order queue.

use super::allocation::{Allocation, Operand};
use super::ordered_submit::ordered_or_complete;
use super::recording::is_capturing;
use super::sharing::is_shared;
use crate::device::{DeviceType, Event, MemoryKind, Queue, UsmKind};
use crate::error::Result;
use crate::trace::{Kind, Label, recorder};

/// Up to this many bytes, the work takes less time than submitting a command.
const AT_ONCE: usize = 32 << 10;

/// Up to this many bytes, a copy takes less time than a command and the wait for it.
const WAITED: usize = 128 << 10;

/// Whether the host reads and writes the memory directly: host USM, system memory, and all memory of CPU devices.
pub(crate) fn is_of_host(memory: &Allocation) -> bool {
    match (memory.kind(), memory.place()) {
        (MemoryKind::System | MemoryKind::Usm(UsmKind::Host), _) => true,
        (MemoryKind::Usm(_), Some((_, device))) => device.device_type() == DeviceType::Cpu,
        (MemoryKind::Usm(_), None) => false,
    }
}

/// Does the work of a small command now, if the command could start now. False without a call of `work` if a command must
/// be submitted. `work` uses only the memory of the operands, and memory of the caller.
pub(crate) fn at_once(
    queue: &Queue,
    operands: &[Operand<'_>],
    (kind, bytes): (Kind, usize),
    work: impl FnOnce(),
) -> Result<bool> {
    let is_small = bytes <= AT_ONCE && operands.iter().all(|(memory, _)| is_of_host(memory));
    if !is_small || is_capturing() || !queue.admits_host() {
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

/// As [`at_once`], for a copy that the caller waits for: waits for the work before it. False if a command must be
/// submitted: also if another library may use the memory.
pub(crate) fn when_free(
    queue: &Queue,
    operand: Operand<'_>,
    bytes: usize,
    copy: impl FnOnce(),
) -> Result<bool> {
    let (memory, access) = operand;
    if bytes > WAITED || !is_of_host(memory) || is_capturing() || is_shared(memory)? {
        return Ok(false);
    }
    memory.wait_for_host(access)?;
    if !queue.admits_host() && !queue.wait_to_admit_host()? {
        return Ok(false);
    }
    run(queue, &[operand], (Kind::Copy, bytes), copy)
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
            recorder::done_by_host(begun, Label::new(kind, bytes), queue, after);
        }
        Ok(None)
    })?;
    Ok(done)
}
