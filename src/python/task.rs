//! Tasks in Python: `run_task`, and the context that it passes to the function.

use super::classes::{Array, Column, Queue, Table};
use super::gil::detach;
use super::{argument, dtype, index, memory, scope, target};
use crate::{DType, Scalar, Target, Task, TaskArg, UsmKind};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyTuple, PyType};
use std::sync::Arc;

/// Run a function as a task, with a context that holds its arguments, its queue and its memory.
///
/// Parameters
/// ----------
/// function : callable
///     Called with a `TaskContext`, from which it takes the arguments in order.
/// *args : object
///     The arguments. Arrays, columns and tables must share a queue, or be usable from ``queue``.
/// queue : str, Device, Queue, optional
///     The queue of the task; by default that of its arguments, else the current queue.
/// memory_limit : int or str, optional
///     Limit for the task's memory in use, in bytes or as text such as ``"1GiB"``.
/// name : str, optional
///     The name in errors and traces; by default that of the function.
///
/// Returns
/// -------
/// object
///     The result of the function. Work that it submitted may still be running.
///
/// Raises
/// ------
/// PlacementError
///     The arguments are on different queues, or cannot be used from ``queue``. The function is not called.
/// TypeError
///     The function requested another type than that of an argument, or did not take all arguments.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> def shifted(task):
/// ...     x, by = task.array("f4"), task.arg(int)
/// ...     y = task.memory.zeros(len(x) + by, "f4")
/// ...     y[by:] = x
/// ...     return y
/// >>> usmq.run_task(shifted, usmq.full(2, 7, "f4"), 1).to_numpy().tolist()
/// [0.0, 7.0, 7.0]
#[pyfunction]
#[pyo3(signature = (function, /, *args, queue=None, memory_limit=None, name=None))]
pub(super) fn run_task<'py>(
    py: Python<'py>,
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    queue: Option<&Bound<'py, PyAny>>,
    memory_limit: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = argument::name)] name: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    if !function.is_callable() {
        return Err(argument::wrong_type(function, "function", "callable with a usmq.TaskContext"));
    }
    let memory_limit = memory_limit.map(|bytes| memory::limit(bytes, "memory_limit")).transpose()?;
    let args: Vec<_> = args.iter().map(|arg| argument(&arg)).collect::<PyResult<_>>()?;
    let target = match target::target(queue, "queue")? {
        // The crate looks up scopes of the thread, which do not include Python's.
        Target::Unset if args.iter().all(|arg| matches!(arg, TaskArg::Object(_))) => {
            Target::Queue(scope::current(py)?)
        }
        target => target,
    };
    let name = name.or_else(|| function.getattr("__name__").ok()?.extract().ok());
    let task = Task::new(name.as_deref().unwrap_or("task")).on(target);
    let task = args.into_iter().fold(task, Task::arg);
    let task = memory_limit.into_iter().fold(task, Task::memory_limit);
    let task = detach(py, || task.begin(crate::current_queue))?;
    let span = task.span();
    let queue = Py::new(py, Queue(task.queue().clone()))?;
    let task = Bound::new(py, TaskContext(Mutex::new(task)))?;
    let (_span, scope) = (span.entered(), scope::global(py)?);
    let open = scope.enter(py, &queue)?;
    let result = function.call1((&task,));
    scope.leave(&open)?;
    let context = task.get();
    let finished = detach(py, || context.0.lock().finish());
    let value = result?;
    finished?;
    Ok(value)
}

/// usmq places its own objects; the function handles all others.
fn argument(object: &Bound<'_, PyAny>) -> PyResult<TaskArg> {
    Ok(if let Ok(array) = object.cast::<Array>() {
        TaskArg::Array(array.get().array.clone())
    } else if let Ok(column) = object.cast::<Column>() {
        TaskArg::Column(column.get().0.clone())
    } else if let Ok(table) = object.cast::<Table>() {
        TaskArg::Table(table.get().0.clone())
    } else {
        TaskArg::Object(Arc::new(object.clone().unbind()))
    })
}

