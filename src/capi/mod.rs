//! The C functions of `python/usmq/include/usmq.h`, which documents them. Both the Python extension and
//! `libusmq.so` export them; the header finds the one that the process uses.

mod arrow;
mod copy;
mod host;
mod memory;
mod queue;
mod single;
mod status;

#[cfg(feature = "python")]
pub(crate) use host::{HostScopes, Leave, scopes_of};
#[cfg(feature = "python")]
pub(crate) use single::refuse_a_second;

use std::ffi::{CStr, c_char};

/// The version with its terminating zero.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

#[unsafe(no_mangle)]
extern "C" fn usmq_version() -> *const c_char {
    // A literal with one zero, at its end.
    CStr::from_bytes_with_nul(VERSION.as_bytes()).unwrap_or(c"").as_ptr()
}
