//! The current queue in Python: a `contextvars.ContextVar` per manager, so that each task and thread has its
//! own scopes.

use super::classes::Queue;
use super::gil::detach;
use super::{argument, target};
use crate::manager::known_queue;
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The scope variable of one manager. The value is an immutable tuple of [`Open`], innermost last: Python
/// copies contexts, and a scope that one context leaves stays open in the others.
#[derive(Clone)]
pub(super) struct ScopeVar(Arc<Methods>);

/// The methods of the variable, looked up once.
struct Methods {
    get: Py<PyAny>,
    set: Py<PyAny>,
    reset: Py<PyAny>,
}

/// A scope that was entered.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct Open {
    /// None: the scope changes nothing.
    queue: Option<Py<Queue>>,
    /// The object whose `__exit__` leaves the scope.
    owner: Option<Py<UseQueue>>,
    /// The number of scopes open below it; [`MOVED`] after a generator took it along.
    below: AtomicUsize,
    /// Python's token for the context in which it was entered.
    token: OnceLock<Py<PyAny>>,
}

/// Such a scope has no valid token: what was below it may have changed, or it is open in another context.
const MOVED: usize = usize::MAX;

#[pymethods]
impl Open {
    /// The token holds the context, which holds this, for as long as the scope is not left.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self.token.get())
    }
}

impl ScopeVar {
    fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        let kwargs = PyDict::new(py);
        kwargs.set_item("default", PyTuple::empty(py))?;
        let variable = class.call((name,), Some(&kwargs))?;
        let method = |name: &str| Ok::<_, PyErr>(variable.getattr(name)?.unbind());
        Ok(Self(Arc::new(Methods { get: method("get")?, set: method("set")?, reset: method("reset")? })))
    }

    fn opened<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        Ok(self.0.get.bind(py).call0()?.cast_into()?)
    }

    fn set<'py>(&self, value: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        self.0.set.bind(py).call1((value,))
    }

    /// The innermost scope with a queue, if any.
    fn deciding<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Open>>> {
        let opened = self.opened(py)?;
        for scope in opened.iter().rev() {
            let scope = scope.cast_into::<Open>()?;
            if scope.get().queue.is_some() {
                return Ok(Some(scope));
            }
        }
        Ok(None)
    }

    pub(super) fn innermost<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Queue>>> {
        let scope = self.deciding(py)?;
        Ok(scope.and_then(|scope| Some(scope.get().queue.as_ref()?.bind(py).clone())))
    }

    pub(super) fn is_innermost(&self, scope: &Bound<'_, Open>) -> PyResult<bool> {
        Ok(self.deciding(scope.py())?.is_some_and(|innermost| innermost.is(scope)))
    }

    /// Makes a queue the innermost of this context.
    pub(super) fn enter<'py>(&self, py: Python<'py>, queue: &Py<Queue>) -> PyResult<Bound<'py, Open>> {
        self.push(py, Some(queue), None)
    }

    fn push<'py>(
        &self,
        py: Python<'py>,
        queue: Option<&Py<Queue>>,
        owner: Option<&Bound<'py, UseQueue>>,
    ) -> PyResult<Bound<'py, Open>> {
        let (opened, queue) = (self.opened(py)?, queue.map(|queue| queue.clone_ref(py)));
        let owner = owner.map(|owner| owner.clone().unbind());
        let below = AtomicUsize::new(opened.len());
        let scope = Bound::new(py, Open { queue, owner, below, token: OnceLock::new() })?;
        let all = if opened.is_empty() {
            PyTuple::new(py, [&scope])?
        } else {
            PyTuple::new(py, opened.iter().chain([scope.clone().into_any()]).collect::<Vec<_>>())?
        };
        let token = self.set(&all)?;
        // The scope is new, so this sets its first token.
        let _ = scope.get().token.set(token.unbind());
        Ok(scope)
    }

    pub(super) fn leave(&self, scope: &Bound<'_, Open>) -> PyResult<()> {
        self.take_out(scope, &self.opened(scope.py())?)
    }

    /// Removes a scope at any position of this context. In another context than the one that entered it,
    /// returns an error and changes nothing.
    fn take_out(&self, scope: &Bound<'_, Open>, opened: &Bound<'_, PyTuple>) -> PyResult<()> {
        let (py, open) = (scope.py(), scope.get());
        let at = opened.iter().rposition(|one| one.is(scope)).ok_or_else(not_open)?;
        let token = open.token.get().ok_or_else(not_open)?;
        let below = open.below.load(Ordering::Relaxed);
        // Scopes below may have been left before it, and scopes above may be left after it.
        let others = if at == below && at + 1 == opened.len() {
            None
        } else {
            Some(PyTuple::new(py, opened.iter().filter(|one| !one.is(scope)).collect::<Vec<_>>())?)
        };
        if below != MOVED {
            // Restores the earlier value; works only in the context of the token, and once.
            self.0.reset.bind(py).call1((token,)).map_err(|_| not_open())?;
        }
        others.map_or(Ok(()), |others| self.set(&others).map(drop))
    }
}

