//! Columns as numpy arrays.

use crate::interop::arrow;
use crate::python::errors::optional;
use crate::python::gil::detach;
use crate::python::numpy;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice};

pub(super) fn copy<'py>(py: Python<'py>, column: &arrow::Column) -> PyResult<Bound<'py, PyAny>> {
    let nulls = detach(py, || column.null_count())?;
    if nulls > 0 {
        return Err(PyValueError::new_err(format!(
            "{nulls} values of {column} are null, which numpy cannot hold; \
             to_arrow().to_numpy(zero_copy_only=False) gives NaN or None for them, and values().to_numpy() what is \
             stored there"
        )));
    }
    let field = column.field();
    if column.is_numeric() {
        return numpy::copy(py, &detach(py, || column.values())?);
    }
    let wanted = match field.format() {
        _ if field.dictionary().is_some() => None,
        "b" => return bits(py, column),
        "tdD" => Some("datetime64[D]".to_owned()),
        "tdm" => Some("datetime64[ms]".to_owned()),
        format => unit(format, "ts")
            .map(|unit| format!("datetime64[{unit}]"))
            .or_else(|| unit(format, "tD").map(|unit| format!("timedelta64[{unit}]"))),
    };
    let Some(dtype) = wanted else {
        return Err(PyTypeError::new_err(format!(
            "{column} does not convert to numpy; to_arrow().to_numpy(zero_copy_only=False) gives Python objects"
        )));
    };
    numpy::copy(py, &detach(py, || column.values())?)?.call_method1("astype", (dtype,))
}

/// The unit of a format such as `tsu:UTC`.
fn unit(format: &str, start: &str) -> Option<&'static str> {
    let rest = format.strip_prefix(start)?;
    [("s", "s"), ("m", "ms"), ("u", "us"), ("n", "ns")]
        .into_iter()
        .find_map(|(letter, unit)| rest.starts_with(letter).then_some(unit))
}

fn bits<'py>(py: Python<'py>, column: &arrow::Column) -> PyResult<Bound<'py, PyAny>> {
    let bytes = numpy::copy(py, &detach(py, || column.values())?)?;
    let order = PyDict::new(py);
    order.set_item("bitorder", "little")?;
    let bits =
        optional(py, "numpy", "to_numpy()", "")?.getattr("unpackbits")?.call((bytes,), Some(&order))?;
    let first = column.bit_offset() as isize;
    let own = PySlice::new(py, first, first + column.len() as isize, 1);
    bits.get_item(own)?.call_method1("astype", ("?",))
}
