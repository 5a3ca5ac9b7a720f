//! Elements as Python numbers: nested lists, or a single number.

use super::gil::detach;
use crate::memory::try_reserve;
use crate::{DType, Element};
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
    let float = |value: f64| Ok(PyFloat::new(py, value).into_any());
    let complex = |value: Complex<f64>| Ok(PyComplex::from_doubles(py, value.re, value.im).into_any());
    macro_rules! whole {
        ($type:ty) => {
            each(py, array, |value: $type| Ok(value.into_pyobject(py)?.into_any()))
        };
    }
    match array.dtype() {
        DType::Bool => each(py, array, |value: bool| Ok(PyBool::new(py, value).to_owned().into_any())),
        DType::I8 => whole!(i8),
        DType::I16 => whole!(i16),
        DType::I32 => whole!(i32),
        DType::I64 => whole!(i64),
        DType::U8 => whole!(u8),
        DType::U16 => whole!(u16),
        DType::U32 => whole!(u32),
        DType::U64 => whole!(u64),
        DType::F16 => each(py, array, |value: half::f16| float(value.into())),
        DType::BF16 => each(py, array, |value: half::bf16| float(value.into())),
        DType::F32 => each(py, array, |value: f32| float(value.into())),
        DType::F64 => each(py, array, float),
        DType::C64 => {
            each(py, array, |value: Complex<f32>| complex(Complex::new(value.re.into(), value.im.into())))
        }
        DType::C128 => each(py, array, complex),
    }
}

fn each<'py, T: Element>(
    py: Python<'py>,
    array: &crate::Array,
    object: impl Fn(T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let values = detach(py, || array.to_vec::<T>())?;
    let mut objects =
        try_reserve::try_with_capacity(values.len(), "the elements of an array as Python objects")?;
    for value in values {
        objects.push(object(value)?);
    }
    Ok(objects)
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
