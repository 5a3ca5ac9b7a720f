//! The current queue in Python: a `contextvars.ContextVar` per manager, so that tasks and threads never see each
//! other's scope.

use super::queue::Queue;
use super::site::detach;
use super::target;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The scope variable of one manager. The value is the innermost queue, or None.
pub(super) struct ScopeVar {
    variable: Py<PyAny>,
    /// The variable's method, looked up once.
    get: Py<PyAny>,
}

impl ScopeVar {
    fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        let kwargs = pyo3::types::PyDict::new(py);
        kwargs.set_item("default", py.None())?;
        let variable = class.call((name,), Some(&kwargs))?;
        Ok(Self { get: variable.getattr("get")?.unbind(), variable: variable.unbind() })
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { variable: self.variable.clone_ref(py), get: self.get.clone_ref(py) }
    }

    pub(super) fn innermost<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Queue>>> {
        let value = self.get.bind(py).call0()?;
        if value.is_none() { Ok(None) } else { Ok(Some(value.cast_into::<Queue>()?)) }
    }

    /// Makes a queue the innermost; the token takes that back.
    pub(super) fn set(&self, py: Python<'_>, queue: &Py<Queue>) -> PyResult<Py<PyAny>> {
        Ok(self.variable.bind(py).call_method1(pyo3::intern!(py, "set"), (queue,))?.unbind())
    }

    pub(super) fn reset(&self, py: Python<'_>, token: &Py<PyAny>) -> PyResult<()> {
        self.variable.bind(py).call_method1(pyo3::intern!(py, "reset"), (token,)).map(drop)
    }
}

static GLOBAL: PyOnceLock<ScopeVar> = PyOnceLock::new();

