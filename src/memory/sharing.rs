//! Memory that another library may use without an entry in a log.

use super::access_log::Access;
use super::allocation::Allocation;
use super::ordered_submit::Logged;
use crate::device::Queue;
use crate::error::Result;
use crate::runtime::checks;
use smallvec::SmallVec;

/// Whether another library may use the memory.
pub(super) fn is_shared(memory: &Allocation) -> Result<bool> {
    checks::waits(|| false);
    let (mut shared, mut locked) = (false, Ok(()));
    memory.each_log(&mut |log| match log.lock() {
        Ok(log) => shared |= !log.shared_on.is_empty(),
        Err(error) => locked = Err(error),
    });
    locked.map(|()| shared)
}

/// Whether an export to another library that uses this in-order queue has nothing left to order or to register: the memory is
/// shared on this queue only, and no command elsewhere uses it. Never waits: false if another thread holds the log.
pub(crate) fn is_shared_in_order_on(memory: &Allocation, queue: &Queue) -> bool {
    let mut ready = queue.in_order();
    memory.each_log(&mut |log| {
        let Some(log) = log.try_lock().filter(|_| ready) else {
            ready = false;
            return;
        };
        let mut others = SmallVec::new();
        log.access.dependencies(Access::ReadWrite, Some(queue.id()), &mut others);
        ready = others.is_empty() && matches!(log.shared_on.as_slice(), [only] if only == queue);
    });
    ready
}
