//! Python numbers, shapes and indices.

use crate::Index;
use crate::Number;
use crate::memory::heap;
use num_complex::Complex;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyEllipsis, PyFloat, PyInt, PySequence, PySlice, PyString, PyTuple,
};

/// A whole number, also of numpy; never a float or a bool.
pub(super) fn whole(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    if object.is_instance_of::<PyBool>() || object.is_instance_of::<PyFloat>() {
        return Err(PyTypeError::new_err(format!("expected a whole number, not {}", object.repr()?)));
    }
    object.extract()
}

/// `(2, 3)` or `((2, 3),)`: numbers given one by one or as one sequence.
pub(super) fn numbers(args: &Bound<'_, PyTuple>) -> PyResult<Vec<isize>> {
    if args.len() == 1 {
        let only = args.get_item(0)?;
        if !only.is_instance_of::<PyInt>() && only.try_iter().is_ok() {
            return each(&only);
        }
    }
    args.iter().map(|number| whole(&number)).collect()
}

/// A shape or a range of work: a number or a sequence of them, none negative.
pub(super) fn shape(object: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    // Asked first: whether something is a sequence takes Python code to answer.
    if object.is_instance_of::<PyInt>() {
        return not_negative(vec![whole(object)?]);
    }
    if object.cast::<PySequence>().is_ok() {
        return extents(object);
    }
    // numpy's integers are no `int`, and its arrays no sequences by name.
    match object.getattr_opt("ndim")?.map(|axes| axes.extract::<usize>()).transpose()? {
        Some(1) => numbers_of(object),
        None | Some(0) if object.hasattr("__index__")? => not_negative(vec![whole(object)?]),
        _ => Err(no_numbers(object)?),
    }
}

/// A sequence of numbers, none negative.
pub(super) fn extents(object: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    if object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyString>()
        || object.cast::<PySequence>().is_err()
    {
        return Err(no_numbers(object)?);
    }
    numbers_of(object)
}

fn numbers_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    not_negative(each(object)?)
}

/// The whole numbers of an iterable, which may have as many as it likes.
fn each(object: &Bound<'_, PyAny>) -> PyResult<Vec<isize>> {
    let mut numbers = Vec::new();
    for number in object.try_iter()? {
        heap::reserve(&mut numbers, 1, "the numbers of a shape")?;
        numbers.push(whole(&number?)?);
    }
    Ok(numbers)
}

fn no_numbers(object: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let found = object.repr()?;
    Ok(PyTypeError::new_err(format!("expected a whole number or a sequence of them, not {found}")))
}

fn not_negative(numbers: Vec<isize>) -> PyResult<Vec<usize>> {
    numbers
        .iter()
        .map(|extent| {
            usize::try_from(*extent)
                .map_err(|_| PyValueError::new_err(format!("a size is not negative, as in {numbers:?}")))
        })
        .collect()
}

/// The parts of a basic index.
pub(super) fn parts(key: &Bound<'_, PyAny>) -> PyResult<Vec<Index>> {
    match key.cast::<PyTuple>() {
        Ok(parts) => parts.iter().map(|key| part(&key)).collect(),
        Err(_) => Ok(vec![part(key)?]),
    }
}

fn part(key: &Bound<'_, PyAny>) -> PyResult<Index> {
    if key.is_none() {
        return Ok(Index::NewAxis);
    }
    if key.is_instance_of::<PyEllipsis>() {
        return Ok(Index::Ellipsis);
    }
    if let Ok(slice) = key.cast::<PySlice>() {
        let bound = |name: &str| -> PyResult<Option<isize>> {
            let value = slice.getattr(name)?;
            if value.is_none() { Ok(None) } else { clamped(&value).map(Some) }
        };
        return Ok(Index::Slice { start: bound("start")?, stop: bound("stop")?, step: bound("step")? });
    }
    match whole(key) {
        Ok(position) => Ok(Index::At(position)),
        // Past the end of every axis, as its end is.
        Err(error) if error.is_instance_of::<PyOverflowError>(key.py()) => clamped(key).map(Index::At),
        Err(_) => Err(PyIndexError::new_err(format!(
            "an index is an integer, a slice, None or ..., not {}; masks and index arrays are not supported",
            key.get_type().name()?
        ))),
    }
}

/// Positions and slice bounds beyond the address space mean its end.
fn clamped(value: &Bound<'_, PyAny>) -> PyResult<isize> {
    let value = value
        .call_method0("__index__")
        .map_err(|_| PyTypeError::new_err("slice bounds are integers or None"))?;
    match value.extract::<isize>() {
        Ok(number) => Ok(number),
        Err(_) if value.lt(0)? => Ok(isize::MIN + 1),
        Err(_) => Ok(isize::MAX),
    }
}

/// A Python or numpy number, with its dtype when it has one; None for anything else.
pub(super) fn scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<(Number, Option<crate::DType>)>> {
    // numpy's float64 is a Python float too, so the dtype is looked at first.
    let is_plain = |object: &Bound<'_, PyAny>| {
        object.is_exact_instance_of::<PyBool>()
            || object.is_exact_instance_of::<PyInt>()
            || object.is_exact_instance_of::<PyFloat>()
            || object.is_exact_instance_of::<PyComplex>()
    };
    // An array of ours is none, and must not be asked for an interface that other libraries may use.
    if is_plain(object) || object.is_instance_of::<super::array::Array>() {
        return number(object).map(|number| number.map(|number| (number, None)));
    }
    let (Some(dtype), Some(item), Some(ndim)) =
        (object.getattr_opt("dtype")?, object.getattr_opt("item")?, object.getattr_opt("ndim")?)
    else {
        return number(object).map(|number| number.map(|number| (number, None)));
    };
    if ndim.extract::<usize>().ok() != Some(0)
        || object.getattr_opt("__sycl_usm_array_interface__")?.is_some()
    {
        return Ok(None);
    }
    let (dtype, value) = (super::dtype::parse(&dtype)?, item.call0()?);
    Ok(number(&value)?.map(|number| (number, Some(dtype))))
}

fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<Number>> {
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Some(Number::Bool(value.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        // abi3 has no conversion to 128 bits; the range is that of all integer dtypes.
        return match (object.extract::<i64>(), object.extract::<u64>()) {
            (Ok(value), _) => Ok(Some(Number::Int(value.into()))),
            (_, Ok(value)) => Ok(Some(Number::Int(value.into()))),
            _ => Err(PyValueError::new_err(format!("{object} does not fit into any integer dtype"))),
        };
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Number::Float(object.extract()?)));
    }
    if let Ok(value) = object.cast::<PyComplex>() {
        let part = |name| -> PyResult<f64> { value.getattr(name)?.extract() };
        return Ok(Some(Number::Complex(Complex::new(part("real")?, part("imag")?))));
    }
    Ok(None)
}
