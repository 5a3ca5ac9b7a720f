//! Kernels built for one context and device.

use super::work_group::WorkGroupSizes;
use crate::error::Result;
use crate::ffi::{self, Extents};
use crate::runtime::Handle;
use cxx::UniquePtr;
use std::sync::Arc;

/// The source of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    /// SYCL C++, for the runtime compiler.
    Sycl(Arc<str>),
    /// OpenCL C, for drivers that compile it.
    OpenCl(Arc<str>),
    /// A SPIR-V module.
    SpirV(Arc<[u8]>),
}

impl Code {
    /// The single flags for its compiler: that of OpenCL C takes all options in one line.
    pub(crate) fn flags<'a>(&self, options: &'a [String]) -> Vec<&'a str> {
        match self {
            Self::OpenCl(_) => options.iter().flat_map(|option| option.split_whitespace()).collect(),
            Self::Sycl(_) | Self::SpirV(_) => options.iter().map(String::as_str).collect(),
        }
    }
}

/// A built kernel. Source: SYCL 2020, section 4.11, and `sycl_ext_oneapi_kernel_compiler`.
#[derive(Clone)]
pub(crate) struct Program(Arc<Inner>);

struct Inner {
    raw: Handle<ffi::Kernel>,
    slots: Option<Box<[Slot]>>,
    groups: GroupSizes,
    prints: bool,
    work_group_sizes: WorkGroupSizes,
}

/// The work-groups of a built kernel, as far as its driver reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GroupSizes {
    /// The size that the kernel requires, in the driver's order of dimensions: the first one varies fastest.
    pub(crate) required: Option<[usize; 3]>,
    /// The most work-items of a group on the device.
    pub(crate) most: Option<usize>,
    /// Bytes of local memory that the source fixes; 0 if the driver does not report them.
    pub(crate) local_memory: u64,
}

impl GroupSizes {
    pub(super) fn from_driver([x, y, z, most]: [usize; 4]) -> Self {
        Self { required: (x != 0).then_some([x, y, z]), most: (most != 0).then_some(most), local_memory: 0 }
    }
}

/// One argument of a built kernel as its driver counts them. A SYCL `local_accessor` is four, three of them
/// sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The driver does not report it.
    Unknown,
    /// A value of this many bytes; a pointer has 8.
    Bytes(usize),
    /// Local memory of the work-group.
    Local,
}

impl Extents {
    /// A range of up to three dimensions; the runtime chooses the work-groups.
    pub(crate) fn range(extents: &[usize]) -> Self {
        let mut global = [1; 3];
        global[..extents.len()].copy_from_slice(extents);
        Self { dimensions: extents.len() as u32, global, local: [0; 3] }
    }

    /// A range of at least this many items, for a kernel that ignores those beyond its own.
    pub(crate) fn padded(items: usize) -> Self {
        Self::range(&[padded(items)])
    }
}

/// A multiple of each size of work-groups that is worth choosing.
const GROUP: usize = 256;

/// At least this many work-items, in groups of a good size: the runtime chooses groups that divide the range, so a large
/// prime number of items would run in groups of one.
pub(crate) fn padded(items: usize) -> usize {
    if items <= GROUP { items } else { items.checked_next_multiple_of(GROUP).unwrap_or(items) }
}

/// Identifies a context in a key, without keeping it alive: another context may get the same key after this
/// one is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ContextKey(pub(super) usize);

impl Includes {
    /// Those of a unit without included files, whose kernels do not print.
    pub(crate) const NONE: Self = Self { contents: 0, is_complete: true, prints: false };
}

/// The build input, and the device of the context.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Unit {
    pub(super) device: usize,
    pub(super) code: Code,
    pub(super) options: Arc<[String]>,
    pub(super) includes: Includes,
}

/// The files that a source includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Includes {
    /// Identifies the contents of those that usmq has found.
    pub(crate) contents: u64,
    /// Whether usmq has found all of them. Otherwise a build must not outlive the process: the files may change.
    pub(crate) is_complete: bool,
    /// Whether a kernel of the unit may print, by `printf`.
    pub(crate) prints: bool,
}

impl Program {
    pub(super) fn new(
        raw: UniquePtr<ffi::Kernel>,
        slots: Option<Box<[Slot]>>,
        groups: GroupSizes,
        prints: bool,
    ) -> Self {
        let work_group_sizes = WorkGroupSizes::default();
        Self(Arc::new(Inner { raw: Handle::new(raw), slots, groups, prints, work_group_sizes }))
    }

    pub(crate) fn groups(&self) -> GroupSizes {
        self.0.groups
    }

    /// Whether the kernel may print, so that waits for it write the output.
    pub(super) fn prints(&self) -> bool {
        self.0.prints
    }

    pub(crate) fn raw(&self) -> Result<&ffi::Kernel> {
        self.0.raw.get()
    }

    /// Identifies the built kernel while it lives.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(super) fn work_group_sizes(&self) -> &WorkGroupSizes {
        &self.0.work_group_sizes
    }

    /// The arguments of the kernel, if the backend reports their number.
    pub(crate) fn slots(&self) -> Option<&[Slot]> {
        self.0.slots.as_deref()
    }
}

impl Slot {
    pub(super) fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Unknown,
            u32::MAX => Self::Local,
            bytes => Self::Bytes(bytes as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_padded_to_whole_groups() {
        for (items, expected) in
            [(0, 0), (1, 1), (256, 256), (257, 512), (3_999_971, 4_000_000), (usize::MAX, usize::MAX)]
        {
            assert_eq!(padded(items), expected);
        }
        assert_eq!(Extents::padded(1999).global, [2048, 1, 1]);
    }
}
