//! An array of one element as a number of Python.

use super::site::detach;
use crate::{DType, Element, Number};
use num_complex::Complex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyType};

/// The only element, copied to the host after a wait for the writes before. `what` is for the error of other arrays.
pub(super) fn item<'py>(
    py: Python<'py>,
    array: &crate::Array,
    what: &str,
    wrong: fn(String) -> PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    if array.size() != 1 {
        return Err(wrong(format!(
            "{what} takes an array of one element, not one of shape {:?}; to_numpy() copies all of them to the host",
            array.shape()
        )));
    }
    match detach(py, || number(array))? {
        Number::Bool(value) => Ok(PyBool::new(py, value).to_owned().into_any()),
        Number::Int(value) => Ok(value.into_pyobject(py)?.into_any()),
        Number::Float(value) => Ok(PyFloat::new(py, value).into_any()),
        Number::Complex(value) => Ok(PyComplex::from_doubles(py, value.re, value.im).into_any()),
    }
}

/// As `class`, one of Python's own numbers, makes of the only element.
pub(super) fn of_class<'py>(array: &crate::Array, class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    let what = format!("{}()", class.name()?);
    class.call1((item(class.py(), array, &what, PyTypeError::new_err::<String>)?,))
}

pub(super) fn truth(py: Python<'_>, array: &crate::Array) -> PyResult<bool> {
    item(py, array, "bool()", PyValueError::new_err::<String>)?.is_truthy()
}

/// A whole number, as Python's own indices are: without axes, and no truth value.
pub(super) fn index<'py>(py: Python<'py>, array: &crate::Array) -> PyResult<Bound<'py, PyAny>> {
    if array.ndim() > 0 {
        return Err(PyTypeError::new_err(format!(
            "an index is a number or an array without axes, not one of shape {:?}",
            array.shape()
        )));
    }
    let number = item(py, array, "an index", PyTypeError::new_err::<String>)?;
    if number.is_instance_of::<PyInt>() && !number.is_instance_of::<PyBool>() {
        return Ok(number);
    }
    Err(PyTypeError::new_err(format!("an index is a whole number, not a {}", array.dtype())))
}

/// Membership would be asked of an iterator that compares arrays by identity.
pub(super) fn not_searched() -> PyErr {
    PyTypeError::new_err(
        "an array is not searched by `in`; `value in x.to_numpy()` searches a copy on the host",
    )
}

fn number(array: &crate::Array) -> crate::Result<Number> {
    match array.dtype() {
        DType::Bool => one(array, Number::Bool),
        DType::I8 => one(array, |value: i8| Number::Int(value.into())),
        DType::I16 => one(array, |value: i16| Number::Int(value.into())),
        DType::I32 => one(array, |value: i32| Number::Int(value.into())),
        DType::I64 => one(array, |value: i64| Number::Int(value.into())),
        DType::U8 => one(array, |value: u8| Number::Int(value.into())),
        DType::U16 => one(array, |value: u16| Number::Int(value.into())),
        DType::U32 => one(array, |value: u32| Number::Int(value.into())),
        DType::U64 => one(array, |value: u64| Number::Int(value.into())),
        DType::F16 => one(array, |value: half::f16| Number::Float(value.into())),
        DType::BF16 => one(array, |value: half::bf16| Number::Float(value.into())),
        DType::F32 => one(array, |value: f32| Number::Float(value.into())),
        DType::F64 => one(array, Number::Float),
        DType::C64 => {
            one(array, |Complex::<f32> { re, im }| Number::Complex(Complex::new(re.into(), im.into())))
        }
        DType::C128 => one(array, Number::Complex),
    }
}

fn one<T: Element>(array: &crate::Array, number: impl FnOnce(T) -> Number) -> crate::Result<Number> {
    let only = array.to_vec::<T>()?.pop();
    only.map(number).ok_or_else(|| crate::Error::Value("the array is empty".to_owned()))
}
