//! The arguments of a launch, as the shim takes them.

use super::Slot;
use crate::ffi::KernelArgKind;
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};

pub(crate) use crate::ffi::KernelArg;

/// The arguments of a launch for the shim. Small ones need no heap.
#[derive(Debug, Default, Clone)]
pub(crate) struct KernelArgs {
    list: SmallVec<[KernelArg; 8]>,
    /// Long values, and the extents of local memory.
    more: Vec<u8>,
}

impl KernelArgs {
    fn push(&mut self, kind: KernelArgKind, value: usize) -> &mut KernelArg {
        let at = self.list.len();
        self.list.push(KernelArg { kind, element: 1, dimensions: 0, value, more: 0, bytes: [0; 16] });
        &mut self.list[at]
    }

    pub(crate) fn pointer(&mut self, address: usize) {
        self.push(KernelArgKind::Pointer, address);
    }

    /// A number, vector or structure by its bytes.
    pub(crate) fn value(&mut self, value: &[u8]) {
        let more = self.more.len();
        let arg = self.push(KernelArgKind::Value, value.len());
        if let Some(bytes) = arg.bytes.get_mut(..value.len()) {
            bytes.copy_from_slice(value);
        } else {
            arg.more = more;
            self.more.extend_from_slice(value);
        }
    }

    /// Local memory of a work-group, for a kernel parameter that is a pointer or a `local_accessor`; the
    /// latter counts elements of `element` bytes in one to three dimensions.
    pub(crate) fn local(&mut self, bytes: usize, element: usize, extents: &[usize]) {
        let more = self.more.len();
        let arg = self.push(KernelArgKind::LocalAccessor, bytes);
        (arg.element, arg.dimensions, arg.more) = (element as u8, extents.len() as u8, more);
        self.more.extend(extents.iter().flat_map(|extent| extent.to_ne_bytes()));
    }

    /// Local memory of a work-group, for a kernel parameter that is a `work_group_memory`.
    pub(crate) fn work_group_memory(&mut self, bytes: usize) {
        self.push(KernelArgKind::WorkGroupMemory, bytes);
    }

    /// Replaces an argument by a value.
    pub(crate) fn replace(&mut self, position: usize, value: &[u8]) {
        self.value(value);
        // The last argument takes its place.
        self.list.swap_remove(position);
    }

    /// Long values, and the extents of local memory.
    pub(crate) fn more(&self) -> &[u8] {
        &self.more
    }
}

impl Deref for KernelArgs {
    type Target = [KernelArg];

    fn deref(&self) -> &[KernelArg] {
        &self.list
    }
}

impl DerefMut for KernelArgs {
    fn deref_mut(&mut self) -> &mut [KernelArg] {
        &mut self.list
    }
}

impl KernelArg {
    /// The argument of the driver's kernel that corresponds to this one.
    pub(crate) fn slot(&self) -> Slot {
        match self.kind {
            KernelArgKind::Pointer => Slot::Bytes(size_of::<usize>()),
            KernelArgKind::Value => Slot::Bytes(self.value),
            _ => Slot::Local,
        }
    }

    pub(crate) fn is_accessor(&self) -> bool {
        self.kind == KernelArgKind::LocalAccessor
    }
}
