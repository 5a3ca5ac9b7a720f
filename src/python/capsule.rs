//! The capsules "SyclQueueRef" and "SyclContextRef", both ways, as dpctl defined them.
//!
//! A capsule holds a `sycl::queue*` or `sycl::context*` on the C++ heap. A consumer copies the object and
//! renames the capsule to `used_…`, so that it is used once; the destructor deletes the object under either
//! name.

use crate::error::{Error, Result};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

const QUEUE: &CStr = c"SyclQueueRef";
const USED_QUEUE: &CStr = c"used_SyclQueueRef";
const CONTEXT: &CStr = c"SyclContextRef";
const USED_CONTEXT: &CStr = c"used_SyclContextRef";

pub(super) fn queue_capsule<'py>(py: Python<'py>, queue: &crate::Queue) -> PyResult<Bound<'py, PyCapsule>> {
    capsule(py, queue.to_raw()?, QUEUE, delete_queue)
}

pub(super) fn context_capsule<'py>(
    py: Python<'py>,
    context: &crate::Context,
) -> PyResult<Bound<'py, PyCapsule>> {
    capsule(py, context.to_raw()?, CONTEXT, delete_context)
}

fn capsule<'py>(
    py: Python<'py>,
    pointer: NonNull<c_void>,
    name: &'static CStr,
    destructor: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyCapsule>> {
    // SAFETY: the pointer is a fresh heap object of the kind that the name says, and `destructor` deletes it.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destructor)) }
}

unsafe extern "C" fn delete_queue(capsule: *mut ffi::PyObject) {
    if let Some(handle) = held(capsule, [QUEUE, USED_QUEUE]) {
        // SAFETY: the capsule was made above with a queue of `Queue::to_raw`, and is destroyed once.
        unsafe { crate::Queue::free_raw(handle) }
    }
}

unsafe extern "C" fn delete_context(capsule: *mut ffi::PyObject) {
    if let Some(handle) = held(capsule, [CONTEXT, USED_CONTEXT]) {
        // SAFETY: the capsule was made above with a context of `Context::to_raw`, and is destroyed once.
        unsafe { crate::Context::free_raw(handle) }
    }
}

/// The pointer of a capsule that has one of these names.
fn held(capsule: *mut ffi::PyObject, names: [&CStr; 2]) -> Option<NonNull<c_void>> {
    let name = names.into_iter().find(|name| {
        // SAFETY: `capsule` is a live object of any type is allowed.
        unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 1 }
    })?;
    // SAFETY: it is a capsule of this name, as just asked.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
    NonNull::new(pointer)
}

/// The queue of a capsule, or of an object whose `_get_capsule` gives one; None for anything else.
pub(super) fn queue_from(object: &Bound<'_, PyAny>) -> PyResult<Option<crate::Queue>> {
    // SAFETY: the name promises a `sycl::queue*`.
    take(object, QUEUE, USED_QUEUE, |handle| unsafe { crate::Queue::from_raw(handle) })
}

/// The context of a capsule, or of an object whose `_get_capsule` gives one; None for anything else.
pub(super) fn context_from(object: &Bound<'_, PyAny>) -> PyResult<Option<crate::Context>> {
    // SAFETY: the name promises a `sycl::context*`.
    take(object, CONTEXT, USED_CONTEXT, |handle| unsafe { crate::Context::from_raw(handle) })
}

fn take<T>(
    object: &Bound<'_, PyAny>,
    name: &'static CStr,
    used: &'static CStr,
    copy: impl Fn(NonNull<c_void>) -> Result<T>,
) -> PyResult<Option<T>> {
    let mut capsule = object.clone();
    if !capsule.is_instance_of::<PyCapsule>() {
        let name = intern!(object.py(), "_get_capsule");
        let Some(getter) = capsule.getattr_opt(name)? else { return Ok(None) };
        capsule = getter.call0()?;
    }
    Ok(consume_capsule(&capsule, name, used, "_get_capsule()")?.map(copy).transpose()?)
}

/// Takes the pointer of a capsule of this name and renames the capsule; None for anything else. Only one of
/// several concurrent consumers gets it, also in free-threaded Python. `method` returns another capsule.
pub(super) fn consume_capsule(
    capsule: &Bound<'_, PyAny>,
    name: &'static CStr,
    used: &'static CStr,
    method: &str,
) -> PyResult<Option<NonNull<c_void>>> {
    with_critical_section(capsule, || {
        let Some(pointer) = held(capsule.as_ptr(), [name, name]) else {
            if held(capsule.as_ptr(), [used, used]).is_none() {
                return Ok(None);
            }
            let text =
                format!("the capsule {name:?} has been used; a capsule is for one use: call {method} again");
            return Err(Error::interop(text).into());
        };
        // SAFETY: a live capsule, and a name that lives as long as the process.
        match unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } {
            0 => Ok(Some(pointer)),
            _ => Err(PyErr::fetch(capsule.py())),
        }
    })
}
