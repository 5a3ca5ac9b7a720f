//! `usmq.asarray`: converts objects that hold numbers to arrays.

use super::array::Array;
use super::gil::detach;
use super::host::HostInput;
use super::{argument, buffer, cuda, dlpack, dtype, scope, suai, target};
use crate::interop::dlpack::Import;
use crate::trace::{Reason, with_reason};
use crate::{Action, Step, UsmKind};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;

const NO_COPY: &str = "host memory cannot become USM without a copy, but copy=False";

/// Convert an object to an array, without a copy if possible.
///
/// Parameters
/// ----------
/// obj : object
///     An Array, an object with ``__sycl_usm_array_interface__`` (dpnp, dpctl), the buffer protocol (numpy, bytes),
///     ``__cuda_array_interface__`` (cupy, numba), an Arrow array of plain numbers without nulls, ``__dlpack__``, a
///     number, or nested sequences of numbers.
/// dtype : dtype, optional
///     The element type; by default that of the object.
/// usm_type : {"device", "shared", "host"}, optional
///     The USM kind; by default that of the object, or ``"device"`` for host data.
/// queue : str, Device, Queue, optional
///     The queue of the array; by default that of the object, or the current queue for host data.
/// copy : bool, optional
///     False: raise an error if a copy is needed. True: always copy. None: copy only if needed.
/// device : str, optional
///     ``"cuda:0"``: create a :class:`CudaArray` in the memory of this CUDA device, for other libraries.
///
/// Returns
/// -------
/// Array
///
/// Raises
/// ------
/// ValueError
///     ``copy=False`` and a copy is needed, lists are ragged, or the dtype cannot hold a number of a list, as
///     300 in uint8 or 1e300 in float32. Elements of arrays and buffers convert as in ``astype``, without
///     this check.
/// TypeError
///     The object does not hold numbers of a supported dtype.
/// AllocationError
///     Device or host memory is short.
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
#[pyo3(signature = (obj, dtype=None, *, usm_type=None, queue=None, copy=None, device=None))]
pub(super) fn asarray(
    py: Python<'_>,
    obj: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: Option<&str>,
    queue: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    #[pyo3(from_py_with = argument::device)] device: Option<&str>,
) -> PyResult<Py<PyAny>> {
    let dtype = dtype::parse_opt(dtype)?;
    let kind = usm_type.map(str::parse::<UsmKind>).transpose()?;
    if let Some(device) = device {
        if kind.is_some() || queue.is_some() {
            return Err(PyTypeError::new_err(
                "device= names a CUDA device and cannot be combined with queue= or usm_type=",
            ));
        }
        let array = cuda::placed(py, obj, dtype, cuda::ordinal(device)?, copy)?;
        return Ok(array.into_any());
    }
    let queue = target::queue(py, queue)?;
    Ok(in_usm(py, obj, Wanted { dtype, kind, queue, copy })?.into_any())
}

/// The properties that the caller requests of an array.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    pub(super) dtype: Option<crate::DType>,
    pub(super) kind: Option<UsmKind>,
    pub(super) queue: Option<crate::Queue>,
    pub(super) copy: Option<bool>,
}

/// The object's elements in USM.
pub(super) fn in_usm(py: Python<'_>, obj: &Bound<'_, PyAny>, wanted: Wanted) -> PyResult<Py<Array>> {
    let Wanted { dtype, kind, queue, copy } = wanted;
    if let Some(source) = shared(obj)? {
        let result = detach(py, || source.to(dtype, kind, queue.as_ref()))?;
        let is_copy =
            result.address() != source.address() || result.size() == 0 && result.dtype() != source.dtype();
        return match (copy, is_copy) {
            (Some(false), true) => Err(PyValueError::new_err(format!(
                "a copy is needed for {}, but copy=False",
                differences(&source, &result)
            ))),
            (Some(true), false) => Py::new(py, Array::new(detach(py, || result.copy())?)),
            _ => match obj.cast::<Array>() {
                // Return the object itself if it meets the request.
                Ok(own) if queue.is_none_or(|queue| queue == *source.queue()) && !is_copy => {
                    Ok(own.clone().unbind())
                }
                _ => Py::new(py, Array::new(result)),
            },
        };
    }
    // Query a buffer for nothing else: numpy arrays are the common case, and each query runs Python code.
    let is_buffer = buffer::has_buffer(obj);
    if let Some(source) = if is_buffer { None } else { cuda::shared(obj)? } {
        let queue = queue.map_or_else(|| scope::current(py), Ok)?;
        let result = detach(py, || source.to_queue(&queue, kind.unwrap_or(UsmKind::Device)))?;
        if copy == Some(false) && result.address() != source.address() {
            return Err(PyValueError::new_err(
                "CUDA memory cannot become USM without a copy, but copy=False",
            ));
        }
        return Py::new(py, Array::new(detach(py, || result.to(dtype, None, None))?));
    }
    let arrow = if is_buffer { None } else { super::arrow::numbers(obj, queue.as_ref(), kind)? };
    if let Some((numbers, copied)) = arrow {
        let result = detach(py, || numbers.to(dtype, kind, queue.as_ref()))?;
        return match (copy, copied || result.address() != numbers.address()) {
            (Some(false), true) => Err(PyValueError::new_err(NO_COPY)),
            (Some(true), false) => Py::new(py, Array::new(detach(py, || result.copy())?)),
            _ => Py::new(py, Array::new(result)),
        };
    }
    let from_tensor = || {
        let source = dlpack::read(obj, Import { queue: queue.as_ref(), kind, copy })?;
        let result = detach(py, || source.to(dtype, None, None))?;
        if copy == Some(false) && result.address() != source.address() {
            return Err(PyValueError::new_err(NO_COPY));
        }
        Py::new(py, Array::new(result))
    };
    if !is_buffer && obj.hasattr("__dlpack__")? {
        return from_tensor();
    }
    let host = match HostInput::read(obj, dtype) {
        // Buffer formats cannot express bfloat16, so jax refuses them; DLPack tensors can.
        Err(error) if error.is_instance_of::<PyBufferError>(py) && obj.hasattr("__dlpack__")? => {
            return from_tensor();
        }
        host => host?,
    };
    if copy == Some(false) {
        return Err(PyValueError::new_err(NO_COPY));
    }
    let queue = queue.map_or_else(|| scope::current(py), Ok)?;
    let why = with_reason(Reason::Import);
    let array = from_host(py, &host, kind.unwrap_or(UsmKind::Device), &queue)?;
    drop(why);
    let array = match dtype.filter(|dtype| *dtype != array.dtype()) {
        Some(dtype) => detach(py, || array.cast(dtype))?,
        None => array,
    };
    Py::new(py, Array::new(array))
}

