//! Pickles: a description of the object, and its bytes as out-of-band buffers of protocol 5.
//!
//! Objects that hold memory are restored on the current queue of the reader.

use super::buffer::{ForeignBuffer, has_buffer};
use super::classes::{Array, Column, Field, Queue, Table};
use super::{argument, index, scope};
use crate::interop::arrow::{self, Packed};
use crate::python::gil::detach;
use crate::trace::{Reason, with_reason};
use crate::{DType, Error, HostMemory, MemoryKind, UsmKind};
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::any::Any;
use std::sync::Arc;

/// The format version of arrays and queues; columns have their own.
const FORMAT: u32 = 1;

/// The first protocol with out-of-band buffers.
const WITH_BUFFERS: i32 = 5;

/// A function and its arguments.
pub(super) type Reduced<'py> = (Bound<'py, PyAny>, Bound<'py, PyTuple>);

/// A call of usmq's restore with the name of a function or type of this module, and its arguments.
pub(super) fn reduced<'py, A>(py: Python<'py>, function: &str, args: A) -> PyResult<Reduced<'py>>
where
    A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>>,
    A::Error: Into<PyErr>,
{
    let args = args.into_pyobject(py).map_err(Into::into)?;
    let name = PyString::new(py, function).into_any();
    let args = PyTuple::new(py, std::iter::once(name).chain(args.iter()).collect::<Vec<_>>())?;
    Ok((py.import("usmq._restore")?.getattr("restore")?, args))
}

/// The observer of copies between host and device that pickles make.
static OBSERVER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Call ``observer(direction, bytes)`` for each copy that a pickle makes: ``"device-to-host"`` when it is
/// written, ``"host-to-device"`` when it is read. None removes the observer.
#[pyfunction]
pub(super) fn observe_pickles(observer: Option<Py<PyAny>>) {
    // Drop it after the lock is released: it may run Python code.
    let _before = std::mem::replace(&mut *OBSERVER.lock(), observer);
}

fn tell(py: Python<'_>, direction: &str, bytes: usize) {
    let observer = OBSERVER.lock().as_ref().map(|observer| observer.clone_ref(py));
    if let Some(observer) = observer
        && let Err(error) = observer.call1(py, (direction, bytes))
    {
        // An observer's exception must not stop the pickle.
        error.write_unraisable(py, Some(observer.bind(py)));
    }
}

fn tell_made(py: Python<'_>, kind: Option<UsmKind>, bytes: usize) {
    if kind == Some(UsmKind::Device) && bytes > 0 {
        tell(py, "device-to-host", bytes);
    }
}

fn tell_read(py: Python<'_>, kind: Option<UsmKind>, bytes: usize) {
    if kind == Some(UsmKind::Device) && bytes > 0 {
        tell(py, "host-to-device", bytes);
    }
}

pub(super) fn reduce_array<'py>(
    py: Python<'py>,
    array: &crate::Array,
    protocol: i32,
) -> PyResult<Reduced<'py>> {
    let shape = PyTuple::new(py, array.shape())?;
    // System memory belongs to this process; its copy is like that of any host data.
    let kind = array.usm_kind().unwrap_or(UsmKind::Device).name();
    let _why = with_reason(Reason::Pickle);
    let about = (FORMAT, array.dtype().name(), shape, kind, array.is_readonly());
    let (format, dtype, shape, kind, readonly) = about;
    tell_made(py, array.usm_kind(), array.nbytes());
    reduced(py, "restore_array", (format, dtype, shape, kind, readonly, frame(py, array, protocol)?))
}

pub(super) fn reduce_column<'py>(
    py: Python<'py>,
    column: &arrow::Column,
    protocol: i32,
) -> PyResult<Reduced<'py>> {
    let _why = with_reason(Reason::Pickle);
    let packed = detach(py, || column.pack())?;
    tell_made(py, column.usm_kind(), packed_bytes(&packed));
    reduced(py, "restore_column", packed_args(py, &packed, protocol)?)
}

