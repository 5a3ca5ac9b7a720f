//! The C exchange API of DLPack 1.3 on the type `usmq.Array`: a table of functions that C consumers call with
//! objects of usmq. The rules are in `interop::dlpack`.
//!
//! These functions do not wait, except to copy imported host and CUDA memory. Exported tensors are ordered on
//! `current_work_stream` and may be used there.

use super::classes::Array;
use super::scope;
use crate::interop::dlpack::{self, DLManagedTensorVersioned, DLTensor, Destination, Export, Order, VERSION};
use crate::python::gil::detach;
use crate::runtime::without_python_lock;
use crate::{Error, MemoryKind};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

const NAME: &CStr = c"dlpack_exchange_api";

/// `DLPackExchangeAPIHeader`.
#[repr(C)]
struct Header {
    major: u32,
    minor: u32,
    /// A table for consumers of an earlier major version; none exists.
    prev_api: Option<&'static Header>,
}

type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// `DLPackExchangeAPI`.
#[repr(C)]
struct Table {
    header: Header,
    managed_tensor_allocator: unsafe extern "C" fn(
        *const DLTensor,
        *mut *mut DLManagedTensorVersioned,
        *mut c_void,
        Option<SetError>,
    ) -> c_int,
    managed_tensor_from_py_object_no_sync:
        unsafe extern "C" fn(*mut ffi::PyObject, *mut *mut DLManagedTensorVersioned) -> c_int,
    managed_tensor_to_py_object_no_sync:
        unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut ffi::PyObject) -> c_int,
    dltensor_from_py_object_no_sync: unsafe extern "C" fn(*mut ffi::PyObject, *mut DLTensor) -> c_int,
    current_work_stream: unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int,
}

const _: () = {
    assert!(size_of::<Header>() == 16);
    assert!(offset_of!(Header, prev_api) == 8);
    assert!(size_of::<Table>() == 56);
    assert!(offset_of!(Table, managed_tensor_allocator) == 16);
    assert!(offset_of!(Table, managed_tensor_from_py_object_no_sync) == 24);
    assert!(offset_of!(Table, managed_tensor_to_py_object_no_sync) == 32);
    assert!(offset_of!(Table, dltensor_from_py_object_no_sync) == 40);
    assert!(offset_of!(Table, current_work_stream) == 48);
};

static TABLE: Table = Table {
    header: Header { major: VERSION.0, minor: VERSION.1, prev_api: None },
    managed_tensor_allocator: allocate,
    managed_tensor_from_py_object_no_sync: from_object,
    managed_tensor_to_py_object_no_sync: to_object,
    dltensor_from_py_object_no_sync: lend,
    current_work_stream,
};

/// The attribute `__dlpack_c_exchange_api__` of the type. Consumers keep the address, which is static.
pub(super) fn capsule(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
    let table = NonNull::from(&TABLE).cast::<c_void>();
    // SAFETY: the table has the type that the name promises, and is never freed.
    unsafe { PyCapsule::new_with_pointer(py, table, NAME) }
}

/// Runs `f` for a caller in C: 0, or -1 with a Python exception. No panic unwinds into C.
fn called(f: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    let run = |py: Python<'_>| {
        // An exception of pyo3 may be made in `restore` only.
        let done = catch_unwind(AssertUnwindSafe(|| f(py).map_err(|error| error.restore(py))));
        done.unwrap_or_else(|_| {
            let text = c"usmq panicked; this is a bug in it";
            // SAFETY: a static of the interpreter.
            let class = unsafe { ffi::PyExc_RuntimeError };
            // SAFETY: the thread is attached.
            unsafe { ffi::PyErr_SetString(class, text.as_ptr()) };
            Err(())
        })
    };
    // After the interpreter has shut down, the caller gets only -1.
    match Python::try_attach(run) {
        Some(Ok(())) => 0,
        _ => -1,
    }
}

fn place<T>(out: *mut T) -> crate::Result<NonNull<T>> {
    NonNull::new(out).ok_or_else(|| Error::interop("DLPack exchange: a pointer is null"))
}

/// The queue for usmq's work on a device in this Python context. None for the host.
fn work_queue(py: Python<'_>, device: Destination) -> PyResult<Option<crate::Queue>> {
    let current = scope::current(py)?;
    Ok(crate::with_queue(&current, || dlpack::work_queue(device))?)
}

