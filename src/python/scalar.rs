//! Elements as Python numbers: nested lists, or a single number.

use super::gil::detach;
use crate::Scalar;
use crate::array::{Number, with_element};
use crate::memory::try_reserve;
use num_complex::Complex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyType};

/// Returns the elements as nested lists, or one number for an array without axes. Waits for earlier writes,
/// then copies to the host.
pub(super) fn lists<'py>(py: Python<'py>, array: &crate::Array) -> PyResult<Bound<'py, PyAny>> {
    nested(py, &mut elements(py, array)?.into_iter(), array.shape())
}

fn nested<'py>(
    py: Python<'py>,
    elements: &mut std::vec::IntoIter<Bound<'py, PyAny>>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let Some((extent, inner)) = shape.split_first() else {
        return elements.next().ok_or_else(|| PyValueError::new_err("the array is empty"));
    };
    let list = if inner.is_empty() {
        PyList::new(py, elements.by_ref().take(*extent).collect::<Vec<_>>())?
    } else {
        let list = PyList::empty(py);
        for _ in 0..*extent {
            list.append(nested(py, elements, inner)?)?;
        }
        list
    };
    Ok(list.into_any())
}

/// All elements in C order.
fn elements<'py>(py: Python<'py>, array: &crate::Array) -> PyResult<Vec<Bound<'py, PyAny>>> {
    with_element!(array.dtype(), T => {
        let values = detach(py, || array.to_vec::<T>())?;
        let mut objects =
            try_reserve::try_with_capacity(values.len(), "the elements of an array as Python objects")?;
        for value in values {
            objects.push(object(py, value.to_scalar())?);
        }
        Ok(objects)
    })
}

fn object(py: Python<'_>, number: Scalar) -> PyResult<Bound<'_, PyAny>> {
    Ok(match number {
        Scalar::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Scalar::Int(value) => match i64::try_from(value) {
            Ok(value) => value.into_pyobject(py)?.into_any(),
            Err(_) => value.into_pyobject(py)?.into_any(),
        },
        Scalar::Float(value) => PyFloat::new(py, value).into_any(),
        Scalar::Complex(Complex { re, im }) => PyComplex::from_doubles(py, re, im).into_any(),
    })
}

/// The only element. `what` is for the error of other arrays.
pub(super) fn item<'py>(
    py: Python<'py>,
    array: &crate::Array,
    what: &str,
    wrong: fn(String) -> PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    if array.size() != 1 {
        return Err(wrong(format!(
            "{what} takes an array of one element, not one of shape {:?}; tolist() and to_numpy() copy all \
             of them to \
             the host",
            array.shape()
        )));
    }
    elements(py, array)?.pop().ok_or_else(|| PyValueError::new_err("the array is empty"))
}

/// Converts the only element to `class`, one of Python's number types.
pub(super) fn of_class<'py>(array: &crate::Array, class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    let what = format!("{}()", class.name()?);
    class.call1((item(class.py(), array, &what, PyTypeError::new_err::<String>)?,))
}

pub(super) fn truth(py: Python<'_>, array: &crate::Array) -> PyResult<bool> {
    item(py, array, "bool()", PyValueError::new_err::<String>)?.is_truthy()
}

/// An integer for `__index__`: from an array without axes, and not a bool.
pub(super) fn index<'py>(py: Python<'py>, array: &crate::Array) -> PyResult<Bound<'py, PyAny>> {
    if array.ndim() > 0 {
        return Err(PyTypeError::new_err(format!(
            "an index must be a number or an array without axes, not one of shape {:?}",
            array.shape()
        )));
    }
    let number = item(py, array, "an index", PyTypeError::new_err::<String>)?;
    if number.is_instance_of::<PyInt>() && !number.is_instance_of::<PyBool>() {
        return Ok(number);
    }
    Err(PyTypeError::new_err(format!("an index must be a whole number, not a {}", array.dtype())))
}

/// Refuses `in`: Python would search an iterator and compare arrays by identity.
pub(super) fn not_searched() -> PyErr {
    PyTypeError::new_err(
        "usmq arrays do not support `in`; search a copy on the host with `value in x.to_numpy()` or `value \
         in x.tolist()`",
    )
}
