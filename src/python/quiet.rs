//! Values that may be dropped while a Python exception is under way.

use pyo3::ffi;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// What a Python object holds that may run another library's Python code when it goes: the release of an import. An
/// object may go in the middle of an exception, which such code would lose. Only for fields of Python objects.
pub(super) struct Quiet<T>(ManuallyDrop<T>);

impl<T> Quiet<T> {
    pub(super) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for Quiet<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Quiet<T> {
    fn drop(&mut self) {
        // SAFETY: drop runs once, and nothing uses the value after it.
        quietly(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

/// Runs `f` with the exception of this thread, if there is one, set aside. For destructors only: Python calls them with
/// its lock held, also while the interpreter ends and can no longer be attached to.
#[allow(
    deprecated,
    reason = "what stands for these two came with Python 3.12, and the stable ABI here is that of 3.11"
)]
pub(super) fn quietly(f: impl FnOnce()) {
    let mut error = [std::ptr::null_mut(); 3];
    let [class, value, traceback] = &mut error;
    // SAFETY: the lock is held, and the places are there to be written.
    unsafe { ffi::PyErr_Fetch(class, value, traceback) };
    f();
    let [class, value, traceback] = error;
    // SAFETY: the lock is held; what was fetched is handed back, once.
    unsafe { ffi::PyErr_Restore(class, value, traceback) };
}