/// The object's own USM, if any.
pub(super) fn shared(obj: &Bound<'_, PyAny>) -> PyResult<Option<crate::Array>> {
    if let Ok(own) = obj.cast::<Array>() {
        return Ok(Some(crate::Array::clone(&own.get().array)));
    }
    suai::import(obj)
}

/// Whether the object's elements are plain host memory, without reading them.
pub(super) fn is_host(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    if obj.cast::<Array>().is_ok() {
        return Ok(false);
    }
    for name in ["__sycl_usm_array_interface__", "__cuda_array_interface__", "__dlpack__"] {
        if !buffer::has_buffer(obj) && obj.hasattr(name)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn from_host(
    py: Python<'_>,
    host: &HostInput<'_>,
    kind: UsmKind,
    queue: &crate::Queue,
) -> PyResult<crate::Array> {
    let (shape, dtype) = (host.shape(), host.dtype());
    let array = detach(py, || crate::Array::uninit(shape, dtype, kind, queue))?;
    host.copy_to(py, &array)?;
    Ok(array)
}

/// Names the differences that a view of `source` cannot have.
fn differences(source: &crate::Array, result: &crate::Array) -> String {
    let dtype = format!("dtype {} instead of {}", result.dtype(), source.dtype());
    let kind = format!("{} USM instead of {} USM", result.usm_kind(), source.usm_kind());
    let place = format!("{}, which cannot use the memory of {}", result.queue(), source.queue());
    let (other_dtype, other_kind) =
        (result.dtype() != source.dtype(), result.usm_kind() != source.usm_kind());
    let other_place = result.context() != source.context() || !(other_dtype || other_kind);
    let all = [(other_dtype, dtype), (other_kind, kind), (other_place, place)];
    let said: Vec<_> = all.into_iter().filter_map(|(differs, text)| differs.then_some(text)).collect();
    said.join(" and ")
}

/// Sets the elements of an array from another array in any memory, or from a host object.
pub(super) fn assign(py: Python<'_>, target: &crate::Array, source: &Bound<'_, PyAny>) -> PyResult<()> {
    match shared(source)? {
        Some(source) => Ok(detach(py, || target.assign(&crate::collocate(&source, target.queue())?))?),
        None => copy_from_host(py, target, source),
    }
}

/// Sets the elements of `target` from host data of its shape. The copy is complete on return unless the dtype
/// changes.
fn copy_from_host(py: Python<'_>, target: &crate::Array, source: &Bound<'_, PyAny>) -> PyResult<()> {
    target.check_writable()?;
    let host = HostInput::read(source, None)?;
    if host.dtype() == target.dtype() && host.shape() == target.shape() {
        return host.copy_to(py, target);
    }
    let source = from_host(py, &host, UsmKind::Device, target.queue())?;
    Ok(detach(py, || target.assign(&source))?)
}

/// Copies host data to device memory on this queue.
pub(super) fn host_array(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    queue: &crate::Queue,
) -> PyResult<crate::Array> {
    let _why = with_reason(Reason::Collocate);
    from_host(py, &HostInput::read(object, None)?, UsmKind::Device, queue)
}

/// The step of a plan that copies host data to a device.
pub(super) fn host_step(object: &Bound<'_, PyAny>) -> PyResult<Step> {
    let host = HostInput::read(object, None)?;
    let (shape, dtype) = (host.shape(), host.dtype());
    let bytes = (shape.iter().product::<usize>() * dtype.itemsize()) as u64;
    let what = format!("{dtype}{shape:?} on the host");
    Ok(Step { action: Action::FromHost, bytes, reason: "host memory".to_owned(), what })
}
