//! Exports an array as a DLPack tensor.

use super::NO_COPY;
use super::abi::{CPU, DLDevice, DLTensor, IS_COPIED, Managed, ONEAPI, READ_ONLY};
use super::dtype;
use crate::array::Array;
use crate::device::{MemoryKind, Queue, UsmKind};
use crate::error::{Error, Result, spelled};
use crate::interop::device_ordinal::check_nameable;
use crate::memory::sharing::{Loan, is_shared_in_order_on};
use crate::memory::{Access, ordered};
use crate::runtime::checks::InDestructor;
use crate::runtime::without_python_lock;
use crate::trace::{Reason, with_reason};
use std::ffi::c_void;
use std::mem::{ManuallyDrop, size_of};
use std::ptr::{self, NonNull};

/// The device that the consumer requests: `DLDevice` as type and number.
///
/// ```
/// use usmq::{Array, interop::dlpack::{Destination, device_of}};
///
/// let x = Array::zeros::<f32>(3)?;
/// let own = i32::try_from(x.device().root_device().ordinal()).expect("few devices");
/// assert_eq!(device_of(&x), Destination { kind: 14, id: own });
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// `kDLOneAPI` (14) or `kDLCPU` (1).
    pub kind: i32,
    /// For oneAPI the ordinal of the root device, for the host 0.
    pub id: i32,
}

/// When the consumer may use the data.
///
/// ```
/// use usmq::{Array, interop::dlpack::{DLManagedTensorVersioned, Export, Order, export}};
///
/// let x = Array::zeros::<f32>(3)?;
/// let asked = Export { order: Order::Queue(x.queue()), ..Export::default() };
/// let tensor = export::<DLManagedTensorVersioned>(&x, asked)?; // without a wait
/// # drop(tensor);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub enum Order<'a> {
    /// Immediately, on any queue: the export waits.
    #[default]
    Wait,
    /// In the order of this queue, which the consumer uses, without a wait on the host.
    Queue(&'a Queue),
    /// The consumer synchronizes.
    Unordered,
}

/// The request of a consumer.
///
/// ```
/// use usmq::{Array, interop::dlpack::{DLManagedTensorVersioned, Destination, Export, export}};
///
/// let x = Array::zeros::<f32>(3)?; // device memory
/// let host = Some(Destination { kind: 1, id: 0 });
/// let in_place = Export { destination: host, copy: Some(false), ..Export::default() };
/// assert!(export::<DLManagedTensorVersioned>(&x, in_place).is_err());
/// let copied = Export { destination: host, ..Export::default() };
/// assert!(export::<DLManagedTensorVersioned>(&x, copied).is_ok());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Export<'a> {
    /// The requested device; by default that of the array.
    pub destination: Option<Destination>,
    /// Some(false): an error if a copy is needed. Some(true): always copy. None: copy only if needed.
    pub copy: Option<bool>,
    /// Ignored for the host, for which the export waits.
    pub order: Order<'a>,
    /// A queue on which the consumer may work besides: until it deletes the tensor, usmq orders its commands on the memory
    /// with those on this queue. Ignored for the host, and on another context.
    pub lent_on: Option<&'a Queue>,
}

/// A managed tensor of usmq. Dropping it calls the deleter, as its consumer would.
///
/// ```
/// use usmq::{Array, interop::dlpack::{DLManagedTensorVersioned, Export, ForeignTensor, Import, export, import}};
///
/// let x = Array::from_slice(&[1, 2])?;
/// let managed = export::<DLManagedTensorVersioned>(&x, Export::default())?.into_raw(); // a consumer owns it now
/// // SAFETY: `managed` is a tensor of usmq that no other code uses.
/// let back = import(unsafe { ForeignTensor::from_raw(managed) }?, Import::default())?;
/// assert_eq!(back.address(), x.address());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug)]
pub struct ExportedTensor<T: Managed>(NonNull<T>);

impl<T: Managed> ExportedTensor<T> {
    /// Returns the struct for a consumer, which must call its deleter once, on any thread.
    #[must_use]
    pub fn into_raw(self) -> *mut T {
        self.into_inner().as_ptr()
    }

    pub(super) fn into_inner(self) -> NonNull<T> {
        ManuallyDrop::new(self).0
    }
}

impl<T: Managed> Drop for ExportedTensor<T> {
    fn drop(&mut self) {
        // SAFETY: the struct is live, and no other code has it.
        let deleter = unsafe { self.0.as_ref() }.deleter();
        if let Some(deleter) = deleter {
            // SAFETY: the deleter that `wrap` gave, called once.
            unsafe { deleter(self.0.as_ptr()) };
        }
    }
}

