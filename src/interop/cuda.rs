//! The NVIDIA driver, loaded at run time; for now only whether it is there.

use cudarc::driver::{result, sys};
use once_cell::sync::Lazy;

/// Asked once: each question opens and closes the library.
static LIBRARY: Lazy<bool> = Lazy::new(|| {
    // SAFETY: opens the driver library by its name, which runs its initialisers as any use of it would.
    unsafe { sys::is_culib_present() }
});

/// Number of CUDA devices, or why there is none. Never panics, with or without a driver.
///
/// # Errors
/// [`Error::RuntimeNotFound`](crate::Error::RuntimeNotFound) naming what is missing.
pub fn device_count() -> crate::Result<usize> {
    let missing = |what: String| crate::Error::RuntimeNotFound(what);
    // Any other call panics without the library.
    if !*LIBRARY {
        return Err(missing("the CUDA driver library (libcuda.so.1) is not installed".to_owned()));
    }
    result::init().map_err(|error| missing(format!("the CUDA driver does not start: {error:?}")))?;
    let count = result::device::get_count().map_err(|error| missing(format!("no CUDA device: {error:?}")))?;
    Ok(count.unsigned_abs() as usize)
}
