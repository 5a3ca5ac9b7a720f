//! Copies bytes and waits for events for C libraries that take memory from usmq.

use super::queue::given_or_current;
use super::status::call;
use crate::array::{Array, DType};
use crate::device::Queue;
use crate::error::{Error, Result};
use crate::interop::device_ordinal::find_queue;
use crate::interop::suai::{Descriptor, SyclObject, import};
use crate::placement::collocate;
use std::ffi::{c_int, c_void};

/// The USM at an address, as bytes on a queue of its device; `None` for other host memory.
///
/// # Safety
/// The memory stays allocated until the returned array's last use is complete.
unsafe fn usm(address: usize, bytes: usize) -> Result<Option<Array>> {
    let Some(queue) = find_queue(address, 0)? else { return Ok(None) };
    let descriptor = Descriptor {
        pointer: address,
        readonly: false,
        shape: vec![bytes],
        strides: None,
        offset: 0,
        dtype: DType::U8,
    };
    let context = SyclObject::Context(queue.context().clone());
    // SAFETY: the caller's promise.
    unsafe { import(&descriptor, &context, Box::new(())) }.map(Some)
}

/// # Safety
/// Both ranges are valid, and do not overlap.
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
    // SAFETY: the copy is complete when this function returns, also after an error.
    let target = unsafe { usm(to as usize, bytes) }?;
    // SAFETY: as above.
    let source = unsafe { usm(from as usize, bytes) }?;
    let queue = target.as_ref().or(source.as_ref()).map(|array| array.queue().clone());
    let copied = match (target, source) {
        (None, None) => {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            Ok(())
        }
        (None, Some(source)) => source.read_into(to, bytes, None),
        (Some(target), None) => target.write_from(from, bytes, None),
        (Some(target), Some(source)) => {
            let moved = collocate(&source, target.queue());
            moved.and_then(|moved| target.assign(&moved)).and_then(|()| target.wait())
        }
    };
    if let (Err(_), Some(queue)) = (&copied, queue) {
        queue.drain();
    }
    copied
}

/// # Safety
/// As documented for the arguments in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_copy(to: *mut c_void, from: *const c_void, bytes: usize) -> c_int {
    call(|| {
        if bytes == 0 {
            return Ok(());
        }
        if to.is_null() || from.is_null() || isize::try_from(bytes).is_err() {
            return Err(Error::value(format!(
                "cannot copy {bytes} bytes from {from:p} to {to:p}; pass two valid addresses"
            )));
        }
        // SAFETY: the caller's memory.
        unsafe { copy(to.cast(), from.cast(), bytes) }
    })
}

/// # Safety
/// As documented for the arguments in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_event_wait(event: *mut c_void, queue: *mut c_void) -> c_int {
    call(|| {
        if event.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's queue.
        let queue: Queue = unsafe { given_or_current(queue) }?;
        // SAFETY: the caller's event.
        unsafe { queue.barrier_after_foreign(event as usize) }?.wait()
    })
}