// SAFETY: DLPack lets a tensor be passed to and deleted on any thread; the array in it may be used from all of them.
unsafe impl<T: Managed> Send for ExportedTensor<T> {}

/// The DLPack device of an array's memory; the host for system memory.
///
/// ```
/// use usmq::{Array, interop::dlpack::{Destination, device_of, work_queue}};
///
/// let x = Array::zeros::<f32>(3)?;
/// assert_eq!(work_queue(device_of(&x))?.as_ref(), Some(x.queue()));
/// assert_eq!(work_queue(Destination { kind: 1, id: 0 })?, None); // the host
/// # Ok::<(), usmq::Error>(())
/// ```
#[must_use]
pub fn device_of(array: &Array) -> Destination {
    if array.memory_kind() == MemoryKind::System {
        return Destination { kind: CPU, id: 0 };
    }
    Destination { kind: ONEAPI, id: i32::try_from(array.device().ordinal()).unwrap_or(i32::MAX) }
}

/// Exports the array as a tensor that keeps its memory alive. From here on usmq assumes unseen work of the
/// consumer on the queue of `order`, or on the array's queue.
///
/// ```
/// use usmq::interop::dlpack::{DLManagedTensorVersioned, Export, ExportedTensor, ForeignTensor, Import, export, import};
///
/// let x = usmq::Array::full(3, 1f32)?;
/// let tensor: ExportedTensor<DLManagedTensorVersioned> = export(&x, Export::default())?;
/// let pointer = tensor.into_raw(); // for another library, which deletes it
/// // SAFETY: the tensor of `export`, which no other code has.
/// let again = import(unsafe { ForeignTensor::from_raw(pointer) }?, Import::default())?;
/// assert_eq!(again.address(), x.address());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Interop`] for an unknown destination, memory that a device number cannot name (of a sub-device or
/// another context), a copy that is needed but not allowed, or a read-only array in the legacy struct, which
/// cannot express that; [`Error::Sycl`] with errors of the submitted work; [`Error::Fork`].
pub fn export<T: Managed>(array: &Array, asked: Export<'_>) -> Result<ExportedTensor<T>> {
    // Check this even without a call of the runtime: in a forked child the memory does not exist.
    crate::runtime::ensure_usable()?;
    let _span = tracing::debug_span!(target: "usmq", "export", protocol = "DLPack", %array).entered();
    let _why = with_reason(Reason::Export);
    let _direct = array.outside_capture("__dlpack__")?;
    let own = device_of(array);
    let destination = asked.destination.unwrap_or(own);
    let (array, copied) = match destination.kind {
        CPU => on_host(array, asked.copy)?,
        _ if destination == own => {
            check_nameable(array.queue())?;
            if asked.copy == Some(true) { (array.copy()?, true) } else { (array.clone(), false) }
        }
        _ => {
            return Err(Error::interop(format!(
                "DLPack device ({}, {}) was requested, but {array} is on ({}, {}); move it with collocate or \
                 {}",
                destination.kind,
                destination.id,
                own.kind,
                own.id,
                spelled("to_numpy", "to_vec")
            )));
        }
    };
    let flags = if copied { IS_COPIED } else { 0 } | if array.is_readonly() { READ_ONLY } else { 0 };
    if !T::SAYS_READ_ONLY {
        check_writable(&array, "request max_version=(1, 0), or export a copy()")?;
    }
    let mut loan = None;
    if destination.kind == CPU {
        array.shared_allocation().hand_over()?;
        array.allocation().wait_for_host(Access::ReadWrite)?;
    } else {
        publish(&array, asked.order)?;
        if let Some(queue) = asked.lent_on.filter(|queue| queue.context() == array.context()) {
            loan = Some(without_python_lock(|| Loan::new(&array.shared_allocation(), queue))?);
        }
    }
    Ok(wrap((array, loan), |(array, _)| describe(array, destination), flags))
}

/// Returns the array as a tensor without an owner. The consumer must stop using it, its shape and its strides
/// before the array is dropped or moved. Otherwise as [`export`].
///
/// ```
/// use usmq::{Array, interop::dlpack::{DLTensor, Order, lend}};
///
/// let x = Array::zeros::<f32>((2, 3))?;
/// let tensor: DLTensor = lend(&x, Order::Wait)?;
/// let for_a_c_function: *const DLTensor = &tensor; // until x is dropped
/// # assert!(!for_a_c_function.is_null());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// As [`export`]: a bare tensor has no read-only flag either.
pub fn lend(array: &Array, order: Order<'_>) -> Result<DLTensor> {
    crate::runtime::ensure_usable()?;
    let _direct = array.outside_capture("__dlpack__")?;
    let device = device_of(array);
    check_writable(array, "export a copy()")?;
    if device.kind == CPU {
        array.shared_allocation().hand_over()?;
        array.allocation().wait_for_host(Access::ReadWrite)?;
    } else {
        check_nameable(array.queue())?;
        publish(array, order)?;
    }
    Ok(describe(array, device))
}

