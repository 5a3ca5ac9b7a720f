//! Memory for a C++ library that keeps its owner by a `std::shared_ptr`.

use crate::error::{Error, Result};
use crate::ffi::{self, Kept};
use crate::runtime::checks::InDestructor;
use std::any::Any;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A `std::shared_ptr<void>` on the C++ heap. Its consumer copies and deletes it as C++ does, on any thread.
pub(crate) struct SharedPointer(NonNull<c_void>);

impl SharedPointer {
    /// `owner` keeps the memory at `address`. The last copy drops it; like every destructor of usmq, that must not wait.
    pub(crate) fn new(address: usize, owner: impl Any + Send + Sync) -> Result<Self> {
        let kept = Box::new(Kept(Box::new(Marked(Some(owner)))));
        let raw = ffi::shared_pointer_new(address, kept);
        let missing = Error::HostMemory { asked: size_of::<[usize; 2]>() as u64, what: "a shared pointer" };
        NonNull::new(raw as *mut c_void).map(Self).ok_or(missing)
    }

    /// The address of the `std::shared_ptr<void>`, for a consumer that deletes it.
    pub(crate) fn into_raw(self) -> NonNull<c_void> {
        ManuallyDrop::new(self).0
    }

    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr()
    }
}

impl Drop for SharedPointer {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and not given away.
        unsafe { ffi::shared_pointer_free(self.0.as_ptr() as usize) };
    }
}

/// Marks the drop, which may run in a host task of another library.
struct Marked<T>(Option<T>);

impl<T> Drop for Marked<T> {
    fn drop(&mut self) {
        let _mark = InDestructor::enter();
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_owner_lives_as_long_as_the_pointer() {
        let owner = Arc::new(());
        let pointer = SharedPointer::new(64, owner.clone()).unwrap();
        assert_eq!(Arc::strong_count(&owner), 2);
        // SAFETY: `get` is the first word of a `std::shared_ptr` of libstdc++.
        assert_eq!(unsafe { *pointer.as_ptr().cast::<usize>() }, 64);
        drop(pointer);
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