/// Calls `export` with the array of an object and the order in which the consumer uses it.
///
/// # Safety
/// `object` is null or a live object, for as long as this runs.
unsafe fn exported<R>(
    py: Python<'_>,
    object: *mut ffi::PyObject,
    export: impl FnOnce(&crate::Array, Order<'_>) -> crate::Result<R>,
) -> PyResult<R> {
    let object = place(object)?.as_ptr();
    // SAFETY: the caller's promise.
    let object = unsafe { Borrowed::from_ptr(py, object) };
    let no_array = |_| Error::wrong_type("DLPack exchange: the object is not a usmq.Array");
    let array = &object.cast::<Array>().map_err(no_array)?.get().array;
    let current = scope::current(py)?;
    if current == *array.queue() && array.memory_kind() != MemoryKind::System {
        // This is the work queue of the array's device. If the array has none, the export returns an error. With
        // `Order::Queue`, the export releases the GIL before it blocks.
        return Ok(export(array, Order::Queue(&current))?);
    }
    let queue = crate::with_queue(&current, || dlpack::work_queue(dlpack::device_of(array)))?;
    let order = queue.as_ref().map_or(Order::Unordered, Order::Queue);
    Ok(without_python_lock(|| export(array, order))?)
}

/// `managed_tensor_from_py_object_no_sync`.
unsafe extern "C" fn from_object(
    object: *mut ffi::PyObject,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    called(|py| {
        let out = place(out)?;
        // SAFETY: the consumer's promise: an object, and a valid output pointer.
        let tensor = unsafe {
            exported(py, object, |array, order| {
                dlpack::export::<DLManagedTensorVersioned>(array, Export { order, ..Export::default() })
            })
        }?;
        // SAFETY: as above.
        unsafe { out.write(tensor.into_raw()) };
        Ok(())
    })
}

/// `dltensor_from_py_object_no_sync`: the lists are those of the object's own array.
unsafe extern "C" fn lend(object: *mut ffi::PyObject, out: *mut DLTensor) -> c_int {
    called(|py| {
        let out = place(out)?;
        // SAFETY: the consumer's promise: an object, and a valid output pointer.
        let tensor = unsafe { exported(py, object, dlpack::lend) }?;
        // SAFETY: as above.
        unsafe { out.write(tensor) };
        Ok(())
    })
}

/// `managed_tensor_to_py_object_no_sync`. The header says that ownership is "stolen", but does not define
/// failures. Consumers delete the tensor after a failure, so they keep ownership.
unsafe extern "C" fn to_object(tensor: *mut DLManagedTensorVersioned, out: *mut *mut ffi::PyObject) -> c_int {
    called(|py| {
        let out = place(out)?;
        let tensor = Handed(tensor);
        let current = scope::current(py)?;
        let place = |array| Python::attach(|py| Py::new(py, Array::new(array)));
        let object = detach(py, || {
            // SAFETY: the consumer's promise: a tensor that is its own.
            crate::with_queue(&current, || unsafe { dlpack::adopt(tensor.get(), place) })
        })?;
        // SAFETY: the consumer's promise: a valid output pointer.
        unsafe { out.write(object.into_ptr()) };
        Ok(())
    })
}

/// A tensor during its import, on one thread.
struct Handed(*mut DLManagedTensorVersioned);

impl Handed {
    fn get(&self) -> *mut DLManagedTensorVersioned {
        self.0
    }
}

// SAFETY: DLPack lets a tensor be passed to another thread.
unsafe impl Sync for Handed {}

/// `managed_tensor_allocator`. Callers need not hold the GIL. It takes the GIL, because the current queue
/// depends on the Python context.
unsafe extern "C" fn allocate(
    prototype: *const DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    context: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    let make = || {
        let failed = |text: &str| Err((c"RuntimeError", text.to_owned()));
        // SAFETY: the consumer's promise: a prototype, or null.
        let (Some(prototype), false) = (unsafe { prototype.as_ref() }, out.is_null()) else {
            return Err((c"BufferError", "DLPack exchange: a pointer is null".to_owned()));
        };
        match Python::try_attach(scope::current) {
            Some(Ok(current)) => {
                // SAFETY: as above: a prototype has an extent for each axis.
                crate::with_queue(&current, || unsafe { dlpack::allocate(prototype) })
                    .map_err(|error| (kind_of(&error), error.to_string()))
            }
            Some(Err(error)) => failed(&error.to_string()),
            None => failed("the Python interpreter has shut down"),
        }
    };
    let made = catch_unwind(AssertUnwindSafe(make));
    match made.unwrap_or_else(|_| Err((c"RuntimeError", "usmq panicked; this is a bug in it".to_owned()))) {
        Ok(tensor) => {
            // SAFETY: the consumer's promise: a valid output pointer.
            unsafe { out.write(tensor.into_raw()) };
            0
        }
        Err((kind, text)) => {
            if let Some(set_error) = set_error {
                let text = CString::new(text).unwrap_or_default();
                // SAFETY: the consumer's own function, with its own context.
                unsafe { set_error(context, kind.as_ptr(), text.as_ptr()) };
            }
            -1
        }
    }
}

/// The built-in base class of an error, for callers that do not know usmq's classes.
fn kind_of(error: &Error) -> &'static CStr {
    match error {
        Error::Allocation { .. } | Error::HostMemory { .. } => c"MemoryError",
        Error::Interop { .. } => c"BufferError",
        Error::Value { .. } => c"ValueError",
        _ => c"RuntimeError",
    }
}

/// `current_work_stream`: a `sycl::queue*` that is valid for the rest of the process, or null for the host.
unsafe extern "C" fn current_work_stream(kind: i32, id: i32, out: *mut *mut c_void) -> c_int {
    called(|py| {
        let out = place(out)?;
        let queue = work_queue(py, Destination { kind, id })?;
        let stream = queue.map_or(Ok(0), |queue| dlpack::work_stream(&queue))?;
        // SAFETY: the consumer's promise: a valid output pointer.
        unsafe { out.write(stream as *mut c_void) };
        Ok(())
    })
}
