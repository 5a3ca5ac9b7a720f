//! The current queue for C, and scopes that calls open and close.
//!
//! Python keeps its scopes in a context variable, so a C function on a Python thread must use that variable
//! to read and open scopes. On other threads the scopes belong to the thread.

use super::status::{call, give, text};
use crate::device::Queue;
use crate::error::{Error, Result};
use crate::manager::{Entered, Target, current_queue, enter, thread_ends};
use once_cell::sync::{Lazy, OnceCell};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Closes a scope of the host language; an error if it is not the innermost one here.
pub(crate) type Leave = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// A language with its own scopes on its threads.
pub(crate) trait HostScopes: Sync {
    /// The innermost of its scopes; `None` without one, and on threads that are not its own.
    fn innermost(&self) -> Result<Option<Queue>>;

    /// Opens one of its scopes; `None` on threads that are not its own.
    fn enter(&self, queue: &Queue) -> Result<Option<Leave>>;
}

static HOST: OnceCell<&'static dyn HostScopes> = OnceCell::new();

/// Registers the scopes of a language.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn scopes_of(host: &'static dyn HostScopes) {
    // A process has only one Python.
    let _ = HOST.set(host);
}

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
    match HOST.get().map_or(Ok(None), |host| host.innermost())? {
        Some(queue) => Ok(queue),
        None => current_queue(),
    }
}

fn open(target: Target) -> Result<u64> {
    // Without a target the scope changes nothing, but must still be left.
    let queue = target.queue()?.map_or_else(current, Ok)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let leave = HOST.get().map_or(Ok(None), |host| host.enter(&queue))?;
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
        _ if scopes.iter().any(|(open, _)| *open == number) => Err(Error::Value(format!(
            "scope {number} is not the innermost one of this thread; leave those inside it first"
        ))),
        _ => Err(Error::Value(format!(
            "scope {number} is not open on this thread; leave a scope once, on the thread that entered it"
        ))),
    };
    let ended = OF_THREAD.try_with(|scopes| last(&mut scopes.borrow_mut())).map_err(|_| thread_ends())??;
    drop(ended.map(|(_, entered)| ManuallyDrop::into_inner(entered)));
    Ok(())
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
        let queue = unsafe { super::queue::given(queue) }?;
        // SAFETY: the caller's output pointer.
        unsafe { give(scope, "scope", || open(Target::from(queue))) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn usmq_queue_scope_leave(scope: u64) -> c_int {
    call(|| close(scope))
}
