//! One Python exception per error variant; the classes are in `usmq/_errors.py`.

use crate::Error;
use pyo3::exceptions::{PyImportError, PyIndexError, PyModuleNotFoundError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Value { .. } | Error::HostView { .. } => PyValueError::new_err(text),
            Error::Type { .. } => PyTypeError::new_err(text),
            Error::Index { .. } => PyIndexError::new_err(text),
            Error::Interrupted => super::gil::raised(),
            other => Python::attach(|py| own(py, &other, text).unwrap_or_else(|failure| failure)),
        }
    }
}

fn own(py: Python<'_>, error: &Error, text: String) -> PyResult<PyErr> {
    let name = match error {
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
        Error::Value { .. }
        | Error::HostView { .. }
        | Error::Type { .. }
        | Error::Index { .. }
        | Error::Exit
        | Error::Thread { .. }
        | Error::Interrupted => "Error",
    };
    let class = py.import("usmq._errors")?.getattr(name)?.cast_into::<PyType>()?;
    let exception = class.call1((text,))?;
    match error {
        Error::KernelBuild { log, .. } => exception.setattr("log", log)?,
        Error::Launch { kernel, argument, .. } => {
            exception.setattr("kernel", kernel)?;
            exception.setattr("argument", *argument)?;
        }
        Error::Sycl { code, .. } => exception.setattr("code", code)?,
        _ => {}
    }
    Ok(PyErr::from_value(exception))
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
