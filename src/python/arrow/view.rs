//! Views for readers on the host: the same memory, through the host methods of the Arrow PyCapsule interface.

use super::capsule::{check_requested, give, give_pair, refuse_unknown, single};
use crate::Result;
use crate::interop::arrow::{self, ArrowArrayStream, ArrowDeviceArrayStream};
use crate::python::errors::optional;
use crate::python::gil::{Quiet, detach};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

/// A column that the host can read; ``pyarrow.array(view)`` shares its memory.
#[pyclass(module = "usmq._core", frozen)]
pub(in crate::python) struct ColumnView(Quiet<arrow::Column>);

impl ColumnView {
    pub(in crate::python) fn new(py: Python<'_>, column: &arrow::Column) -> PyResult<Self> {
        Ok(Self(Quiet::new(detach(py, || readable(column))?)))
    }

    /// Shares the memory if the host can read it, else makes a copy.
    pub(super) fn copy(py: Python<'_>, column: &arrow::Column) -> PyResult<Self> {
        Self::new(py, &detach(py, || column.to_host())?)
    }
}

/// Checks here, not in the consumer, that the host can read the data and that the data is valid. Buffers that must not
/// change afterwards are copied if an array can write to them.
fn readable(column: &arrow::Column) -> Result<arrow::Column> {
    column.export_host()?;
    column.settled()
}

#[pymethods]
impl ColumnView {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        give(py, self.0.export_schema()?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        check_requested(requested_schema, self.0.field())?;
        give_pair(py, &self.0, arrow::Column::export_host)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        refuse_unknown(kwargs)?;
        check_requested(requested_schema, self.0.field())?;
        give_pair(py, &self.0, arrow::Column::export_host_device)
    }
}

/// A table that the host can read; ``pyarrow.table(view)`` shares its memory.
#[pyclass(module = "usmq._core", frozen)]
pub(in crate::python) struct TableView(Quiet<arrow::Table>);

impl TableView {
    pub(super) fn new(py: Python<'_>, table: &arrow::Table) -> PyResult<Self> {
        Ok(Self(Quiet::new(detach(py, || table.map(readable))?)))
    }

    /// Shares the memory if the host can read it, else makes a copy.
    pub(super) fn copy(py: Python<'_>, table: &arrow::Table) -> PyResult<Self> {
        Self::new(py, &detach(py, || table.to_host())?)
    }
}

#[pymethods]
impl TableView {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        give(py, self.0.schema().export()?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let batch = single(&self.0)?;
        check_requested(requested_schema, batch.field())?;
        give_pair(py, batch, arrow::Column::export_host)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        refuse_unknown(kwargs)?;
        let batch = single(&self.0)?;
        check_requested(requested_schema, batch.field())?;
        give_pair(py, batch, arrow::Column::export_host_device)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        check_requested(requested_schema, self.0.schema())?;
        give(py, ArrowArrayStream::new(self.0.schema().clone(), self.batches()))
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        refuse_unknown(kwargs)?;
        check_requested(requested_schema, self.0.schema())?;
        give(py, ArrowDeviceArrayStream::of_host(self.0.schema().clone(), self.batches()))
    }
}

impl TableView {
    fn batches(&self) -> arrow::Batches {
        Box::new(self.0.batches().to_vec().into_iter().map(Ok))
    }
}

pub(super) fn pyarrow(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    optional(py, "pyarrow", "to_arrow()", "; other libraries can use host_view()")
}
