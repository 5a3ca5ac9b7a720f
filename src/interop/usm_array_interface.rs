//! `__sycl_usm_array_interface__` version 1, both ways.
//!
//! Source: dpctl's documentation, "SYCL USM Array Interface". Strides and offset count elements; `data[1]` is
//! a read-only flag. The interface has no event: a consumer uses the queue in the interface, or the producer
//! has completed its work.

use crate::array::{Array, DType, Layout};
use crate::device::{Context, Device, MemoryKind, Queue, QueueProperties, UsmKind};
use crate::error::{Error, Result, spelled};
use crate::memory::{Access, Allocation, Found, Import, ordered, refuse};
use crate::trace::{Reason, with_reason};
use std::any::Any;

/// The interface's description of an array.
///
/// ```
/// let x = usmq::Array::zeros::<f32>((2, 3))?;
/// let descriptor = usmq::interop::suai::export(&x)?;
/// assert_eq!((descriptor.shape, descriptor.dtype), (vec![2, 3], usmq::DType::F32));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// The base address of `offset`.
    pub pointer: usize,
    /// Whether the consumer must not write.
    pub readonly: bool,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Strides in elements; C-contiguous if `None`.
    pub strides: Option<Vec<isize>>,
    /// Elements from `pointer` to the first element.
    pub offset: isize,
    /// The element type.
    pub dtype: DType,
}

/// The object in the interface's `syclobj`.
///
/// ```
/// use usmq::{Array, interop::suai::{self, SyclObject}};
///
/// let x = Array::from_slice(&[1, 2])?;
/// let (descriptor, object) = (suai::export(&x)?, SyclObject::Context(x.context().clone()));
/// // SAFETY: the owner, a clone of x, keeps the memory.
/// let same = unsafe { suai::import(&descriptor, &object, Box::new(x.clone())) }?;
/// assert_eq!(same.to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub enum SyclObject {
    /// The queue on which the producer works.
    Queue(Queue),
    /// The context of the address. The producer has completed its work.
    Context(Context),
}

/// Imports another library's memory without a copy. `owner` is dropped after the last use is complete.
///
/// Checks that the view stays in the address space, that its first and last byte are one kind of USM of one
/// device in the context, and that a queue can access it.
///
/// ```
/// use usmq::{Array, interop::suai::{self, SyclObject}};
///
/// let x = Array::from_slice(&[1, 2])?;
/// let (descriptor, object) = (suai::export(&x)?, SyclObject::Queue(x.queue().clone()));
/// // SAFETY: the owner, a clone of x, keeps the memory.
/// let same = unsafe { suai::import(&descriptor, &object, Box::new(x.clone())) }?;
/// assert_eq!(same.to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Safety
/// The memory that the descriptor spans stays allocated while `owner` lives.
///
/// # Errors
/// [`Error::Value`] for an invalid layout, [`Error::Interop`] for memory that is not USM of the context.
pub unsafe fn import(
    descriptor: &Descriptor,
    object: &SyclObject,
    owner: Box<dyn Any + Send + Sync>,
) -> Result<Array> {
    let _span = tracing::debug_span!(target: "usmq", "import", protocol = "SUAI").entered();
    let Descriptor { dtype, readonly, .. } = *descriptor;
    let itemsize = dtype.itemsize();
    let layout = Layout::foreign(&descriptor.shape, descriptor.strides.as_deref(), 0, itemsize)?;
    let Some((low, high)) = layout.extent() else {
        return import_empty(descriptor, object, layout, owner);
    };
    let span = Span::new(descriptor, low, high)?;
    let context = match object {
        SyclObject::Queue(queue) => queue.context(),
        SyclObject::Context(context) => context,
    };
    let found = span.find_in(context)?;
    let queue = match object {
        SyclObject::Queue(queue) => queue.clone(),
        SyclObject::Context(context) => {
            // A replay could not be ordered with the producer's work.
            refuse(|| "an import of USM without a queue (__sycl_usm_array_interface__)".to_owned())?;
            queue_of(object, Some((&found.device, context)))?
        }
    };
    let import = Import {
        pointer: span.first,
        bytes: span.bytes,
        context,
        found,
        shared_on: matches!(object, SyclObject::Queue(_)).then_some(&queue),
        ready: None,
        queue: &queue,
    };
    let allocation = Allocation::import(import, Some(owner))?;
    let view = Layout::foreign(&descriptor.shape, Some(layout.strides()), low.unsigned_abs(), itemsize)?;
    let array = Array::from_parts(allocation, view, dtype, queue, readonly);
    match array.unusable_from(array.queue())? {
        None => Ok(array),
        Some(why) => Err(Error::interop(format!(
            "{} cannot use address {:#x}: {why}; the producer must name a queue of that device",
            array.queue(),
            span.first
        ))),
    }
}

/// Imports an array without elements, with the producer's kind and address.
fn import_empty(
    descriptor: &Descriptor,
    object: &SyclObject,
    layout: Layout,
    owner: Box<dyn Any + Send + Sync>,
) -> Result<Array> {
    let queue = queue_of(object, None)?;
    let (context, pointer) = (queue.context(), descriptor.pointer);
    // It has no memory, so the runtime may not know the address.
    let kind = if pointer == 0 { None } else { context.kind_of(pointer)? };
    let place = (context, queue.device());
    let allocation = Allocation::import_empty(pointer, kind.unwrap_or(UsmKind::Device), place, owner);
    Ok(Array::from_parts(allocation, layout, descriptor.dtype, queue, descriptor.readonly))
}

