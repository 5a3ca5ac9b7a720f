//! The parts of DLPack's C exchange API (1.3) that do not need Python: work queues and new tensors.

use super::abi::{CPU, DLManagedTensorVersioned, DLTensor, ONEAPI};
use super::export::{Destination, Export, ExportedTensor, Order, export};
use super::import::shape_of;
use crate::array::Array;
use crate::device::{Queue, QueueProperties, UsmKind, devices};
use crate::error::{Error, Result};
use crate::manager::current_queue;
use crate::runtime::ForkMutex;
use once_cell::sync::Lazy;
use std::collections::HashMap;

/// Returns the queue for usmq's work on a DLPack device: the current one if it is on that device, else the
/// cached one of the device. A consumer that uses it needs no other synchronization. None for the host, which
/// has no queue.
///
/// ```
/// use usmq::interop::dlpack::{Destination, work_queue};
///
/// let queue = usmq::Queue::get("cpu")?;
/// let device = Destination { kind: 14, id: i32::try_from(queue.device().ordinal()).expect("few devices") };
/// let found = work_queue(device)?.expect("a queue");
/// assert_eq!(found.device(), queue.device());
/// assert!(work_queue(Destination { kind: 14, id: 99 }).is_err());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Interop`] for a device that usmq does not have, or errors of finding the current queue.
pub fn work_queue(device: Destination) -> Result<Option<Queue>> {
    let Destination { kind, id } = device;
    if kind == CPU {
        return Ok(None);
    }
    let unknown = || {
        Error::interop(format!(
            "DLPack device ({kind}, {id}) is unknown to usmq; use ({CPU}, 0) or, for a visible device, \
             ({ONEAPI}, its ordinal)"
        ))
    };
    let ordinal = usize::try_from(id).ok().filter(|_| kind == ONEAPI).ok_or_else(unknown)?;
    let current = current_queue()?;
    let place = current.device();
    if place.parent().is_none()
        && place.ordinal() == ordinal
        && *current.context() == place.default_context()?
    {
        return Ok(Some(current));
    }
    let root = devices()?.into_iter().find(|root| root.ordinal() == ordinal).ok_or_else(unknown)?;
    Queue::new(&root, None, QueueProperties::default()).map(Some)
}

/// Returns the address of a `sycl::queue` for this queue, valid for the rest of the process. The API does not
/// report the end of its use, so each requested queue is kept, once.
///
/// ```
/// use usmq::interop::dlpack::work_stream;
///
/// let queue = usmq::current_queue()?;
/// assert_eq!(work_stream(&queue)?, work_stream(&queue)?); // one address, a `sycl::queue *` for DLPack's `stream`
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Sycl`] if memory is short, [`Error::Fork`].
pub fn work_stream(queue: &Queue) -> Result<usize> {
    static STREAMS: Lazy<ForkMutex<HashMap<Queue, usize>>> = Lazy::new(ForkMutex::default);
    if let Some(address) = STREAMS.lock()?.get(queue) {
        return Ok(*address);
    }
    let kept = queue.clone().make_process_lifetime();
    let address = kept.to_raw()?.as_ptr() as usize;
    // Two concurrent threads both get a permanent address.
    Ok(*STREAMS.lock()?.entry(kept).or_insert(address))
}

/// Creates an uninitialised tensor with the type, shape and device of a prototype: in device USM, or for the
/// host in host USM of the current queue.
///
/// # Safety
/// `prototype.shape` has as many numbers as `prototype.ndim` says.
///
/// # Errors
/// [`Error::Interop`] for a device or type that usmq does not have or an invalid shape, [`Error::Value`] for
/// a too large one, [`Error::Allocation`] if memory is short.
pub unsafe fn allocate(prototype: &DLTensor) -> Result<ExportedTensor<DLManagedTensorVersioned>> {
    let (shape, dtype) = shape_of(prototype)?;
    let device = Destination { kind: prototype.device.kind, id: prototype.device.id };
    let (queue, kind) = match work_queue(device)? {
        Some(queue) => (queue, UsmKind::Device),
        None => (current_queue()?, UsmKind::Host),
    };
    let array = Array::uninit(&shape, dtype, kind, &queue)?;
    export(&array, Export { destination: Some(device), order: Order::Queue(&queue), ..Export::default() })
}
