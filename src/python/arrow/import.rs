//! `from_arrow`, and the numbers of Arrow objects.

use super::capsule::{pair, take};
use crate::UsmKind;
use crate::interop::arrow::{
    self, ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ColumnOrTable,
    ForeignStruct, ImportOptions,
};
use crate::python::classes::{Array, Column, Table};
use crate::python::gil::detach;
use crate::python::{argument, scope, target};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Import a table or column from any library that supports the Arrow PyCapsule interface.
///
/// Parameters
/// ----------
/// obj : object
///     Anything with ``__arrow_c_device_stream__``, ``__arrow_c_device_array__``, ``__arrow_c_stream__`` or
///     ``__arrow_c_array__`` (pyarrow, nanoarrow, polars), or a usmq.Array. usmq calls the first of these
///     methods that exists, and raises its error: it tries no other method.
/// columns : sequence of str, optional
///     Only these columns of a table, in this order.
/// usm_type : {"device", "shared", "host"}, optional
///     The USM kind; by default ``"device"`` for host data, the existing kind for device data.
/// queue : str, Device, Queue, optional
///     The target queue; by default the current queue for host data, a queue that can use the memory in place
///     for device data.
/// device : str, Device, Queue, optional
///     Another name of ``queue``, as in the Python array API standard.
///
/// Returns
/// -------
/// Table or Column
///     A table for a record batch, and for top-level structs without nulls; else a column. Data of type
///     ARROW_DEVICE_ONEAPI is used in place, and the queue waits for its event; host data is copied without a
///     wait.
///
/// Raises
/// ------
/// InteropError
///     The object breaks its protocol, or is on a device that usmq cannot reach.
/// KeyError
///     No column has that name.
///
/// Examples
/// --------
/// >>> import pyarrow as pa, usmq
/// >>> table = usmq.from_arrow(pa.table({"x": [1, 2, 3], "name": ["a", None, "c"]}))
/// >>> table["x"].values().to_numpy().tolist(), table["name"].null_count
/// ([1, 2, 3], 1)
#[pyfunction]
#[pyo3(signature = (obj, *, columns=None, usm_type=None, queue=None, device=None))]
pub(in crate::python) fn from_arrow(
    py: Python<'_>,
    obj: &Bound<'_, PyAny>,
    columns: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: Option<&str>,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let columns = columns.map(|columns| argument::given(columns, "columns", NAMES)).transpose()?;
    let kind = usm_type.map(str::parse::<UsmKind>).transpose()?;
    let queue = target::place(py, queue, device)?;
    // The Rust crate does not know the scope of this Python context.
    let current = scope::current(py)?;
    match imported(obj, ImportTarget { current, queue, kind, columns })? {
        ColumnOrTable::Table(table) => Ok(Py::new(py, Table::new(table))?.into_any()),
        ColumnOrTable::Column(column) => Ok(Py::new(py, Column::new(column))?.into_any()),
    }
}

/// The methods of the Arrow PyCapsule interface that return data, the preferred one first.
pub(in crate::python) const METHODS: [&str; 4] =
    ["__arrow_c_device_stream__", "__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_array__"];

/// The names of columns, for an error.
pub(super) const NAMES: &str = "a sequence of str, as [\"x\", \"y\"]";

/// The target of an import, and the current queue during the import.
pub(super) struct ImportTarget {
    pub(super) current: crate::Queue,
    pub(super) queue: Option<crate::Queue>,
    pub(super) kind: Option<UsmKind>,
    pub(super) columns: Option<Vec<String>>,
}

impl ImportTarget {
    /// Runs an import without Python's lock.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        import: impl FnOnce(ImportOptions<'_>) -> crate::Result<T> + Send,
    ) -> PyResult<T> {
        let columns = self.columns.as_deref();
        let placed = ImportOptions { queue: self.queue.as_ref(), kind: self.kind, columns };
        detach(py, || crate::with_queue(&self.current, || import(placed))).map_err(|error| match error {
            crate::Error::Index { message: why, .. } => PyKeyError::new_err(why),
            other => other.into(),
        })
    }
}

