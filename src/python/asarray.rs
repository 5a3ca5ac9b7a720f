//! `usmq.asarray`: arrays from whatever holds numbers.

use super::array::Array;
use super::host::Host;
use super::site::detach;
use super::{buffer, dlpack, dtype, scope, suai, target};
use crate::UsmKind;
use crate::device::Reason;
use crate::device::record::because;
use crate::interop::dlpack::Import;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

const NO_COPY: &str = "host memory cannot become USM without a copy, but copy=False";

/// An array of an object's elements, without a copy where that is possible.
///
/// Parameters
/// ----------
/// obj : object
///     An Array, an object with ``__sycl_usm_array_interface__`` (dpnp, dpctl), the buffer protocol (numpy, bytes), an
///     Arrow array without nulls, ``__dlpack__``, a number, or nested sequences of numbers.
/// dtype : dtype, optional
///     The element type; that of the object by default.
/// usm_type : {"device", "shared", "host"}, optional
///     The USM kind; that of the object, or ``"device"`` for host data.
/// queue : str, Device, Queue, optional
///     Where the array lives; the queue of the object, or the current queue for host data.
/// copy : bool, optional
///     False: no copy or an error. True: always a copy. None: only if needed.
///
/// Returns
/// -------
/// Array
///
/// Raises
/// ------
/// ValueError
///     ``copy=False`` and a copy is needed, or lists are ragged.
/// TypeError
///     The object holds no numbers of a supported dtype.
/// InteropError
///     A foreign object breaks its protocol.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.asarray([1, 2, 3]).to_numpy().tolist()
/// [1, 2, 3]
/// >>> usmq.asarray(b"ab").shape
/// (2,)
#[pyfunction]
#[pyo3(signature = (obj, dtype=None, *, usm_type=None, queue=None, copy=None))]
pub(super) fn asarray(
    py: Python<'_>,
    obj: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    usm_type: Option<&str>,
    queue: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Py<Array>> {
    let dtype = dtype::parse_opt(dtype)?;
    let kind = usm_type.map(str::parse::<UsmKind>).transpose()?;
    let queue = target::queue(py, queue)?;
    if let Some(source) = shared(obj)? {
        let result = detach(py, || source.converted(dtype, kind, queue.as_ref()))?;
        let is_copy =
            result.address() != source.address() || result.size() == 0 && result.dtype() != source.dtype();
        return match (copy, is_copy) {
            (Some(false), true) => Err(PyValueError::new_err(
                "a copy is needed for another dtype, USM type or context, but copy=False",
            )),
            (Some(true), false) => Py::new(py, Array::new(detach(py, || result.copy())?)),
            _ => match obj.cast::<Array>() {
                // The object itself, when it is what was asked for.
                Ok(own) if queue.is_none_or(|queue| queue == *source.queue()) && !is_copy => {
                    Ok(own.clone().unbind())
                }
                _ => Py::new(py, Array::new(result)),
            },
        };
    }
    // A buffer is asked for nothing else: numpy arrays are the common case, and each question takes Python code.
    let is_buffer = buffer::has_buffer(obj);
    let arrow = if is_buffer { None } else { super::arrow::numbers(obj, queue.as_ref(), kind)? };
    if let Some((numbers, copied)) = arrow {
        let result = detach(py, || numbers.converted(dtype, kind, queue.as_ref()))?;
        return match (copy, copied || result.address() != numbers.address()) {
            (Some(false), true) => Err(PyValueError::new_err(NO_COPY)),
            (Some(true), false) => Py::new(py, Array::new(detach(py, || result.copy())?)),
            _ => Py::new(py, Array::new(result)),
        };
    }
    if !is_buffer && obj.hasattr("__dlpack__")? {
        let source = dlpack::read(obj, Import { queue: queue.as_ref(), kind, copy })?;
        let result = detach(py, || source.converted(dtype, None, None))?;
        if copy == Some(false) && result.address() != source.address() {
            return Err(PyValueError::new_err(NO_COPY));
        }
        return Py::new(py, Array::new(result));
    }
    let host = Host::read(obj, dtype)?;
    if copy == Some(false) {
        return Err(PyValueError::new_err(NO_COPY));
    }
    let queue = queue.map_or_else(|| scope::current(py), Ok)?;
    let why = because(Reason::Import);
    let array = from_host(py, &host, kind.unwrap_or(UsmKind::Device), &queue)?;
    drop(why);
    let array = match dtype.filter(|dtype| *dtype != array.dtype()) {
        Some(dtype) => detach(py, || array.cast(dtype))?,
        None => array,
    };
    Py::new(py, Array::new(array))
}

/// The object's own USM, when it has any.
pub(super) fn shared(obj: &Bound<'_, PyAny>) -> PyResult<Option<crate::Array>> {
    if let Ok(own) = obj.cast::<Array>() {
        return Ok(Some(crate::Array::clone(&own.get().array)));
    }
    suai::import(obj)
}

fn from_host(py: Python<'_>, host: &Host<'_>, kind: UsmKind, queue: &crate::Queue) -> PyResult<crate::Array> {
    let (shape, dtype) = (host.shape(), host.dtype());
    let array = detach(py, || crate::Array::uninit(shape, dtype, kind, queue))?;
    host.copy_to(py, &array)?;
    Ok(array)
}

/// Sets the elements of `target` from host data of its shape. Complete on return where no dtype has to change.
pub(super) fn copy_from_host(
    py: Python<'_>,
    target: &crate::Array,
    source: &Bound<'_, PyAny>,
) -> PyResult<()> {
    target.check_writable()?;
    let host = Host::read(source, None)?;
    if host.dtype() == target.dtype() && host.shape() == target.shape() {
        return host.copy_to(py, target);
    }
    let source = from_host(py, &host, UsmKind::Device, target.queue())?;
    Ok(detach(py, || target.assign(&source))?)
}

/// Host data in device memory on this queue.
pub(super) fn host_array(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    queue: &crate::Queue,
) -> PyResult<crate::Array> {
    let _why = because(Reason::Collocate);
    from_host(py, &Host::read(object, None)?, UsmKind::Device, queue)
}

/// Bytes of host data and a description, for a plan.
pub(super) fn describe_host(object: &Bound<'_, PyAny>) -> PyResult<(u64, String)> {
    let host = Host::read(object, None)?;
    let (shape, dtype) = (host.shape(), host.dtype());
    let bytes = shape.iter().product::<usize>() * dtype.itemsize();
    Ok((bytes as u64, format!("{dtype}{shape:?} on the host")))
}