pub(super) fn reduce_table<'py>(
    py: Python<'py>,
    table: &arrow::Table,
    protocol: i32,
) -> PyResult<Reduced<'py>> {
    let _why = with_reason(Reason::Pickle);
    let packed = detach(py, || table.pack())?;
    tell_made(py, table.batches().iter().find_map(arrow::Column::usm_kind), packed_bytes(&packed));
    reduced(py, "restore_table", packed_args(py, &packed, protocol)?)
}

pub(super) fn reduce_field<'py>(py: Python<'py>, field: &arrow::Field) -> PyResult<Reduced<'py>> {
    reduced(py, "restore_field", (PyBytes::new(py, &field.to_bytes()),))
}

/// The filter string of a device; an error for a sub-device, which has none.
pub(super) fn filter(device: &crate::Device) -> PyResult<&str> {
    device.filter_string().ok_or_else(|| {
        PyTypeError::new_err(format!(
            "cannot pickle {device}: no filter string names a sub-device; pickle its parent and partition \
             that again"
        ))
    })
}

pub(super) fn reduce_queue<'py>(py: Python<'py>, queue: &crate::Queue) -> PyResult<Reduced<'py>> {
    let filter = filter(queue.device())?;
    if *queue.context() != queue.device().default_context()? {
        return Err(PyTypeError::new_err(format!(
            "cannot pickle {queue}: its context is not the default context of its platform and does not \
             exist in another process"
        )));
    }
    reduced(
        py,
        "restore_queue",
        (FORMAT, filter, queue.in_order(), queue.profiling(), queue.priority().name()),
    )
}

/// The elements for a pickle: host-readable memory in place, else the only copy to the host.
fn frame<'py>(py: Python<'py>, array: &crate::Array, protocol: i32) -> PyResult<Bound<'py, PyAny>> {
    if array.size() == 0 {
        return Ok(PyBytes::new(py, &[]).into_any());
    }
    let host = if array.memory_kind().is_host_accessible() {
        detach(py, || array.contiguous())?
    } else if protocol >= WITH_BUFFERS && array.device().has_usm(UsmKind::Host) {
        detach(py, || array.to(None, Some(UsmKind::Host), None))?
    } else {
        array.clone()
    };
    if protocol < WITH_BUFFERS || !host.memory_kind().is_host_accessible() {
        let fill = |bytes: &mut [u8]| {
            let (target, length) = (bytes.as_mut_ptr() as usize, bytes.len());
            Ok(detach(py, || host.read_into(target as *mut u8, length, None))?)
        };
        return Ok(PyBytes::new_with(py, host.nbytes(), fill)?.into_any());
    }
    // Readers copy it anyway; for a writable buffer, some would make another writable copy.
    let bytes = Bound::new(py, Array::new(host.as_bytes()?.as_readonly()))?;
    py.import("pickle")?.getattr("PickleBuffer")?.call1((bytes,))
}

/// Copy an array's elements, in C order, to a writable buffer of the same size: a frame in memory that another
/// process maps.
#[pyfunction]
pub(super) fn fill_frame(
    py: Python<'_>,
    array: &Bound<'_, Array>,
    target: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let array = &array.get().array;
    let frame = ForeignBuffer::writable(target)?;
    if frame.bytes() != array.nbytes() {
        return Err(PyValueError::new_err(format!(
            "a contiguous buffer of {} bytes is needed, not one of {}",
            array.nbytes(),
            frame.bytes()
        )));
    }
    let (address, bytes) = (frame.address(), frame.bytes());
    let _why = with_reason(Reason::SharedMemory);
    detach(py, || array.read_into(address as *mut u8, bytes, None))?;
    tell_made(py, array.usm_kind(), bytes);
    Ok(())
}

/// The description, the USM kind, and the buffers of a column or table, for `fill_frame`; device memory stays in
/// place.
#[pyfunction]
pub(super) fn pack_in_place<'py>(
    py: Python<'py>,
    object: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, Option<&'static str>, Vec<Array>)> {
    let _why = with_reason(Reason::SharedMemory);
    let (packed, kind) = if let Ok(table) = object.cast::<Table>() {
        let table = &table.get().0;
        (detach(py, || table.pack_in_place())?, table.batches().iter().find_map(arrow::Column::memory_kind))
    } else {
        let column = &object.cast::<Column>()?.get().0;
        (detach(py, || column.pack_in_place())?, column.memory_kind())
    };
    let buffers = packed.buffers.into_iter().map(Array::new).collect();
    Ok((PyBytes::new(py, &packed.header), kind.map(MemoryKind::name), buffers))
}

