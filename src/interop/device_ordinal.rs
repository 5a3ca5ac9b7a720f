//! Maps device numbers of Arrow and DLPack to queues for the memory on these devices.

use crate::device::{Device, Queue, QueueProperties, devices};
use crate::error::{Error, Result};
use crate::manager::current_queue;
use crate::memory::Allocation;

/// Returns a queue that can use the memory: the current one if possible, else the cached one of the memory's
/// device and context. The runtime decides: the producer's number only selects the context that is tried
/// first.
pub(super) fn queue_for(pointer: usize, ordinal: i64) -> Result<Queue> {
    find_queue(pointer, ordinal)?.ok_or_else(|| {
        Error::interop(format!(
            "{pointer:#x}, declared as memory of oneAPI device {ordinal}, is not USM of the current queue's \
             context or of a platform's default context; the producer must use one of them, and the libsycl of \
             this process"
        ))
    })
}

/// As [`queue_for`]; `None` for memory that is not USM of these contexts.
pub(crate) fn find_queue(pointer: usize, ordinal: i64) -> Result<Option<Queue>> {
    let current = current_queue()?;
    if Allocation::find(current.context(), pointer, 1)?.is_some_and(|found| found.device == *current.device())
    {
        return Ok(Some(current));
    }
    let mut roots: Vec<Device> = devices()?;
    roots.sort_by_key(|device| i64::try_from(device.ordinal()) != Ok(ordinal));
    for root in &roots {
        let context = root.default_context()?;
        if let Some(found) = Allocation::find(&context, pointer, 1)? {
            return Queue::new(&found.device, Some(&context), QueueProperties::default()).map(Some);
        }
    }
    Ok(None)
}

/// As [`queue_for`], for memory without bytes, whose address the runtime may not know.
pub(super) fn empty_queue(pointer: usize, ordinal: i64) -> Result<Queue> {
    match queue_for(pointer, ordinal) {
        Ok(queue) if pointer != 0 => Ok(queue),
        _ => current_queue(),
    }
}

/// Checks that a device number can name the queue's device: that of its root device, in whose default context the memory is.
pub(super) fn check_nameable(queue: &Queue) -> Result<()> {
    let device = queue.device();
    if *queue.context() == device.root_device().default_context()? {
        return Ok(());
    }
    let why = if device.parent().is_some() {
        "is on a sub-device with a context of its own"
    } else {
        "is not in its platform's default context"
    };
    Err(Error::interop(format!(
        "memory of {queue} {why}, which a device number cannot express; collocate it to {} first",
        device.root_device()
    )))
}
