//! The last uses of an allocation. Pure: generic over the event, so that its rules are tested without a
//! device.
//!
//! A read must follow the last write; a write must follow the last write and every read since. Complete
//! events, and those that the command's own in-order queue orders anyway, are left out.

use smallvec::SmallVec;

/// The access of a command to an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Read,
    Write,
    ReadWrite,
}

impl Access {
    /// The union of two accesses, for an operand that is passed twice.
    pub(crate) fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::ReadWrite }
    }

    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }
}

/// The properties of an event that the log needs.
pub(crate) trait Tracked: Clone + PartialEq {
    /// The queue to which it was submitted, if that queue is in-order.
    fn in_order_queue(&self) -> Option<usize>;
    /// Whether it is complete. Once true, always true.
    fn is_complete(&self) -> bool;
}

/// Up to this number of reads since the last write, the log does not query whether they are complete.
const FEW: usize = 16;

/// The last write and the reads since.
#[derive(Debug)]
pub(crate) struct AccessLog<E> {
    write: Option<E>,
    /// The latest read of each in-order queue.
    in_order: SmallVec<[E; 1]>,
    /// Reads of out-of-order queues.
    unordered: Vec<E>,
    /// At this number of unordered reads, complete ones are removed. It doubles with the reads that remain,
    /// so that the cost of a read does not grow with the reads in flight.
    crowded: usize,
}

impl<E> Default for AccessLog<E> {
    fn default() -> Self {
        Self::after(None)
    }
}

impl<E> AccessLog<E> {
    /// A log whose first user must wait for `event`.
    pub(crate) fn after(event: Option<E>) -> Self {
        Self { write: event, in_order: SmallVec::new(), unordered: Vec::new(), crowded: FEW }
    }
}

impl<E: Tracked> AccessLog<E> {
    /// Adds the dependencies of a command. `queue` identifies the command's queue if that is in-order.
    pub(crate) fn dependencies(&self, access: Access, queue: Option<usize>, wait_for: &mut SmallVec<[E; 4]>) {
        let reads = if access.writes() { Some(self.reads()) } else { None };
        for event in self.write.iter().chain(reads.into_iter().flatten()) {
            let ordered = queue.is_some() && event.in_order_queue() == queue;
            if !ordered && !wait_for.contains(event) && !event.is_complete() {
                wait_for.push(event.clone());
            }
        }
    }

    fn reads(&self) -> impl Iterator<Item = &E> {
        self.in_order.iter().chain(&self.unordered)
    }

    /// Records a command that was submitted after its [`dependencies`](Self::dependencies).
    pub(crate) fn record(&mut self, access: Access, event: E) {
        if access.writes() {
            // The write depends on all reads, so a wait for the write includes them.
            self.in_order.clear();
            self.unordered.clear();
            self.crowded = FEW;
            self.write = Some(event);
            return;
        }
        if let Some(queue) = event.in_order_queue() {
            // The latest read of an in-order queue implies its earlier ones.
            match self.in_order.iter_mut().find(|read| read.in_order_queue() == Some(queue)) {
                Some(older) => *older = event,
                None => self.in_order.push(event),
            }
            return;
        }
        if self.unordered.len() >= self.crowded {
            self.unordered.retain(|read| !read.is_complete());
            self.crowded = FEW.max(2 * self.unordered.len());
        }
        self.unordered.push(event);
    }

    /// The events that the host must wait for before it accesses the memory itself.
    pub(crate) fn before_host(&self, access: Access) -> SmallVec<[E; 4]> {
        let mut events = SmallVec::new();
        self.dependencies(access, None, &mut events);
        events
    }

    /// Whether a command may still use the memory.
    pub(crate) fn is_pending(&self) -> bool {
        self.last_uses().any(|event| !event.is_complete())
    }

    /// All events that may still use the memory, for its release.
    pub(crate) fn pending(&self) -> SmallVec<[E; 4]> {
        self.last_uses().filter(|event| !event.is_complete()).cloned().collect()
    }

    /// The reads since the last write, each of which depends on it, else the write.
    fn last_uses(&self) -> impl Iterator<Item = &E> {
        let write = if self.reads().next().is_none() { self.write.as_ref() } else { None };
        write.into_iter().chain(self.reads())
    }
}

#[cfg(test)]
#[path = "access_log_tests.rs"]
mod oracle_tests;

#[cfg(test)]
mod tests {
    use super::oracle_tests::Fake;
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    fn event(number: usize, queue: Option<usize>) -> Fake {
        Fake { number, queue, complete: Rc::default() }
    }

    fn names(log: &AccessLog<Fake>, access: Access, queue: Option<usize>) -> Vec<usize> {
        let mut wait_for = SmallVec::new();
        log.dependencies(access, queue, &mut wait_for);
        wait_for.iter().map(|event| event.number).collect()
    }

    #[test]
    fn a_read_waits_only_for_a_write_on_another_queue() {
        let mut log = AccessLog::default();
        log.record(Access::Write, event(1, Some(10)));
        assert!(names(&log, Access::Read, Some(10)).is_empty());
        assert_eq!(names(&log, Access::Read, Some(20)), [1]);
        assert_eq!(names(&log, Access::Read, None), [1]);
    }

    #[test]
    fn a_write_waits_for_the_reads_since_the_last_write() {
        let mut log = AccessLog::default();
        log.record(Access::Write, event(1, Some(10)));
        log.record(Access::Read, event(2, Some(20)));
        log.record(Access::Read, event(3, Some(30)));
        assert_eq!(names(&log, Access::Write, Some(20)), [1, 3]);
        log.record(Access::Write, event(4, Some(20)));
        assert_eq!(names(&log, Access::ReadWrite, Some(10)), [4]);
    }

    #[test]
    fn out_of_order_queues_need_explicit_dependencies() {
        let mut log = AccessLog::default();
        log.record(Access::Write, event(1, None));
        log.record(Access::Read, event(2, None));
        log.record(Access::Read, event(3, None));
        assert_eq!(names(&log, Access::Write, None), [1, 2, 3]);
    }

    #[test]
    fn complete_events_are_skipped_and_pruned() {
        let mut log = AccessLog::default();
        for name in 0..100 {
            let read = event(name, None);
            read.complete.set(true);
            log.record(Access::Read, read);
            assert!(log.unordered.len() <= FEW);
        }
        assert!(names(&log, Access::Write, None).is_empty());
        assert!(log.pending().is_empty());
    }

    #[test]
    fn the_cost_of_a_read_is_independent_of_reads_in_flight() {
        #[derive(Clone)]
        struct Counting(Rc<Cell<u32>>);
        impl PartialEq for Counting {
            fn eq(&self, _: &Self) -> bool {
                false
            }
        }
        impl Tracked for Counting {
            fn in_order_queue(&self) -> Option<usize> {
                None
            }
            fn is_complete(&self) -> bool {
                self.0.set(self.0.get() + 1);
                false
            }
        }
        let (mut log, asked) = (AccessLog::default(), Rc::new(Cell::new(0)));
        for _ in 0..4_000 {
            log.record(Access::Read, Counting(asked.clone()));
        }
        assert!(asked.get() < 3 * 4_000, "{asked:?}");
    }

    #[test]
    fn the_newest_read_of_an_in_order_queue_replaces_its_older_one() {
        let mut log = AccessLog::default();
        log.record(Access::Read, event(1, Some(10)));
        log.record(Access::Read, event(2, Some(10)));
        assert_eq!(names(&log, Access::Write, Some(20)), [2]);
    }
}