fn check_writable(array: &Array, fix: &str) -> Result<()> {
    if array.is_readonly() {
        return Err(Error::interop(format!(
            "{array} is read-only, which DLPack cannot express before version 1.0; {fix}"
        )));
    }
    Ok(())
}

fn on_host(array: &Array, copy: Option<bool>) -> Result<(Array, bool)> {
    match (array.memory_kind().is_host_accessible(), copy) {
        (true, None | Some(false)) => Ok((array.clone(), false)),
        (false, Some(false)) => {
            Err(Error::interop(format!("the host cannot read {array} without a copy, but {NO_COPY}")))
        }
        _ => Ok((array.copy()?.to(None, Some(UsmKind::Host), None)?, true)),
    }
}

/// Orders the consumer's work after the work of usmq.
fn publish(array: &Array, order: Order<'_>) -> Result<()> {
    match order {
        Order::Queue(queue) if is_shared_in_order_on(array.allocation(), queue) => Ok(()),
        // It takes locks that another thread may hold while it waits for the GIL.
        _ => without_python_lock(|| publish_first(array, order)),
    }
}

fn publish_first(array: &Array, order: Order<'_>) -> Result<()> {
    let memory = array.allocation();
    match order {
        Order::Queue(queue) if memory.place().is_some_and(|(own, _)| own == queue.context()) => {
            if !queue.in_order() || memory.used_off(queue)? {
                ordered(queue, &[(memory, Access::ReadWrite)], |after| queue.barrier_now(after))?;
            }
            array.shared_allocation().share_on(queue)?;
        }
        Order::Unordered => array.shared_allocation().share_on(array.queue())?,
        Order::Wait | Order::Queue(_) => {
            memory.wait_for_host(Access::ReadWrite)?;
            array.shared_allocation().share_on(array.queue())?;
        }
    }
    Ok(())
}

pub(super) fn wrap<T: Managed, O>(
    owner: O,
    describe: impl FnOnce(&O) -> DLTensor,
    flags: u64,
) -> ExportedTensor<T> {
    let owned = Box::into_raw(Box::new(owner));
    // SAFETY: just made, and freed by `delete` only.
    let tensor = describe(unsafe { &*owned });
    let managed = T::new(tensor, flags, owned.cast(), delete::<T, O>);
    ExportedTensor(NonNull::from(Box::leak(Box::new(managed))))
}

unsafe extern "C" fn delete<T: Managed, O>(managed: *mut T) {
    let _mark = InDestructor::enter();
    // SAFETY: the consumer passes what `wrap` made, once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: as above; dropping memory never waits, panics or needs Python's lock.
    drop(unsafe { Box::from_raw(managed.context().cast::<O>()) });
}

/// The fields of a tensor. It uses the lists of `array`, which must not move while the tensor is used.
fn describe(array: &Array, destination: Destination) -> DLTensor {
    let itemsize = array.dtype().itemsize();
    let (data, byte_offset) = match array.layout().extent() {
        // dpnp and torch refuse null; the address of an empty view may be past the end of the memory.
        None => (array.allocation().pointer(), 0),
        // dpnp requires the lowest address of the memory in `data`. With negative strides that is not the
        // first element, which needs an offset; libraries that ignore the offset do not accept negative
        // strides either.
        Some((low, _)) if destination.kind == ONEAPI => {
            let below = low.unsigned_abs() * itemsize;
            (array.address() - below, below)
        }
        Some(_) => (array.address(), 0),
    };
    let lists = array.ndim() > 0;
    let list = |numbers: *const i64| if lists { numbers.cast_mut() } else { ptr::null_mut() };
    DLTensor {
        data: data as *mut c_void,
        device: DLDevice { kind: destination.kind, id: destination.id },
        ndim: array.ndim() as i32,
        dtype: dtype::to_dlpack(array.dtype()),
        shape: list(array.shape().as_ptr().cast()),
        strides: list(array.strides().as_ptr().cast()),
        byte_offset: byte_offset as u64,
    }
}

// DLPack tensors use the lists of an array directly.
const _: () = assert!(size_of::<usize>() == size_of::<i64>());
