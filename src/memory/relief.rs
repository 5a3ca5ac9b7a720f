//! Calls the application to make room when an allocation fails, for example by moving idle results to the host.

use crate::device::recording::suspend;
use crate::device::{Device, UsmKind};
use crate::error::Result;
use crate::runtime::ForkMutex;
use once_cell::sync::Lazy;
use std::cell::Cell;
use std::sync::Arc;

/// Drops arrays to make room for so many bytes of this kind on this device; false if it has dropped none.
type Relief = dyn Fn(&Device, UsmKind, u64) -> bool + Send + Sync;

/// The lock is a leaf: the function runs without it.
static RELIEF: Lazy<ForkMutex<Option<Arc<Relief>>>> = Lazy::new(ForkMutex::default);

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
}

/// Sets the function that usmq calls when an allocation of USM fails: it drops arrays that can be restored later,
/// and returns whether it has dropped any. usmq then tries again, and calls it again as long as it returns `true`.
///
/// The function runs in the thread of the allocation. It may use usmq; allocations that fail meanwhile in this
/// thread do not call it. `None` removes it.
///
/// ```
/// use std::sync::Mutex;
/// use usmq::{Array, UsmKind, memory};
///
/// static IDLE: Mutex<Vec<Array>> = Mutex::new(Vec::new());
/// let queue = usmq::current_queue()?;
/// memory::set_limit(Some(1 << 21), Some(queue.device()), Some(UsmKind::Device))?;
/// memory::set_relief(Some(|_: &_, _, _| IDLE.lock().is_ok_and(|mut idle| idle.pop().is_some())))?;
///
/// for _ in 0..10 {
///     let x = Array::zeros::<u8>(1 << 20)?; // from the third on, in place of an idle array
///     IDLE.lock().unwrap().push(x);
/// }
/// # memory::set_limit(None, Some(queue.device()), Some(UsmKind::Device))?;
/// # memory::set_relief(None::<fn(&usmq::Device, UsmKind, u64) -> bool>)?;
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
///
/// After a fork of a process that has used SYCL.
pub fn set_relief<F>(make_room: Option<F>) -> Result<()>
where
    F: Fn(&Device, UsmKind, u64) -> bool + Send + Sync + 'static,
{
    let new = make_room.map(|function| Arc::new(function) as Arc<Relief>);
    // Drop the earlier function after the lock is released: that may run code of the application.
    let _before = std::mem::replace(&mut *RELIEF.lock()?, new);
    Ok(())
}

/// Asks the application to make room; false if it cannot.
pub(super) fn make_room(device: &Device, kind: UsmKind, bytes: usize) -> Result<bool> {
    if ACTIVE.get() {
        return Ok(false);
    }
    let Some(relief) = RELIEF.lock()?.clone() else { return Ok(false) };
    /// Also reset if the function panics.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            ACTIVE.set(false);
        }
    }
    ACTIVE.set(true);
    let _reset = Reset;
    // A capture of this thread must not record the copies.
    let _direct = suspend();
    Ok(relief(device, kind, bytes as u64))
}
