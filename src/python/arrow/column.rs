//! `usmq.Column`.

use super::capsule::give;
use super::export::{device_array, device_stream};
use super::view::ColumnView;
use crate::interop::arrow;
use crate::python::argument;
use crate::python::classes::{Array, Column, Device, Field, Queue};
use crate::python::gil::detach;
use crate::python::{pickle, protocol, target};
use crate::{MemoryKind, UsmKind};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PySlice, PyTuple};

#[pymethods]
impl Column {
    #[new]
    #[pyo3(signature = (values, *, validity=None, offsets=None, r#type=None, name=""))]
    fn of(
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        validity: Option<&Bound<'_, PyAny>>,
        offsets: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::r#type)] r#type: Option<&str>,
        #[pyo3(from_py_with = argument::name)] name: &str,
    ) -> PyResult<Self> {
        let part = |object: &Bound<'_, PyAny>, name: &str| {
            protocol::usm(object)?
                .ok_or_else(|| argument::wrong_type(object, name, "an array in USM or None"))
        };
        let validity = validity.map(|object| part(object, "validity")).transpose()?;
        let offsets = offsets.map(|object| part(object, "offsets")).transpose()?;
        let Ok(items) = values.cast::<Self>() else {
            let wanted = "an array in USM or a usmq.Column";
            let values =
                protocol::usm(values)?.ok_or_else(|| argument::wrong_type(values, "values", wanted))?;
            let column = detach(py, || {
                arrow::Column::from_parts(name, &values, validity.as_ref(), offsets.as_ref(), r#type)
            })?;
            return Ok(Self::new(column));
        };
        if r#type.is_some() {
            return Err(PyTypeError::new_err("type is that of the column; leave it out"));
        }
        let items = arrow::Column::clone(&items.get().0);
        let column = detach(py, || -> crate::Result<_> {
            let column = match &offsets {
                Some(offsets) => items.listed(name, offsets)?,
                None => items.named(name),
            };
            validity.map_or(Ok(column.clone()), |validity| column.with_validity(&validity))
        })?;
        Ok(Self::new(column))
    }

    /// The name; may be empty.
    #[getter]
    fn name(&self) -> &str {
        self.0.field().name()
    }

    /// The Arrow format string, as ``"g"`` for float64.
    #[getter]
    fn format(&self) -> &str {
        self.0.field().format()
    }

    /// The name of the Arrow type, as ``"double"``, ``"timestamp[us, tz=UTC]"`` or ``"list<item: int32>"``.
    #[getter]
    fn r#type(&self) -> String {
        self.0.field().type_name()
    }

    /// The type, name and metadata.
    #[getter]
    fn field(&self) -> Field {
        Field(self.0.field().clone())
    }

    /// Number of nulls; waits for the data if the producer did not count them.
    #[getter]
    fn null_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(detach(py, || self.0.null_count())?)
    }

    /// Bytes of all buffers with a known size; a slice counts its complete buffers.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    /// Position of the first value's bit in ``validity()``, and in ``values()`` of booleans.
    #[getter]
    fn bit_offset(&self) -> usize {
        self.0.bit_offset()
    }

    /// The queue that runs the column's work. Kernels follow it.
    #[getter]
    fn queue(&self) -> Queue {
        Queue(self.0.queue().clone())
    }

    /// The queue's device.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.queue().device().clone())
    }

    /// The USM kind; None without memory.
    #[getter]
    fn usm_type(&self) -> Option<&'static str> {
        self.0.memory_kind().map(MemoryKind::name)
    }

    /// The columns that this one nests.
    #[getter]
    fn children(&self) -> Vec<Self> {
        self.0.children().into_iter().map(Self::new).collect()
    }

    /// The values of the dictionary that this column indexes; None without a dictionary.
    #[getter]
    fn dictionary(&self) -> Option<Self> {
        self.0.dictionary().cloned().map(Self::new)
    }

    /// Return the values as an array for kernels; not for nested columns, whose children hold the values.
    ///
    /// Numbers; times and decimals as integers, wide ones with a second axis for their parts; booleans as a
    /// bitmap from ``bit_offset``; text as its bytes; a dictionary's indices. No copy; the values of nulls
    /// are undefined.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     The column is nested or run-end encoded.
    fn values(&self, py: Python<'_>) -> PyResult<Array> {
        Ok(Array::new(detach(py, || self.0.values())?))
    }

    /// Return the values where a mask is true and not null, selected by kernels; waits for their number only.
    ///
    /// Parameters
    /// ----------
    /// mask : Array or Column
    ///     Of bool, with one element per value, on the column's queue.
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

    /// Return the validity bitmap, least significant bit first, from ``bit_offset``; None without nulls.
    fn validity(&self, py: Python<'_>) -> PyResult<Option<Array>> {
        Ok(detach(py, || self.0.validity())?.map(Array::new))
    }

    /// Return the offsets of texts or lists: the start of each, then the end of the last one.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     Columns of this type have no offsets.
    fn offsets(&self, py: Python<'_>) -> PyResult<Array> {
        Ok(Array::new(detach(py, || self.0.offsets())?))
    }

    /// Return the number of values of each list view.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     The column does not hold list views.
    fn sizes(&self, py: Python<'_>) -> PyResult<Array> {
        Ok(Array::new(detach(py, || self.0.sizes())?))
    }

    /// Return the type id of each value of a union, which selects its child.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     The column is not a union.
    fn type_ids(&self, py: Python<'_>) -> PyResult<Array> {
        Ok(Array::new(detach(py, || self.0.type_ids())?))
    }

    /// Return the column on another queue or in memory of another kind; copies only buffers that the queue
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

    /// Block until no command submitted so far uses the column.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        Ok(detach(py, || self.0.wait())?)
    }

    /// Return the column as a pyarrow array on the host; needs pyarrow. Waits.
    ///
    /// The array shares the numbers and booleans of host and shared USM and shows later writes to them; device memory is
    /// copied, and so are offsets, texts, bitmaps and indices that another array can write to. The data is validated
    /// first, unless it is known to be valid.
    ///
    /// Raises
    /// ------
    /// InteropError
    ///     The data is not valid Arrow data, as text that is not UTF-8.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let view = ColumnView::copy(py, &self.0)?;
        super::view::pyarrow(py)?.call_method1("array", (view,))
    }

    /// Return the values as a new numpy array: numbers, booleans, dates as ``datetime64``, timestamps and durations
    /// without their time zone. Waits.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     Values are null, which numpy cannot hold. ``to_arrow().to_numpy(zero_copy_only=False)`` gives NaN for them, or
    ///     None, and ``values().to_numpy()`` the numbers that are stored there.
    /// TypeError
    ///     The values are of another type, as texts: use ``to_arrow()``.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        super::to_numpy::copy(py, &self.0)
    }

    /// Return a view of the column for readers on the host, as ``pyarrow.array``, without a copy. Waits.
    ///
    /// Offsets, texts, bitmaps and indices that another array can write to are copied: the view keeps their values.
    ///
    /// Raises
    /// ------
    /// InteropError
    ///     The column is in device memory, which ``to_arrow()`` copies, or is not valid Arrow data.
    fn host_view(&self, py: Python<'_>) -> PyResult<ColumnView> {
        ColumnView::new(py, &self.0)
    }

    /// Refuses conversion: numpy would create one element from the whole column.
    #[pyo3(signature = (*_args, **_kwargs))]
    fn __array__(&self, _args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(
            "a column does not convert to numpy implicitly; call to_arrow().to_numpy(zero_copy_only=False) \
             for its values with nulls, or values().to_numpy() for its raw numbers",
        ))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let slice = key.cast::<PySlice>().map_err(|_| {
            PyTypeError::new_err(
                "index a column with a slice, as in column[2:5]; values() returns its numbers",
            )
        })?;
        let parts = slice.indices(self.0.len() as isize)?;
        if parts.step != 1 {
            return Err(PyValueError::new_err(format!(
                "the slice of a column must have step 1, not {}",
                parts.step
            )));
        }
        Ok(Self::new(self.0.slice(parts.start.unsigned_abs(), parts.slicelength)?))
    }

    /// Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        give(py, self.0.export_schema()?)
    }

    /// Arrow PyCapsule interface: an array of type ARROW_DEVICE_ONEAPI with an event, or, for ``wait=True``,
    /// after a wait and without one. ``requested_schema`` does not convert the data; an incompatible one
    /// raises InteropError.
    #[pyo3(signature = (requested_schema=None, *, wait=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::wait)] wait: Option<bool>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        device_array(py, &self.0, requested_schema, wait, kwargs)
    }

    /// Arrow PyCapsule interface: a stream of one device array.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let batches = vec![arrow::Column::clone(&self.0)];
        device_stream(py, self.0.field(), batches, requested_schema, kwargs)
    }

    /// Pickles the column with its values; the reader restores it on its current queue.
    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: i32) -> PyResult<pickle::Reduced<'py>> {
        pickle::reduce_column(py, &self.0, protocol)
    }

    /// Bytes of the object and of its elements in any memory, as dask requests.
    fn __sizeof__(&self) -> usize {
        size_of::<Self>() + self.0.nbytes()
    }

    // Columns are immutable, so a copy is the column itself.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Column {:?} {}[{}]>", self.name(), self.r#type(), self.0.len())
    }
}

/// A mask as the caller gave it.
pub(super) enum Mask {
    Column(arrow::Column),
    Array(crate::Array),
}

impl Mask {
    pub(super) fn given(mask: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(column) = mask.cast::<Column>() {
            return Ok(Self::Column(column.get().0.clone()));
        }
        let wanted = "an array in USM or a usmq.Column, of bool";
        Ok(Self::Array(protocol::usm(mask)?.ok_or_else(|| argument::wrong_type(mask, "mask", wanted))?))
    }

    /// The column of booleans; of an array, packed by a kernel.
    pub(super) fn column(self) -> crate::Result<arrow::Column> {
        match self {
            Self::Column(column) => Ok(column),
            Self::Array(array) => arrow::Column::from_parts("mask", &array, None, None, None),
        }
    }
}
