//! The capture of a thread or asyncio task: the value of a `contextvars.ContextVar`. Tasks and threads that copy the context
//! get the value, but not the capture, and so does code that interrupts the block, as a signal handler.

use super::interruption;
use crate::capture::Capture;
use crate::device::recording::{self, Entered};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyWeakrefMethods, PyWeakrefReference};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;

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
    let Value { capture, opener } = value.get();
    opener.is_current(py).then(|| capture.clone())
}

/// The value of the variable.
#[pyclass(module = "usmq._core", frozen)]
struct Value {
    capture: Capture,
    opener: Opener,
}

/// The thread that opened a capture, its task, if it was one of asyncio, and the code.
struct Opener {
    thread: ThreadId,
    /// The address of the frame, which is not kept: a frame keeps its variables. `contextlib` leaves it before the block.
    frame: usize,
    /// The number of interruptions below it.
    interruptions: usize,
    /// A weak reference, since the task owns the context with the capture.
    task: Option<Py<PyWeakrefReference>>,
}

impl Opener {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let task = current_task(py).map(|task| PyWeakrefReference::new(&task)).transpose()?;
        let (thread, task) = (std::thread::current().id(), task.map(Bound::unbind));
        let frame = interruption::innermost(py).map_or(0, |frame| frame.as_ptr().addr());
        let (interruptions, _) = interruption::count(py, 0)?;
        Ok(Self { thread, frame, interruptions, task })
    }

    fn is_current(&self, py: Python<'_>) -> bool {
        if self.thread != std::thread::current().id() {
            return false;
        }
        let is_interrupted = match interruption::count(py, self.frame) {
            Ok((interruptions, true)) => interruptions > 0,
            Ok((interruptions, false)) => interruptions > self.interruptions,
            Err(_) => false,
        };
        // A thread that opens a capture outside of tasks records its tasks, too.
        let is_task = |task: &Py<PyWeakrefReference>| {
            let (opener, current) = (task.bind(py).upgrade(), current_task(py));
            opener.zip(current).is_some_and(|(opener, current)| opener.is(&current))
        };
        !is_interrupted && self.task.as_ref().is_none_or(is_task)
    }
}

/// The task of asyncio that runs in this thread.
fn current_task(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    let asyncio = py.import("sys").ok()?.getattr("modules").ok()?.get_item("asyncio").ok()?;
    // Without a running loop this is an error.
    asyncio.call_method0("current_task").ok().filter(|task| !task.is_none())
}

/// A capture that is the current one of the context that opened it.
pub(super) struct Opened {
    pub(super) capture: Capture,
    token: Py<PyAny>,
}

impl Opened {
    pub(super) fn new(py: Python<'_>, capture: Capture) -> PyResult<Self> {
        let (variable, _) = variable(py)?;
        let value = Bound::new(py, Value { capture: capture.clone(), opener: Opener::new(py)? })?;
        let token = variable.bind(py).call_method1(pyo3::intern!(py, "set"), (value,))?.unbind();
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Self { capture, token })
    }

    /// For [`leave`].
    pub(super) fn token(&self, py: Python<'_>) -> Py<PyAny> {
        self.token.clone_ref(py)
    }
}

/// Makes the capture before that of the token current again, if there was one. Only the context that opened it can.
pub(super) fn leave(py: Python<'_>, token: &Py<PyAny>) -> PyResult<()> {
    let (variable, _) = variable(py)?;
    let reset = variable.bind(py).call_method1(pyo3::intern!(py, "reset"), (token,));
    reset.map(drop).map_err(|_| {
        PyRuntimeError::new_err(
            "this capture was opened in another context: leave it in the thread or asyncio task that entered it",
        )
    })
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
