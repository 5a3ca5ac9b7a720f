//! Devices by number, as Arrow and DLPack name them, and the queues for memory that is found there.

use crate::device::{Device, Queue, QueueProperties, devices};
use crate::error::{Error, Result};
use crate::manager::current_queue;

/// A queue from which the memory can be used: the current one if it can, else the cached one of the memory's device
/// and context. The runtime is asked, not the producer: its number only says which context is tried first.
pub(super) fn queue_for(pointer: usize, ordinal: i64) -> Result<Queue> {
    let current = current_queue()?;
    if current.context().kind_of(pointer)?.is_some()
        && current.context().device_of(pointer)? == *current.device()
    {
        return Ok(current);
    }
    let mut roots: Vec<Device> = devices()?;
    roots.sort_by_key(|device| i64::try_from(device.ordinal()) != Ok(ordinal));
    for root in &roots {
        let context = root.default_context()?;
        if context.kind_of(pointer)?.is_some() {
            let device = context.device_of(pointer)?;
            return Queue::new(&device, Some(&context), QueueProperties::default());
        }
    }
    Err(Error::Interop(format!(
        "{pointer:#x}, declared as memory of oneAPI device {ordinal}, is not USM of the current queue's \
         context or of a \
         platform's default context; the producer must use one of them, and the libsycl of this process"
    )))
}

/// As [`queue_for`], for memory of no bytes, whose address the runtime need not know.
pub(super) fn empty_queue(pointer: usize, ordinal: i64) -> Result<Queue> {
    match queue_for(pointer, ordinal) {
        Ok(queue) if pointer != 0 => Ok(queue),
        _ => current_queue(),
    }
}

/// A root device in its platform's default context is what a device number can stand for.
pub(super) fn check_nameable(queue: &Queue) -> Result<()> {
    let device = queue.device();
    let why = if device.parent().is_some() {
        "is on a sub-device"
    } else if *queue.context() != device.default_context()? {
        "is not in its platform's default context"
    } else {
        return Ok(());
    };
    Err(Error::Interop(format!(
        "memory of {queue} {why}, which a device number cannot express; collocate it to {} first",
        device.root_device()
    )))
}
