//! DLPack in Python, both ways; the rules are in `interop::dlpack`.
//!
//! A capsule holds a managed tensor. A consumer takes ownership of the tensor and renames the capsule to
//! `used_…`; the destructor deletes a tensor that was not consumed.

use super::capsule::{consume_capsule, queue_from};
use super::classes::Array;
use super::gil::{detach, quietly};
use super::{argument, dpctl_order, target};
use crate::array::HostMemory;
use crate::interop::cuda::{self, CudaArray};
use crate::interop::dlpack::{
    self, DLManagedTensor, DLManagedTensorVersioned, Destination, Export, ExportedTensor, ForeignTensor,
    Import, Managed, Order,
};
use crate::memory::refuse;
use crate::{Error, UsmKind};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCapsule, PyDict, PyInt};
use std::any::Any;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;

/// `kDLCPU`.
const HOST: i32 = 1;

/// `kDLOneAPI`.
const ONEAPI: i32 = 14;

/// `kDLCUDA` and `kDLCUDAManaged`; pinned host memory has no stream.
const CUDA: [i32; 2] = [2, 13];

/// A managed tensor and the names of its capsule.
trait Named: Managed {
    const NAME: &'static CStr;
    const USED: &'static CStr;
}

impl Named for DLManagedTensor {
    const NAME: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";
}

impl Named for DLManagedTensorVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";
}

/// The arguments of `__dlpack__`.
pub(super) struct Asked<'a, 'py> {
    pub(super) stream: Option<&'a Bound<'py, PyAny>>,
    pub(super) max_version: Option<(u32, u32)>,
    pub(super) dl_device: Option<(i32, i32)>,
    pub(super) copy: Option<bool>,
}

pub(super) fn export<'py>(
    py: Python<'py>,
    array: &crate::Array,
    asked: &Asked<'_, 'py>,
) -> PyResult<Bound<'py, PyCapsule>> {
    if asked.max_version.is_some_and(|version| version >= (1, 0)) {
        give::<DLManagedTensorVersioned>(py, array, asked)
    } else {
        give::<DLManagedTensor>(py, array, asked)
    }
}

fn give<'py, T: Named>(
    py: Python<'py>,
    array: &crate::Array,
    asked: &Asked<'_, 'py>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let stream = stream(asked.stream)?;
    let order = match &stream {
        Stream::Wait => Order::Wait,
        Stream::Queue(queue) => Order::Queue(queue),
        Stream::Unordered => Order::Unordered,
    };
    let destination = asked.dl_device.map(|(kind, id)| Destination { kind, id });
    let is_for_host = destination.is_some_and(|destination| destination.kind != ONEAPI);
    // Without a stream the consumer may be dpnp, which works on a queue of its own.
    let lent_on = match stream {
        Stream::Wait if !is_for_host => dpctl_order::default_queue(py, array)?,
        _ => None,
    };
    let export = Export { destination, copy: asked.copy, order, lent_on: lent_on.as_ref() };
    let tensor: ExportedTensor<T> = detach(py, || dlpack::export(array, export))?;
    capsule(py, tensor)
}

/// The capsule of an array in CUDA memory.
pub(super) fn export_cuda<'py>(
    py: Python<'py>,
    array: &CudaArray,
    stream: Option<usize>,
    max_version: Option<(u32, u32)>,
) -> PyResult<Bound<'py, PyCapsule>> {
    if max_version.is_some_and(|version| version >= (1, 0)) {
        capsule::<DLManagedTensorVersioned>(py, detach(py, || dlpack::export_cuda(array, stream))?)
    } else {
        capsule::<DLManagedTensor>(py, detach(py, || dlpack::export_cuda(array, stream))?)
    }
}

