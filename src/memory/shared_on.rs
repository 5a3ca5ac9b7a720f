//! The queues on which another library may use memory without an entry in its log.

use crate::device::Queue;
use smallvec::SmallVec;

/// Each queue with the number of loans that end; `FOR_GOOD` if it stays.
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
    pub(super) fn is_only(&self, queue: &Queue) -> bool {
        matches!(self.0.as_slice(), [(only, _)] if only == queue)
    }

    pub(super) fn add(&mut self, queue: &Queue) {
        self.count(queue, |_| FOR_GOOD);
    }

    pub(super) fn lend(&mut self, queue: &Queue) {
        self.count(queue, |loans| loans.saturating_add(1));
    }

    pub(super) fn give_back(&mut self, queue: &Queue) {
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