pub(super) fn imported(obj: &Bound<'_, PyAny>, target: ImportTarget) -> PyResult<ColumnOrTable> {
    let py = obj.py();
    // usmq's own objects bypass the Arrow structs, which cannot name every device.
    let own = if let Ok(array) = obj.cast::<Array>() {
        Some(ColumnOrTable::Column(arrow::Column::from_array("", &array.get().array)?))
    } else if let Ok(table) = obj.cast::<Table>() {
        Some(ColumnOrTable::Table(arrow::Table::clone(&table.get().0)))
    } else {
        obj.cast::<Column>().ok().map(|column| ColumnOrTable::Column(arrow::Column::clone(&column.get().0)))
    };
    if let Some(own) = own {
        return target.run(py, |placed| own.to(placed));
    }
    let [device_stream, device_array, stream, array] = METHODS;
    if obj.hasattr(device_stream)? {
        let stream = take::<ArrowDeviceArrayStream>(&obj.call_method0(device_stream)?)?;
        target.run(py, |placed| ColumnOrTable::from_device_stream(stream, placed))
    } else if obj.hasattr(device_array)? {
        let array = device_pair(obj, device_array)?;
        target.run(py, |placed| {
            arrow::Column::import_device(array, placed).and_then(ColumnOrTable::from_column)
        })
    } else if obj.hasattr(stream)? {
        let stream = take::<ArrowArrayStream>(&obj.call_method0(stream)?)?;
        target.run(py, |placed| ColumnOrTable::from_stream(stream, placed))
    } else if obj.hasattr(array)? {
        let array = pair::<ArrowArray>(obj, array)?;
        target.run(py, |placed| arrow::Column::import(array, placed).and_then(ColumnOrTable::from_column))
    } else {
        Err(PyTypeError::new_err(format!(
            "expected an object of the Arrow PyCapsule interface ({device_stream}, {device_array}, {stream} or {array}) \
             or a usmq.Array, not {}",
            obj.get_type().name()?
        )))
    }
}

/// The schema and the device array of an object. pyarrow crashes when it exports an array in device memory whose nulls are
/// not counted, as of a slice, so usmq has counted them before.
fn device_pair(obj: &Bound<'_, PyAny>, method: &str) -> PyResult<ForeignStruct<ArrowDeviceArray>> {
    let is_of_pyarrow = obj.get_type().module().is_ok_and(|name| name == "pyarrow.lib");
    if is_of_pyarrow && !obj.getattr("is_cpu")?.is_truthy()? {
        obj.py().import("usmq.pyarrow")?.call_method1("_count_nulls", (obj,))?;
    }
    pair(obj, method)
}

/// An Arrow object with one array, or a stream of one, as a column in place; other objects as by [`imported`].
fn imported_in_place(obj: &Bound<'_, PyAny>, target: ImportTarget) -> PyResult<ColumnOrTable> {
    let py = obj.py();
    let is_own =
        obj.is_instance_of::<Array>() || obj.is_instance_of::<Column>() || obj.is_instance_of::<Table>();
    let [device_stream, device_array, stream, array] = METHODS;
    if is_own || target.kind.is_some() {
        return imported(obj, target);
    }
    let import = if obj.hasattr(device_stream)? {
        let stream = take::<ArrowDeviceArrayStream>(&obj.call_method0(device_stream)?)?;
        target.run(py, |placed| arrow::Column::import_device_stream_in_place(stream, placed.queue))
    } else if obj.hasattr(device_array)? {
        let array = device_pair(obj, device_array)?;
        target.run(py, |placed| arrow::Column::import_device_in_place(array, placed.queue))
    } else if obj.hasattr(stream)? {
        let stream = take::<ArrowArrayStream>(&obj.call_method0(stream)?)?;
        target.run(py, |placed| arrow::Column::import_stream_in_place(stream, placed.queue))
    } else {
        let array = pair::<ArrowArray>(obj, array)?;
        target.run(py, |placed| arrow::Column::import_in_place(array, placed.queue))
    };
    let column = import?;
    Ok(detach(py, || ColumnOrTable::from_column(column))?)
}

/// The numbers of an Arrow object without nulls, and whether they are a copy. Copies are writable, memory of another
/// library is read-only.
pub(in crate::python) fn numbers(
    obj: &Bound<'_, PyAny>,
    wanted: (Option<&crate::Queue>, Option<UsmKind>),
    in_place: bool,
) -> PyResult<(crate::Array, bool)> {
    let py = obj.py();
    let (queue, kind) = wanted;
    let target = ImportTarget { current: scope::current(py)?, queue: queue.cloned(), kind, columns: None };
    let column = if in_place { imported_in_place(obj, target) } else { imported(obj, target) }?;
    let ColumnOrTable::Column(column) = column else {
        return Err(PyTypeError::new_err(
            "a table is not an array; import it with from_arrow(), and use values() of its columns",
        ));
    };
    if !column.is_numeric() {
        let fix = if column.field().format() == "b" {
            ", but bits: pass x.to_numpy(), which has a byte for each boolean, or import it with from_arrow(), whose values() \
             are the bits"
        } else {
            "; import it with from_arrow(), and pass its values() to kernels"
        };
        return Err(PyTypeError::new_err(format!("{column} does not hold plain numbers of a dtype{fix}")));
    }
    if detach(py, || column.null_count())? > 0 {
        return Err(PyValueError::new_err(format!(
            "{column} has nulls, which an array cannot hold; from_arrow() keeps them as a bitmap"
        )));
    }
    let values = detach(py, || column.values())?;
    // Without elements nothing is copied.
    let is_new = column.is_copy() && !(in_place && values.size() == 0);
    let copied = !obj.is_instance_of::<Column>() && is_new;
    Ok((if copied { values.as_writable() } else { values }, copied))
}
