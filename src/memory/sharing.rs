//! Memory that another library may use without an entry in a log.

use super::access_log::Access;
use super::allocation::Allocation;
use super::ordered_submit::Logged;
use crate::completion;
use crate::device::Queue;
use crate::error::Result;
use crate::runtime::checks;
use smallvec::SmallVec;
use std::sync::Arc;

/// Memory that another library may use on a queue until the loan is dropped. By then its work there is complete.
pub(crate) struct Loan(Option<(Arc<Allocation>, Queue)>);

impl Loan {
    pub(crate) fn new(memory: &Arc<Allocation>, queue: &Queue) -> Result<Self> {
        memory.hand_over()?;
        memory.each_shared(|shared| shared.lend(queue))?;
        Ok(Self(Some((memory.clone(), queue.clone()))))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // A log may be locked while its thread waits for Python's lock, which this thread may hold.
        let Some((memory, queue)) = self.0.take() else { return };
        completion::release(move || {
            // In a forked child the logs are of no use.
            let _ = memory.each_shared(|shared| shared.give_back(&queue));
        });
    }
}

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
        ready = others.is_empty() && log.shared_on.is_only(queue);
    });
    ready
}
