//! One Python exception per error variant; the classes are in `usmq/_errors.py`.

use crate::Error;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Value(_) => PyValueError::new_err(text),
            Error::Type(_) => PyTypeError::new_err(text),
            Error::Index(_) => PyIndexError::new_err(text),
            Error::Interrupted => super::site::raised(),
            other => Python::attach(|py| own(py, &other, text).unwrap_or_else(|failure| failure)),
        }
    }
}

fn own(py: Python<'_>, error: &Error, text: String) -> PyResult<PyErr> {
    let name = match error {
        Error::Selector { .. } => "SelectorError",
        Error::DeviceNotFound { .. } => "DeviceNotFoundError",
        Error::Placement(_) => "PlacementError",
        Error::Allocation { .. } | Error::HostMemory { .. } => "AllocationError",
        Error::KernelBuild { .. } => "KernelBuildError",
        Error::Launch(_) => "LaunchError",
        Error::Interop(_) => "InteropError",
        Error::RuntimeNotFound(_) => "RuntimeNotFoundError",
        Error::RuntimeConflict(_) => "RuntimeConflictError",
        Error::Fork => "ForkError",
        Error::Sycl { .. } => "SyclError",
        Error::Value(_) | Error::Type(_) | Error::Index(_) | Error::Interrupted => "Error",
    };
    let class = py.import("usmq._errors")?.getattr(name)?.cast_into::<PyType>()?;
    let exception = class.call1((text,))?;
    match error {
        Error::KernelBuild { log, .. } => exception.setattr("log", log)?,
        Error::Sycl { code, .. } => exception.setattr("code", code)?,
        _ => {}
    }
    Ok(PyErr::from_value(exception))
}

/// A TypeError in words of ours, with the object that was found; any other error, as a Ctrl-C, as it is.
pub(super) fn type_error(error: PyErr, wanted: &str, found: &Bound<'_, PyAny>) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(found.py()) {
        return error;
    }
    found
        .repr()
        .map_or_else(|failure| failure, |found| PyTypeError::new_err(format!("{wanted}, not {found}")))
}
