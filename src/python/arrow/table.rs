//! `usmq.Table`.

use super::capsule::{give, single};
use super::column::Mask;
use super::export::{device_array, device_stream};
use super::view::TableView;
use crate::interop::arrow;
use crate::python::argument;
use crate::python::classes::{Array, Column, Device, Field, Queue, Table};
use crate::python::gil::detach;
use crate::python::pickle;
use crate::python::target;
use crate::{Error, UsmKind};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator, PyList, PySlice, PyTuple};

#[pymethods]
impl Table {
    #[new]
    fn of(columns: &Bound<'_, PyAny>) -> PyResult<Self> {
        let wanted = "a dict of str to usmq.Array or usmq.Column, as {\"x\": x}";
        let wrong = || argument::wrong_type(columns, "columns", wanted);
        let columns = columns.cast::<PyDict>().map_err(|_| wrong())?;
        // Iterate over a copy: iterating over the dict panics if another thread adds to it.
        let columns = columns.items();
        let columns = columns.iter().map(|item| {
            let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let name: String = argument::given(&name, "the name of a column", "a str")?;
            if let Ok(column) = value.cast::<Column>() {
                return Ok(column.get().0.named(&name));
            }
            match value.cast::<Array>() {
                Ok(array) => Ok(arrow::Column::from_array(&name, &array.get().array)?),
                Err(_) => Err(PyTypeError::new_err(format!(
                    "column {name:?} must be a usmq.Array or usmq.Column, not {}",
                    value.get_type().name()?
                ))),
            }
        });
        Ok(Self::new(arrow::Table::new(columns.collect::<PyResult<_>>()?)?))
    }