fn packed_bytes(packed: &Packed) -> usize {
    packed.buffers.iter().map(crate::Array::nbytes).sum()
}

fn packed_args<'py>(py: Python<'py>, packed: &Packed, protocol: i32) -> PyResult<Bound<'py, PyTuple>> {
    let header = PyBytes::new(py, &packed.header).into_any();
    let frames = packed.buffers.iter().map(|buffer| frame(py, buffer, protocol));
    PyTuple::new(py, std::iter::once(Ok(header)).chain(frames).collect::<PyResult<Vec<_>>>()?)
}

fn check_format(format: u32) -> PyResult<()> {
    if format == FORMAT {
        return Ok(());
    }
    let text = format!(
        "the pickle has format {format}, and this usmq reads format {FORMAT}; use the same usmq on both sides"
    );
    Err(Error::interop(text).into())
}

/// The bytes of a frame.
fn bytes<'a>(frame: &'a ForeignBuffer<'_>) -> PyResult<&'a [u8]> {
    if frame.bytes() == 0 {
        return Ok(&[]);
    }
    frame.as_contiguous().ok_or_else(|| PyValueError::new_err("a buffer of the pickle is not contiguous"))
}

fn foreign<'py>(frame: &Bound<'py, PyAny>) -> PyResult<ForeignBuffer<'py>> {
    if !has_buffer(frame) {
        return Err(PyTypeError::new_err(format!(
            "a buffer of the pickle must support the buffer protocol, unlike {}",
            argument::class_name(frame)
        )));
    }
    ForeignBuffer::readable(frame)
}

/// Restore the array of a pickle, or of a frame that another process maps (`shared`). With usm_type ``"system"`` the
/// array is the frame itself, in place.
#[pyfunction]
#[pyo3(signature = (format, dtype, shape, usm_type, readonly, frame, *, shared = false))]
#[allow(clippy::too_many_arguments)] // the arguments are the fields of the pickle
pub(super) fn restore_array(
    py: Python<'_>,
    format: u32,
    dtype: &str,
    shape: &Bound<'_, PyAny>,
    usm_type: &str,
    readonly: bool,
    frame: &Bound<'_, PyAny>,
    shared: bool,
) -> PyResult<Array> {
    check_format(format)?;
    let (dtype, shape) = (DType::parse(dtype)?, index::extents(shape, "shape")?);
    let in_place = usm_type == MemoryKind::System.name();
    let kind = if in_place { UsmKind::Device } else { usm_type.parse()? };
    let frame = foreign(frame)?;
    let bytes = bytes(&frame)?;
    let needed = shape.iter().try_fold(dtype.itemsize(), |size, extent| size.checked_mul(*extent));
    if needed != Some(bytes.len()) {
        return Err(Error::interop(format!(
            "the pickle is broken: {dtype}{shape:?} does not have {} bytes",
            bytes.len()
        ))
        .into());
    }
    let queue = scope::current(py)?;
    if in_place {
        let found = frame.memory(dtype);
        let memory = HostMemory { shape, strides: None, readonly: readonly || found.readonly, ..found };
        let owner = frame.owner()();
        // SAFETY: a held buffer keeps its memory; the caller gives a frame that nothing else uses.
        return Ok(Array::new(detach(py, || unsafe { crate::Array::from_host(&memory, &queue, owner) })?));
    }
    let _why = with_reason(if shared { Reason::SharedMemory } else { Reason::Pickle });
    let array = detach(py, || -> crate::Result<_> {
        let array = crate::Array::uninit(shape, dtype, kind, &queue)?;
        array.copy_from_bytes(bytes)?;
        Ok(if readonly { array.as_readonly() } else { array })
    })?;
    tell_read(py, Some(kind), array.nbytes());
    Ok(Array::new(array))
}

