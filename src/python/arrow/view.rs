//! Views for readers on the host: the same memory, through the host methods of the Arrow PyCapsule interface.

use super::capsule::{check_requested, give, refuse_unknown};
use super::table::single;
use crate::interop::arrow::{self, ArrowArrayStream, ArrowDeviceArrayStream};
use crate::python::gil::{Quiet, detach};
use crate::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

/// A column that the host can read; ``pyarrow.array(view)`` shares its memory.
#[pyclass(module = "usmq._core", frozen)]
pub(in crate::python) struct ColumnView(Quiet<arrow::Column>);

impl ColumnView {
    pub(super) fn new(py: Python<'_>, column: &arrow::Column) -> PyResult<Self> {
        // Check here, not in the consumer, that the host can read the data and that the data is valid.
        detach(py, || column.export_host().and_then(|_| column.validate_full()))?;
        Ok(Self(Quiet::new(column.clone())))
    }

    /// Shares the memory if the host can read it, else makes a copy.
    pub(super) fn copy(py: Python<'_>, column: &arrow::Column) -> PyResult<Self> {
        let host = detach(py, || {
            let host = column.to_host()?;
            host.validate_full().map(|()| host)
        })?;
        Ok(Self(Quiet::new(host)))
    }
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
        host_array(py, &self.0, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        refuse_unknown(kwargs)?;
        host_device_array(py, &self.0, requested_schema)
    }
}

/// A table that the host can read; ``pyarrow.table(view)`` shares its memory.
#[pyclass(module = "usmq._core", frozen)]
pub(in crate::python) struct TableView(Quiet<arrow::Table>);

impl TableView {
    pub(super) fn new(py: Python<'_>, table: &arrow::Table) -> PyResult<Self> {
        detach(py, || {
            table
                .batches()
                .iter()
                .try_for_each(|batch| batch.export_host().and_then(|_| batch.validate_full()))
        })?;
        Ok(Self(Quiet::new(table.clone())))
    }

    /// Shares the memory if the host can read it, else makes a copy.
    pub(super) fn copy(py: Python<'_>, table: &arrow::Table) -> PyResult<Self> {
        let host = detach(py, || {
            let host = table.to_host()?;
            host.batches().iter().try_for_each(arrow::Column::validate_full).map(|()| host)
        })?;
        Ok(Self(Quiet::new(host)))
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
        host_array(py, single(&self.0)?, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        refuse_unknown(kwargs)?;
        host_device_array(py, single(&self.0)?, requested_schema)
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

fn host_array<'py>(
    py: Python<'py>,
    column: &arrow::Column,
    requested: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    check_requested(requested, column.field())?;
    let (schema, array) =
        detach(py, || -> Result<_> { Ok((column.export_schema()?, column.export_host()?)) })?;
    PyTuple::new(py, [give(py, schema)?, give(py, array)?])
}

fn host_device_array<'py>(
    py: Python<'py>,
    column: &arrow::Column,
    requested: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    check_requested(requested, column.field())?;
    let (schema, array) =
        detach(py, || Ok::<_, Error>((column.export_schema()?, column.export_host_device()?)))?;
    PyTuple::new(py, [give(py, schema)?, give(py, array)?])
}
