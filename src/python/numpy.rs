//! Arrays for numpy: copies and views.

use super::classes::Array;
use super::errors::optional;
use super::gil::{self, detach};
use super::{argument, buffer, dtype};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PyTuple};

/// The elements as a new numpy array.
pub(super) fn copy<'py>(py: Python<'py>, array: &crate::Array) -> PyResult<Bound<'py, PyAny>> {
    let numpy = optional(py, "numpy", "to_numpy()", "; tolist() needs no package")?;
    let (shape, dtype) = (PyTuple::new(py, array.shape())?, dtype::numpy_dtype(py, array.dtype())?);
    let host = numpy.getattr("empty")?.call1((shape, dtype))?;
    if array.size() > 0 {
        let memory = buffer::ForeignBuffer::writable(&host)?;
        let (target, bytes) = (memory.address(), memory.bytes());
        if bytes != array.nbytes() {
            return Err(PyValueError::new_err("numpy created an array of the wrong size"));
        }
        let owner = memory.owner();
        detach(py, || array.read_into(target as *mut u8, bytes, Some(&owner)))?;
    }
    Ok(host)
}

/// Serves `__array__`, which `numpy.asarray` calls if it cannot get a buffer.
pub(super) fn view<'py>(
    array: &Bound<'py, Array>,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    if !array.get().array.memory_kind().is_host_accessible() {
        return Err(PyTypeError::new_err(
            "device memory does not convert to numpy implicitly; call to_numpy() for a copy",
        ));
    }
    gil::lost()?;
    let kwargs = PyDict::new(py);
    kwargs.set_item("dtype", dtype)?;
    if let Some(copy) = copy {
        kwargs.set_item("copy", copy)?;
    }
    let view = PyMemoryView::from(array.as_any())?;
    optional(py, "numpy", "__array__()", "")?.getattr("asarray")?.call((view,), Some(&kwargs))
}

/// Refuses numpy's masked arrays: usmq would read the elements under the mask as numbers.
pub(super) fn refuse_masked(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = object.py();
    if object.getattr_opt(intern!(py, "filled"))?.is_none()
        || object.getattr_opt(intern!(py, "mask"))?.is_none()
    {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!(
        "usmq arrays have no mask, so a {} is refused; pass x.filled(value), or the data and the mask as two arrays",
        argument::class_name(object)
    )))
}

/// Refuses an object whose dtype usmq does not support, even if its buffer looks valid.
pub(super) fn check_dtype(object: &Bound<'_, PyAny>) -> PyResult<()> {
    match object.getattr_opt(intern!(object.py(), "dtype"))? {
        Some(own) => dtype::parse(&own).map(drop),
        None => Ok(()),
    }
}

/// Whether an object has a dtype, as numpy's arrays.
pub(super) fn has_dtype(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.getattr_opt(intern!(object.py(), "dtype"))?.is_some())
}

/// The same elements in a type that has buffers, and their dtype: bfloat16 of ml_dtypes. An error for a dtype that usmq does
/// not support.
pub(super) fn extension<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyAny>, crate::DType)>> {
    let Some(own) = object.getattr_opt(intern!(object.py(), "dtype"))? else { return Ok(None) };
    let dtype = dtype::parse(&own)?;
    if dtype != crate::DType::BF16 || !object.hasattr("view")? {
        return Ok(None);
    }
    Ok(Some((object.call_method1("view", ("u2",))?, dtype)))
}