/// Where the restored columns get their memory.
#[derive(Clone, Copy)]
enum Frames {
    /// A copy of the frames of a pickle.
    Pickle,
    /// A copy of memory that another process maps, too.
    Shared,
    /// That memory itself.
    InPlace,
}

fn frames_of(shared: bool, in_place: bool) -> Frames {
    match (shared, in_place) {
        (_, true) => Frames::InPlace,
        (true, _) => Frames::Shared,
        _ => Frames::Pickle,
    }
}

/// Calls `restore` with the frames' bytes, the current queue and, for memory used in place, its owner.
fn unpacked<T: Send>(
    frames: &Bound<'_, PyTuple>,
    how: Frames,
    restore: impl FnOnce(&[&[u8]], &crate::Queue, Option<Owners>) -> crate::Result<T> + Send,
) -> PyResult<T> {
    let py = frames.py();
    let frames = frames.iter().map(|frame| foreign(&frame)).collect::<PyResult<Vec<_>>>()?;
    let slices = frames.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
    let owners: Option<Owners> = matches!(how, Frames::InPlace)
        .then(|| Arc::new(frames.iter().map(|frame| frame.owner()()).collect::<Vec<_>>()) as Owners);
    let queue = scope::current(py)?;
    let _why = with_reason(if matches!(how, Frames::Pickle) { Reason::Pickle } else { Reason::SharedMemory });
    Ok(detach(py, || restore(&slices, &queue, owners))?)
}

/// The held buffers of a column or table.
type Owners = Arc<dyn Any + Send + Sync>;

/// Restore the column of a pickle, or of frames that another process maps (`shared`), on request in place.
#[pyfunction]
#[pyo3(signature = (header, *frames, shared = false, in_place = false))]
pub(super) fn restore_column(
    header: &[u8],
    frames: &Bound<'_, PyTuple>,
    shared: bool,
    in_place: bool,
) -> PyResult<Column> {
    let column = unpacked(frames, frames_of(shared, in_place), |frames, queue, owners| match owners {
        // SAFETY: held buffers keep their memory; the caller gives frames that nothing else writes to.
        Some(owners) => unsafe { arrow::Column::unpack_in_place(header, frames, queue, owners) },
        None => arrow::Column::unpack(header, frames, queue),
    })?;
    tell_read(frames.py(), column.usm_kind(), column.nbytes());
    Ok(Column::new(column))
}

/// Restore the table of a pickle; as `restore_column`.
#[pyfunction]
#[pyo3(signature = (header, *frames, shared = false, in_place = false))]
pub(super) fn restore_table(
    header: &[u8],
    frames: &Bound<'_, PyTuple>,
    shared: bool,
    in_place: bool,
) -> PyResult<Table> {
    let table = unpacked(frames, frames_of(shared, in_place), |frames, queue, owners| match owners {
        // SAFETY: as above.
        Some(owners) => unsafe { arrow::Table::unpack_in_place(header, frames, queue, owners) },
        None => arrow::Table::unpack(header, frames, queue),
    })?;
    let kind = table.batches().iter().find_map(arrow::Column::usm_kind);
    tell_read(frames.py(), kind, table.batches().iter().map(arrow::Column::nbytes).sum());
    Ok(Table::new(table))
}

/// Restore the field of a pickle.
#[pyfunction]
pub(super) fn restore_field(header: &[u8]) -> PyResult<Field> {
    Ok(Field::new(arrow::Field::from_bytes(header)?))
}

/// Restore the queue of a pickle: this process's queue for the same device and properties.
#[pyfunction]
pub(super) fn restore_queue(
    py: Python<'_>,
    format: u32,
    target: &str,
    in_order: bool,
    profiling: bool,
    priority: &str,
) -> PyResult<Queue> {
    check_format(format)?;
    let properties = crate::QueueProperties { in_order, profiling, priority: priority.parse()? };
    let target = crate::Target::Filter(target.to_owned());
    Ok(Queue(detach(py, || crate::Queue::new(target, None, properties))?))
}
