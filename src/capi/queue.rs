//! Queues for C: the current one, the one of a device, and the default of the process.

use super::scope::current;
use super::status::{call, give, text};
use crate::device::{Queue, QueueProperties};
use crate::error::Result;
use crate::manager::{Target, set_default_queue};
use std::ffi::{c_char, c_int, c_void};

/// The queue that the caller names; `None` for null.
///
/// # Safety
/// `queue` is null or the address of a live `sycl::queue` of this process's libsycl.
pub(super) unsafe fn given(queue: *mut c_void) -> Result<Option<Queue>> {
    if queue.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { Queue::from_raw(queue as usize) }.map(Some)
}

/// As [`given`], with the current queue for null.
///
/// # Safety
/// As [`given`].
pub(super) unsafe fn given_or_current(queue: *mut c_void) -> Result<Queue> {
    // SAFETY: the caller's promise.
    unsafe { given(queue) }?.map_or_else(current, Ok)
}

fn owned(queue: &Queue) -> Result<*mut c_void> {
    Ok(queue.to_raw()? as *mut c_void)
}

/// # Safety
/// As documented for the arguments in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_current_queue(queue: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's output pointer.
    call(|| unsafe { give(queue, "queue", || owned(&current()?)) })
}

/// # Safety
/// As documented for the arguments in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_queue_of(target: *const c_char, queue: *mut *mut c_void) -> c_int {
    call(|| {
        // SAFETY: the caller's string.
        let target = unsafe { text(target) }?;
        // SAFETY: the caller's output pointer.
        unsafe { give(queue, "queue", || owned(&Queue::new(target, None, QueueProperties::default())?)) }
    })
}

/// # Safety
/// As documented for the argument in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_queue_release(queue: *mut c_void) -> c_int {
    call(|| {
        if !queue.is_null() {
            // SAFETY: it came from one of the two above, and is released once.
            unsafe { Queue::free_raw(queue as usize) };
        }
        Ok(())
    })
}

/// # Safety
/// As documented for the argument in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_set_default_queue(target: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's string.
        set_default_queue(Target::from(unsafe { text(target) }?))
    })
}

/// # Safety
/// As documented for the argument in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_set_default_queue_to(queue: *mut c_void) -> c_int {
    call(|| {
        // SAFETY: the caller's queue.
        set_default_queue(Target::from(unsafe { given(queue) }?))
    })
}
