//! The classes of arrays, devices, queues and columns. Their methods are in the files of the same names, so that
//! conversions and protocols can use the classes.

use super::gil::Quiet;
use crate::interop::arrow;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::Arc;

/// An n-dimensional array in unified shared memory (USM), with the queue that runs its work.
///
/// Create arrays with ``empty``, ``zeros``, ``full``, ``arange`` and ``asarray``. Views share the memory.
/// usmq frees it after the last view is dropped and the last command that uses it is complete. usmq orders
/// commands on one array across queues and threads: each read runs after the writes submitted before it,
/// without a wait on the host.
///
/// Indexing is numpy's basic indexing and returns views: ``x[0]``, ``x[1:, ::2]``, ``x[..., None]``.
/// ``x[...] = value`` takes a number, an array or a host object. ``len(x)`` is the first extent; ``for row in x``
/// yields views. ``print(x)`` shows the elements as numpy does.
///
/// Arrays support neither arithmetic nor ``value in x`` nor ``==``, ``<`` and so on, which raise TypeError: compare
/// with dpnp, or ``x.to_numpy()`` on the host. An array as a key of a dict is the object, not its elements.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> x = usmq.asarray([[1.0, 2.0], [3.0, 4.0]])
/// >>> x.shape, str(x.dtype)
/// ((2, 2), 'float64')
/// >>> x.T[0].to_numpy().tolist()
/// [1.0, 3.0]
#[pyclass(module = "usmq", frozen, weakref)]
pub(super) struct Array {
    pub(super) array: Quiet<crate::Array>,
    /// The view of this array that dpnp uses. It holds a `suai::Lent`, not this object: no cycle.
    pub(super) usm_ndarray: PyOnceLock<Py<PyAny>>,
}

impl Array {
    pub(super) fn new(array: crate::Array) -> Self {
        Self { array: Quiet::new(array), usm_ndarray: PyOnceLock::new() }
    }
}

/// A SYCL device: a root device of a platform, or a sub-device.
///
/// Parameters
/// ----------
/// filter : str, Queue or Device, optional
///     A SYCL filter string, as ``"gpu"``, ``"opencl:cpu"`` or ``"gpu:1"``; SYCL's default device when omitted.
///
/// Raises
/// ------
/// SelectorError
///     ``filter`` is not a filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists the visible ones.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.Device("cpu").device_type
/// 'cpu'
#[pyclass(module = "usmq", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Device(pub(super) crate::Device);

/// A SYCL queue. The same arguments return the same queue.
///
/// Parameters
/// ----------
/// target : str, Device, Queue or another library's queue, optional
///     The device that runs commands; by default SYCL's default device. Another library's queue is wrapped:
///     commands of both libraries share its order.
/// context : Context, optional
///     The context; by default the platform's default context, which other SYCL libraries use too, or a sub-device's
///     own.
/// in_order : bool, optional
///     Whether commands run in the order of their submission; by default as in a given queue, else True. On the
///     OpenCL driver for CPUs they do so otherwise, too (see :func:`layers`).
/// profiling : bool, optional
///     Whether events carry device timestamps; by default as in a given queue, else False.
/// priority : str, optional
///     ``"high"``, ``"normal"`` or ``"low"``: a hint for the scheduler of the device, which may ignore it; by
///     default as in a given queue, else ``"normal"``.
///
/// Raises
/// ------
/// SelectorError
///     ``target`` is not a filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists the visible ones.
/// SyclError
///     The device does not belong to the context.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.Queue("cpu") == usmq.Queue("cpu")
/// True
#[pyclass(module = "usmq", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Queue(pub(super) crate::Queue);

/// A SYCL context: a set of devices that share USM addresses.
///
/// The default context of a platform lives as long as the process. A context created here is freed with the
/// last queue, array or event that uses it, together with the memory and kernels that usmq caches for it.
///
/// Parameters
/// ----------
/// devices : list of Device
///     Devices of one platform. Create a context for sub-devices that share memory; root devices already
///     share the default context of their platform.
///
/// Raises
/// ------
/// ValueError
///     The list is empty.
/// SyclError
///     The devices belong to different platforms.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.Device("cpu") in usmq.Queue("cpu").context.devices
/// True
#[pyclass(module = "usmq", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Context(pub(super) crate::Context);

