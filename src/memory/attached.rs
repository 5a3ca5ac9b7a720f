//! State of other drivers for memory of usmq, such as a registration of pinned memory, which must end before the
//! runtime frees the memory.

use super::slabs::SMALL;
use crate::error::Result;
use crate::runtime::ForkMutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ends when it is dropped, which may block and must not panic.
pub(crate) type Attached = Box<dyn Send>;

/// From this size on, an array has a runtime allocation of its own.
pub(crate) const OWN_RANGE: usize = SMALL + 1;

static ATTACHED: ForkMutex<Option<HashMap<usize, Attached>>> = ForkMutex::new(None);

/// The size of the map, so that most frees need not lock it.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Attaches what `make` returns to a runtime allocation of a pool, unless something is attached already. The pool may use the
/// allocation for many arrays.
pub(crate) fn attach(start: usize, make: impl FnOnce() -> Result<Option<Attached>>) -> Result<()> {
    let is_known = ATTACHED.lock()?.as_ref().is_some_and(|all| all.contains_key(&start));
    // Not under the lock: the driver may take long.
    if !is_known && let Some(attached) = make()? {
        ATTACHED.lock()?.get_or_insert_default().insert(start, attached);
        COUNT.fetch_add(1, Ordering::Release);
    }
    Ok(())
}

/// Called before the runtime frees the allocation.
pub(super) fn detach(start: usize) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    // In a forked child the drivers are gone.
    let Ok(mut all) = ATTACHED.lock() else { return };
    let attached = all.as_mut().and_then(|all| all.remove(&start));
    drop(all);
    if attached.is_some() {
        COUNT.fetch_sub(1, Ordering::Release);
    }
    drop(attached);
}
