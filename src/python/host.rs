//! Host objects as bytes: buffers, nested lists and numbers.

use super::buffer::{ForeignBuffer, has_buffer};
use super::classes::Array;
use super::gil::detach;
use super::{argument, index, numpy, suai};
use crate::DType;
use crate::Scalar;
use crate::array::HostMemory;
use crate::memory::{ForeignOwner, try_reserve};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PySequence, PyString, PyTuple};
use std::sync::Arc;

/// Elements on the host, in C order.
pub(super) enum HostInput<'py> {
    /// In another object's buffer.
    Buffer { buffer: ForeignBuffer<'py>, dtype: DType },
    /// Numbers that were read one by one.
    Numbers { numbers: Vec<Scalar>, shape: Vec<usize>, dtype: DType },
}

/// Lists nested deeper than this are treated as cyclic.
const DEEPEST: usize = 32;

/// The allocation's name, for an error.
const LIST: &str = "the numbers of a list";

impl<'py> HostInput<'py> {
    /// Reads an object with a buffer. A number, as numpy has them, converts to `dtype` as every number does.
    pub(super) fn buffer(object: &Bound<'py, PyAny>, dtype: Option<DType>) -> PyResult<Self> {
        numpy::refuse_masked(object)?;
        let (buffer, own) = match ForeignBuffer::readable(object) {
            Ok(buffer) => {
                // The text of numpy's dtype says more than the format of its buffer.
                let format = buffer.dtype();
                let own = format.map_err(|error| numpy::check_dtype(object).err().unwrap_or(error))?;
                (buffer, own)
            }
            // The producer's own choice: it may have other protocols.
            Err(error) if error.is_instance_of::<PyBufferError>(object.py()) => return Err(error),
            // numpy has no buffers for times and for types of extensions.
            Err(error) => match numpy::extension(object)? {
                Some((same, dtype)) => (ForeignBuffer::readable(&same)?, dtype),
                None => return Err(error),
            },
        };
        if own == DType::U8 {
            // numpy's scalars of times and texts show their bytes.
            numpy::check_dtype(object)?;
        }
        let is_number = buffer.ndim() == 0 && index::scalar(object)?.is_some();
        if is_number && dtype.is_some_and(|dtype| dtype != own) {
            return Self::numbers(object, dtype);
        }
        Ok(Self::Buffer { dtype: own, buffer })
    }

    /// Reads a number, or nested sequences of numbers. `dtype` decides the type.
    pub(super) fn numbers(object: &Bound<'py, PyAny>, dtype: Option<DType>) -> PyResult<Self> {
        if let Some((number, own)) = index::scalar(object)? {
            let dtype = dtype.or(own).unwrap_or_else(|| common_type(&[number]));
            return Ok(Self::Numbers { numbers: vec![number], shape: Vec::new(), dtype });
        }
        let (mut numbers, mut shape, mut own) = (Vec::new(), Vec::new(), None);
        flatten(object, 0, &mut shape, &mut numbers, &mut own)?;
        let dtype = dtype.or(own.flatten()).unwrap_or_else(|| common_type(&numbers));
        Ok(Self::Numbers { numbers, shape, dtype })
    }

    /// The type of the elements as they are now.
    pub(super) fn dtype(&self) -> DType {
        match self {
            Self::Buffer { dtype, .. } | Self::Numbers { dtype, .. } => *dtype,
        }
    }

    pub(super) fn shape(&self) -> Vec<usize> {
        match self {
            Self::Buffer { buffer, .. } => buffer.shape(),
            Self::Numbers { shape, .. } => shape.clone(),
        }
    }

    /// The memory of a buffer, with an owner that keeps it alive; None for numbers, which have none.
    pub(super) fn memory(&self) -> Option<(HostMemory, ForeignOwner)> {
        let Self::Buffer { buffer, dtype } = self else { return None };
        Some((buffer.memory(*dtype), buffer.owner()()))
    }

    /// Copies the elements into a contiguous array of this dtype and shape.
    pub(super) fn copy_to(&self, py: Python<'_>, target: &crate::Array) -> PyResult<()> {
        match self {
            Self::Buffer { buffer, .. } if buffer.as_contiguous().is_some() => {
                // By address: the elements may be memory of the target, which the copy changes.
                let (address, bytes, owner) = (buffer.address(), buffer.bytes(), buffer.owner());
                Ok(detach(py, || target.write_from(address as *const u8, bytes, Some(&owner)))?)
            }
            Self::Buffer { buffer, .. } => own(py, target, buffer.to_contiguous()?),
            Self::Numbers { numbers, dtype, .. } => {
                let mut bytes = try_reserve::try_with_capacity(numbers.len() * dtype.itemsize(), LIST)?;
                for number in numbers {
                    bytes.extend(number.bytes_as(*dtype).map_err(PyValueError::new_err)?);
                }
                own(py, target, bytes)
            }
        }
    }
}

