//! One usmq per process: what Python scopes and what C asks must be the same current queue.

use std::sync::atomic::{AtomicBool, Ordering};

static IN_USE: AtomicBool = AtomicBool::new(false);

/// From now on this copy of usmq is the one that C programs use.
pub(super) fn begin() {
    IN_USE.store(true, Ordering::Relaxed);
}

/// Whether this copy has been called. The extension asks that of libusmq.so.
#[unsafe(no_mangle)]
extern "C" fn usmq_in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// An error when the process uses libusmq.so, whose current queue this copy does not know.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn refuse_a_second() -> crate::error::Result<()> {
    // SAFETY: only looks whether the library is loaded, by its name.
    let library = unsafe { libc::dlopen(c"libusmq.so.0".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return Ok(());
    }
    // SAFETY: a handle that dlopen gave. It is kept: the library stays loaded anyway.
    let symbol = unsafe { libc::dlsym(library, c"usmq_in_use".as_ptr()) };
    if symbol.is_null() {
        return Ok(());
    }
    // SAFETY: the function above, in a library of usmq's name.
    let in_use = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> bool>(symbol) };
    if in_use() {
        return Err(crate::error::Error::RuntimeConflict(
            "this process already uses libusmq.so; the package usmq would be a second library with its own \
             current queue. Import usmq before the first call of a usmq.h function, so that these calls use \
             the package"
                .to_owned(),
        ));
    }
    Ok(())
}