/// The Python object of an argument.
fn object<'py>(py: Python<'py>, arg: TaskArg) -> PyResult<Bound<'py, PyAny>> {
    match &arg {
        TaskArg::Array(array) => Ok(Bound::new(py, Array::new(array.clone()))?.into_any()),
        TaskArg::Column(column) => Ok(Bound::new(py, Column::new(column.clone()))?.into_any()),
        TaskArg::Table(table) => Ok(Bound::new(py, Table::new(table.clone()))?.into_any()),
        TaskArg::Object(object) => match object.downcast_ref::<Py<PyAny>>() {
            Some(object) => Ok(object.bind(py).clone()),
            None => Err(PyValueError::new_err("an argument is not a Python object")),
        },
        TaskArg::Number(_) | TaskArg::Text(_) => {
            Err(PyValueError::new_err(format!("{arg} was not passed from Python")))
        }
    }
}

/// Converts the object to this class, if possible. numpy numbers count as Python numbers, an int as a float,
/// and a bool not as a number.
fn instance<'py>(
    object: &Bound<'py, PyAny>,
    class: &Bound<'py, PyType>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let (whole, real) = (class.is(py.get_type::<PyInt>()), class.is(py.get_type::<PyFloat>()));
    if whole || real || class.is(py.get_type::<PyBool>()) {
        return Ok(match index::scalar(object)?.map(|(number, _)| number) {
            Some(Scalar::Bool(value)) if !whole && !real => {
                Some(value.into_pyobject(py)?.to_owned().into_any())
            }
            Some(Scalar::Int(value)) if whole => Some(value.into_pyobject(py)?.into_any()),
            Some(Scalar::Int(value)) if real => Some((value as f64).into_pyobject(py)?.into_any()),
            Some(Scalar::Float(value)) if real => Some(value.into_pyobject(py)?.into_any()),
            _ => None,
        });
    }
    Ok(object.is_instance(class)?.then(|| object.clone()))
}

/// The argument of a task's function: the queue to use, the memory to allocate from, and the arguments in
/// order.
///
/// Only `run_task` creates it.
#[pyclass(module = "usmq", frozen)]
pub(super) struct TaskContext(Mutex<crate::TaskContext>);

#[pymethods]
impl TaskContext {
    /// The task's name.
    #[getter]
    fn name(&self) -> String {
        self.0.lock().name().to_owned()
    }

    /// The task's queue, which holds its arguments and is the current queue while the task runs.
    #[getter]
    fn queue(&self) -> Queue {
        Queue(self.0.lock().queue().clone())
    }

    /// The memory that the task may use.
    #[getter]
    fn memory(&self) -> TaskMemory {
        TaskMemory(self.0.lock().shared_memory())
    }

    /// The number of arguments not yet taken.
    #[getter]
    fn args_left(&self) -> usize {
        self.0.lock().args_left()
    }

    /// Take the next argument.
    ///
    /// Parameters
    /// ----------
    /// type : type
    ///     The required type. numpy numbers count as ``int`` and ``float``; an int counts as a ``float``.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     No argument is left, or it has another type; it is then not taken.
    fn arg<'py>(&self, py: Python<'py>, r#type: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let r#type: &Bound<'py, PyType> = argument::given(r#type, "type", "a class, as int")?;
        let wanted = r#type.name()?.to_string();
        loop {
            // Inspecting an object may run any Python code, so do it without the lock.
            let (number, arg) = self.0.lock().front(&wanted)?;
            let found = object(py, arg)?;
            let Some(value) = instance(&found, r#type)? else {
                let text = found.repr()?.to_string();
                return Err(self.0.lock().mismatch(number, &wanted, &text).into());
            };
            let taken = self.0.lock().advance(number);
            // Otherwise another thread has taken it; try the next one.
            if taken.is_some() {
                return Ok(value);
            }
        }
    }

    /// Take the next argument, an array of this dtype.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     As ``arg``.
    fn array(&self, dtype: &Bound<'_, PyAny>) -> PyResult<Array> {
        let dtype = dtype::parse(dtype)?;
        Ok(Array::new(self.0.lock().array_of(dtype)?))
    }

    /// Take all remaining arguments, for functions with any number of them.
    fn rest<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let rest = self.0.lock().rest();
        rest.into_iter().map(|arg| object(py, arg)).collect()
    }

    fn __repr__(&self) -> String {
        let task = self.0.lock();
        format!("<usmq.TaskContext {:?}, {} arguments left>", task.name(), task.args_left())
    }
}

