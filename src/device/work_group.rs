//! The work-group sizes that the driver suggests for launches that name none.
//!
//! With an explicit size, the runtime does not query the kernel's attributes at each launch, and the driver does not
//! select a size again. The kernel runs in the same work-groups.

use super::kernel_args::KernelArgs;
use super::{Program, Queue};
use crate::ffi::{self, Extents};
use parking_lot::Mutex;
use smallvec::SmallVec;

/// The last ranges of a kernel, each with its suggestion: `None` until the range comes again, since a query costs more
/// than it saves at a range that does not.
#[derive(Default)]
pub(super) struct WorkGroupSizes(Mutex<SmallVec<[(Extents, Option<Extents>); 2]>>);

/// The number of ranges of a kernel that are remembered.
const MOST: usize = 8;

impl WorkGroupSizes {
    /// The range with its work-group size, or `extents` if that is not known.
    fn get(&self, extents: &Extents, query: impl FnOnce() -> Extents) -> Extents {
        // Another thread that launches the kernel may hold it; without a suggestion the driver chooses.
        let Some(mut known) = self.0.try_lock() else { return *extents };
        match known.iter_mut().find(|(range, _)| range == extents) {
            Some((_, Some(suggested))) => *suggested,
            Some((_, suggested)) => *suggested.insert(query()),
            None => {
                if known.len() == MOST {
                    known.remove(0);
                }
                known.push((*extents, None));
                *extents
            }
        }
    }
}

impl Program {
    /// The range of a launch on `queue` with the suggested work-group size, from the second launch on.
    pub(super) fn with_work_group(&self, queue: &Queue, extents: &Extents, args: &KernelArgs) -> Extents {
        if !extents.is_open() || !queue.device().capabilities().suggests_work_groups {
            return *extents;
        }
        self.work_group_sizes().get(extents, || self.suggested(queue, extents, args))
    }

    /// As [`Program::with_work_group`], for a launch that will be repeated.
    pub(super) fn with_work_group_now(&self, queue: &Queue, extents: &Extents, args: &KernelArgs) -> Extents {
        if !extents.is_open() || !queue.device().capabilities().suggests_work_groups {
            return *extents;
        }
        self.suggested(queue, extents, args)
    }

    fn suggested(&self, queue: &Queue, extents: &Extents, args: &KernelArgs) -> Extents {
        let local = || ffi::kernel_work_group(self.raw().ok()?, queue.raw().ok()?, extents, args).ok();
        // If the driver has no answer, it chooses at each launch.
        local()
            .filter(|local| divides(local, extents))
            .map_or(*extents, |local| Extents { local, ..*extents })
    }
}

fn divides(local: &[usize; 3], extents: &Extents) -> bool {
    local.iter().zip(&extents.global).all(|(group, all)| *group != 0 && all % group == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggestion(extents: Extents) -> Extents {
        Extents { local: [2, 1, 1], ..extents }
    }

    #[test]
    fn a_range_is_queried_when_it_comes_again() {
        let sizes = WorkGroupSizes::default();
        let range = Extents::range(&[8]);
        assert_eq!(sizes.get(&range, || unreachable!()), range);
        assert_eq!(sizes.get(&range, || suggestion(range)), suggestion(range));
        assert_eq!(sizes.get(&range, || unreachable!()), suggestion(range));
        let other = Extents::range(&[8, 1]);
        assert_eq!(sizes.get(&other, || unreachable!()), other);
    }

    #[test]
    fn only_the_last_ranges_are_remembered() {
        let sizes = WorkGroupSizes::default();
        for round in 0..2 {
            for items in 1..=2 * MOST {
                let range = Extents::range(&[items]);
                assert_eq!(sizes.get(&range, || unreachable!()), range, "{round}");
            }
        }
        assert_eq!(sizes.0.lock().len(), MOST);
    }

    #[test]
    fn a_thread_does_not_wait_for_another_ones_query() {
        let sizes = WorkGroupSizes::default();
        let range = Extents::range(&[8]);
        sizes.get(&range, || unreachable!());
        sizes.get(&range, || {
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(sizes.get(&range, || unreachable!()), range));
            });
            suggestion(range)
        });
    }

    #[test]
    fn a_suggestion_divides_the_range() {
        let range = Extents::range(&[6, 4]);
        assert!(divides(&[3, 2, 1], &range));
        assert!(!divides(&[4, 2, 1], &range) && !divides(&[0, 0, 0], &range));
    }
}
