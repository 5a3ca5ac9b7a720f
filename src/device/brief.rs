//! Repeated launches of brief kernels.
//!
//! The OpenCL CPU driver executes commands in the threads that wait inside it. This is the fastest way to a
//! result, especially on a busy machine, but such a wait cannot be interrupted. An interruptible wait
//! therefore enters the driver only if the last launch with the same arguments completed within
//! [`BRIEF`], and if this launch depends on no event and on no earlier work of its queue.

use super::kernel_args::KernelArgs;
use super::program::Program;
use crate::ffi::Extents;
use crate::runtime::interrupt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time by which a wait inside the driver may delay an interrupt. Longer than the time slices of other processes:
/// on a busy machine they delay a short launch, and a wait outside the driver even more.
const BRIEF: Duration = Duration::from_millis(20);

/// The last brief launch for each value of the lowest bits of the hash.
static LAUNCHES: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Kernel, range and arguments of a launch, hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Launch(NonZeroU64);

impl Launch {
    /// `None` outside [`with_interrupt`](crate::with_interrupt), where no wait can be interrupted.
    pub(super) fn new(program: &Program, extents: &Extents, args: &KernelArgs) -> Option<Self> {
        if !interrupt::is_possible() {
            return None;
        }
        let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(Content { program, extents, args });
        NonZeroU64::new(hash).map(Self)
    }

    /// A replay of the commands of a capture, which this address names. `None` as for [`Launch::new`].
    pub(super) fn of_replay(commands: usize) -> Option<Self> {
        if !interrupt::is_possible() {
            return None;
        }
        NonZeroU64::new(BuildHasherDefault::<DefaultHasher>::new().hash_one(commands)).map(Self)
    }

    /// Whether the last launch with these arguments was brief.
    pub(super) fn was_brief(self) -> bool {
        self.place().load(Ordering::Relaxed) == self.0.get()
    }

    /// Records the duration of the wait.
    pub(super) fn took(self, time: Duration) {
        if time < BRIEF {
            self.place().store(self.0.get(), Ordering::Relaxed);
        } else if self.was_brief() {
            self.place().store(0, Ordering::Relaxed);
        }
    }

    fn place(self) -> &'static AtomicU64 {
        &LAUNCHES[self.0.get() as usize % LAUNCHES.len()]
    }
}

struct Content<'a> {
    program: &'a Program,
    extents: &'a Extents,
    args: &'a KernelArgs,
}

impl Hash for Content<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.program.address().hash(state);
        (self.extents.global, self.extents.local).hash(state);
        for arg in self.args.iter() {
            (arg.value, u128::from_ne_bytes(arg.bytes)).hash(state);
        }
        self.args.more().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_counts_as_brief_until_a_similar_one_takes_long() {
        let launch = Launch(NonZeroU64::new(0x1234_5678_9abc_def0).unwrap());
        assert!(!launch.was_brief());
        launch.took(Duration::from_micros(10));
        assert!(launch.was_brief());
        let other = Launch(NonZeroU64::new(0x0234_5678_9abc_def0).unwrap());
        assert!(!other.was_brief());
        other.took(Duration::from_secs(1));
        assert!(launch.was_brief());
        launch.took(Duration::from_secs(1));
        assert!(!launch.was_brief());
    }
}