/// The memory of one task. It counts the memory that the task uses, and refuses allocations after the task
/// has ended.
///
/// An array counts while it, or a view of it, is alive and not released. When the task ends, live arrays keep
/// their memory; blocks are freed.
#[pyclass(module = "usmq", frozen)]
pub(super) struct TaskMemory(Arc<crate::TaskMemory>);

#[pymethods]
impl TaskMemory {
    /// Create an uninitialised array on the task's queue, as ``usmq.empty``.
    ///
    /// Raises
    /// ------
    /// AllocationError
    ///     The task's limit is exceeded, or memory is short.
    /// ValueError
    ///     The task has ended.
    #[pyo3(signature = (shape, dtype=None, *, usm_type="device"))]
    fn empty(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::usm_type)] usm_type: &str,
    ) -> PyResult<Array> {
        let dtype = dtype::parse_opt(dtype)?.unwrap_or(DType::F32);
        let (shape, kind) = (index::shape(shape, "shape")?, usm_type.parse::<UsmKind>()?);
        Ok(Array::new(detach(py, || self.0.uninit(shape, dtype, kind))?))
    }

    /// Create an array of zeros on the task's queue, as ``usmq.zeros``.
    ///
    /// Raises
    /// ------
    /// AllocationError
    ///     As ``empty``.
    #[pyo3(signature = (shape, dtype=None, *, usm_type="device"))]
    fn zeros(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::usm_type)] usm_type: &str,
    ) -> PyResult<Array> {
        let made = self.empty(py, shape, dtype, usm_type)?;
        detach(py, || made.array.fill_bytes(&[0]))?;
        Ok(made)
    }

    /// Allocate a block for a library that takes addresses, for use on the task's queue only. Return its
    /// address.
    ///
    /// Raises
    /// ------
    /// AllocationError
    ///     As ``empty``.
    #[pyo3(signature = (nbytes, *, usm_type="device"))]
    fn allocate(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::nbytes)] nbytes: usize,
        #[pyo3(from_py_with = argument::usm_type)] usm_type: &str,
    ) -> PyResult<usize> {
        let kind = usm_type.parse::<UsmKind>()?;
        Ok(detach(py, || self.0.allocate(nbytes, kind))?)
    }

    /// Free a block. Its memory is reused after the commands already submitted to the queue are complete.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     The task has no block at this address; nothing is freed.
    fn deallocate(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::address)] address: usize,
    ) -> PyResult<()> {
        Ok(detach(py, || self.0.deallocate(address))?)
    }

    /// Transfer a block to the caller, as an array of its bytes.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     As ``deallocate``.
    fn release_block(&self, #[pyo3(from_py_with = argument::address)] address: usize) -> PyResult<Array> {
        Ok(Array::new(self.0.release_block(address)?))
    }

    /// Stop counting an array, because it is an output. Return the array.
    fn release<'py>(
        &self,
        #[pyo3(from_py_with = argument::array)] array: &Bound<'py, Array>,
    ) -> Bound<'py, Array> {
        self.0.release((*array.get().array).clone());
        array.clone()
    }

    /// Bytes in use by arrays and blocks of the task.
    #[getter]
    fn used(&self) -> u64 {
        self.0.used()
    }

    /// The largest ``used`` so far, updated by allocations.
    #[getter]
    fn peak(&self) -> u64 {
        self.0.peak()
    }

    /// The limit in bytes; None without a limit.
    #[getter]
    fn limit(&self) -> Option<u64> {
        self.0.limit()
    }
}
