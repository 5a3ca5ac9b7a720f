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

/// The queues on which another library may use memory, each with the number of loans that end; `FOR_GOOD` if it stays.
#[derive(Default)]
pub(super) struct SharedOn(SmallVec<[(Queue, u32); 1]>);

const FOR_GOOD: u32 = u32::MAX;

impl SharedOn {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.0.iter().map(|(queue, _)| queue)
    }

    /// Whether this queue is the only one.
    fn is_only(&self, queue: &Queue) -> bool {
        matches!(self.0.as_slice(), [(only, _)] if only == queue)
    }

    pub(super) fn add(&mut self, queue: &Queue) {
        self.count(queue, |_| FOR_GOOD);
    }

    fn lend(&mut self, queue: &Queue) {
        self.count(queue, |loans| loans.saturating_add(1));
    }

    fn give_back(&mut self, queue: &Queue) {
        self.0.retain(|(known, loans)| {
            if known == queue && *loans != FOR_GOOD {
                *loans -= 1;
            }
            *loans > 0
        });
    }

    fn count(&mut self, queue: &Queue, counted: impl Fn(u32) -> u32) {
        match self.0.iter_mut().find(|(known, _)| known == queue) {
            Some((_, loans)) => *loans = counted(*loans),
            None => self.0.push((queue.clone(), counted(0))),
        }
    }

    pub(super) fn take(&mut self) -> SmallVec<[Queue; 1]> {
        std::mem::take(&mut self.0).into_iter().map(|(queue, _)| queue).collect()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::current_queue;

    #[test]
    fn a_loan_ends_with_its_last_copy_and_a_queue_for_good_stays() {
        let queue = current_queue().unwrap();
        let mut shared = SharedOn::default();
        shared.lend(&queue);
        shared.lend(&queue);
        shared.give_back(&queue);
        assert!(shared.is_only(&queue));
        shared.give_back(&queue);
        assert!(shared.is_empty());
        shared.lend(&queue);
        shared.add(&queue);
        shared.lend(&queue);
        shared.give_back(&queue);
        shared.give_back(&queue);
        assert!(shared.is_only(&queue));
    }
}
