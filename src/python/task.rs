//! Tasks in Python: `run_task`, and the context that it hands to a function.

use super::array::Array;
use super::arrow::column::Column;
use super::arrow::table::Table;
use super::gil::detach;
use super::queue::Queue;
use super::{argument, dtype, index, memory, scope, target};
use crate::{DType, Scalar, Target, Task, TaskArg, UsmKind};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyTuple, PyType};
use std::sync::Arc;

/// Run a function as a task: with one context that has its arguments, its queue and its memory.
///
/// Parameters
/// ----------
/// function : callable
///     Called with a `TaskContext`, from which it takes the arguments in their order.
/// *args : object
///     The arguments. Arrays, columns and tables must share a queue, or be usable from the one given.
/// queue : str, Device, Queue, optional
///     Where the task runs; by default the queue of its arguments, else the current one.
/// memory_limit : int, optional
///     Most bytes that the task's memory may have in use at a time.
/// name : str, optional
///     For errors and traces; the function's own by default.
///
/// Returns
/// -------
/// object
///     What the function returns. The work that it submitted may still be running.
///
/// Raises
/// ------
/// PlacementError
///     The arguments are on different queues, or cannot be used from the one given. The function is not called.
/// TypeError
///     The function asked for another type than an argument has, or did not take all of them.
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
        // Python's scope is not one of this thread's, where the crate looks.
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

/// What is usmq's is placed; any other object is for the function to look at.
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

/// The object as one of this class, if it is one. A number of numpy is one of Python's; a whole number is a real one,
/// and a truth value is no number.
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

/// What a task's function is called with: the queue to use, the memory to allocate from, and the arguments one after
/// another.
///
/// Made by `run_task` only.
#[pyclass(module = "usmq", frozen)]
pub(super) struct TaskContext(Mutex<crate::TaskContext>);

#[pymethods]
impl TaskContext {
    /// The task's name.
    #[getter]
    fn name(&self) -> String {
        self.0.lock().name().to_owned()
    }

    /// The task's queue; the current one while it runs. Its arguments are on it.
    #[getter]
    fn queue(&self) -> Queue {
        Queue(self.0.lock().queue().clone())
    }

    /// The memory that the task may use.
    #[getter]
    fn memory(&self) -> TaskMemory {
        TaskMemory(self.0.lock().shared_memory())
    }

    /// How many arguments have not been taken.
    #[getter]
    fn args_left(&self) -> usize {
        self.0.lock().args_left()
    }

    /// Take the next argument.
    ///
    /// Parameters
    /// ----------
    /// type : type
    ///     What it must be. Numbers of numpy are ``int`` and ``float``, too; a whole number is a ``float``.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     There is none, or it is of another type; then it is not taken.
    fn arg<'py>(&self, py: Python<'py>, r#type: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let r#type: &Bound<'py, PyType> = argument::given(r#type, "type", "a class, as int")?;
        let wanted = r#type.name()?.to_string();
        loop {
            // Looking at an object may run any Python code, which never happens under the lock.
            let (number, arg) = self.0.lock().front(&wanted)?;
            let found = object(py, arg)?;
            let Some(value) = instance(&found, r#type)? else {
                let text = found.repr()?.to_string();
                return Err(self.0.lock().mismatch(number, &wanted, &text).into());
            };
            let taken = self.0.lock().advance(number);
            // Else another thread has it by now, and the next one is ours.
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

    /// Take all arguments that are left: for functions of any number of them.
    fn rest<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let rest = self.0.lock().rest();
        rest.into_iter().map(|arg| object(py, arg)).collect()
    }

    fn __repr__(&self) -> String {
        let task = self.0.lock();
        format!("<usmq.TaskContext {:?}, {} arguments left>", task.name(), task.args_left())
    }
}

/// The memory of one task. It counts what the task has in use, and gives nothing out once the task is over.
///
/// An array counts while it, or a view of it, is alive and not released. When the task ends, arrays that are alive are
/// their owners'; blocks are freed.
#[pyclass(module = "usmq", frozen)]
pub(super) struct TaskMemory(Arc<crate::TaskMemory>);

#[pymethods]
impl TaskMemory {
    /// An uninitialised array on the task's queue; as ``usmq.empty``.
    ///
    /// Raises
    /// ------
    /// AllocationError
    ///     Beyond the task's limit, or memory is short.
    /// ValueError
    ///     The task is over.
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

    /// An array of zeros on the task's queue; as ``usmq.zeros``.
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

    /// A block for a library that takes addresses, used on the task's queue only. Return its address.
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

    /// Give a block back. Its memory is used again once the work that the queue has so far is complete.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     The task has no block at this address; nothing is freed then.
    fn deallocate(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::address)] address: usize,
    ) -> PyResult<()> {
        Ok(detach(py, || self.0.deallocate(address))?)
    }

    /// Make a block the caller's: an array of its bytes.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     As ``deallocate``.
    fn release_block(&self, #[pyo3(from_py_with = argument::address)] address: usize) -> PyResult<Array> {
        Ok(Array::new(self.0.release_block(address)?))
    }

    /// Take an array off the task's account, since it is an output now. Return the array.
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

    /// The largest ``used`` so far, as allocations saw it.
    #[getter]
    fn peak(&self) -> u64 {
        self.0.peak()
    }

    /// The most bytes that may be in use; None without a limit.
    #[getter]
    fn limit(&self) -> Option<u64> {
        self.0.limit()
    }
}
