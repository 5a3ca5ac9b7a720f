//! Exports of columns and arrays as capsules of the Arrow C Device interface.

use super::capsule::{check_requested, give, give_pair, refuse_unknown};
use crate::Result;
use crate::interop::arrow::{self, ArrowDeviceArrayStream, SyncMode};
use crate::interop::cuda::CudaArray;
use crate::python::gil::detach;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use std::sync::Arc;

/// The schema capsule of a column.
pub(in crate::python) fn schema<'py>(
    py: Python<'py>,
    column: &arrow::Column,
) -> PyResult<Bound<'py, PyCapsule>> {
    give(py, column.export_schema()?)
}

/// The two capsules of a column.
pub(in crate::python) fn device_array<'py>(
    py: Python<'py>,
    column: &arrow::Column,
    requested: Option<&Bound<'py, PyAny>>,
    wait: Option<bool>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyTuple>> {
    refuse_unknown(kwargs)?;
    check_requested(requested, column.field())?;
    let ready = if wait == Some(true) { SyncMode::Now } else { SyncMode::Event };
    give_pair(py, column, |column| column.export_device(ready))
}

/// A capsule of a stream of batches.
pub(super) fn device_stream<'py>(
    py: Python<'py>,
    field: &Arc<arrow::Field>,
    batches: Vec<arrow::Column>,
    requested: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    refuse_unknown(kwargs)?;
    check_requested(requested, field)?;
    detach(py, || batches.iter().try_for_each(arrow::Column::check_exportable))?;
    let is_system = batches.iter().any(arrow::Column::is_system);
    let batches = if is_system {
        detach(py, || batches.iter().map(arrow::Column::settled).collect::<Result<_>>())?
    } else {
        batches
    };
    let batches = Box::new(batches.into_iter().map(Ok));
    let new = if is_system { ArrowDeviceArrayStream::of_host } else { ArrowDeviceArrayStream::new };
    give(py, new(field.clone(), batches))
}

/// An array in CUDA memory as capsules of a schema and a device array.
pub(in crate::python) fn cuda_array<'py>(
    py: Python<'py>,
    array: &CudaArray,
    requested: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyTuple>> {
    refuse_unknown(kwargs)?;
    let (field, exported) = detach(py, || arrow::export_cuda(array))?;
    check_requested(requested, &field)?;
    PyTuple::new(py, [give(py, field.export()?)?, give(py, exported)?])
}
