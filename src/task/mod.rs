//! Tasks: a function, its arguments, and the context that is passed to it.
//!
//! A framework that runs user functions sets the queue, the arguments and the memory limit of each call here.
//! The function gets all of these from its [`TaskContext`].

mod arg;
mod context;
mod memory;

pub use arg::{FromTaskArg, TaskArg};
pub use context::TaskContext;
pub use memory::TaskMemory;

use crate::array::Array;
use crate::device::Queue;
use crate::error::{Error, Result};
use crate::manager::{QueueManager, Target, current_queue, enter};
use std::any::Any;
use std::sync::Arc;

/// A function's arguments, in order, and its target queue.
///
/// ```
/// use usmq::{Array, Kernel, Task, TaskContext};
///
/// fn scale(task: &mut TaskContext) -> usmq::Result<Array> {
///     let x = task.array::<f32>()?; // the first argument; another type is an error that names both
///     let factor: f32 = task.arg()?; // the second
///     let y = task.memory().empty::<f32>([x.size()])?; // on the task's queue, counted against its limit
///     let kernel = Kernel::from_sycl(
///         r#"#include <usmq/kernel.h>
///         USMQ_KERNEL(1) void scale(float a, const float *x, float *y) {
///           size_t i = global_id(0);
///           y[i] = a * x[i];
///         }"#,
///         "scale",
///     )?;
///     // SAFETY: the kernel writes y[0..size] only.
///     unsafe { kernel.launch([x.size()], &[factor.into(), (&x).into(), (&y).into()]) }?;
///     Ok(y)
/// }
///
/// let x = Array::from_slice(&[1f32, 2.0])?;
/// let y = Task::new("scale").arg(&x).arg(3.0).memory_limit(1 << 20).run(scale)?;
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 6.0]);
/// assert_eq!(y.queue(), x.queue()); // no target was given, so the task ran where its data is
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a task does nothing until it is run"]
pub struct Task {
    name: String,
    args: Vec<TaskArg>,
    target: Target,
    manager: Option<QueueManager>,
    limit: Option<u64>,
}

impl Task {
    /// Creates a task without arguments. Errors and traces show the name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), args: Vec::new(), target: Target::Unset, manager: None, limit: None }
    }

    /// Appends an argument: an array, a column, a table, a number or a text.
    pub fn arg(mut self, arg: impl Into<TaskArg>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Appends an argument of any other type, which the task takes with [`TaskContext::object`].
    pub fn object<T: Any + Send + Sync>(self, value: T) -> Self {
        self.arg(TaskArg::Object(Arc::new(value)))
    }

    /// Sets the target, which must be able to use the memory of each argument. With [`Target::Unset`] the
    /// arguments determine it.
    pub fn on(mut self, target: impl Into<Target>) -> Self {
        self.target = target.into();
        self
    }

    /// Sets the manager whose current queue is used if neither a target nor an argument names one.
    pub fn manager(mut self, manager: &QueueManager) -> Self {
        self.manager = Some(manager.clone());
        self
    }

    /// Limits the bytes in use by the task's [`TaskMemory`], for all USM kinds together.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Runs `body` on this thread with the task's queue as the current one. Work that it submits may still be
    /// running on return, as after every launch.
    ///
    /// The queue is the target, else the queue shared by all arguments, else the manager's current queue.
    ///
    /// # Errors
    /// Those of `body`. Before the call: [`Error::Placement`] if the arguments are on different queues or
    /// cannot be used from the target, or the error of the target queue. After the call: [`Error::Type`] if
    /// `body` did not take all arguments.
    pub fn run<T, E: From<Error>>(self, body: impl FnOnce(&mut TaskContext) -> Result<T, E>) -> Result<T, E> {
        let manager = self.manager.clone();
        let current = || manager.map_or_else(current_queue, |manager| manager.current_queue());
        let mut task = self.begin(current)?;
        let _span = task.span().entered();
        let _scope = enter(task.queue().clone());
        let value = body(&mut task)?;
        task.finish()?;
        Ok(value)
    }

    /// Creates the context for a caller that runs the function itself and then calls [`TaskContext::finish`].
    pub(crate) fn begin(self, current: impl FnOnce() -> Result<Queue>) -> Result<TaskContext> {
        let queue = match self.target.queue()? {
            Some(queue) => queue,
            None => common_queue(&self.name, &self.args)?.map_or_else(current, Ok)?,
        };
        let args = rebind_args(&self.name, self.args, &queue)?;
        Ok(TaskContext::new(self.name, queue, args, self.limit))
    }
}

fn queue_of(arg: &TaskArg) -> Option<&Queue> {
    match arg {
        TaskArg::Array(array) => Some(array.queue()),
        TaskArg::Column(column) => Some(column.queue()),
        TaskArg::Table(table) => Some(table.queue()),
        TaskArg::Number(_) | TaskArg::Text(_) | TaskArg::Object(_) => None,
    }
}

/// The queue shared by all arguments with data; none without such arguments.
fn common_queue(name: &str, args: &[TaskArg]) -> Result<Option<Queue>> {
    let mut queues = args.iter().filter_map(queue_of);
    let Some(first) = queues.next() else { return Ok(None) };
    if queues.all(|queue| queue == first) {
        return Ok(Some(first.clone()));
    }
    let lines = args.iter().enumerate().filter(|(_, arg)| queue_of(arg).is_some());
    let lines: Vec<_> = lines.map(|(number, arg)| format!("  argument {}: {arg}", number + 1)).collect();
    let message = format!(
        "the arguments of task {name:?} are on different queues:\n{}\npass the queue that runs it, or \
         collocate them first",
        lines.join("\n")
    );
    let queues = args.iter().filter_map(queue_of).map(Queue::to_string).collect();
    Err(Error::placement(message, queues, None))
}

/// Binds the arguments to `queue` without copies; an error for memory that the queue cannot use.
fn rebind_args(name: &str, args: Vec<TaskArg>, queue: &Queue) -> Result<Vec<TaskArg>> {
    let numbered = args.into_iter().enumerate();
    numbered
        .map(|(number, arg)| {
            for array in memory_of(&arg) {
                if let Some(why) = array.unusable_from(queue)? {
                    let message = format!(
                        "argument {} of task {name:?} is {arg}, which cannot be used from {queue}: {why}; \
                         copy it with collocate",
                        number + 1
                    );
                    return Err(Error::placement(message, vec![array.queue().to_string()], Some(number)));
                }
            }
            rebind(arg, queue)
        })
        .collect()
}

fn rebind(arg: TaskArg, queue: &Queue) -> Result<TaskArg> {
    Ok(match arg {
        TaskArg::Array(array) => TaskArg::Array(array.on_queue(queue)?),
        TaskArg::Column(column) => TaskArg::Column(column.to(None, Some(queue))?),
        TaskArg::Table(table) => TaskArg::Table(table.to(None, Some(queue))?),
        other => other,
    })
}

/// Every array whose memory an argument has.
fn memory_of(arg: &TaskArg) -> Vec<Array> {
    match arg {
        TaskArg::Array(array) => vec![array.clone()],
        TaskArg::Column(column) => column.held(),
        TaskArg::Table(table) => table.batches().iter().flat_map(|batch| batch.held()).collect(),
        TaskArg::Number(_) | TaskArg::Text(_) | TaskArg::Object(_) => Vec::new(),
    }
}
