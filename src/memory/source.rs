//! The memory that a pool takes from the runtime, within the limit of its budget.

use super::budget::Budget;
use crate::device::{Context, Device, UsmKind};
use crate::error::Result;
use crate::ffi;

/// Allocates USM of one kind, for one device in one context.
pub(super) struct Source {
    pub(super) context: Context,
    pub(super) device: Device,
    pub(super) kind: UsmKind,
    pub(super) budget: &'static Budget,
}

impl Source {
    /// A block that was returned and is not freed yet, or a new one.
    pub(super) fn reuse_or_allocate(&self, bytes: usize) -> Result<Option<usize>> {
        let unused = self.budget.unused.take(bytes, &self.context);
        if unused.is_some() { Ok(unused) } else { self.allocate(bytes) }
    }

    /// A new block of at least one byte; `None` if the limit or the runtime cannot provide it.
    pub(super) fn allocate(&self, bytes: usize) -> Result<Option<usize>> {
        let (device, context) = (self.device.raw()?, self.context.raw()?);
        if !self.budget.take(bytes) {
            return Ok(None);
        }
        let pointer = ffi::usm_alloc(self.kind.code(), device, context, bytes);
        if pointer == 0 {
            self.budget.give_back(bytes);
        } else {
            self.budget.count_request();
        }
        Ok((pointer != 0).then_some(pointer))
    }

    /// Returns a block, which is freed later.
    ///
    /// # Safety
    /// [`allocate`](Self::allocate) of this source returned it for as many bytes, no command uses it, and it is returned
    /// once.
    pub(super) unsafe fn free(&self, pointer: usize, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.budget.unused.put(pointer, bytes, self.context.clone()) };
    }
}