    /// Number of rows of all batches.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    /// Bytes of all buffers with a known size.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.batches().iter().map(arrow::Column::nbytes).sum()
    }

    /// The columns' names, in their order.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.0.names().collect()
    }

    /// The columns. Raises ValueError for a table of several batches: use the columns of its ``batches``.
    #[getter]
    fn columns(&self) -> PyResult<Vec<Column>> {
        Ok(self.0.columns()?.iter().cloned().map(Column::new).collect())
    }

    /// A struct of the columns' fields.
    #[getter]
    fn schema(&self) -> Field {
        Field(self.0.schema().clone())
    }

    /// The batches as they were imported, as tables of one batch each.
    #[getter]
    fn batches(&self) -> PyResult<Vec<Self>> {
        let tables = self.0.batches().iter().cloned().map(arrow::Table::from_structs);
        Ok(tables.map(|table| table.map(Self::new)).collect::<crate::Result<_>>()?)
    }

    /// The queue that runs the table's work.
    #[getter]
    fn queue(&self) -> Queue {
        Queue(self.0.queue().clone())
    }

    /// The queue's device.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.queue().device().clone())
    }

    /// Return the table with only these columns, in this order; it shares their memory.
    ///
    /// Raises
    /// ------
    /// KeyError
    ///     A name matches no column, or more than one.
    fn select(&self, names: &Bound<'_, PyAny>) -> PyResult<Self> {
        let names: Vec<String> = argument::given(names, "names", super::import::NAMES)?;
        Ok(Self::new(self.0.select(&names).map_err(missing)?))
    }

    /// Return the rows where a mask is true and not null, selected by kernels; waits for their number only.
    ///
    /// Parameters
    /// ----------
    /// mask : Array or Column
    ///     Of bool, with one element per row, on the table's queue.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     The mask has another type or length.
    /// PlacementError
    ///     The mask is on another queue.
    fn filter(&self, py: Python<'_>, mask: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mask = Mask::given(mask)?;
        Ok(Self::new(detach(py, || self.0.filter(&mask.column()?))?))
    }

    /// Return the table on another queue or in memory of another kind; copies only buffers that the queue
    /// cannot use.
    ///
    /// Parameters
    /// ----------
    /// queue : str, Device, Queue, optional
    ///     Its own by default.
    /// usm_type : {"device", "shared", "host"}, optional
    ///     Its own by default.
    #[pyo3(signature = (queue=None, usm_type=None))]
    fn to(
        &self,
        py: Python<'_>,
        queue: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::usm_type)] usm_type: Option<&str>,
    ) -> PyResult<Self> {
        let queue = target::queue(py, queue)?;
        let kind = usm_type.map(str::parse::<UsmKind>).transpose()?;
        Ok(Self::new(detach(py, || self.0.to(kind, queue.as_ref()))?))
    }

    /// Block until no command submitted so far uses the table.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        Ok(detach(py, || self.0.batches().iter().try_for_each(arrow::Column::wait))?)
    }

    /// Return the table as a pyarrow table on the host; needs pyarrow. Waits.
    ///
    /// The table shares the numbers and booleans of host and shared USM and shows later writes to them; device memory is
    /// copied, and so are offsets, texts, bitmaps and indices that another array can write to. The data is validated
    /// first, unless it is known to be valid.
    ///
    /// Raises
    /// ------
    /// InteropError
    ///     The data is not valid Arrow data, as text that is not UTF-8.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let view = TableView::copy(py, &self.0)?;
        super::view::pyarrow(py)?.call_method1("table", (view,))
    }

    /// Return a view of the table for readers on the host, as ``pyarrow.table``, without a copy. Waits.
    ///
    /// Raises
    /// ------
    /// InteropError
    ///     The table is in device memory, which ``to_arrow()`` copies, or is not valid Arrow data.
    fn host_view(&self, py: Python<'_>) -> PyResult<TableView> {
        TableView::new(py, &self.0)
    }

    /// Refuses conversion: numpy would create one element from the whole table.
    #[pyo3(signature = (*_args, **_kwargs))]
    fn __array__(&self, _args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(
            "a table does not convert to numpy implicitly; convert its columns, as \
             table[\"name\"].values().to_numpy(), or call to_arrow().to_pandas()",
        ))
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = key.py();
        if let Ok(slice) = key.cast::<PySlice>() {
            let parts = slice.indices(self.0.num_rows() as isize)?;
            if parts.step != 1 {
                return Err(PyValueError::new_err(format!(
                    "the slice of a table must have step 1, not {}",
                    parts.step
                )));
            }
            let rows = self.0.slice(parts.start.unsigned_abs(), parts.slicelength)?;
            return Ok(Py::new(py, Self::new(rows))?.into_any());
        }
        if key.is_instance_of::<PyList>() || key.is_instance_of::<PyTuple>() {
            return Ok(Py::new(py, self.select(key)?)?.into_any());
        }
        let wanted = "a str, a list of them, or a slice of rows (table.columns is by position)";
        let name = argument::given(key, "the index of a table", wanted)?;
        Ok(Py::new(py, Column::new(self.0.column(name).map_err(missing)?.clone()))?.into_any())
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<&str>().is_ok_and(|name| self.0.names().any(|own| own == name))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.column_names())?.try_iter()
    }

    /// Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        give(py, self.0.schema().export()?)
    }

    /// Arrow PyCapsule interface, for a table of one batch; as for ``Column``.
    #[pyo3(signature = (requested_schema=None, *, wait=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::wait)] wait: Option<bool>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        device_array(py, single(&self.0)?, requested_schema, wait, kwargs)
    }

    /// Arrow PyCapsule interface: the batches as device arrays.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        device_stream(py, self.0.schema(), self.0.batches().to_vec(), requested_schema, kwargs)
    }

    /// Pickles the table with its values; the reader restores it on its current queue.
    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: i32) -> PyResult<pickle::Reduced<'py>> {
        pickle::reduce_table(py, &self.0, protocol)
    }

    /// Bytes of the object and of its elements in any memory, as dask requests.
    fn __sizeof__(&self) -> usize {
        size_of::<Self>() + self.nbytes()
    }

    // Tables are immutable, so a copy is the table itself.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// The first rows, for notebooks.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        Ok(detach(py, || self.0.to_html())?)
    }

    fn __repr__(&self) -> String {
        let column =
            |field: &std::sync::Arc<arrow::Field>| format!("{}: {}", field.name(), field.type_name());
        let columns: Vec<_> = self.0.schema().children().iter().map(column).collect();
        format!("<usmq.Table of {} rows: {}>", self.0.num_rows(), columns.join(", "))
    }
}

/// Raises KeyError for a missing column.
fn missing(error: Error) -> PyErr {
    match error {
        Error::Index { message: why, .. } => PyKeyError::new_err(why),
        other => other.into(),
    }
}
