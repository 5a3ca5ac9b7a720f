//! Gives dpctl's memory objects an owner that needs no GIL.
//!
//! dpnp keeps the operands of a command alive by a host task. It holds a Python object there, for whose release the task
//! takes the GIL, unless the memory object has a `std::shared_ptr`: then the task holds a copy of that. An operation that
//! waits with the GIL held, as those of oneMKL do, hangs behind the first kind of task.
//!
//! Source: `dpctl/memory/_memory.h` and `usm_memory` in `dpctl4pybind11.hpp`, both installed by dpctl 0.22.

use crate::memory::shared_pointer::SharedPointer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use std::ffi::{CStr, c_void};
use std::ptr;

/// `struct Py_MemoryObject` after its head, which is that of a Python with the GIL.
#[repr(C)]
struct MemoryObject {
    head: [usize; 2],
    methods: *mut c_void,
    memory: usize,
    shared_pointer: *mut c_void,
    bytes: isize,
    queue: *mut c_void,
    owner: *mut ffi::PyObject,
}

/// `void *Memory_GetOpaquePointer(struct Py_MemoryObject *)`.
type GetSharedPointer = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut c_void;
const GET: &str = "Memory_GetOpaquePointer";
const GET_SIGNATURE: &CStr = c"void *(struct Py_MemoryObject *)";

/// Lets `memory`, a memory object of dpctl over `array`, own the array by a `std::shared_ptr`. False if this version of
/// dpctl stores its owners in a way that usmq does not know; the object is unchanged then.
pub(super) fn own(memory: &Bound<'_, PyAny>, array: &crate::Array) -> PyResult<bool> {
    let Some(get) = getter(&memory.get_type())? else { return Ok(false) };
    let object = memory.as_ptr().cast::<MemoryObject>();
    // SAFETY: `getter` has checked the size of the object; the GIL is held, so no other thread changes it.
    let fields = unsafe { object.read() };
    let (address, bytes): (usize, isize) =
        (memory.getattr("_pointer")?.extract()?, memory.getattr("nbytes")?.extract()?);
    // SAFETY: a live memory object, as the function requires.
    let owner = unsafe { get(memory.as_ptr()) };
    if fields.memory != address
        || fields.bytes != bytes
        || !fields.shared_pointer.is_null()
        || !owner.is_null()
    {
        return Ok(false);
    }
    let pointer = SharedPointer::new(address, array.clone())?;
    // SAFETY: as above.
    let set = |pointer| unsafe { (*object).shared_pointer = pointer };
    set(pointer.as_ptr());
    // SAFETY: as above.
    if !ptr::eq(unsafe { get(memory.as_ptr()) }, pointer.as_ptr()) {
        set(ptr::null_mut());
        return Ok(false);
    }
    // The object deletes it.
    let _ = pointer.into_raw();
    Ok(true)
}

/// Whether usmq knows how objects of this class of dpctl store their owner.
#[pyfunction]
pub(super) fn _knows_owners_of(class: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(getter(class)?.is_some())
}

/// dpctl's own function that reads the field, if objects of the class have the size that usmq knows.
fn getter(class: &Bound<'_, PyType>) -> PyResult<Option<GetSharedPointer>> {
    let module = class.py().import("dpctl.memory._memory")?;
    let size: usize = class.getattr("__basicsize__")?.extract()?;
    if size != size_of::<MemoryObject>() || !class.is_subclass(&module.getattr("_Memory")?)? {
        return Ok(None);
    }
    let Ok(capsule) = module.getattr("__pyx_capi__").and_then(|functions| functions.get_item(GET)) else {
        return Ok(None);
    };
    let Ok(capsule) = capsule.cast_into::<PyCapsule>() else { return Ok(None) };
    let Ok(function) = capsule.pointer_checked(Some(GET_SIGNATURE)) else { return Ok(None) };
    // SAFETY: the capsule's name is the signature of its function (Cython, "C API declarations").
    Ok(Some(unsafe { std::mem::transmute::<*mut c_void, GetSharedPointer>(function.as_ptr()) }))
}
