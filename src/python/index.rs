//! Python numbers, shapes and indices.

use super::argument::{Given, Misfit, found, given, misfit};
use crate::Index;
use crate::Scalar;
use crate::memory::try_reserve;
use num_complex::Complex;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyEllipsis, PyFloat, PyInt, PySequence, PySlice, PyString, PyTuple,
};

pub(super) const EXTENTS: &str = "a sequence of whole numbers from 0 to 2**63 - 1";
const SIZES: &str = "a whole number from 0 to 2**63 - 1, or a sequence of them";

/// `(2, 3)` or `((2, 3),)`: numbers given one by one or as one sequence.
pub(super) fn numbers(args: &Bound<'_, PyTuple>, name: &str) -> PyResult<Vec<isize>> {
    let wanted = "whole numbers, one by one or as one sequence";
    if args.len() == 1 {
        let only = args.get_item(0)?;
        if !only.is_instance_of::<PyInt>() && !is_text(&only) && only.try_iter().is_ok() {
            return each(&only).map_err(|misfit| misfit.into_error(&only, name, wanted));
        }
        return Ok(vec![given(&only, name, wanted)?]);
    }
    each(args).map_err(|misfit| misfit.into_error(args, name, wanted))
}

/// A shape or a range of work: a number or a sequence of them, none negative.
pub(super) fn shape(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<usize>> {
    sizes(object).map_err(|misfit| misfit.into_error(object, name, SIZES))
}

fn sizes(object: &Bound<'_, PyAny>) -> Result<Vec<usize>, Misfit> {
    // Check this first: the check for a sequence runs Python code.
    if object.is_instance_of::<PyInt>() {
        return not_negative(vec![isize::read(object)?]);
    }
    if object.cast::<PySequence>().is_ok() {
        return sequence(object);
    }
    // numpy integers are not `int`, and numpy arrays are not registered as sequences.
    match object.getattr_opt("ndim")?.map(|axes| axes.extract::<usize>()).transpose()? {
        Some(1) => not_negative(each(object)?),
        None | Some(0) if object.hasattr("__index__")? => not_negative(vec![isize::read(object)?]),
        _ => Err(Misfit::Type),
    }
}

/// A sequence of numbers, none negative.
pub(super) fn extents(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<usize>> {
    sequence(object).map_err(|misfit| misfit.into_error(object, name, EXTENTS))
}

pub(super) fn sequence(object: &Bound<'_, PyAny>) -> Result<Vec<usize>, Misfit> {
    if is_text(object) || object.cast::<PySequence>().is_err() {
        return Err(Misfit::Type);
    }
    not_negative(each(object)?)
}

/// Refuses str and bytes, over which Python can iterate.
pub(super) fn is_text(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyBytes>() || object.is_instance_of::<PyString>()
}

/// The integers of an iterable of any length.
pub(super) fn each(object: &Bound<'_, PyAny>) -> Result<Vec<isize>, Misfit> {
    let mut numbers = Vec::new();
    for number in object.try_iter().map_err(|error| misfit(object.py(), error))? {
        try_reserve::reserve(&mut numbers, 1, "the numbers of a shape")?;
        numbers.push(isize::read(&number?)?);
    }
    Ok(numbers)
}

fn not_negative(numbers: Vec<isize>) -> Result<Vec<usize>, Misfit> {
    numbers.into_iter().map(|extent| usize::try_from(extent).map_err(|_| Misfit::Range)).collect()
}

/// Axes, as a number or a sequence of them.
pub(super) fn axes(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<isize>> {
    let read =
        || if object.is_instance_of::<PyTuple>() { each(object) } else { Ok(vec![isize::read(object)?]) };
    read().map_err(|misfit| misfit.into_error(object, name, "a whole number or a tuple of them"))
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
    match isize::read(key) {
        Ok(position) => Ok(Index::At(position)),
        // A position beyond the address space is past the end of every axis.
        Err(Misfit::Range) => clamped(key).map(Index::At),
        Err(Misfit::Type) => Err(PyIndexError::new_err(format!(
            "an index must be an integer, a slice, None or ..., not {}; masks and index arrays are not \
             supported",
            key.get_type().name()?
        ))),
        Err(Misfit::Raised(error)) => Err(error),
    }
}

/// Positions and slice bounds beyond the address space mean its end.
fn clamped(value: &Bound<'_, PyAny>) -> PyResult<isize> {
    let value = value
        .call_method0("__index__")
        .map_err(|_| PyTypeError::new_err("slice bounds must be integers or None"))?;
    match value.extract::<isize>() {
        Ok(number) => Ok(number),
        Err(_) if value.lt(0)? => Ok(isize::MIN + 1),
        Err(_) => Ok(isize::MAX),
    }
}

/// A Python or numpy number, with its dtype when it has one; None for anything else.
pub(super) fn scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<(Scalar, Option<crate::DType>)>> {
    // A usmq array is not a number, and querying its interfaces could make it wait.
    if is_plain(object) || object.is_instance_of::<super::classes::Array>() {
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
    super::numpy::refuse_masked(object)?;
    let (dtype, value) = (super::dtype::parse(&dtype)?, item.call0()?);
    Ok(number(&value)?.map(|number| (number, Some(dtype))))
}

/// Whether it is a number of Python itself. numpy's float64 is a Python float, too, but has a dtype.
pub(super) fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyComplex>()
}

fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(value.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        if let Ok(value) = object.extract::<i64>() {
            return Ok(Some(Scalar::Int(value.into())));
        }
        // Float dtypes hold numbers beyond 64-bit integers. abi3 cannot convert 128 bits at once.
        let high = object.rshift(u64::BITS)?.extract::<i64>().map_err(|_| {
            PyValueError::new_err(format!("{} has more than 128 bits and fits in no dtype", found(object)))
        })?;
        let low: u64 = object.bitand(u64::MAX)?.extract()?;
        return Ok(Some(Scalar::Int(i128::from(high) << u64::BITS | i128::from(low))));
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(object.extract()?)));
    }
    if let Ok(value) = object.cast::<PyComplex>() {
        let part = |name| -> PyResult<f64> { value.getattr(name)?.extract() };
        return Ok(Some(Scalar::Complex(Complex::new(part("real")?, part("imag")?))));
    }
    Ok(None)
}