fn not_open() -> PyErr {
    PyRuntimeError::new_err(
        "this scope is not open here: leave it once, in the context (thread or asyncio task) that entered it",
    )
}

static GLOBAL: PyOnceLock<ScopeVar> = PyOnceLock::new();

pub(super) fn global(py: Python<'_>) -> PyResult<&'static ScopeVar> {
    GLOBAL.get_or_try_init(py, || ScopeVar::new(py, "usmq.current_queue"))
}

/// The current queue of this Python context: its innermost scope, else the scope of a Rust caller on this
/// thread, else the process default, else SYCL's default device.
pub(super) fn current(py: Python<'_>) -> PyResult<crate::Queue> {
    match global(py)?.innermost(py)? {
        Some(queue) => Ok(queue.get().0.clone()),
        None => unscoped(py),
    }
}

/// The queue for an argument `queue=`; the current queue for None.
pub(super) fn queue_or_current(py: Python<'_>, object: Option<&Bound<'_, PyAny>>) -> PyResult<crate::Queue> {
    match target::queue(py, object)? {
        Some(queue) => Ok(queue),
        None => current(py),
    }
}

/// As [`queue_or_current`], for the arguments `queue=` and `device=`.
pub(super) fn place_or_current(
    py: Python<'_>,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<crate::Queue> {
    target::place(py, queue, device)?.map_or_else(|| current(py), Ok)
}

/// Releases the GIL only if drivers may have to be loaded.
fn unscoped(py: Python<'_>) -> PyResult<crate::Queue> {
    if crate::manager::current_queue_is_known() {
        return Ok(crate::current_queue()?);
    }
    Ok(detach(py, crate::current_queue)?)
}

/// Return the queue that runs work if neither an argument nor the data names a queue.
///
/// This is the queue of the innermost ``use_queue`` of this context (thread or asyncio task), else the
/// process default, else one on SYCL's default device.
///
/// Raises
/// ------
/// RuntimeNotFoundError
///     No queue is set, and no device is visible.
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

/// The Python object of the default queue, created again only after a change.
fn object_of(py: Python<'_>, queue: crate::Queue) -> PyResult<Bound<'_, Queue>> {
    static LAST: Mutex<Option<Py<Queue>>> = Mutex::new(None);
    // Never run Python code under the lock: it may call this function again.
    let last = LAST.lock().as_ref().map(|object| object.bind(py).clone());
    if let Some(object) = last.filter(|object| object.get().0 == queue) {
        return Ok(object);
    }
    let object = Bound::new(py, Queue(queue))?;
    let mut last = LAST.lock();
    match last.as_ref().filter(|other| other.get().0 == object.get().0) {
        // Another thread was first: one queue is one object.
        Some(other) => Ok(other.bind(py).clone()),
        None => {
            let before = last.replace(object.clone().unbind());
            drop(last);
            drop(before);
            Ok(object)
        }
    }
}

/// Make a queue current inside a ``with`` block, or in each call of a decorated function.
///
/// The decorator takes functions, coroutine functions, generator functions and asynchronous generator
/// functions. The scope of a generator or coroutine is open while its body runs, not while its consumer
/// runs.
///
/// Parameters
/// ----------
/// target : str, Device, Queue, another library's queue or None
///     The queue; None changes nothing. The device of a filter string is looked up when the block or the
///     decorated function begins.
///
/// Returns
/// -------
/// UseQueue
///     A context manager; ``as`` binds the queue. Also a decorator.
///
/// Raises
/// ------
/// SelectorError
///     ``target`` is not a filter string.
/// DeviceNotFoundError
///     No visible device matches, when the block or the decorated function begins; the text lists the
///     visible ones.
/// TypeError
///     ``target`` has another type.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> with usmq.use_queue("cpu") as q:
/// ...     usmq.zeros(3).queue == q
/// True
/// >>> @usmq.use_queue("cpu")
/// ... def make():
/// ...     return usmq.zeros(3)
/// >>> make().queue == q
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
///     The queue; None restores SYCL's default device.
///
/// Raises
/// ------
/// SelectorError
///     ``target`` is not a filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists the visible ones.
/// TypeError
///     ``target`` has another type.
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
    let target = target::target(target, "target")?;
    Ok(detach(py, || crate::set_default_queue(target))?)
}

/// A scope created by ``use_queue``. Several threads and asyncio tasks may enter it, more than once, also
/// while it is open. Each must leave its own entries; leaving elsewhere raises RuntimeError.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct UseQueue {
    scope: ScopeVar,
    /// Unset: the scope changes nothing.
    target: crate::Target,
    /// The queue of the target, after the first entry.
    queue: PyOnceLock<Py<Queue>>,
    manager: Option<QueueManager>,
}

