//! Lines of the Python program, for profiles.

use crate::trace::foreign::{Program, find_lines};
use crate::trace::record::Site;
use once_cell::sync::OnceCell;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::transmute;
use std::sync::Arc;

/// The largest number of frames to search.
const DEEPEST: usize = 64;

/// The line that called usmq.
pub(super) fn caller(py: Python<'_>) -> Option<Site> {
    let own = folder(py)?;
    innermost_line(py, |file| !is_own(file, own))
}

/// Lets profiles name the lines that call other libraries.
pub(super) fn find_lines_of_libraries(py: Python<'_>) -> PyResult<()> {
    let paths = py.import("sysconfig")?.call_method0("get_paths")?;
    let mut folders: Vec<String> = py.import("site")?.call_method0("getsitepackages")?.extract()?;
    folders.push(py.import("site")?.call_method0("getusersitepackages")?.extract()?);
    for name in ["stdlib", "platstdlib", "purelib", "platlib"] {
        folders.push(paths.get_item(name)?.extract()?);
    }
    folders.extend(folder(py).map(str::to_owned));
    // A second call finds the same folders.
    let _ = LIBRARIES.set(folders.into_iter().map(|folder| folder + "/").collect());
    // The first use of an interned name releases the lock of Python, which a call of the runtime may not do.
    innermost_line(py, |_| false);
    find_lines(Program { line: script_line, is_its_thread });
    Ok(())
}

/// The folders of Python's own modules and of installed packages, with a slash at the end.
static LIBRARIES: OnceCell<Vec<String>> = OnceCell::new();

/// The line of the script that made this thread call another library; of the innermost code, if all code is installed. None
/// if the thread does not hold the lock of Python. Runs no code of Python: the caller may hold locks of the runtime.
fn script_line() -> Option<Site> {
    if !holds_lock() {
        return None;
    }
    // SAFETY: the thread holds the lock.
    let py = unsafe { Python::assume_attached() };
    // A pending exception would be lost.
    if PyErr::occurred(py) {
        return None;
    }
    let libraries = LIBRARIES.get()?;
    // SAFETY: the lock is held. New frame objects can start a collection, which runs finalizers.
    let collects = unsafe { ffi::PyGC_Disable() } == 1;
    let is_script =
        |file: &str| !file.starts_with('<') && !libraries.iter().any(|folder| file.starts_with(folder));
    let line = innermost_line(py, is_script).or_else(|| innermost_line(py, |_| true));
    if collects {
        // SAFETY: the lock is held.
        unsafe { ffi::PyGC_Enable() };
    }
    line
}

/// Whether this thread holds the lock of Python; false if Python has no function that tells.
fn holds_lock() -> bool {
    type Current = unsafe extern "C" fn() -> *mut ffi::PyThreadState;
    static CURRENT: OnceCell<Option<Current>> = OnceCell::new();
    let current = CURRENT.get_or_init(|| {
        // The stable ABI lacks both. The second one is its name before Python 3.13.
        let names = [c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet"];
        // SAFETY: C strings.
        let mut found =
            names.into_iter().map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
        // SAFETY: the functions have this type.
        found.find(|found| !found.is_null()).map(|found| unsafe { transmute::<*mut c_void, Current>(found) })
    });
    // SAFETY: any thread may call it.
    let own = unsafe { ffi::PyGILState_GetThisThreadState() };
    // SAFETY: any thread may call it. Before Python 3.12 it returns the state of the thread that holds the lock.
    !own.is_null() && current.is_some_and(|current| unsafe { current() } == own)
}

/// Whether Python knows this thread.
fn is_its_thread() -> bool {
    // SAFETY: any thread may call it.
    !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null()
}

/// The innermost line of this thread in a file that is wanted.
fn innermost_line(py: Python<'_>, is_wanted: impl Fn(&str) -> bool) -> Option<Site> {
    let mut frame = super::interruption::innermost(py)?;
    for _ in 0..DEEPEST {
        // SAFETY: a frame, with the lock held.
        let code = unsafe { ffi::PyFrame_GetCode(frame.as_ptr().cast()) };
        // SAFETY: a new reference, never null.
        let code = unsafe { Bound::from_owned_ptr_or_opt(py, code.cast()) }?;
        let file = code.getattr(pyo3::intern!(py, "co_filename")).ok()?.cast_into::<PyString>().ok()?;
        let file = file.to_str().ok()?;
        if is_wanted(file) {
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

/// The demo counts as a user of usmq, although it is part of the package.
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

/// Reuses the text of a file name while a thread stays in that file.
fn shared(file: &str) -> Arc<str> {
    thread_local! {
        static LAST: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
    }
    let reused = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        match &*last {
            Some(known) if **known == *file => known.clone(),
            _ => last.insert(file.into()).clone(),
        }
    });
    // The thread is ending.
    reused.unwrap_or_else(|_| file.into())
}
