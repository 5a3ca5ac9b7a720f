//! The line of the caller: for profiles, the first Python frame outside usmq.

use crate::device::record;
use crate::device::what::Site;
use pyo3::ffi;
use pyo3::marker::Ungil;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAnyMethods, PyString};
use std::cell::RefCell;
use std::sync::Arc;

/// Runs `f` without Python's lock, as the work of the line that called usmq. Commands go through here, so that a
/// profile knows where they come from.
pub(super) fn detach<T: Ungil, F: Ungil + FnOnce() -> T>(py: Python<'_>, f: F) -> T {
    let _at = record::at(|| caller(py));
    py.detach(f)
}

/// Frames further up than this are not looked at.
const DEEPEST: usize = 64;

fn caller(py: Python<'_>) -> Option<Site> {
    let own = folder(py)?;
    // SAFETY: the lock is held; a borrowed reference to the innermost Python frame of this thread, or null.
    let innermost = unsafe { ffi::PyEval_GetFrame() };
    // SAFETY: an object, or null for none.
    let mut frame = unsafe { Bound::from_borrowed_ptr_or_opt(py, innermost.cast()) }?;
    for _ in 0..DEEPEST {
        // SAFETY: a frame, with the lock held.
        let code = unsafe { ffi::PyFrame_GetCode(frame.as_ptr().cast()) };
        // SAFETY: a new reference, never null.
        let code = unsafe { Bound::from_owned_ptr_or_opt(py, code.cast()) }?;
        let file = code.getattr(pyo3::intern!(py, "co_filename")).ok()?.cast_into::<PyString>().ok()?;
        let file = file.to_str().ok()?;
        if !is_own(file, own) {
            // SAFETY: as above.
            let line = unsafe { ffi::PyFrame_GetLineNumber(frame.as_ptr().cast()) };
            return Some(Site { file: shared(file), line: line.unsigned_abs() });
        }
        frame = frame.getattr(pyo3::intern!(py, "f_back")).ok()?;
        if frame.is_none() {
            return None;
        }
    }
    None
}

/// The demo is a user of usmq, though it comes with it.
fn is_own(file: &str, folder: &str) -> bool {
    file.strip_prefix(folder).is_some_and(|inside| inside != "/demo.py")
}

/// The folder of the package.
fn folder(py: Python<'_>) -> Option<&'static str> {
    static FOLDER: PyOnceLock<Option<String>> = PyOnceLock::new();
    let folder = FOLDER.get_or_init(py, || {
        let file: String = py.import("usmq").ok()?.getattr("__file__").ok()?.extract().ok()?;
        Some(file.rsplit_once('/')?.0.to_owned())
    });
    folder.as_deref()
}

/// One text per file, as long as a thread stays in it.
fn shared(file: &str) -> Arc<str> {
    thread_local! {
        static LAST: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| match last {
        Some(known) if **known == *file => known.clone(),
        _ => last.insert(file.into()).clone(),
    })
}