impl UseQueue {
    fn new(
        py: Python<'_>,
        scope: &ScopeVar,
        target: Option<&Bound<'_, PyAny>>,
        manager: Option<QueueManager>,
    ) -> PyResult<Self> {
        let queue = PyOnceLock::new();
        if let Some(Ok(given)) = target.map(|target| target.cast::<Queue>()) {
            let _ = queue.set(py, given.clone().unbind());
        }
        let found = target::target(target, "target").map_err(|error| bare_decorator(target, error))?;
        if let crate::Target::Filter(text) = &found {
            // In a forked child the entry reports the error.
            match known_queue(text) {
                Ok(Some(known)) => drop(queue.set(py, Py::new(py, Queue(known))?)),
                _ => drop(crate::Selector::parse(text)?),
            }
        }
        Ok(Self { scope: scope.clone(), target: found, queue, manager })
    }

    /// The queue of the target; None for a scope that changes nothing.
    fn queue<'py>(&self, py: Python<'py>) -> PyResult<Option<&Py<Queue>>> {
        if matches!(self.target, crate::Target::Unset) {
            return Ok(None);
        }
        let find = || {
            let queue = detach(py, || self.target.clone().queue())?;
            Py::new(py, Queue(queue.ok_or_else(not_open)?))
        };
        self.queue.get_or_try_init(py, find).map(Some)
    }
}

/// The error for `@use_queue` without a target, which passes the decorated function as the target.
fn bare_decorator(target: Option<&Bound<'_, PyAny>>, error: PyErr) -> PyErr {
    match target {
        Some(target) if target.is_callable() && error.is_instance_of::<PyTypeError>(target.py()) => {
            PyTypeError::new_err(format!(
                "{error}. As a decorator, use_queue needs a target: @usmq.use_queue(\"gpu:1\")",
                error = error.value(target.py())
            ))
        }
        _ => error,
    }
}

#[pymethods]
impl UseQueue {
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Py<Queue>> {
        let (py, own) = (slf.py(), slf.get());
        let queue = own.queue(py)?;
        let current = match (queue, &own.manager) {
            (Some(queue), _) => queue.clone_ref(py),
            (None, Some(manager)) => Py::new(py, Queue(manager.current(py)?))?,
            (None, None) => Py::new(py, Queue(current(py)?))?,
        };
        own.scope.push(py, queue, Some(slf))?;
        Ok(current)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyAny>) -> PyResult<bool> {
        let scope = &slf.get().scope;
        let opened = scope.opened(slf.py())?;
        for open in opened.iter().rev() {
            let open = open.cast_into::<Open>()?;
            if open.get().owner.as_ref().is_some_and(|owner| owner.is(slf)) {
                scope.take_out(&open, &opened)?;
                return Ok(false);
            }
        }
        Err(not_open())
    }

    /// Decorates a function.
    fn __call__<'py>(slf: &Bound<'py, Self>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("usmq._decorator")?.call_method1("decorated", (slf, function))
    }

    /// Looks up the queue of the target now.
    fn _resolve(&self, py: Python<'_>) -> PyResult<()> {
        self.queue(py).map(drop)
    }

    /// The scopes of one generator or coroutine that this scope decorates.
    fn _resumed(slf: Bound<'_, Self>) -> ResumedScope {
        ResumedScope { scope: slf.unbind(), state: Mutex::new(Resumed::New) }
    }
}

