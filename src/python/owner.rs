//! Python objects that own foreign memory, and the end of their releases before the interpreter ends.

use super::site::detach;
use crate::completion;
use crate::runtime::checks;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use std::time::Duration;

/// Keeps a Python object for usmq. The release thread drops it, which takes Python's lock for that.
pub(super) struct Owner(Option<Py<PyAny>>);

impl Owner {
    pub(super) fn new(object: &Bound<'_, PyAny>) -> Self {
        Self(Some(object.clone().unbind()))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let Some(object) = self.0.take() else { return };
        let mut object = Some(object);
        Python::try_attach(|py| {
            if let Some(object) = object.take() {
                object.drop_ref(py);
            }
        });
        // Once the interpreter has ended, nobody can take the object back.
        std::mem::forget(object);
    }
}

/// The most that the end of the interpreter waits for a release that is running.
const AT_EXIT: Duration = Duration::from_secs(10);

/// Ends the releases of foreign memory before the interpreter ends, and tells the checks who holds Python's lock.
pub(super) fn prepare(py: Python<'_>) -> PyResult<()> {
    let close = PyCFunction::new_closure(py, None, None, |args, _| {
        detach(args.py(), || completion::close(AT_EXIT));
    })?;
    py.import("atexit")?.call_method1("register", (close,))?;
    checks::ask_for_gil(holds_gil);
    Ok(())
}

fn holds_gil() -> bool {
    // SAFETY: may be asked at any time.
    let python_is_there = unsafe { ffi::Py_IsInitialized() } != 0;
    // Every CPython has it, but the stable ABI does not declare it.
    // SAFETY: a name that ends with a NUL.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyGILState_Check".as_ptr()) };
    if !python_is_there || symbol.is_null() {
        return false;
    }
    // SAFETY: `int PyGILState_Check(void)`.
    let check = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> libc::c_int>(symbol) };
    check() == 1
}
