//! One Python exception per error variant; the classes are in `usmq/_errors.py`.

use crate::Error;
use pyo3::exceptions::{PyImportError, PyIndexError, PyModuleNotFoundError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use std::collections::HashMap;
use std::ffi::CStr;

/// The classes of `usmq/_errors.py`, by name.
static CLASSES: PyOnceLock<HashMap<String, Py<PyType>>> = PyOnceLock::new();

/// The classes. The import of the module calls it first, so that an error without memory finds them.
pub(super) fn classes(py: Python<'_>) -> PyResult<&HashMap<String, Py<PyType>>> {
    CLASSES.get_or_try_init(py, || {
        let all = py.import("usmq._errors")?.dict();
        let types = all.iter().filter_map(|(name, class)| Some((name, class.cast_into::<PyType>().ok()?)));
        types.map(|(name, class)| Ok((name.extract()?, class.unbind()))).collect()
    })
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        if matches!(error, Error::Interrupted) {
            return super::gil::raised();
        }
        Python::attach(|py| raised(py, &error).map_or_else(|failure| failure, PyErr::from_value))
    }
}

/// Makes the exception. A lack of memory is an error here, where pyo3's own conversions panic.
fn raised<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let text = error.to_string();
    let name = match error {
        Error::Value { .. } | Error::HostView { .. } => {
            return exception(py.get_type::<PyValueError>(), &text);
        }
        Error::Type { .. } => return exception(py.get_type::<PyTypeError>(), &text),
        Error::Index { .. } => return exception(py.get_type::<PyIndexError>(), &text),
        Error::Selector { .. } => "SelectorError",
        Error::DeviceNotFound { .. } => "DeviceNotFoundError",
        Error::Placement { .. } => "PlacementError",
        Error::Allocation { .. } | Error::HostMemory { .. } => "AllocationError",
        Error::KernelBuild { .. } => "KernelBuildError",
        Error::Launch { .. } => "LaunchError",
        Error::Capture { .. } => "CaptureError",
        Error::Interop { .. } => "InteropError",
        Error::RuntimeNotFound { .. } => "RuntimeNotFoundError",
        Error::RuntimeConflict { .. } => "RuntimeConflictError",
        Error::Fork => "ForkError",
        Error::Sycl { .. } => "SyclError",
        Error::Exit | Error::Thread { .. } | Error::Interrupted => "Error",
    };
    let missing = || PyImportError::new_err("usmq._errors lacks a class of usmq's errors");
    let class = classes(py)?.get(name).ok_or_else(missing)?;
    let exception = exception(class.bind(py).clone(), &text)?;
    match error {
        Error::KernelBuild { log, .. } => set(&exception, c"log", string(py, log)?)?,
        Error::Launch { kernel, argument, .. } => {
            set(&exception, c"kernel", string(py, kernel)?)?;
            if let Some(argument) = argument {
                set(&exception, c"argument", number(py, *argument)?)?;
            }
        }
        Error::Sycl { code, .. } => set(&exception, c"code", string(py, code)?)?,
        _ => {}
    }
    Ok(exception)
}

fn exception<'py>(class: Bound<'py, PyType>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let (py, text) = (class.py(), string(class.py(), text)?);
    let end = std::ptr::null_mut::<ffi::PyObject>();
    // SAFETY: a live class, a live argument, and the end of the arguments.
    let made = unsafe { ffi::PyObject_CallFunctionObjArgs(class.as_ptr(), text.as_ptr(), end) };
    // SAFETY: a new reference, or null with an error.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}

fn string<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    PyString::from_bytes(py, text.as_bytes()).map(Bound::into_any)
}

fn number(py: Python<'_>, number: usize) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the thread is attached.
    let made = unsafe { ffi::PyLong_FromSize_t(number) };
    // SAFETY: a new reference, or null with an error.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}

fn set(object: &Bound<'_, PyAny>, name: &CStr, value: Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: live objects and a name.
    match unsafe { ffi::PyObject_SetAttrString(object.as_ptr(), name.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(object.py())),
    }
}

/// Imports an optional package for `what`. The error for a missing package has the command that installs it,
/// and ends with `other`.
pub(super) fn optional<'py>(
    py: Python<'py>,
    package: &str,
    what: &str,
    other: &str,
) -> PyResult<Bound<'py, PyModule>> {
    py.import(package).map_err(|missing| {
        // An installed package that fails to import raises a more precise error.
        if !missing.is_instance_of::<PyModuleNotFoundError>(py) {
            return missing;
        }
        let text =
            format!("{what} needs {package}, which is not installed: run `pip install {package}`{other}");
        let error = PyImportError::new_err(text);
        error.set_cause(py, Some(missing));
        error
    })
}