/// The smallest of bool, int64, float64 and complex128 that holds all numbers; float64 for none, as in numpy.
pub(super) fn common_type(numbers: &[Scalar]) -> DType {
    let of = |number: &Scalar| match number {
        Scalar::Bool(_) => DType::Bool,
        Scalar::Int(value) if i64::try_from(*value).is_err() => DType::U64,
        Scalar::Int(_) => DType::I64,
        Scalar::Float(_) => DType::F64,
        Scalar::Complex(_) => DType::C128,
    };
    numbers.iter().map(of).max().unwrap_or(DType::F64)
}

/// Copies bytes that this call owns.
fn own(py: Python<'_>, target: &crate::Array, bytes: Vec<u8>) -> PyResult<()> {
    let bytes = Arc::new(bytes);
    Ok(detach(py, || target.write_from(bytes.as_ptr(), bytes.len(), Some(&|| Box::new(bytes.clone()))))?)
}

fn flatten(
    object: &Bound<'_, PyAny>,
    depth: usize,
    shape: &mut Vec<usize>,
    numbers: &mut Vec<Scalar>,
    // The common dtype of all numbers so far; Some(None) if they differ.
    own: &mut Option<Option<DType>>,
) -> PyResult<()> {
    if let Some((number, dtype)) = index::scalar(object)? {
        *own = Some(dtype.filter(|_| own.is_none_or(|before| before == dtype)));
        if depth != shape.len() {
            return Err(ragged());
        }
        try_reserve::reserve(numbers, 1, LIST)?;
        numbers.push(number);
        return Ok(());
    }
    let is_own = object.is_instance_of::<Array>();
    if depth > 0 && !is_own && has_buffer(object) && numpy::has_dtype(object)? {
        return flatten_array(object, depth, shape, numbers, own);
    }
    let is_nest = object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || (object.cast::<PySequence>().is_ok() && !object.is_instance_of::<PyString>());
    if !is_nest {
        numpy::refuse_masked(object)?;
        return Err(no_number(object, depth));
    }
    if depth >= DEEPEST {
        return Err(PyValueError::new_err(format!("lists are nested more than {DEEPEST} deep")));
    }
    let length = object.len()?;
    match shape.get(depth) {
        Some(extent) if *extent == length => {}
        None if numbers.is_empty() => shape.push(length),
        _ => return Err(ragged()),
    }
    for item in object.try_iter()? {
        flatten(&item?, depth + 1, shape, numbers, own)?;
    }
    Ok(())
}

/// An array of the host inside of a list: its elements, with its dtype for all of them.
fn flatten_array(
    array: &Bound<'_, PyAny>,
    depth: usize,
    shape: &mut Vec<usize>,
    numbers: &mut Vec<Scalar>,
    own: &mut Option<Option<DType>>,
) -> PyResult<()> {
    let host = HostInput::buffer(array, None)?;
    let (dtype, extents, before) = (host.dtype(), host.shape(), numbers.len());
    let mut ignored = None;
    flatten(&array.call_method0("tolist")?, depth, shape, numbers, &mut ignored)?;
    if numbers.is_empty() && shape.len() < depth + extents.len() {
        // Lists without elements do not show the axes below.
        shape.truncate(depth);
        shape.extend(extents);
    }
    // An array without elements does not decide the type of the others.
    if numbers.len() > before {
        *own = Some(Some(dtype).filter(|_| own.is_none_or(|before| before == Some(dtype))));
    }
    Ok(())
}

/// The error for an object that is not a number.
fn no_number(object: &Bound<'_, PyAny>, depth: usize) -> PyErr {
    let (what, class) = (if depth > 0 { "a list with " } else { "" }, argument::class_name(object));
    let has = |name: &str| object.hasattr(name).unwrap_or(false);
    let why = if object.is_instance_of::<Array>() || has(suai::NAME) {
        "its elements are in USM: set each row of a new array, as x[0] = a, or for single numbers pass a.item()"
    } else if has("__array__") {
        "pass numpy.asarray(x) of it"
    } else {
        "it has none of __sycl_usm_array_interface__, the buffer protocol, numbers or nested sequences of them"
    };
    PyTypeError::new_err(format!("cannot make an array of {what}{class}: {why}"))
}

fn ragged() -> PyErr {
    PyValueError::new_err("nested lists have different lengths or depths")
}
