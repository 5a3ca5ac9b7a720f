//! Queues for C: the current one, the one of a device, the default of the process, and scopes that calls open and
//! close.
//!
//! Python keeps its scopes in a context variable, so a C function on a Python thread must use that variable
//! to read and open scopes. On other threads the scopes belong to the thread.

use super::host::{self, Leave};
use super::status::{call, give, text};
use crate::device::{Queue, QueueProperties};
use crate::error::{Error, Result};
use crate::manager::{Entered, Target, current_queue, enter, set_default_queue, thread_ends};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Scopes that were opened in the host language, by their numbers.
static OF_HOST: Lazy<Mutex<HashMap<u64, Leave>>> = Lazy::new(Mutex::default);

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Scopes that were opened on this thread, innermost last. Scopes left open end with the thread, and
    /// their guards must not access thread-local data then.
    static OF_THREAD: RefCell<Vec<(u64, ManuallyDrop<Entered>)>> = const { RefCell::new(Vec::new()) };
}

/// The queue for work if the caller names none.
pub(super) fn current() -> Result<Queue> {
    match host::get().map_or(Ok(None), |host| host.innermost())? {
        Some(queue) => Ok(queue),
        None => current_queue(),
    }
}

fn open(target: Target) -> Result<u64> {
    // Without a target the scope changes nothing, but must still be left.
    let queue = target.queue()?.map_or_else(current, Ok)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let leave = host::get().map_or(Ok(None), |host| host.enter(&queue))?;
    match leave {
        Some(leave) => {
            OF_HOST.lock().insert(number, leave);
        }
        None => {
            let entered = enter(queue)?;
            // If the thread-local list no longer exists, leave the scope again.
            let push =
                |scopes: &RefCell<Vec<_>>| scopes.borrow_mut().push((number, ManuallyDrop::new(entered)));
            OF_THREAD.try_with(push).map_err(|_| thread_ends())?;
        }
    }
    Ok(number)
}

fn close(number: u64) -> Result<()> {
    // Never run code of the host language under the lock.
    let leave = OF_HOST.lock().get(&number).cloned();
    if let Some(leave) = leave {
        leave()?;
        OF_HOST.lock().remove(&number);
        return Ok(());
    }
    let last = |scopes: &mut Vec<(u64, ManuallyDrop<Entered>)>| match scopes.last() {
        Some((last, _)) if *last == number => Ok(scopes.pop()),
        _ if scopes.iter().any(|(open, _)| *open == number) => Err(Error::value(format!(
            "scope {number} is not the innermost one of this thread; leave those inside it first"
        ))),
        _ => Err(Error::value(format!(
            "scope {number} is not open on this thread; leave a scope once, on the thread that entered it"
        ))),
    };
    let ended = OF_THREAD.try_with(|scopes| last(&mut scopes.borrow_mut())).map_err(|_| thread_ends())??;
    drop(ended.map(|(_, entered)| ManuallyDrop::into_inner(entered)));
    Ok(())
}

/// The queue that the caller names; `None` for null.
///
/// # Safety
/// `queue` is null or the address of a live `sycl::queue` of this process's libsycl.
pub(super) unsafe fn given(queue: *mut c_void) -> Result<Option<Queue>> {
    let Some(queue) = NonNull::new(queue) else { return Ok(None) };
    // SAFETY: the caller's promise.
    unsafe { Queue::from_raw(queue) }.map(Some)
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
    Ok(queue.to_raw()?.as_ptr())
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
        if let Some(queue) = NonNull::new(queue) {
            // SAFETY: it came from one of the two above, and is released once.
            unsafe { Queue::free_raw(queue) };
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

/// # Safety
/// As documented for the arguments in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_queue_scope_enter(target: *const c_char, scope: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller's string.
        let target = unsafe { text(target) }?;
        // SAFETY: the caller's output pointer.
        unsafe { give(scope, "scope", || open(Target::from(target))) }
    })
}

/// # Safety
/// As documented for the arguments in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_queue_scope_enter_on(queue: *mut c_void, scope: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller's queue.
        let queue = unsafe { given(queue) }?;
        // SAFETY: the caller's output pointer.
        unsafe { give(scope, "scope", || open(Target::from(queue))) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn usmq_queue_scope_leave(scope: u64) -> c_int {
    call(|| close(scope))
}
