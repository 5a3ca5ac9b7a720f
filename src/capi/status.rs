//! Reports errors to C: a status, and a message per thread. Catches all panics and exceptions.

use super::host;
use crate::error::{Error, Result};
use crate::runtime::without_python_lock;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `usmq_status` in usmq.h.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok = 0,
    Selector = 1,
    DeviceNotFound = 2,
    Placement = 3,
    Allocation = 4,
    KernelBuild = 5,
    Launch = 6,
    Interop = 7,
    Value = 8,
    Type = 9,
    Index = 10,
    RuntimeNotFound = 11,
    RuntimeConflict = 12,
    Fork = 13,
    Sycl = 14,
    Internal = 15,
    Interrupted = 16,
    Capture = 17,
    Exit = 18,
    Thread = 19,
}

impl From<&Error> for Status {
    fn from(error: &Error) -> Self {
        match error {
            Error::Selector { .. } => Self::Selector,
            Error::DeviceNotFound { .. } => Self::DeviceNotFound,
            Error::Placement { .. } => Self::Placement,
            Error::Allocation { .. } | Error::HostMemory { .. } => Self::Allocation,
            Error::KernelBuild { .. } => Self::KernelBuild,
            Error::Launch { .. } => Self::Launch,
            Error::Capture { .. } => Self::Capture,
            Error::Interop { .. } => Self::Interop,
            Error::Value { .. } | Error::HostView { .. } => Self::Value,
            Error::Type { .. } => Self::Type,
            Error::Index { .. } => Self::Index,
            Error::RuntimeNotFound { .. } => Self::RuntimeNotFound,
            Error::RuntimeConflict { .. } => Self::RuntimeConflict,
            Error::Fork => Self::Fork,
            Error::Sycl { .. } => Self::Sycl,
            Error::Interrupted => Self::Interrupted,
            Error::Exit => Self::Exit,
            Error::Thread { .. } => Self::Thread,
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a C function.
pub(super) fn call(body: impl FnOnce() -> Result<()>) -> c_int {
    super::single::begin();
    let _capture = host::get().and_then(|host| host.capture());
    let status = match catch_unwind(AssertUnwindSafe(|| without_python_lock(body))) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(error)) => {
            remember(&error.to_string());
            Status::from(&error)
        }
        Err(cause) => {
            let text = cause.downcast::<String>().map(|text| *text).or_else(|cause| {
                // The destructor of anything else might panic in turn.
                cause.downcast::<&str>().map(|text| text.to_string()).map_err(std::mem::forget)
            });
            let text = text.unwrap_or_default();
            remember(&format!("internal error in usmq, please report it: {text}"));
            Status::Internal
        }
    };
    status as c_int
}

fn remember(text: &str) {
    let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // An ending thread has no thread-local storage left, and cannot query the message.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Returns the message of this thread's last failed call; empty if none failed. Valid until the next failure.
#[unsafe(no_mangle)]
extern "C" fn usmq_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Reads the caller's string.
///
/// # Safety
/// `text` is null, or ends with a zero and stays as it is for the call.
pub(super) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Error::value(format!("{} is not UTF-8", text.to_string_lossy())))
}

/// Writes a result for the caller.
///
/// # Safety
/// `place` is null or points to memory for a `T`.
pub(super) unsafe fn give<T>(place: *mut T, name: &str, value: impl FnOnce() -> Result<T>) -> Result<()> {
    if place.is_null() {
        return Err(Error::value(format!("{name} is null; pass the address for the result")));
    }
    let value = value()?;
    // SAFETY: the caller's promise; it is not null.
    unsafe { place.write(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: valid until the next failure on this thread.
        unsafe { CStr::from_ptr(usmq_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_text_of_an_error_stays_with_its_thread() {
        let fail = || call(|| Err(Error::value("no\0pe")));
        assert_eq!(fail(), Status::Value as c_int);
        assert_eq!(last(), "no\u{fffd}pe");
        assert_eq!(call(|| Ok(())), 0);
        assert_eq!(last(), "no\u{fffd}pe");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
    }

    #[test]
    fn a_panic_becomes_a_status() {
        assert_eq!(call(|| panic!("so {}", "much")), Status::Internal as c_int);
        assert!(last().ends_with("so much"), "{}", last());
    }

    #[test]
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../../python/usmq/include/usmq.h");
        for (name, status) in [
            ("OK", Status::Ok),
            ("ERROR_SELECTOR", Status::Selector),
            ("ERROR_DEVICE_NOT_FOUND", Status::DeviceNotFound),
            ("ERROR_PLACEMENT", Status::Placement),
            ("ERROR_ALLOCATION", Status::Allocation),
            ("ERROR_KERNEL_BUILD", Status::KernelBuild),
            ("ERROR_LAUNCH", Status::Launch),
            ("ERROR_INTEROP", Status::Interop),
            ("ERROR_VALUE", Status::Value),
            ("ERROR_TYPE", Status::Type),
            ("ERROR_INDEX", Status::Index),
            ("ERROR_RUNTIME_NOT_FOUND", Status::RuntimeNotFound),
            ("ERROR_RUNTIME_CONFLICT", Status::RuntimeConflict),
            ("ERROR_FORK", Status::Fork),
            ("ERROR_SYCL", Status::Sycl),
            ("ERROR_INTERNAL", Status::Internal),
            ("ERROR_INTERRUPTED", Status::Interrupted),
            ("ERROR_CAPTURE", Status::Capture),
            ("ERROR_EXIT", Status::Exit),
            ("ERROR_THREAD", Status::Thread),
        ] {
            let line = format!("USMQ_{name} = {},", status as c_int);
            assert!(header.contains(&line), "usmq.h has no {line}");
        }
    }
}