pub(super) fn global(py: Python<'_>) -> PyResult<&'static ScopeVar> {
    GLOBAL.get_or_try_init(py, || ScopeVar::new(py, "usmq.current_queue"))
}

/// The current queue of this Python context: its innermost scope, else what a Rust caller has scoped on this thread,
/// else the process default, else SYCL's.
pub(super) fn current(py: Python<'_>) -> PyResult<crate::Queue> {
    match global(py)?.innermost(py)? {
        Some(queue) => Ok(queue.get().0.clone()),
        None => unscoped(py),
    }
}

/// The GIL is released only where drivers may have to be loaded.
fn unscoped(py: Python<'_>) -> PyResult<crate::Queue> {
    if crate::manager::current_queue_is_known() {
        return Ok(crate::current_queue()?);
    }
    Ok(detach(py, crate::current_queue)?)
}

/// The queue on which work runs when neither an argument nor the data says otherwise.
///
/// That is the queue of the innermost ``use_queue`` of this context (thread or asyncio task), else the process
/// default, else one on SYCL's default device.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> with usmq.use_queue("cpu") as q:
/// ...     usmq.current_queue() == q
/// True
#[pyfunction]
pub(super) fn current_queue(py: Python<'_>) -> PyResult<Bound<'_, Queue>> {
    match global(py)?.innermost(py)? {
        Some(queue) => Ok(queue),
        None => object_of(py, unscoped(py)?),
    }
}

/// The object that stands for the default queue, made anew only when that has changed.
fn object_of(py: Python<'_>, queue: crate::Queue) -> PyResult<Bound<'_, Queue>> {
    static LAST: Mutex<Option<Py<Queue>>> = Mutex::new(None);
    // Python code, which may come here again, never runs under the lock.
    let last = LAST.lock().as_ref().map(|object| object.bind(py).clone());
    if let Some(object) = last.filter(|object| object.get().0 == queue) {
        return Ok(object);
    }
    let object = Bound::new(py, Queue(queue))?;
    let _before = LAST.lock().replace(object.clone().unbind());
    Ok(object)
}

/// Make a queue current inside a ``with`` block.
///
/// Parameters
/// ----------
/// target : str, Device, Queue, another library's queue or None
///     The queue; None changes nothing.
///
/// Returns
/// -------
/// UseQueue
///     A context manager that gives the queue.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> with usmq.use_queue("cpu") as q:
/// ...     usmq.zeros(3).queue == q
/// True
#[pyfunction]
pub(super) fn use_queue(py: Python<'_>, target: Option<&Bound<'_, PyAny>>) -> PyResult<UseQueue> {
    UseQueue::new(py, global(py)?, target, None)
}

/// Set the default queue of the whole process, for every thread.
///
/// Parameters
/// ----------
/// target : str, Device, Queue, another library's queue or None
///     The queue; None goes back to SYCL's default device.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.set_default_queue("cpu")
/// >>> usmq.current_queue() == usmq.Queue("cpu")
/// True
/// >>> usmq.set_default_queue(None)
#[pyfunction]
pub(super) fn set_default_queue(py: Python<'_>, target: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let target = target::target(target)?;
    Ok(detach(py, || crate::set_default_queue(target))?)
}

/// A scope made by ``use_queue``. It may be entered more than once, also while it is open.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct UseQueue {
    scope: ScopeVar,
    /// None: the scope changes nothing.
    queue: Option<Py<Queue>>,
    manager: Option<QueueManager>,
    /// What to hand back to the variable, innermost last.
    tokens: Mutex<Vec<Option<Py<PyAny>>>>,
}

impl UseQueue {
    fn new(
        py: Python<'_>,
        scope: &ScopeVar,
        target: Option<&Bound<'_, PyAny>>,
        manager: Option<QueueManager>,
    ) -> PyResult<Self> {
        let queue = match target.map(|target| target.cast::<Queue>()) {
            Some(Ok(queue)) => Some(queue.clone().unbind()),
            _ => target::queue(py, target)?.map(|queue| Py::new(py, Queue(queue))).transpose()?,
        };
        Ok(Self { scope: scope.clone_ref(py), queue, manager, tokens: Mutex::default() })
    }

    fn push(&self, token: Option<Py<PyAny>>) {
        self.tokens.lock().push(token);
    }

    fn pop(&self) -> Option<Option<Py<PyAny>>> {
        self.tokens.lock().pop()
    }
}

#[pymethods]
impl UseQueue {
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Queue>> {
        let Some(queue) = &self.queue else {
            let current = match &self.manager {
                Some(manager) => manager.current(py)?,
                None => current(py)?,
            };
            self.push(None);
            return Py::new(py, Queue(current));
        };
        self.push(Some(self.scope.set(py, queue)?));
        Ok(queue.clone_ref(py))
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self.pop() {
            Some(Some(token)) => self.scope.reset(py, &token)?,
            Some(None) => {}
            None => return Err(PyRuntimeError::new_err("this scope is not open")),
        }
        Ok(false)
    }
}

/// A package's own choice of queue.
///
/// Its scopes and its default concern only those who ask this manager. Without either it follows the process-wide
/// current queue.
///
/// Parameters
/// ----------
/// name : str
///     A name for people.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> manager = usmq.QueueManager("my_package")
/// >>> manager.current_queue() == usmq.current_queue()
/// True
#[pyclass(module = "usmq", frozen)]
pub(super) struct QueueManager {
    manager: crate::QueueManager,
    scope: ScopeVar,
}

impl QueueManager {
    fn current(&self, py: Python<'_>) -> PyResult<crate::Queue> {
        if let Some(queue) = self.scope.innermost(py)? {
            return Ok(queue.get().0.clone());
        }
        self.manager.scoped_or_default_queue().map_or_else(|| current(py), Ok)
    }
}

#[pymethods]
impl QueueManager {
    #[new]
    fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        let scope = ScopeVar::new(py, &format!("usmq.QueueManager({name})"))?;
        Ok(Self { manager: crate::QueueManager::new(name), scope })
    }

    /// The name given at creation.
    #[getter]
    fn name(&self) -> &str {
        self.manager.name()
    }

    /// The innermost of this manager's scopes, else its default, else the process-wide current queue.
    fn current_queue(&self, py: Python<'_>) -> PyResult<Queue> {
        Ok(Queue(self.current(py)?))
    }

    /// Make a queue this manager's current one inside a ``with`` block; None changes nothing.
    fn use_queue(&self, py: Python<'_>, target: Option<&Bound<'_, PyAny>>) -> PyResult<UseQueue> {
        let own = Self { manager: self.manager.clone(), scope: self.scope.clone_ref(py) };
        UseQueue::new(py, &self.scope, target, Some(own))
    }

    /// Set this manager's default; None returns to the process-wide queue.
    fn set_default_queue(&self, py: Python<'_>, target: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let target = target::target(target)?;
        Ok(detach(py, || self.manager.set_default_queue(target))?)
    }

    fn __repr__(&self) -> String {
        format!("<usmq.QueueManager {:?}>", self.manager.name())
    }
}