/// The scopes of a decorated generator or coroutine, as a context manager around each of its steps. While its
/// consumer runs, they are closed, with those that its body has opened.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct ResumedScope {
    scope: Py<UseQueue>,
    state: Mutex<Resumed>,
}

enum Resumed {
    New,
    /// Its own scopes, while it is suspended.
    Suspended(Py<PyTuple>),
    /// The scopes of its consumer, while it runs.
    Running(Py<PyTuple>),
}

impl ResumedScope {
    fn take(&self) -> Resumed {
        std::mem::replace(&mut *self.state.lock(), Resumed::New)
    }
}

#[pymethods]
impl ResumedScope {
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let owner = self.scope.bind(py);
        let variable = &owner.get().scope;
        let outer = variable.opened(py)?;
        match self.take() {
            Resumed::New => drop(variable.push(py, owner.get().queue(py)?, Some(owner))?),
            Resumed::Suspended(own) => {
                let own = own.bind(py);
                for open in own.iter() {
                    open.cast_into::<Open>()?.get().below.store(MOVED, Ordering::Relaxed);
                }
                variable.set(&PyTuple::new(py, outer.iter().chain(own.iter()).collect::<Vec<_>>())?)?;
            }
            // Python refuses to resume a generator that runs.
            Resumed::Running(_) => return Err(not_open()),
        }
        *self.state.lock() = Resumed::Running(outer.unbind());
        Ok(())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Resumed::Running(outer) = self.take() else { return Err(not_open()) };
        let (outer, variable) = (outer.into_bound(py), &self.scope.get().scope);
        let now = variable.opened(py)?;
        let is_in = |all: &Bound<'_, PyTuple>, open: &Bound<'_, PyAny>| all.iter().any(|one| one.is(open));
        let own: Vec<_> = now.iter().filter(|open| !is_in(&outer, open)).collect();
        // The body may have left a scope of its consumer.
        let rest: Vec<_> = outer.iter().filter(|open| is_in(&now, open)).collect();
        let outer = if rest.len() == outer.len() { outer } else { PyTuple::new(py, rest)? };
        variable.set(&outer)?;
        *self.state.lock() = Resumed::Suspended(PyTuple::new(py, own)?.unbind());
        Ok(false)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.scope)?;
        // A thread that holds the lock uses the object.
        match self.state.try_lock().as_deref() {
            Some(Resumed::Suspended(scopes) | Resumed::Running(scopes)) => visit.call(scopes),
            _ => Ok(()),
        }
    }
}

/// The queue selection of one package.
///
/// Its scopes and default affect only callers of this manager. Without a scope or default, it returns the
/// process-wide current queue.
///
/// Parameters
/// ----------
/// name : str
///     A name for messages.
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
        self.manager.scoped_or_default_queue()?.map_or_else(|| current(py), Ok)
    }
}

#[pymethods]
impl QueueManager {
    #[new]
    fn new(py: Python<'_>, #[pyo3(from_py_with = argument::name)] name: &str) -> PyResult<Self> {
        let scope = ScopeVar::new(py, &format!("usmq.QueueManager({name})"))?;
        Ok(Self { manager: crate::QueueManager::new(name), scope })
    }

    /// The name given at creation.
    #[getter]
    fn name(&self) -> &str {
        self.manager.name()
    }

    /// Return the queue of this manager's innermost scope, else its default, else the process-wide current
    /// queue.
    fn current_queue(&self, py: Python<'_>) -> PyResult<Queue> {
        Ok(Queue(self.current(py)?))
    }

    /// Make a queue this manager's current one inside a ``with`` block, or in each call of a decorated
    /// function; None changes nothing.
    fn use_queue(&self, py: Python<'_>, target: Option<&Bound<'_, PyAny>>) -> PyResult<UseQueue> {
        let own = Self { manager: self.manager.clone(), scope: self.scope.clone() };
        UseQueue::new(py, &self.scope, target, Some(own))
    }

    /// Set this manager's default; None returns to the process-wide queue.
    fn set_default_queue(&self, py: Python<'_>, target: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let target = target::target(target, "target")?;
        Ok(detach(py, || self.manager.set_default_queue(target))?)
    }

    fn __repr__(&self) -> String {
        format!("<usmq.QueueManager {:?}>", self.manager.name())
    }
}
