//! Where a task runs, and its arguments there.

use super::arg::TaskArg;
use crate::array::Array;
use crate::device::Queue;
use crate::error::{Error, Result};

fn queue_of(arg: &TaskArg) -> Option<&Queue> {
    match arg {
        TaskArg::Array(array) => Some(array.queue()),
        TaskArg::Column(column) => Some(column.queue()),
        TaskArg::Table(table) => Some(table.queue()),
        TaskArg::Number(_) | TaskArg::Text(_) | TaskArg::Object(_) => None,
    }
}

/// The queue that all arguments with data share; none when there are no such arguments.
pub(super) fn common(name: &str, args: &[TaskArg]) -> Result<Option<Queue>> {
    let mut queues = args.iter().filter_map(queue_of);
    let Some(first) = queues.next() else { return Ok(None) };
    if queues.all(|queue| queue == first) {
        return Ok(Some(first.clone()));
    }
    let lines = args.iter().enumerate().filter(|(_, arg)| queue_of(arg).is_some());
    let lines: Vec<_> = lines.map(|(number, arg)| format!("  argument {}: {arg}", number + 1)).collect();
    Err(Error::Placement(format!(
        "the arguments of task {name:?} are on different queues:\n{}\nsay where it runs, or collocate them first",
        lines.join("\n")
    )))
}

/// The arguments with `queue` for their work. Nothing is copied: what cannot be used from there is an error.
pub(super) fn brought(name: &str, args: Vec<TaskArg>, queue: &Queue) -> Result<Vec<TaskArg>> {
    let numbered = args.into_iter().enumerate();
    numbered
        .map(|(number, arg)| {
            for array in memory_of(&arg) {
                if let Some(why) = array.unusable_from(queue)? {
                    return Err(Error::Placement(format!(
                        "argument {} of task {name:?} is {arg}, which cannot be used from {queue}: {why}; collocate \
                         makes a copy that can",
                        number + 1
                    )));
                }
            }
            on(arg, queue)
        })
        .collect()
}

fn on(arg: TaskArg, queue: &Queue) -> Result<TaskArg> {
    Ok(match arg {
        TaskArg::Array(array) => TaskArg::Array(array.on_queue(queue)?),
        TaskArg::Column(column) => TaskArg::Column(column.converted(None, Some(queue))?),
        TaskArg::Table(table) => TaskArg::Table(table.converted(None, Some(queue))?),
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
