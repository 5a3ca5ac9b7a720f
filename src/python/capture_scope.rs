//! The capture of a Python context (thread or asyncio task): the value of a `contextvars.ContextVar`.

use crate::capture::Capture;
use crate::device::recording::{self, Entered};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of open captures of all contexts: without one, no call looks for a capture.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The variable and its method `get`.
static VARIABLE: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();

fn variable(py: Python<'_>) -> PyResult<&'static (Py<PyAny>, Py<PyAny>)> {
    VARIABLE.get_or_try_init(py, || {
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        let kwargs = PyDict::new(py);
        kwargs.set_item("default", py.None())?;
        let variable = class.call(("usmq.capture",), Some(&kwargs))?;
        let get = variable.getattr("get")?.unbind();
        Ok((variable.unbind(), get))
    })
}

/// Whether a context may be inside a capture.
#[inline]
pub(super) fn is_any_open() -> bool {
    OPEN.load(Ordering::Relaxed) != 0
}

/// Makes this thread record into the capture of the Python context, or into none, while the guard lives.
#[inline]
pub(super) fn enter(py: Python<'_>) -> Option<Entered> {
    if !is_any_open() {
        return None;
    }
    match current(py) {
        Some(capture) => Some(recording::enter(capture.recorder())),
        None => recording::suspend(),
    }
}

#[cold]
fn current(py: Python<'_>) -> Option<Capture> {
    let (_, get) = variable(py).ok()?;
    let value = get.bind(py).call0().ok()?.cast_into::<Value>().ok()?;
    Some(value.get().0.clone())
}

/// The value of the variable.
#[pyclass(module = "usmq._core", frozen)]
struct Value(Capture);

/// A capture that is the current one of the context that opened it.
pub(super) struct Opened {
    pub(super) capture: Capture,
    token: Py<PyAny>,
}

impl Opened {
    pub(super) fn new(py: Python<'_>, capture: Capture) -> PyResult<Self> {
        let (variable, _) = variable(py)?;
        let value = Bound::new(py, Value(capture.clone()))?;
        let token = variable.bind(py).call_method1(pyo3::intern!(py, "set"), (value,))?.unbind();
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Self { capture, token })
    }

    /// Makes the capture before it current again, if there was one.
    pub(super) fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let (variable, _) = variable(py)?;
        let reset = variable.bind(py).call_method1(pyo3::intern!(py, "reset"), (&self.token,));
        reset.map(drop).map_err(|_| {
            PyRuntimeError::new_err(
                "this capture was opened in another context: leave it in the thread or asyncio task that entered it",
            )
        })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