fn queue_of(object: &SyclObject, place: Option<(&Device, &Context)>) -> Result<Queue> {
    match (object, place) {
        (SyclObject::Queue(queue), _) => Ok(queue.clone()),
        (SyclObject::Context(_), Some((device, context))) => {
            Queue::new(device, Some(context), QueueProperties::default())
        }
        (SyclObject::Context(context), None) => {
            let device = context.devices()?.into_iter().next();
            let device = device.ok_or_else(|| Error::interop("the SYCL context has no device"))?;
            Queue::new(device, Some(context), QueueProperties::default())
        }
    }
}

/// The bytes from the lowest to the highest element of a view.
struct Span {
    first: usize,
    bytes: usize,
}

impl Span {
    fn new(descriptor: &Descriptor, low: isize, high: isize) -> Result<Self> {
        let itemsize = descriptor.dtype.itemsize();
        let outside = || {
            Error::value(format!(
                "data {:#x}, offset {} and shape {:?} leave the address space",
                descriptor.pointer, descriptor.offset, descriptor.shape
            ))
        };
        let address = |element: isize| {
            let bytes = descriptor.offset.checked_add(element)?.checked_mul(itemsize as isize)?;
            descriptor.pointer.checked_add_signed(bytes)
        };
        let first = address(low).ok_or_else(outside)?;
        let last = address(high).and_then(|last| last.checked_add(itemsize)).ok_or_else(outside)?;
        if first % itemsize != 0 {
            return Err(Error::interop(format!(
                "address {first:#x} is not a multiple of the {itemsize} bytes of {}",
                descriptor.dtype
            )));
        }
        Ok(Self { first, bytes: last - first })
    }

    /// The USM of which the first and the last byte are.
    fn find_in(&self, context: &Context) -> Result<Found> {
        let found = Allocation::find(context, self.first, self.bytes)?.ok_or_else(|| {
            Error::interop(format!(
                "address {:#x} is not USM of {context}; the producer must name the queue or context in which it was \
                 allocated",
                self.first
            ))
        })?;
        let last = self.first + self.bytes - 1;
        let is_inside = match found.range {
            Some((_, end)) => last < end,
            None => context.kind_of(last)? == Some(found.kind),
        };
        if !is_inside {
            let end = found.range.map_or(format!("before {last:#x}"), |(_, end)| format!("at {end:#x}"));
            return Err(Error::interop(format!(
                "the view takes {} bytes from {:#x} on, beyond its allocation of {} USM, which ends {end}; its shape, \
                 strides or offset are wrong",
                self.bytes, self.first, found.kind
            )));
        }
        Ok(found)
    }
}

/// Exports the description of an array, for a consumer that uses the array's queue.
///
/// The queue's order covers everything submitted so far. If the consumer could bypass it, because the host
/// can read the memory or the queue is out-of-order, this waits. From here on usmq assumes unseen work of the
/// consumer on that queue.
///
/// ```
/// let x = usmq::Array::zeros::<f32>((2, 3))?;
/// let descriptor = usmq::interop::suai::export(&x)?;
/// assert_eq!((descriptor.pointer, &descriptor.shape[..]), (x.address(), &[2, 3][..]));
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Interop`] for bfloat16 and for system memory, which the interface cannot express; [`Error::Sycl`]
/// with errors of the submitted work.
pub fn export(array: &Array) -> Result<Descriptor> {
    let _span = tracing::debug_span!(target: "usmq", "export", protocol = "SUAI", %array).entered();
    let _why = with_reason(Reason::Export);
    if array.dtype().typestr().is_none() {
        return Err(Error::interop(format!(
            "__sycl_usm_array_interface__ has no typestr for {}; cast to float32 first",
            array.dtype()
        )));
    }
    check_usm(array)?;
    // Check this even without a call of the runtime: in a forked child the memory does not exist.
    crate::runtime::ensure_usable()?;
    publish(array)?;
    Ok(Descriptor {
        pointer: array.address(),
        readonly: array.is_readonly(),
        shape: array.shape().to_vec(),
        strides: (!array.is_contiguous()).then(|| array.strides().to_vec()),
        offset: 0,
        dtype: array.dtype(),
    })
}

/// An error for system memory: consumers would query its USM kind.
///
/// # Errors
/// [`Error::Interop`].
pub(crate) fn check_usm(array: &Array) -> Result<()> {
    if array.memory_kind() == MemoryKind::System {
        return Err(Error::interop(format!(
            "__sycl_usm_array_interface__ describes USM, but {array} is not USM; {} makes a USM copy, and \
             DLPack and {} share host memory",
            spelled("usmq.asarray(x, usm_type=\"device\")", "Array::to"),
            spelled("the buffer protocol", "Arrow"),
        )));
    }
    Ok(())
}

fn publish(array: &Array) -> Result<()> {
    let _direct = array.outside_capture("__sycl_usm_array_interface__")?;
    let (memory, queue) = (array.allocation(), array.queue());
    if memory.kind().is_host_accessible() || !queue.in_order() {
        memory.wait_for_host(Access::ReadWrite)?;
    } else if memory.used_off(queue)? {
        // Orders this queue after the uses on other queues.
        ordered(queue, &[(memory, Access::ReadWrite)], |after| queue.barrier_now(after))?;
    }
    array.shared_allocation().share_on(queue)
}
