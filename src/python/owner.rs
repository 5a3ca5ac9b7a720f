//! Python objects that own foreign memory, and the end of their releases before the interpreter ends.

use super::gil::detach;
use crate::completion;
use crate::runtime::not_forked;
use crate::runtime::python_lock::{self, PythonLock};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// Keeps a Python object for usmq. The release thread drops it, which takes Python's lock for that.
pub(super) struct PyOwner(Option<Py<PyAny>>);

impl PyOwner {
    pub(super) fn new(object: &Bound<'_, PyAny>) -> Self {
        Self(Some(object.clone().unbind()))
    }
}

impl Drop for PyOwner {
    fn drop(&mut self) {
        let Some(object) = self.0.take() else { return };
        if not_forked().is_err() {
            // The release thread is in the parent.
            return std::mem::forget(object);
        }
        let mut dropped = DROPPED.lock();
        let first = dropped.is_empty();
        dropped.push(object);
        drop(dropped);
        if first {
            completion::release_foreign(take_back);
        }
    }
}

/// The objects of dropped owners. One job gives all of them back, and takes Python's lock once.
static DROPPED: Mutex<Vec<Py<PyAny>>> = Mutex::new(Vec::new());

/// Gives objects back to Python. Once the interpreter has ended, they stay with the process.
fn take_back() {
    let mut objects = std::mem::take(&mut *DROPPED.lock());
    Python::try_attach(|py| {
        for object in objects.drain(..) {
            object.drop_ref(py);
        }
    });
    objects.into_iter().for_each(std::mem::forget);
}

/// The most that the end of the interpreter waits for a release that is running.
const AT_EXIT: Duration = Duration::from_secs(10);

/// Ends the releases of foreign memory before the interpreter ends, and tells the runtime module how to ask for Python's lock.
pub(super) fn prepare(py: Python<'_>) -> PyResult<()> {
    let close = PyCFunction::new_closure(py, None, None, |args, _| {
        detach(args.py(), || completion::close(AT_EXIT));
    })?;
    py.import("atexit")?.call_method1("register", (close,))?;
    python_lock::set(PythonLock { is_held, release, restore });
    Ok(())
}

fn is_held() -> bool {
    static CHECK: OnceCell<Option<extern "C" fn() -> c_int>> = OnceCell::new();
    let check = CHECK.get_or_init(|| {
        // Every CPython has it, but the stable ABI does not declare it.
        // SAFETY: a name that ends with a NUL.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyGILState_Check".as_ptr()) };
        // SAFETY: `int PyGILState_Check(void)`.
        (!symbol.is_null())
            .then(|| unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(symbol) })
    });
    // SAFETY: may be asked at any time.
    let python_is_there = unsafe { ffi::Py_IsInitialized() } != 0;
    python_is_there && check.is_some_and(|check| check() == 1)
}

fn release() -> usize {
    // SAFETY: this thread holds the lock, as `is_held` has just said.
    unsafe { ffi::PyEval_SaveThread() as usize }
}

fn restore(state: usize) {
    // SAFETY: what `release` gave this thread.
    unsafe { ffi::PyEval_RestoreThread(state as *mut ffi::PyThreadState) }
}