fn capsule<T: Named>(py: Python<'_>, tensor: ExportedTensor<T>) -> PyResult<Bound<'_, PyCapsule>> {
    let pointer =
        NonNull::new(tensor.into_raw().cast()).ok_or_else(|| Error::interop("no DLPack tensor was made"))?;
    // SAFETY: the pointer is a fresh tensor of the kind that the name says, and the destructor deletes it.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, T::NAME, Some(free::<T>)) }
}

unsafe extern "C" fn free<T: Named>(capsule: *mut ffi::PyObject) {
    // SAFETY: a live object of any type is allowed.
    if unsafe { ffi::PyCapsule_IsValid(capsule, T::NAME.as_ptr()) } == 0 {
        return; // Consumed: its consumer deletes the tensor.
    }
    // SAFETY: a capsule of this name, as just asked.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()) };
    // SAFETY: made by `give`, and not consumed.
    quietly(|| drop(unsafe { ForeignTensor::<T>::from_raw(pointer.cast()) }));
}

/// Whether an object that contains pointers could have this address: CUDA stream numbers and small numbers
/// could not.
fn may_be_object(address: usize) -> bool {
    /// No system maps the first page.
    const PAGE: usize = 4096;
    (PAGE..=isize::MAX.unsigned_abs()).contains(&address) && address.is_multiple_of(align_of::<usize>())
}

/// A consumer's `stream`.
enum Stream {
    Wait,
    Queue(crate::Queue),
    Unordered,
}

fn stream(object: Option<&Bound<'_, PyAny>>) -> PyResult<Stream> {
    let Some(object) = object.filter(|object| !object.is_none()) else { return Ok(Stream::Wait) };
    if object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>() {
        if object.extract::<i64>().is_ok_and(|number| number == -1) {
            return Ok(Stream::Unordered);
        }
        let address = object.extract::<usize>().ok().filter(|address| may_be_object(*address));
        let handle = address.and_then(|address| NonNull::new(address as *mut _)).ok_or_else(|| {
            PyBufferError::new_err(format!(
                "stream {object} is neither -1 nor the address of a SYCL queue; pass the queue itself, of usmq or dpctl"
            ))
        })?;
        // SAFETY: for kDLOneAPI a consumer's number is the address of its live sycl::queue. It cannot be
        // checked further.
        return Ok(Stream::Queue(unsafe { crate::Queue::from_raw(handle) }?));
    }
    if let Ok(queue) = object.cast::<super::classes::Queue>() {
        return Ok(Stream::Queue(queue.get().0.clone()));
    }
    queue_from(object)?.map(Stream::Queue).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "stream must be None, -1, a queue of usmq or dpctl, a capsule \"SyclQueueRef\" or the address of a SYCL \
             queue, not {}",
            argument::class_name(object)
        ))
    })
}

/// Import another library's DLPack tensor: USM is used in place, host memory is copied unless ``copy=False``.
///
/// Parameters
/// ----------
/// obj : object
///     Anything with ``__dlpack__`` and ``__dlpack_device__`` on a oneAPI device or the host, or a capsule that
///     ``__dlpack__`` has returned.
/// copy : bool, optional
///     None: copy host memory, and other memory only if needed. True: always copy. False: raise an error if a copy
///     is needed; use host memory in place, as in ``asarray``.
/// usm_type : {"device", "shared", "host"}, optional
///     The USM kind; by default ``"device"`` for host data, else the existing kind.
/// queue : str, Device, Queue, optional
///     The target queue; by default the current queue for host data, else a queue that can use the memory in
///     place.
/// device : str, Device, Queue, optional
///     Another name of ``queue``, as in the Python array API standard.
///
/// Returns
/// -------
/// Array
///
/// Raises
/// ------
/// InteropError
///     The object breaks its protocol, is on a device that usmq cannot reach, or needs a copy that is not
///     allowed. InteropError is a BufferError.
///
/// Examples
/// --------
/// >>> import numpy, usmq
/// >>> usmq.from_dlpack(numpy.arange(3)).to_numpy().tolist()
/// [0, 1, 2]
#[pyfunction]
#[pyo3(signature = (obj, /, *, copy=None, usm_type=None, queue=None, device=None))]
pub(super) fn from_dlpack(
    py: Python<'_>,
    obj: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: Option<&str>,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    super::numpy::refuse_masked(obj)?;
    let kind = usm_type.map(str::parse::<UsmKind>).transpose()?;
    let queue = target::place(py, queue, device)?;
    Ok(Array::new(read(obj, Import { queue: queue.as_ref(), kind, copy })?))
}

/// The array of an object's tensor.
pub(super) fn read(obj: &Bound<'_, PyAny>, wanted: Import<'_>) -> PyResult<crate::Array> {
    let py = obj.py();
    let current = super::scope::current(py)?;
    // The producer of a bare capsule has completed its work.
    let is_capsule = obj.is_instance_of::<PyCapsule>();
    let (capsule, ordered) = if is_capsule { (obj.clone(), false) } else { ask(obj, &current, wanted.copy)? };
    let array = match take::<DLManagedTensorVersioned>(&capsule)? {
        Some(tensor) => import(py, tensor, &current, wanted),
        None => match take::<DLManagedTensor>(&capsule)? {
            Some(tensor) => import(py, tensor, &current, wanted),
            None => return Err(no_capsule(&capsule)?),
        },
    };
    let array = array?;
    if ordered && *array.queue() != current {
        // The producer's work is ordered on the current queue, which is not the array's queue.
        detach(py, || current.wait())?;
    }
    share_with_producer(obj, &array)?;
    Ok(array)
}

/// Memory of an object, in place.
pub(super) enum InPlace {
    Usm(crate::Array),
    Host(HostMemory, Arc<dyn Any + Send + Sync>),
}

/// The memory of a tensor in USM or on the host, in place.
pub(super) fn in_place(obj: &Bound<'_, PyAny>) -> PyResult<InPlace> {
    let device = obj.getattr_opt("__dlpack_device__")?.ok_or_else(|| missing(obj))?.call0()?;
    let (kind, _): (i32, i32) = device.extract()?;
    if kind != HOST {
        return Ok(InPlace::Usm(read(obj, Import { copy: Some(false), ..Import::default() })?));
    }
    let (capsule, _) = ask(obj, &super::scope::current(obj.py())?, Some(false))?;
    let (memory, owner) = match take::<DLManagedTensorVersioned>(&capsule)? {
        Some(tensor) => dlpack::host_memory(tensor)?,
        None => match take::<DLManagedTensor>(&capsule)? {
            Some(tensor) => dlpack::host_memory(tensor)?,
            None => return Err(no_capsule(&capsule)?),
        },
    };
    Ok(InPlace::Host(memory, Arc::from(owner)))
}

