//! Python scopes for C API calls on Python threads.

use super::capture_scope;
use super::classes::Queue;
use super::scope::{Open, ScopeVar, global};
use crate::capi::{HostScopes, Leave};
use crate::device::recording::Entered;
use crate::error::{Error, Result};
use pyo3::prelude::*;
use std::sync::Arc;

pub(super) struct Contexts;

/// Runs `f` with the GIL on Python threads. Other threads have no context, and taking the GIL there could
/// deadlock: its holder may wait for this thread.
fn on_thread_of_python<T>(f: impl FnOnce(Python<'_>) -> PyResult<Option<T>>) -> Result<Option<T>> {
    // SAFETY: reads a thread-local of the interpreter; allowed at any time and without the GIL.
    let thread = unsafe { pyo3::ffi::PyGILState_GetThisThreadState() };
    if thread.is_null() {
        return Ok(None);
    }
    // None while the interpreter shuts down.
    Python::try_attach(f).unwrap_or(Ok(None)).map_err(|error| Error::interop(error.to_string()))
}

impl HostScopes for Contexts {
    fn innermost(&self) -> Result<Option<crate::Queue>> {
        on_thread_of_python(|py| Ok(global(py)?.innermost(py)?.map(|queue| queue.get().0.clone())))
    }

    fn capture(&self) -> Option<Entered> {
        if !capture_scope::is_any_open() {
            return None;
        }
        on_thread_of_python(|py| Ok(capture_scope::enter(py))).ok().flatten()
    }

    fn enter(&self, queue: &crate::Queue) -> Result<Option<Leave>> {
        on_thread_of_python(|py| {
            let scope = global(py)?;
            let queue = Py::new(py, Queue(queue.clone()))?;
            let open = scope.enter(py, &queue)?.unbind();
            let leave = move || leave(scope, &open);
            Ok(Some(Arc::new(leave) as Leave))
        })
    }
}

fn leave(scope: &ScopeVar, open: &Py<Open>) -> Result<()> {
    let left = on_thread_of_python(|py| {
        let open = open.bind(py);
        if !scope.is_innermost(open)? {
            return Ok(Some(false));
        }
        scope.leave(open)?;
        Ok(Some(true))
    })?;
    match left {
        Some(true) => Ok(()),
        _ => Err(Error::value(
            "this scope is not the innermost one of this Python context; leave those inside it first, and leave it \
             in the thread and task that entered it",
        )),
    }
}
