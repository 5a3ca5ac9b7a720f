//! Converts Python arguments that name a device, queue or context.

use super::argument;
use super::capsule::{context_from, queue_from};
use super::classes::{Context, Device, Queue};
use super::gil::detach;
use crate::manager::Target;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A filter string, a Device, a Queue, a foreign queue, or None.
pub(super) fn target(object: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Target> {
    let Some(object) = object else { return Ok(Target::Unset) };
    if let Ok(filter) = object.cast::<PyString>() {
        return Ok(Target::Filter(filter.to_str()?.to_owned()));
    }
    if let Ok(queue) = object.cast::<Queue>() {
        return Ok(Target::Queue(queue.get().0.clone()));
    }
    if let Ok(device) = object.cast::<Device>() {
        return Ok(Target::Device(device.get().0.clone()));
    }
    match queue_from(object)? {
        Some(queue) => Ok(Target::Queue(queue)),
        None => Err(argument::wrong_type(
            object,
            name,
            "a filter string as \"gpu:1\", a usmq.Device, a usmq.Queue or another library's queue",
        )),
    }
}

/// A queue for an argument `queue=`; None stays None. Releases the GIL, because it may query the driver.
pub(super) fn queue(py: Python<'_>, object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<crate::Queue>> {
    named(py, object, "queue")
}

/// A queue for the arguments `queue=` and `device=`, two names of one: the second is that of the Python array API standard.
pub(super) fn place(
    py: Python<'_>,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<crate::Queue>> {
    match (queue, device) {
        (Some(_), Some(_)) => {
            Err(PyTypeError::new_err("queue= and device= are two names of one argument: pass one of them"))
        }
        (None, device) => named(py, device, "device"),
        (queue, None) => named(py, queue, "queue"),
    }
}

/// As [`queue`], for an argument of another name.
pub(super) fn named(
    py: Python<'_>,
    object: Option<&Bound<'_, PyAny>>,
    name: &str,
) -> PyResult<Option<crate::Queue>> {
    match target(object, name)? {
        Target::Unset => Ok(None),
        Target::Queue(queue) => Ok(Some(queue)),
        other => Ok(detach(py, || other.queue())?),
    }
}

/// A context for an argument `context=`.
pub(super) fn context(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<crate::Context>> {
    object.map(required_context).transpose()
}

/// A context for an argument `context` that must be given.
pub(super) fn required_context(object: &Bound<'_, PyAny>) -> PyResult<crate::Context> {
    if let Ok(context) = object.cast::<Context>() {
        return Ok(context.get().0.clone());
    }
    context_from(object)?
        .ok_or_else(|| argument::wrong_type(object, "context", "a usmq.Context or another library's context"))
}
