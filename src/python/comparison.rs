//! `==` and its kind between arrays: refused, since usmq has no arithmetic.

use super::classes::Array;
use super::{argument, index};
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// Raises TypeError for operands that numpy would compare by element. Other objects compare by identity, so that
/// `x == None` is False.
pub(super) fn refuse(other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
    let is_equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
    if is_equality && !is_array_like(other)? {
        return Ok(other.py().NotImplemented());
    }
    let sign = match op {
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    };
    let identity = if is_equality { "; `is` compares objects" } else { "" };
    Err(PyTypeError::new_err(format!(
        "usmq arrays do not support {sign} (with {}): compare copies on the host, as x.to_numpy() {sign} y, or on the \
         device with dpnp, as dpnp.asarray(x) {sign} y{identity}",
        argument::class_name(other)
    )))
}

fn is_array_like(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.is_instance_of::<Array>()
        || index::is_plain(object)
        || object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || object.getattr_opt(intern!(object.py(), "shape"))?.is_some())
}
