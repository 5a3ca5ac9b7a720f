//! The work-group sizes that the driver suggests for launches that name none.
//!
//! With an explicit size, the runtime does not query the kernel's attributes at each launch, and the driver does not
//! select a size again. The kernel runs in the same work-groups.

use super::backend::Capabilities;
use crate::ffi::{self, Extents, KernelArg};
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

/// A launch, which may have no work-group size.
pub(super) struct OpenLaunch<'a> {
    pub capabilities: &'a Capabilities,
    pub kernel: &'a ffi::Kernel,
    pub queue: &'a ffi::Queue,
    pub extents: &'a Extents,
    pub args: &'a [KernelArg],
}

impl OpenLaunch<'_> {
    /// The range with the suggested work-group size, from the second launch on.
    pub(super) fn sized(&self, sizes: &WorkGroupSizes) -> Extents {
        if self.has_suggestion() { sizes.get(self.extents, || self.suggested()) } else { *self.extents }
    }

    /// As [`OpenLaunch::sized`], for a launch that will be repeated.
    pub(super) fn sized_now(&self) -> Extents {
        if self.has_suggestion() { self.suggested() } else { *self.extents }
    }

    fn has_suggestion(&self) -> bool {
        self.extents.local[0] == 0 && self.capabilities.suggests_work_groups
    }

    fn suggested(&self) -> Extents {
        let local = ffi::kernel_work_group(self.kernel, self.queue, self.extents, self.args).ok();
        // If the driver has no answer, it chooses at each launch.
        let local = local.filter(|local| divides(local, self.extents));
        local.map_or(*self.extents, |local| Extents { local, ..*self.extents })
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
    fn opencl_c_gets_a_size() -> crate::Result<()> {
        if !crate::runtime::is_own_process("device::work_group::tests::opencl_c_gets_a_size") {
            return Ok(());
        }
        let device = &crate::device::discovery::devices()?[0];
        let context = &device.default_context()?;
        let queue = crate::device::Queue::create(context, device, crate::device::QueueProperties::default())?;
        let capabilities = device.capabilities();
        if !capabilities.suggests_work_groups {
            println!("skipped: {device} suggests no work-group sizes");
            return Ok(());
        }
        let source = "kernel void free(global uint *x) { x[get_global_id(0)] = 1; }";
        let (context, device) = (context.raw()?, device.raw()?);
        let kernel = ffi::kernel_from_opencl(context, device, source, "free", &Vec::new(), &mut Vec::new());
        let mut args = super::super::kernel_args::KernelArgs::default();
        args.pointer(0);
        let launch = OpenLaunch {
            capabilities,
            kernel: &kernel.expect("a kernel"),
            queue: queue.raw()?,
            extents: &Extents::range(&[64, 32]),
            args: &args,
        };
        assert_ne!(launch.sized_now().local[0], 0);
        Ok(())
    }

    #[test]
    fn a_suggestion_divides_the_range() {
        let range = Extents::range(&[6, 4]);
        assert!(divides(&[3, 2, 1], &range));
        assert!(!divides(&[4, 2, 1], &range) && !divides(&[0, 0, 0], &range));
    }
}
