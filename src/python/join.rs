//! `concatenate`, `stack`, `squeeze`, `expand_dims`.

use super::classes::Array;
use super::gil::detach;
use super::protocol::{self, no_array};
use super::{argument, index};
use pyo3::prelude::*;

/// Join arrays along an existing axis, as ``numpy.concatenate``. Returns before the copies are complete.
///
/// Parameters
/// ----------
/// arrays : sequence of Array or object with ``__sycl_usm_array_interface__``
///     Of one dtype, on one queue, and of one shape except along ``axis``.
/// axis : int or None
///     Counts from the end if negative. None joins all elements, in C order, to one axis.
///
/// Returns
/// -------
/// Array
///     On the queue of the arrays; in USM of their kind, or in device USM if they differ in kind.
///
/// Raises
/// ------
/// TypeError
///     The dtypes differ: convert with ``astype``. Or an element is not an array in USM.
/// ValueError
///     No arrays are given, they have no axes, or their shapes do not fit.
/// IndexError
///     The axis does not exist.
/// PlacementError
///     The arrays are on different queues; the text has the call that fixes it.
/// AllocationError
///     Memory is short.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.concatenate([usmq.arange(2), usmq.arange(3)]).tolist()
/// [0, 1, 0, 1, 2]
#[pyfunction]
#[pyo3(signature = (arrays, axis=Some(0)))]
pub(super) fn concatenate(
    py: Python<'_>,
    arrays: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = argument::axis)] axis: Option<isize>,
) -> PyResult<Array> {
    let arrays = all(arrays)?;
    Ok(Array::new(detach(py, || crate::concatenate(&arrays.iter().collect::<Vec<_>>(), axis))?))
}

/// Join arrays of one shape along a new axis, as ``numpy.stack``. Returns before the copies are complete.
///
/// Parameters
/// ----------
/// arrays : sequence of Array or object with ``__sycl_usm_array_interface__``
///     Of one dtype and shape, on one queue.
/// axis : int
///     The position of the new axis in the result; counts from the end if negative.
///
/// Returns
/// -------
/// Array
///     As for ``concatenate``.
///
/// Raises
/// ------
/// TypeError, IndexError, PlacementError, AllocationError
///     As ``concatenate``.
/// ValueError
///     No arrays are given, or the shapes differ.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.stack([usmq.arange(2), usmq.arange(2)], axis=1).tolist()
/// [[0, 0], [1, 1]]
#[pyfunction]
#[pyo3(signature = (arrays, axis=0))]
pub(super) fn stack(
    py: Python<'_>,
    arrays: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = argument::axis)] axis: isize,
) -> PyResult<Array> {
    let arrays = all(arrays)?;
    Ok(Array::new(detach(py, || crate::stack(&arrays.iter().collect::<Vec<_>>(), axis))?))
}

/// Return a view without axes of extent 1, as ``numpy.squeeze``; the same as ``x.squeeze(axis)``.
///
/// Parameters
/// ----------
/// x : Array or object with ``__sycl_usm_array_interface__``
/// axis : int, tuple of int, optional
///     The axes to remove; by default all of extent 1.
///
/// Raises
/// ------
/// IndexError
///     An axis does not exist.
/// ValueError
///     The extent of an axis is not 1.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.squeeze(usmq.zeros((1, 3))).shape
/// (3,)
#[pyfunction]
#[pyo3(signature = (x, axis=None))]
pub(super) fn squeeze(x: &Bound<'_, PyAny>, axis: Option<&Bound<'_, PyAny>>) -> PyResult<Array> {
    squeezed(&one(x)?, axis)
}

/// Return a view with new axes of extent 1, as ``numpy.expand_dims``; the same as ``x.expand_dims(axis)``.
///
/// Parameters
/// ----------
/// x : Array or object with ``__sycl_usm_array_interface__``
/// axis : int or tuple of int
///     The positions of the new axes in the result.
///
/// Raises
/// ------
/// IndexError
///     A position is outside the result.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.expand_dims(usmq.zeros(3), 0).shape
/// (1, 3)
#[pyfunction]
pub(super) fn expand_dims(x: &Bound<'_, PyAny>, axis: &Bound<'_, PyAny>) -> PyResult<Array> {
    expanded(&one(x)?, axis)
}

pub(super) fn squeezed(array: &crate::Array, axis: Option<&Bound<'_, PyAny>>) -> PyResult<Array> {
    Ok(Array::new(match axis {
        Some(axis) => array.squeeze_axes(index::axes(axis, "axis")?)?,
        None => array.squeeze(),
    }))
}

pub(super) fn expanded(array: &crate::Array, axis: &Bound<'_, PyAny>) -> PyResult<Array> {
    Ok(Array::new(array.expand_dims(index::axes(axis, "axis")?)?))
}

fn one(object: &Bound<'_, PyAny>) -> PyResult<crate::Array> {
    protocol::usm(object)?.ok_or_else(|| no_array(object))
}

fn all(arrays: &Bound<'_, PyAny>) -> PyResult<Vec<crate::Array>> {
    let wanted = "a sequence of arrays in USM";
    let items = arrays.try_iter().map_err(|_| argument::wrong_type(arrays, "arrays", wanted))?;
    items.map(|item| one(&item?)).collect()
}
