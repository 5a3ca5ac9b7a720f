//! Unified shared memory for C: blocks of the pools, identified by their addresses.

use super::queue::{given, given_or_current};
use super::status::{call, give};
use crate::array::{Array, DType, Layout};
use crate::device::UsmKind;
use crate::error::{Error, Result};
use crate::memory::{Access, Allocation, ordered};
use crate::runtime::ForkMutex;
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};

/// Blocks that were allocated and not freed, as bytes.
static BLOCKS: Lazy<ForkMutex<HashMap<usize, Array>>> = Lazy::new(ForkMutex::default);

fn unknown(memory: *mut c_void) -> Error {
    Error::value(format!(
        "{memory:p} is not the address of a block from usmq_allocate that is still allocated"
    ))
}

/// The block at an address.
pub(super) fn block(memory: *mut c_void) -> Result<Array> {
    BLOCKS.lock()?.get(&(memory as usize)).cloned().ok_or_else(|| unknown(memory))
}

/// `usmq_kind` in usmq.h.
fn kind_of(number: c_int) -> Result<UsmKind> {
    let kind = usize::try_from(number).ok().and_then(|number| UsmKind::ALL.get(number));
    kind.copied().ok_or_else(|| {
        Error::value(format!("kind must be USMQ_DEVICE (0), USMQ_SHARED (1) or USMQ_HOST (2), not {number}"))
    })
}

/// # Safety
/// As documented for the arguments in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_allocate(
    bytes: usize,
    kind: c_int,
    queue: *mut c_void,
    memory: *mut *mut c_void,
) -> c_int {
    let allocate = || {
        // SAFETY: the caller's queue.
        let queue = unsafe { given_or_current(queue) }?;
        let memory = Allocation::new(bytes, kind_of(kind)?, &queue)?;
        // The log does not see the caller's own commands.
        memory.share_on(&queue)?;
        let block = Array::from_parts(memory, Layout::contiguous(&[bytes], 1)?, DType::U8, queue, false);
        let address = block.address();
        BLOCKS.lock()?.insert(address, block);
        Ok(address as *mut c_void)
    };
    // SAFETY: the caller's output pointer.
    call(|| unsafe { give(memory, "memory", allocate) })
}

/// # Safety
/// As documented for the arguments in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_use_on(memory: *mut c_void, queue: *mut c_void) -> c_int {
    call(|| {
        let block = block(memory)?;
        // SAFETY: the caller's queue.
        let queue = unsafe { given(queue) }?
            .ok_or_else(|| Error::value("queue is null; pass the queue that uses the memory"))?;
        // Returns an error if kernels on the queue cannot access the block.
        block.on_queue(&queue)?;
        let _direct = block.outside_capture("usmq_use_on")?;
        let memory = block.shared_allocation();
        if memory.used_off(&queue)? {
            // Orders this queue after the uses on other queues.
            ordered(&queue, &[(&memory, Access::ReadWrite)], |after| queue.barrier_now(after))?;
        }
        memory.share_on(&queue)
    })
}

#[unsafe(no_mangle)]
extern "C" fn usmq_free(memory: *mut c_void) -> c_int {
    call(|| {
        if memory.is_null() {
            return Ok(());
        }
        // Drop the block outside the lock.
        let block = BLOCKS.lock()?.remove(&(memory as usize));
        block.map(drop).ok_or_else(|| unknown(memory))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_defines_the_same_usm_kinds() {
        let header = include_str!("../../python/usmq/include/usmq.h");
        for (name, number) in [("DEVICE", 0), ("SHARED", 1), ("HOST", 2)] {
            assert!(header.contains(&format!("USMQ_{name} = {number}")), "usmq.h has no {name}");
            assert_eq!(kind_of(number).unwrap().name(), name.to_lowercase());
        }
        assert!(kind_of(3).is_err() && kind_of(-1).is_err());
    }
}