/// A submitted command and its result. Dropping an event neither waits nor cancels.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> kernel = usmq.Kernel.from_opencl("kernel void nothing() {}", "nothing", queue="opencl:cpu")
/// >>> event = kernel(1, queue="opencl:cpu")
/// >>> event.wait()
/// >>> event.done()
/// True
#[pyclass(module = "usmq", frozen)]
pub(super) struct Event(pub(super) crate::Event);

/// An Arrow array in unified shared memory, from ``from_arrow``, a table, or arrays that a kernel has written.
///
/// Parameters
/// ----------
/// values : Array or Column
///     The values, which the column shares; do not write to them afterwards. ``bool`` arrays become bitmaps by a copy;
///     more axes make fixed-size lists. With ``offsets``, the bytes of texts, or the items of lists.
/// validity : Array, optional
///     Where values are not null: ``bool`` with one element per value, or a bitmap of ``uint8``, in which bit ``i``, from
///     the least significant one of each byte, is value ``i``; the bitmap of a slice starts at its ``bit_offset``, so
///     it fits only where that is 0. Without it, no value is null.
/// offsets : Array, optional
///     The start of each text or list, then the end of the last one: ``int32``, or ``int64`` for the large types.
/// type : str, optional
///     The Arrow type of the values, as ``"string"`` with offsets, ``"timestamp[us, tz=UTC]"`` for ``int64``; by default
///     that of the array, and lists of it with offsets.
/// name : str
///     The name of the column.
///
/// Raises
/// ------
/// TypeError
///     An array has the wrong dtype, or the type is not known.
/// ValueError
///     An array has the wrong length or number of axes.
/// PlacementError
///     The arrays are on different queues; ``collocate`` fixes that.
/// InteropError
///     An array is strided, or Arrow lacks its element type.
///
/// Notes
/// -----
/// usmq never writes to a column.
///
/// ``values()``, ``validity()`` and ``offsets()`` are zero-copy arrays for kernels. Other libraries import a
/// column through ``__arrow_c_device_array__`` (ARROW_DEVICE_ONEAPI); on the host, use ``to_arrow()`` or
/// ``host_view()``.
///
/// ``column[2:5]`` is a slice without a copy; the step must be 1. ``len(column)`` is the number of values.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.from_arrow(usmq.arange(4)).values().to_numpy().tolist()
/// [0, 1, 2, 3]
/// >>> column = usmq.Column(usmq.arange(3), validity=usmq.asarray([True, False, True]))
/// >>> column, column.null_count
/// (<usmq.Column "" int64[3]>, 1)
#[pyclass(module = "usmq", frozen)]
pub(super) struct Column(pub(super) Quiet<arrow::Column>);

impl Column {
    pub(super) fn new(column: arrow::Column) -> Self {
        Self(Quiet::new(column))
    }
}

/// The type, name and metadata of an Arrow column; of a table a struct of its columns.
///
/// ``pyarrow.field(x)``, or ``pyarrow.schema(x)`` for a table's, accepts it.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.Table({"x": usmq.zeros(3)}).schema.children[0].type
/// 'float'
#[pyclass(module = "usmq", frozen, eq)]
#[derive(PartialEq)]
pub(super) struct Field(pub(super) Arc<arrow::Field>);

impl Field {
    pub(super) fn new(field: arrow::Field) -> Self {
        Self(Arc::new(field))
    }
}

/// Named columns of equal length in unified shared memory, from ``from_arrow`` or from arrays.
///
/// ``table["x"]`` returns the column of that name or raises KeyError; ``table[["x", "y"]]`` a table of these columns, and
/// ``table[10:20]`` one of these rows, both without a copy. ``len(table)`` is the number of rows.
/// ``for name in table`` and ``"x" in table`` use the names.
///
/// Parameters
/// ----------
/// columns : dict of str to Array or Column
///     All of one length and on one queue. Arrays share their memory with the table; do not write to them.
///
/// Raises
/// ------
/// ValueError
///     No columns are given, or they have different lengths.
/// PlacementError
///     The columns are on different queues.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> table = usmq.Table({"x": usmq.arange(4), "y": usmq.zeros(4)})
/// >>> table.column_names, table.num_rows
/// (['x', 'y'], 4)
#[pyclass(module = "usmq", frozen)]
pub(super) struct Table(pub(super) Quiet<arrow::Table>);

impl Table {
    pub(super) fn new(table: arrow::Table) -> Self {
        Self(Quiet::new(table))
    }
}
