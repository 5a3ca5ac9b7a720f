//! An array as a DLPack tensor, for another library.

use super::NO_COPY;
use super::abi::{CPU, DLDevice, DLTensor, IS_COPIED, Managed, ONEAPI, READ_ONLY};
use super::dtype;
use crate::array::Array;
use crate::device::trace::recorder::with_reason;
use crate::device::{Queue, Reason, UsmKind};
use crate::error::{Error, Result, spelled};
use crate::interop::device_ordinal::check_nameable;
use crate::memory::{Access, ordered};
use crate::runtime::checks::InDestructor;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, size_of};
use std::ptr::{self, NonNull};

/// Where the consumer wants the data: `DLDevice` as type and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// `kDLOneAPI` (14) or `kDLCPU` (1).
    pub kind: i32,
    /// For oneAPI the ordinal of the root device, for the host 0.
    pub id: i32,
}

/// When the consumer may use the data.
#[derive(Debug, Clone, Copy, Default)]
pub enum Order<'a> {
    /// At once, on any queue: the export waits.
    #[default]
    Wait,
    /// In the order of this queue, which the consumer uses: nobody waits on the host.
    Queue(&'a Queue),
    /// The consumer sees to it.
    Unordered,
}

/// What a consumer asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Export<'a> {
    /// Where the array is, unless the consumer wants it elsewhere.
    pub destination: Option<Destination>,
    /// Some(false): no copy or an error. Some(true): always a copy. None: only if needed.
    pub copy: Option<bool>,
    /// Ignored for the host, for which the export waits.
    pub order: Order<'a>,
}

/// A managed tensor of usmq. Dropping it does what its consumer would do at the end: it calls the deleter.
#[derive(Debug)]
pub struct ExportedTensor<T: Managed>(NonNull<T>);

impl<T: Managed> ExportedTensor<T> {
    /// The struct for a consumer, who calls its deleter once, on any thread.
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
        // SAFETY: the struct is live, and nobody else has it.
        let deleter = unsafe { self.0.as_ref() }.deleter();
        if let Some(deleter) = deleter {
            // SAFETY: the deleter that `wrap` gave, called once.
            unsafe { deleter(self.0.as_ptr()) };
        }
    }
}

// SAFETY: DLPack lets a tensor be passed to and deleted on any thread; the array in it may be used from all of them.
unsafe impl<T: Managed> Send for ExportedTensor<T> {}

/// The device that an array's memory has in DLPack.
#[must_use]
pub fn device_of(array: &Array) -> Destination {
    Destination { kind: ONEAPI, id: i32::try_from(array.device().ordinal()).unwrap_or(i32::MAX) }
}

/// The array as a tensor that keeps its memory alive. From here on usmq counts on unseen work of the consumer on the
/// queue of `order`, or on the array's own.
///
/// # Errors
/// [`Error::Interop`] for a destination that usmq does not reach, memory that a device number cannot name (of a
/// sub-device or another context), a copy that is needed but not allowed, or a read-only array in the legacy struct,
/// which cannot say so; [`Error::Sycl`] with what the work reported; [`Error::Fork`].
pub fn export<T: Managed>(array: &Array, asked: Export<'_>) -> Result<ExportedTensor<T>> {
    // In a forked child there may be nothing to ask the runtime, yet the memory is not there.
    crate::runtime::ensure_usable()?;
    let _span = tracing::debug_span!(target: "usmq", "export", protocol = "DLPack", %array).entered();
    let _why = with_reason(Reason::Export);
    let own = device_of(array);
    let destination = asked.destination.unwrap_or(own);
    let (array, copied) = match destination.kind {
        CPU => on_host(array, asked.copy)?,
        _ if destination == own => {
            check_nameable(array.queue())?;
            if asked.copy == Some(true) { (array.copy()?, true) } else { (array.clone(), false) }
        }
        _ => {
            return Err(Error::Interop(format!(
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
    if destination.kind == CPU {
        array.allocation().wait_for_host(Access::ReadWrite)?;
    } else {
        publish(&array, asked.order)?;
    }
    Ok(wrap(array, |array| describe(array, destination), flags))
}

/// The array as a tensor without an owner, for a consumer that is done with it, its shape and its strides before the
/// array goes or moves. Otherwise as [`export`].
///
/// # Errors
/// As [`export`]: a bare tensor cannot say "read-only" either.
pub fn lend(array: &Array, order: Order<'_>) -> Result<DLTensor> {
    crate::runtime::ensure_usable()?;
    check_nameable(array.queue())?;
    check_writable(array, "export a copy()")?;
    publish(array, order)?;
    Ok(describe(array, device_of(array)))
}

fn check_writable(array: &Array, fix: &str) -> Result<()> {
    if array.is_readonly() {
        return Err(Error::Interop(format!(
            "{array} is read-only, which DLPack cannot express before version 1.0; {fix}"
        )));
    }
    Ok(())
}

fn on_host(array: &Array, copy: Option<bool>) -> Result<(Array, bool)> {
    match (array.usm_kind().is_host_accessible(), copy) {
        (true, None | Some(false)) => Ok((array.clone(), false)),
        (false, Some(false)) => {
            Err(Error::Interop(format!("the host cannot read {array} without a copy, but {NO_COPY}")))
        }
        _ => Ok((array.copy()?.to(None, Some(UsmKind::Host), None)?, true)),
    }
}

/// Puts the consumer's work after ours.
fn publish(array: &Array, order: Order<'_>) -> Result<()> {
    let memory = array.allocation();
    match order {
        Order::Queue(queue) if queue.context() == memory.context() => {
            if !queue.in_order() || memory.used_off(queue)? {
                ordered(queue, &[(memory, Access::ReadWrite)], |after| queue.barrier(after))?;
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

/// The fields of a tensor. Its lists are those of `array`, which stays where it is while the tensor is used.
fn describe(array: &Array, destination: Destination) -> DLTensor {
    let itemsize = array.dtype().itemsize();
    let (data, byte_offset) = match array.layout().extent() {
        None => (0, 0),
        // What is not the lowest address is no beginning of memory to dpnp. Of a view that goes down, `data` is then
        // not the first element; many libraries ignore an offset, but those take no negative strides either.
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

// The lists of an array are handed out as DLPack's.
const _: () = assert!(size_of::<usize>() == size_of::<i64>());