fn no_capsule(found: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    Ok(Error::interop(format!("__dlpack__() returned {}, not a DLPack capsule", found.repr()?)).into())
}

/// Orders later work with that of the producer on its own queue, which only its attribute names.
fn share_with_producer(obj: &Bound<'_, PyAny>, array: &crate::Array) -> PyResult<()> {
    if obj.is_instance_of::<Array>() {
        return Ok(());
    }
    let Some(theirs) = obj.getattr_opt(intern!(obj.py(), "sycl_queue"))? else { return Ok(()) };
    let Some(queue) = queue_from(&theirs)?.filter(|queue| queue.context() == array.context()) else {
        return Ok(());
    };
    dpctl_order::follow(&queue, &theirs)?;
    Ok(detach(obj.py(), || array.shared_allocation().share_on(&queue))?)
}

fn import<T: Managed>(
    py: Python<'_>,
    tensor: ForeignTensor<T>,
    current: &crate::Queue,
    wanted: Import<'_>,
) -> crate::Result<crate::Array> {
    detach(py, || crate::with_queue(current, || dlpack::import(tensor, wanted)))
}

fn missing(obj: &Bound<'_, PyAny>) -> PyErr {
    let name = argument::class_name(obj);
    PyTypeError::new_err(format!("expected an object with __dlpack__ and __dlpack_device__, not {name}"))
}

/// Requests the capsule of a producer, with the newest protocol that it supports. Returns whether the
/// producer's work is ordered on the current queue; otherwise it is complete.
fn ask<'py>(
    obj: &Bound<'py, PyAny>,
    current: &crate::Queue,
    copy: Option<bool>,
) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let py = obj.py();
    let method = obj.getattr_opt("__dlpack__")?.ok_or_else(|| missing(obj))?;
    let device = obj.getattr_opt("__dlpack_device__")?.ok_or_else(|| missing(obj))?.call0()?;
    let (kind, id): (i32, i32) = device.extract()?;
    let options = PyDict::new(py);
    options.set_item("max_version", dlpack::VERSION)?;
    // usmq can always make a copy itself.
    if copy == Some(false) {
        options.set_item("copy", false)?;
    }
    let refused = |error: &PyErr| error.is_instance_of::<PyTypeError>(py);
    if kind == ONEAPI {
        let ordered = options.copy()?;
        ordered.set_item("stream", Bound::new(py, super::classes::Queue(current.clone()))?)?;
        match method.call((), Some(&ordered)) {
            Ok(capsule) => return Ok((capsule, true)),
            Err(error) if !refused(&error) => return Err(as_buffer_error(py, error)),
            Err(_) => finish(obj)?,
        }
    }
    if CUDA.contains(&kind) {
        // The producer orders its work before that of the stream.
        let stream = detach(py, || cuda::arrivals(usize::try_from(id).unwrap_or(0)))?;
        options.set_item("stream", stream)?;
        return Ok((method.call((), Some(&options))?, false));
    }
    let capsule = match method.call((), Some(&options)) {
        Err(error) if refused(&error) => method.call0(),
        other => other,
    };
    Ok((capsule.map_err(|error| as_buffer_error(py, error))?, false))
}

/// By the protocol, a producer that cannot express the location of its memory raises BufferError. dpnp raises
/// a private class for memory of sub-devices and of contexts other than a platform's default.
fn as_buffer_error(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.get_type(py).name().is_ok_and(|name| name == "DLPackCreationError") {
        return error;
    }
    let clear = PyErr::from(Error::interop(format!(
        "DLPack cannot express the location of this array ({}); usmq.asarray imports it through \
         __sycl_usm_array_interface__",
        error.value(py)
    )));
    clear.set_cause(py, Some(error));
    clear
}

/// Waits for the work of a producer that does not accept a queue of usmq.
fn finish(obj: &Bound<'_, PyAny>) -> PyResult<()> {
    detach(obj.py(), || refuse(|| "an import from a DLPack producer that takes no queue".to_owned()))?;
    let Some(queue) = obj.getattr_opt("sycl_queue")? else { return Ok(()) };
    match queue_from(&queue)? {
        Some(queue) => Ok(detach(obj.py(), || queue.wait())?),
        None => Ok(()),
    }
}

/// The tensor of an unused capsule of this kind; None for anything else.
fn take<T: Named>(capsule: &Bound<'_, PyAny>) -> PyResult<Option<ForeignTensor<T>>> {
    let Some(pointer) = consume_capsule(capsule, T::NAME, T::USED, "__dlpack__()")? else { return Ok(None) };
    // SAFETY: the name promises such a tensor, and the capsule no longer owns it.
    Ok(Some(unsafe { ForeignTensor::from_raw(pointer.as_ptr().cast()) }?))
}
