//! The context of one task: its queue, its memory, and its arguments in order.

use super::arg::{FromTaskArg, TaskArg};
use super::memory::TaskMemory;
use crate::array::{Array, DType, Element};
use crate::device::Queue;
use crate::error::{Error, Result};
use std::any::{Any, type_name};
use std::collections::VecDeque;
use std::sync::Arc;

/// The argument of a task's function: the queue to use, the memory to allocate from, and a cursor over the
/// arguments.
///
/// ```
/// use usmq::{Array, Task};
///
/// let x = Array::from_slice(&[1f32, 2.0])?;
/// let y = Task::new("scale").arg(&x).arg(3f32).run(|task| -> usmq::Result<Array> {
///     let (x, factor) = (task.array::<f32>()?, task.arg::<f32>()?);
///     let scaled: Vec<f32> = x.to_vec::<f32>()?.iter().map(|value| value * factor).collect();
///     let scaled = task.memory().from_slice(&scaled)?;
///     Ok(task.memory().release(scaled))
/// })?;
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 6.0]);
/// # Ok::<(), usmq::Error>(())
/// ```
pub struct TaskContext {
    name: String,
    queue: Queue,
    memory: Arc<TaskMemory>,
    args: VecDeque<TaskArg>,
    taken: usize,
}

impl TaskContext {
    pub(super) fn new(name: String, queue: Queue, args: Vec<TaskArg>, limit: Option<u64>) -> Self {
        let memory = Arc::new(TaskMemory::new(&name, &queue, limit));
        Self { name, queue, memory, args: args.into(), taken: 0 }
    }

    /// The name given to [`Task::new`](super::Task::new).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The task's queue, which holds its arguments and is the current queue while the task runs.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The memory that the task may use.
    #[must_use]
    pub fn memory(&self) -> &TaskMemory {
        &self.memory
    }

    #[cfg_attr(not(feature = "python"), expect(dead_code))]
    pub(crate) fn shared_memory(&self) -> Arc<TaskMemory> {
        self.memory.clone()
    }

    /// Takes the next argument.
    ///
    /// # Errors
    /// [`Error::Type`] if no argument is left, or if it has another type; it is then not taken.
    pub fn arg<T: FromTaskArg>(&mut self) -> Result<T> {
        self.take(T::NAME, |arg| T::from_arg(arg.clone()).ok_or_else(|| arg.to_string()))
    }

    /// Takes the next argument, an array of this element type.
    ///
    /// # Errors
    /// As [`arg`](Self::arg).
    pub fn array<T: Element>(&mut self) -> Result<Array> {
        self.array_of(T::DTYPE)
    }

    pub(crate) fn array_of(&mut self, dtype: DType) -> Result<Array> {
        self.take(&format!("array of {dtype}"), |arg| match arg {
            TaskArg::Array(array) if array.dtype() == dtype => Ok(array),
            other => Err(other.to_string()),
        })
    }

    /// Takes the next argument, which was given to [`Task::object`](super::Task::object) as a `T`.
    ///
    /// # Errors
    /// As [`arg`](Self::arg).
    pub fn object<T: Any + Send + Sync>(&mut self) -> Result<Arc<T>> {
        self.take(type_name::<T>(), |arg| match arg {
            TaskArg::Object(value) => value.downcast().map_err(|value| TaskArg::Object(value).to_string()),
            other => Err(other.to_string()),
        })
    }

    /// The number of arguments not yet taken.
    #[must_use]
    pub fn args_left(&self) -> usize {
        self.args.len()
    }

    /// Takes all remaining arguments of any type, for functions with any number of them.
    pub fn rest(&mut self) -> Vec<TaskArg> {
        self.taken += self.args.len();
        self.args.drain(..).collect()
    }

    fn take<T>(&mut self, wanted: &str, convert: impl FnOnce(TaskArg) -> Result<T, String>) -> Result<T> {
        let (number, arg) = self.front(wanted)?;
        let value = convert(arg).map_err(|found| self.mismatch(number, wanted, &found))?;
        self.advance(number);
        Ok(value)
    }

    /// Returns the number of the next argument and the argument, without taking it.
    pub(crate) fn front(&self, wanted: &str) -> Result<(usize, TaskArg)> {
        let number = self.taken + 1;
        self.args.front().map(|arg| (number, arg.clone())).ok_or_else(|| {
            Error::wrong_type(format!(
                "task {:?} received {}, but its function requests argument {number}, of type {wanted}",
                self.name,
                count(self.taken)
            ))
        })
    }

    pub(crate) fn mismatch(&self, number: usize, wanted: &str, found: &str) -> Error {
        let name = &self.name;
        let message =
            format!("argument {number} of task {name:?} is {found}; its function requests type {wanted}");
        Error::type_mismatch(wanted, found, message)
    }

    /// Takes this argument, unless another thread already did.
    pub(crate) fn advance(&mut self, number: usize) -> Option<TaskArg> {
        if number != self.taken + 1 {
            return None;
        }
        self.taken += 1;
        self.args.pop_front()
    }

    pub(crate) fn span(&self) -> tracing::Span {
        tracing::debug_span!(target: "usmq", "task", name = %self.name, queue = %self.queue)
    }

    /// Ends the task: its memory refuses allocations, and its remaining blocks are freed.
    ///
    /// # Errors
    /// [`Error::Type`] if arguments were not taken.
    pub(crate) fn finish(&self) -> Result<()> {
        self.memory.close();
        if self.args.is_empty() {
            return Ok(());
        }
        Err(Error::wrong_type(format!(
            "task {:?} received {}, but its function took {}; call rest() for the others",
            self.name,
            count(self.taken + self.args.len()),
            self.taken
        )))
    }
}

/// Ends the task also if the function failed or panicked.
impl Drop for TaskContext {
    fn drop(&mut self) {
        self.memory.close();
    }
}

fn count(arguments: usize) -> String {
    match arguments {
        0 => "no arguments".to_owned(),
        1 => "1 argument".to_owned(),
        more => format!("{more} arguments"),
    }
}

impl std::fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskContext")
            .field("name", &self.name)
            .field("queue", &self.queue)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}
