//! Selects the queue that all arrays share.

use crate::array::Array;
use crate::device::Queue;
use crate::error::{Error, Result, spelled};
use crate::manager::current_queue;

/// The queue on which work on these arrays runs: the one that they share. Without arrays, the current queue.
///
/// # Errors
/// [`Error::Placement`] if they do not share one; it names each array's queue and the call that fixes it.
///
/// ```
/// let x = usmq::Array::zeros::<f32>([3])?;
/// let y = usmq::Array::zeros::<f32>([3])?;
/// assert_eq!(&usmq::follow(&[&x, &y])?, x.queue());
/// # Ok::<(), usmq::Error>(())
/// ```
pub fn follow(arrays: &[&Array]) -> Result<Queue> {
    let Some((first, rest)) = arrays.split_first() else { return current_queue() };
    if rest.iter().all(|array| array.queue() == first.queue()) {
        return Ok(first.queue().clone());
    }
    let message = format!(
        "the arrays are on different queues:\n{}\npass {} explicitly if all arrays are usable from it, or move them \
         to one queue: {} with all arrays to move the fewest bytes",
        describe(arrays),
        spelled("queue=", "a queue"),
        spelled(
            "collocate(array, like=other), or collocate(...)",
            "collocate(&array, other.queue()), or collocate_all(...)"
        )
    );
    Err(Error::placement(message, queues(arrays), None))
}

/// Checks that kernels on `queue`, which the caller chose explicitly, can use every array.
pub(crate) fn usable_from(queue: &Queue, arrays: &[&Array]) -> Result<()> {
    for (position, array) in arrays.iter().enumerate() {
        if let Some(why) = array.unusable_from(queue)? {
            let message = format!(
                "array {position} cannot be used from {queue}: {why}\n{}\n{} makes a usable copy",
                describe(arrays),
                spelled("collocate(array, queue=queue)", "collocate(&array, &queue)")
            );
            return Err(Error::placement(message, queues(arrays), Some(position)));
        }
    }
    Ok(())
}

fn queues(arrays: &[&Array]) -> Vec<String> {
    arrays.iter().map(|array| array.queue().to_string()).collect()
}

/// One line per array: dtype, shape, kind, queue and context.
fn describe(arrays: &[&Array]) -> String {
    let line = |(position, array): (usize, &&Array)| {
        format!(
            "  array {position}: {}{:?}, {}, {}, {}",
            array.dtype(),
            array.shape(),
            array.memory_kind().title(),
            array.queue(),
            array.context()
        )
    };
    arrays.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}
