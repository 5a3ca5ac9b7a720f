//! Ensures one usmq per process: Python and C must use the same current queue.

use std::sync::atomic::{AtomicBool, Ordering};

static IN_USE: AtomicBool = AtomicBool::new(false);

/// Marks this copy of usmq as the one that C programs use.
pub(super) fn begin() {
    IN_USE.store(true, Ordering::Relaxed);
}

/// Whether this copy has been called. The extension queries libusmq.so for this.
#[unsafe(no_mangle)]
extern "C" fn usmq_in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// An error when the process uses libusmq.so, whose current queue this copy does not know.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn refuse_a_second() -> crate::error::Result<()> {
    // SAFETY: only checks by name whether the library is loaded.
    let library = unsafe { libc::dlopen(c"libusmq.so.0".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return Ok(());
    }
    // SAFETY: a handle from dlopen. It is not closed: the library stays loaded anyway.
    let symbol = unsafe { libc::dlsym(library, c"usmq_in_use".as_ptr()) };
    if symbol.is_null() {
        return Ok(());
    }
    // SAFETY: the function above, in a library of usmq's name.
    let in_use = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> bool>(symbol) };
    if in_use() {
        let message = "this process already uses libusmq.so; the package usmq would be a second library with its own \
             current queue. Import usmq before the first call of a usmq.h function, so that these calls use \
             the package";
        return Err(crate::error::Error::RuntimeConflict {
            message: message.to_owned(),
            libraries: Vec::new(),
        });
    }
    Ok(())
}
