//! `usmq.DeviceStream`: batches of a Python iterable as an Arrow device stream.

use super::capsule::{check_requested, give, look, refuse_unknown};
use super::import::{ImportTarget, imported};
use crate::interop::arrow::{self, ArrowDeviceArrayStream, ColumnOrTable};
use crate::python::classes::Field;
use crate::python::{argument, gil, scope};
use crate::{Error, Result};
use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator};
use std::collections::VecDeque;
use std::sync::Arc;

/// A stream of Arrow device arrays over an iterable, for one consumer. Batches are created on request.
///
/// Parameters
/// ----------
/// batches : iterable
///     Tables, columns, or other objects for ``from_arrow``; all of one type, and tables with the same
///     columns. Host data is copied to the current queue.
/// schema : object with ``__arrow_c_schema__``, optional
///     The type of all batches; by default that of the first one, which is then created immediately.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> tables = (usmq.Table({"x": usmq.arange(n)}) for n in (2, 3))
/// >>> usmq.from_arrow(usmq.DeviceStream(tables)).num_rows
/// 5
#[pyclass(module = "usmq", frozen)]
pub(in crate::python) struct DeviceStream {
    field: Arc<arrow::Field>,
    batches: Mutex<Option<Batches>>,
}

#[pymethods]
impl DeviceStream {
    #[new]
    #[pyo3(signature = (batches, schema=None))]
    fn new(batches: &Bound<'_, PyAny>, schema: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let py = batches.py();
        if !batches.hasattr("__iter__")? && !batches.hasattr("__getitem__")? {
            return Err(argument::wrong_type(batches, "batches", "an iterable of tables or columns"));
        }
        if let Some(schema) = schema
            && !schema.hasattr("__arrow_c_schema__")?
        {
            return Err(argument::wrong_type(schema, "schema", "an object with __arrow_c_schema__"));
        }
        let items = batches.try_iter()?.unbind();
        let mut batches = Batches { items, ready: VecDeque::new(), current: scope::current(py)? };
        let field = match schema {
            Some(schema) => Arc::new(look(&schema.call_method0("__arrow_c_schema__")?)?),
            None => {
                batches.fetch(py)?;
                match batches.ready.front() {
                    Some(first) => first.field().clone(),
                    None => return Err(PyValueError::new_err("a stream without batches needs a schema")),
                }
            }
        };
        Ok(Self { field, batches: Mutex::new(Some(batches)) })
    }

    /// The type of every batch.
    #[getter]
    fn schema(&self) -> Field {
        Field(self.field.clone())
    }

    /// Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        give(py, self.field.export()?)
    }

    /// Arrow PyCapsule interface. The stream can be exported once.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        refuse_unknown(kwargs)?;
        check_requested(requested_schema, &self.field)?;
        let batches = self.batches.lock().take();
        let batches = batches.ok_or_else(|| Error::interop("the stream has a consumer already"))?;
        give(py, ArrowDeviceArrayStream::new(self.field.clone(), Box::new(batches)))
    }
}

/// The rest of the iterable.
struct Batches {
    items: Py<PyIterator>,
    /// Remaining batches of an item with several.
    ready: VecDeque<arrow::Column>,
    /// The target of host data: the queue that was current when the stream was created.
    current: crate::Queue,
}

impl Batches {
    /// Takes items until a batch is ready or the iterable ends.
    fn fetch(&mut self, py: Python<'_>) -> PyResult<()> {
        while self.ready.is_empty() {
            let Some(item) = self.items.bind(py).clone().next() else { return Ok(()) };
            let target =
                ImportTarget { current: self.current.clone(), queue: None, kind: None, columns: None };
            match imported(&item?, target)? {
                ColumnOrTable::Table(table) => self.ready.extend(table.batches().iter().cloned()),
                ColumnOrTable::Column(column) => self.ready.push_back(column),
            }
        }
        Ok(())
    }
}

impl Iterator for Batches {
    type Item = Result<arrow::Column>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() {
            let fetched = Python::try_attach(|py| self.fetch(py).map_err(|error| failure(py, error)));
            match fetched {
                Some(Ok(())) => {}
                Some(Err(error)) => return Some(Err(error)),
                None => return Some(Err(Error::interop("the Python interpreter has shut down"))),
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

/// Exceptions that end the program, as Ctrl-C and `sys.exit()`, are not failures of the stream.
fn failure(py: Python<'_>, error: PyErr) -> Error {
    if error.is_instance_of::<PyException>(py) {
        return Error::interop(format!("the stream's iterable failed: {error}"));
    }
    gil::stopped_by(error)
}
