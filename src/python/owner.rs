//! Python objects that own foreign memory; completes their release before the interpreter shuts down.

use super::gil::{detach, drop_on_own_thread, in_destructor};
use crate::completion;
use crate::runtime::not_forked;
use crate::runtime::python_lock::{self, PythonLock};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Keeps a Python object alive for usmq. The release thread takes the GIL and drops it, unless [`drop_shared`] can.
pub(super) struct PyOwner(Option<Py<PyAny>>);

impl PyOwner {
    pub(super) fn new(object: &Bound<'_, PyAny>) -> Self {
        Self(Some(object.clone().unbind()))
    }
}

/// Drops the object of a [`PyOwner`] inside a destructor that Python called, if other references to it exist: then no code
/// runs. Without the GIL, another thread could drop those meanwhile.
fn drop_shared(owner: &mut (dyn Any + Send + Sync)) -> bool {
    let (Some(py), Some(PyOwner(held))) = (in_destructor(), owner.downcast_mut::<PyOwner>()) else {
        return false;
    };
    // SAFETY: a live object, with the GIL held.
    let is_shared = |object: &mut Py<PyAny>| unsafe { ffi::Py_REFCNT(object.as_ptr()) } > 1;
    if HAS_NO_GIL.load(Ordering::Relaxed) {
        return false;
    }
    held.take_if(is_shared).map(|object| object.drop_ref(py)).is_some()
}

/// Whether this interpreter runs Python threads in parallel.
static HAS_NO_GIL: AtomicBool = AtomicBool::new(false);

impl Drop for PyOwner {
    fn drop(&mut self) {
        let Some(object) = self.0.take() else { return };
        if not_forked().is_err() {
            // The release thread exists only in the parent.
            return std::mem::forget(object);
        }
        let mut dropped = DROPPED.lock();
        let first = dropped.is_empty();
        dropped.push(object);
        drop(dropped);
        if first {
            completion::release_foreign(take_back);
        }
    }
}

/// The objects of dropped owners. One job releases all of them and takes the GIL once.
static DROPPED: Mutex<Vec<Py<PyAny>>> = Mutex::new(Vec::new());

/// Releases the objects to Python. After the interpreter has shut down, they are leaked.
fn take_back() {
    let mut objects = std::mem::take(&mut *DROPPED.lock());
    Python::try_attach(|py| {
        for object in objects.drain(..) {
            drop_on_own_thread(py, object);
        }
    });
    objects.into_iter().for_each(std::mem::forget);
}

/// Completes the release of foreign memory before the interpreter shuts down, and registers the GIL check
/// with the runtime module.
pub(super) fn prepare(py: Python<'_>) -> PyResult<()> {
    let close = PyCFunction::new_closure(py, None, None, |args, _| {
        detach(args.py(), completion::close);
    })?;
    py.import("atexit")?.call_method1("register", (close,))?;
    if let Some(query) = py.import("sys")?.getattr_opt("_is_gil_enabled")? {
        HAS_NO_GIL.store(!query.call0()?.is_truthy()?, Ordering::Relaxed);
    }
    python_lock::set(PythonLock { is_held, release, restore, drop_shared });
    Ok(())
}

fn is_held() -> bool {
    static CHECK: OnceCell<Option<extern "C" fn() -> c_int>> = OnceCell::new();
    let check = CHECK.get_or_init(|| {
        // Every CPython exports it, but the stable ABI does not declare it.
        // SAFETY: a name that ends with a NUL.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyGILState_Check".as_ptr()) };
        // SAFETY: `int PyGILState_Check(void)`.
        (!symbol.is_null())
            .then(|| unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(symbol) })
    });
    // In this order: once Python has begun to end, the check answers 1 on each thread (CPython, `Python/pystate.c`).
    // SAFETY: may be called at any time.
    check.is_some_and(|check| check() == 1) && unsafe { ffi::Py_IsInitialized() } != 0
}

fn release() -> usize {
    // SAFETY: this thread holds the GIL, as `is_held` just confirmed.
    unsafe { ffi::PyEval_SaveThread() as usize }
}

fn restore(state: usize) {
    // SAFETY: the state that `release` returned on this thread.
    unsafe { ffi::PyEval_RestoreThread(state as *mut ffi::PyThreadState) }
}
