//! New arrays: `empty`, `zeros`, `ones`, `full`, `arange`.

use super::classes::Array;
use super::gil::detach;
use super::{argument, dtype, index, scope};
use crate::Scalar;
use crate::{DType, UsmKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Create an uninitialised array.
///
/// Parameters
/// ----------
/// shape : int or sequence of int
///     Extents, outermost first. Zero is allowed.
/// dtype : dtype, optional
///     The element type; float32 by default.
/// usm_type : {"device", "shared", "host"}
///     The USM kind.
/// queue : str, Device, Queue, optional
///     The queue of the array; by default the current queue.
/// device : str, Device, Queue, optional
///     Another name of ``queue``, as in the Python array API standard.
///
/// Raises
/// ------
/// ValueError
///     An extent is negative, the array is larger than the address space, or the USM kind is unknown.
/// TypeError
///     The shape does not consist of integers, or usmq does not support the dtype.
/// SelectorError
///     ``queue`` is not a filter string.
/// DeviceNotFoundError
///     No visible device matches it.
/// AllocationError
///     Memory is short; the text gives the requested and the available bytes.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.empty((2, 3)).nbytes
/// 24
#[pyfunction]
#[pyo3(signature = (shape, dtype=None, *, usm_type="device", queue=None, device=None))]
pub(super) fn empty(
    py: Python<'_>,
    shape: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: &str,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    let dtype = dtype::parse_opt(dtype)?.unwrap_or(DType::F32);
    let shape = index::shape(shape, "shape")?;
    let (kind, queue) = (usm_type.parse::<UsmKind>()?, scope::place_or_current(py, queue, device)?);
    Ok(Array::new(uninit(py, &shape, dtype, kind, &queue)?))
}

/// An uninitialised array. Keeps the GIL if that cannot block.
pub(super) fn uninit(
    py: Python<'_>,
    shape: &[usize],
    dtype: DType,
    kind: UsmKind,
    queue: &crate::Queue,
) -> PyResult<crate::Array> {
    if let Some(kept) = crate::Array::uninit_kept(shape, dtype, kind, queue)? {
        return Ok(kept);
    }
    Ok(detach(py, || crate::Array::uninit(shape, dtype, kind, queue))?)
}

/// Create an array of zeros. Returns before they are written; commands on the array run after that.
///
/// Parameters
/// ----------
/// shape : int or sequence of int
///     Extents, outermost first. Zero is allowed.
/// dtype : dtype, optional
///     The element type; float32 by default.
/// usm_type : {"device", "shared", "host"}
///     The USM kind.
/// queue : str, Device, Queue, optional
///     The queue of the array; by default the current queue.
/// device : str, Device, Queue, optional
///     Another name of ``queue``, as in the Python array API standard.
///
/// Raises
/// ------
/// ValueError, TypeError, SelectorError, DeviceNotFoundError
///     As ``empty``.
/// AllocationError
///     Memory is short.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.zeros(2).to_numpy().tolist()
/// [0.0, 0.0]
#[pyfunction]
#[pyo3(signature = (shape, dtype=None, *, usm_type="device", queue=None, device=None))]
pub(super) fn zeros(
    py: Python<'_>,
    shape: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: &str,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    let made = empty(py, shape, dtype, usm_type, queue, device)?;
    detach(py, || made.array.fill_bytes(&[0]))?;
    Ok(made)
}

/// Create an array of ones. Returns before they are written; commands on the array run after that.
///
/// Parameters
/// ----------
/// shape : int or sequence of int
///     Extents, outermost first. Zero is allowed.
/// dtype : dtype, optional
///     The element type; float32 by default.
/// usm_type : {"device", "shared", "host"}
///     The USM kind.
/// queue : str, Device, Queue, optional
///     The queue of the array; by default the current queue.
/// device : str, Device, Queue, optional
///     Another name of ``queue``, as in the Python array API standard.
///
/// Raises
/// ------
/// ValueError, TypeError, SelectorError, DeviceNotFoundError
///     As ``empty``.
/// AllocationError
///     Memory is short.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.ones(2).tolist()
/// [1.0, 1.0]
#[pyfunction]
#[pyo3(signature = (shape, dtype=None, *, usm_type="device", queue=None, device=None))]
pub(super) fn ones(
    py: Python<'_>,
    shape: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: &str,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    let made = empty(py, shape, dtype, usm_type, queue, device)?;
    detach(py, || made.array.fill_number(Scalar::Int(1)))?;
    Ok(made)
}

/// Create an array filled with one value. Returns before it is written; commands on the array run after that.
///
/// Parameters
/// ----------
/// shape : int or sequence of int
///     Extents, outermost first. Zero is allowed.
/// value : number
///     A number that the dtype can hold. A finite float that would become infinite is an error; numpy only
///     warns. Digits beyond the precision of a float are rounded.
/// dtype : dtype, optional
///     By default that of the value: a numpy scalar's own, else bool, int64, float64 or complex128.
/// usm_type : {"device", "shared", "host"}
///     The USM kind.
/// queue : str, Device, Queue, optional
///     The queue of the array; by default the current queue.
/// device : str, Device, Queue, optional
///     Another name of ``queue``, as in the Python array API standard.
///
/// Raises
/// ------
/// ValueError
///     The dtype cannot hold the value, or as ``empty``.
/// TypeError
///     The value is not a number, or as ``empty``.
/// SelectorError, DeviceNotFoundError
///     As ``empty``.
/// AllocationError
///     Memory is short.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.full(2, 7, "i4").to_numpy().tolist()
/// [7, 7]
#[pyfunction]
#[pyo3(signature = (shape, value, dtype=None, *, usm_type="device", queue=None, device=None))]
pub(super) fn full(
    py: Python<'_>,
    shape: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: &str,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    let (number, own) = number(value, "value")?;
    let dtype = dtype::parse_opt(dtype)?.or(own).unwrap_or_else(|| plain_type(&[number]));
    let element =
        number.bytes_as(dtype).map_err(|why| PyValueError::new_err(format!("value does not fit: {why}")))?;
    let shape = index::shape(shape, "shape")?;
    let (kind, queue) = (usm_type.parse::<UsmKind>()?, scope::place_or_current(py, queue, device)?);
    let array = detach(py, || -> crate::Result<_> {
        let array = crate::Array::uninit(shape, dtype, kind, &queue)?;
        array.fill_bytes(&element)?;
        Ok(array)
    })?;
    Ok(Array::new(array))
}

/// Create evenly spaced values on one axis, as ``numpy.arange``. Returns before they are written.
///
/// Parameters
/// ----------
/// start : number
///     The first value. If ``stop`` is omitted, this is the end and the first value is 0.
/// stop : number, optional
///     The end, not included.
/// step : number
///     Never 0.
/// dtype : dtype, optional
///     By default int64 for integers, else float64.
/// usm_type : {"device", "shared", "host"}
///     The USM kind.
/// queue : str, Device, Queue, optional
///     The queue of the array; by default the current queue.
/// device : str, Device, Queue, optional
///     Another name of ``queue``, as in the Python array API standard.
///
/// Raises
/// ------
/// ValueError
///     The step is 0, the dtype cannot hold the values, the sequence is infinite or larger than the address
///     space, or the USM kind is unknown.
/// TypeError
///     An argument is not a number, or usmq does not support the dtype.
/// SelectorError, DeviceNotFoundError
///     As ``empty``.
/// AllocationError
///     Memory is short.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.arange(2, 8, 3).to_numpy().tolist()
/// [2, 5]
#[pyfunction]
#[pyo3(signature = (start, stop=None, step=None, dtype=None, *, usm_type="device", queue=None, device=None))]
#[allow(clippy::too_many_arguments)] // numpy's own list
pub(super) fn arange(
    py: Python<'_>,
    start: &Bound<'_, PyAny>,
    stop: Option<&Bound<'_, PyAny>>,
    step: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: &str,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    let step = step.map(|step| number(step, "step")).transpose()?.map_or(Scalar::Int(1), |(step, _)| step);
    let (first, end) = match stop {
        Some(stop) => (number(start, "start")?.0, number(stop, "stop")?.0),
        None => (Scalar::Int(0), number(start, "start")?.0),
    };
    let dtype = dtype::parse_opt(dtype)?.unwrap_or_else(|| plain_type(&[first, end, step]));
    let (kind, queue) = (usm_type.parse::<UsmKind>()?, scope::place_or_current(py, queue, device)?);
    Ok(Array::new(detach(py, || crate::Array::arange(first, end, step, dtype, kind, &queue))?))
}

pub(super) fn number(object: &Bound<'_, PyAny>, name: &str) -> PyResult<(Scalar, Option<DType>)> {
    index::scalar(object)?.ok_or_else(|| argument::wrong_type(object, name, "a number"))
}

fn plain_type(numbers: &[Scalar]) -> DType {
    super::host::common_type(numbers)
}
