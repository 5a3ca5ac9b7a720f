//! Imports another library's DLPack tensor: USM is used in place; host memory is copied, or on request used in place.

use super::NO_COPY;
use super::abi::{CPU, CUDA, CUDA_HOST, CUDA_MANAGED, DLTensor, Managed, ONEAPI};
use super::dtype;
use super::export::ExportedTensor;
use crate::array::{Array, DType, HostMemory, Layout, in_user_space};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::interop::cuda::{CudaArray, Described, arrivals};
use crate::interop::device_ordinal::{empty_queue, queue_for};
use crate::interop::suai::{self, Descriptor, SyclObject};
use crate::manager::current_queue;
use crate::memory::{ForeignOwner, try_reserve};
use crate::placement::Action;
use crate::runtime::interrupt::uninterruptible;
use crate::trace::{Reason, with_reason};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A managed tensor of another library. Dropping it calls the deleter.
///
/// ```
/// use usmq::{Array, interop::dlpack::{DLManagedTensorVersioned, Export, ForeignTensor, Import, export, import}};
///
/// let x = Array::from_slice(&[1, 2])?;
/// let tensor: ForeignTensor<_> = export::<DLManagedTensorVersioned>(&x, Export::default())?.into();
/// assert_eq!(import(tensor, Import::default())?.to_vec::<i32>()?, [1, 2]);
/// // SAFETY: null is an error.
/// assert!(unsafe { ForeignTensor::<DLManagedTensorVersioned>::from_raw(std::ptr::null_mut()) }.is_err());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug)]
pub struct ForeignTensor<T: Managed> {
    tensor: NonNull<T>,
    /// Whether the original owner deletes the tensor.
    given_back: AtomicBool,
}

impl<T: Managed> ForeignTensor<T> {
    /// Takes ownership of a tensor from its producer.
    ///
    /// # Safety
    /// `managed` is valid by DLPack, no other code uses it, and its deleter may be called on any thread.
    ///
    /// # Errors
    /// [`Error::Interop`] for null.
    pub unsafe fn from_raw(managed: *mut T) -> Result<Self> {
        NonNull::new(managed).map(Self::new).ok_or_else(|| broken("it is null"))
    }

    /// Returns the tensor; the owner of the pointer must delete it.
    #[must_use]
    pub fn into_raw(self) -> *mut T {
        ManuallyDrop::new(self).tensor.as_ptr()
    }

    fn new(tensor: NonNull<T>) -> Self {
        Self { tensor, given_back: AtomicBool::new(false) }
    }

    /// As [`into_raw`](Self::into_raw), for a shared tensor.
    fn give_back(&self) {
        self.given_back.store(true, Ordering::Release);
    }

    fn managed(&self) -> &T {
        // SAFETY: `from_raw` was promised a live struct, and the deleter runs in `drop` only.
        unsafe { self.tensor.as_ref() }
    }
}

impl<T: Managed> From<ExportedTensor<T>> for ForeignTensor<T> {
    fn from(own: ExportedTensor<T>) -> Self {
        Self::new(own.into_inner())
    }
}

impl<T: Managed> Drop for ForeignTensor<T> {
    fn drop(&mut self) {
        if *self.given_back.get_mut() {
            return;
        }
        if let Some(deleter) = self.managed().deleter() {
            // SAFETY: the producer's deleter for its struct, called once.
            unsafe { deleter(self.tensor.as_ptr()) };
        }
    }
}

// SAFETY: DLPack lets a tensor be passed to and deleted on any thread.
unsafe impl<T: Managed> Send for ForeignTensor<T> {}
// SAFETY: a shared reference only reads plain fields.
unsafe impl<T: Managed> Sync for ForeignTensor<T> {}

/// The target of an import, as requested by the caller.
///
/// ```
/// use usmq::{Array, interop::dlpack::{DLManagedTensorVersioned, Export, ForeignTensor, Import, export, import}};
/// use usmq::UsmKind;
///
/// let x = Array::from_slice(&[1, 2])?;
/// let tensor = export::<DLManagedTensorVersioned>(&x, Export::default())?.into();
/// let shared = import(tensor, Import { kind: Some(UsmKind::Shared), ..Import::default() })?; // a copy
/// assert_eq!(shared.memory_kind(), UsmKind::Shared.into());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Import<'a> {
    /// By default the current queue for host data; USM stays in place.
    pub queue: Option<&'a Queue>,
    /// By default device memory for host data.
    pub kind: Option<UsmKind>,
    /// Some(false): host memory is used in place on devices that reach it; an error if a copy is needed. Some(true):
    /// always copy. None: copy host data, and other data only if needed.
    pub copy: Option<bool>,
}

/// Imports a tensor. The producer has completed its work on it, or ordered it on the array's queue: the
/// current one if it can use the memory, else the cached one of its device and context. CUDA memory is
/// copied, after the work on the stream of [`arrivals`]. The tensor is deleted after the last use is
/// complete.
///
/// ```
/// use usmq::{Array, interop::dlpack::{DLManagedTensorVersioned, Export, ForeignTensor, Import, export, import}};
///
/// let x = Array::from_slice(&[1, 2])?;
/// let tensor = export::<DLManagedTensorVersioned>(&x, Export::default())?.into();
/// let same = import(tensor, Import { copy: Some(false), ..Import::default() })?;
/// assert_eq!(same.address(), x.address());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Interop`] for a tensor of another major version, an unknown device or type, memory that is not
/// USM, or a copy that is needed but not allowed; [`Error::Value`] for an invalid shape.
pub fn import<T: Managed>(tensor: ForeignTensor<T>, wanted: Import<'_>) -> Result<Array> {
    take(&Arc::new(tensor), wanted)
}

/// As [`import`], but takes ownership of the tensor only if the import and `put` succeed: otherwise the
/// caller keeps and deletes it.
///
/// ```
/// use usmq::{Array, interop::dlpack::{DLManagedTensorVersioned, Export, adopt, export}};
///
/// let x = Array::from_slice(&[1, 2])?;
/// let managed = export::<DLManagedTensorVersioned>(&x, Export::default())?.into_raw();
/// // SAFETY: a tensor of usmq that no other code uses.
/// let back: usmq::Result<Array> = unsafe { adopt(managed, Ok) };
/// assert_eq!(back?.address(), x.address());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Safety
/// As [`ForeignTensor::from_raw`].
///
/// # Errors
/// As [`import`], and those of `put`.
pub unsafe fn adopt<T: Managed, R, E: From<Error>>(
    managed: *mut T,
    put: impl FnOnce(Array) -> Result<R, E>,
) -> Result<R, E> {
    // SAFETY: the caller's promise.
    let tensor = Arc::new(unsafe { ForeignTensor::from_raw(managed) }?);
    // Do not interrupt this: a copy from a CUDA device would continue to read a tensor that the caller
    // deletes.
    let array = uninterruptible(|| take(&tensor, Import::default()));
    // A copy does not share the tensor, so keep it here until success is certain.
    let placed = array.map_err(E::from).and_then(put);
    if placed.is_err() {
        tensor.give_back();
    }
    placed
}

/// The memory of a tensor on the host, and its owner. The legacy struct cannot express that memory is read-only, as that
/// of pyarrow is, so it counts as read-only.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn host_memory<T: Managed>(tensor: ForeignTensor<T>) -> Result<(HostMemory, ForeignOwner)> {
    let Some(readonly) = tensor.managed().is_readonly() else {
        return Err(broken("its major version is not 1"));
    };
    let view = TensorView::new(tensor.managed().tensor())?;
    if view.kind != CPU {
        return Err(broken(format_args!(
            "its producer named the host, but it is on a device of type {}",
            view.kind
        )));
    }
    Ok((view.host_memory(readonly || !T::SAYS_READ_ONLY), Box::new(tensor)))
}

fn take<T: Managed>(tensor: &Arc<ForeignTensor<T>>, wanted: Import<'_>) -> Result<Array> {
    let Some(readonly) = tensor.managed().is_readonly() else {
        return Err(broken("its major version is not 1"));
    };
    let view = TensorView::new(tensor.managed().tensor())?;
    let _span = tracing::debug_span!(target: "usmq", "import", protocol = "DLPack").entered();
    match view.kind {
        CPU if wanted.copy == Some(false) => view.in_system(readonly, tensor.clone(), wanted),
        CPU => view.copied(wanted),
        ONEAPI => {
            let array = view.in_place(readonly, tensor.clone())?;
            let placed = array.to(None, wanted.kind, wanted.queue)?;
            match (wanted.copy, placed.address() == array.address()) {
                (Some(false), false) => Err(Error::interop(format!(
                    "the requested placement needs a copy of {array}, but {NO_COPY}"
                ))),
                (Some(true), true) => placed.copy(),
                _ => Ok(placed),
            }
        }
        CUDA | CUDA_HOST | CUDA_MANAGED => {
            let source = view.on_card(readonly, tensor.clone())?;
            let queue = wanted.queue.cloned().map_or_else(current_queue, Ok)?;
            if wanted.copy == Some(false) && source.explain(&queue)?.action != Action::Rebind {
                return Err(Error::interop(format!(
                    "CUDA memory cannot become USM without a copy, but {NO_COPY}"
                )));
            }
            let array = source.to_queue(&queue, wanted.kind.unwrap_or(UsmKind::Device))?;
            // DLPack does not name the producer's stream, so only this wait keeps the producer's next write
            // from overtaking the copy.
            array.wait()?;
            Ok(array)
        }
        other => Err(Error::interop(format!(
            "the DLPack tensor is on a device of type {other}; usmq supports type {CPU} (host), {ONEAPI} \
             (oneAPI), and \
             {CUDA}, {CUDA_HOST} and {CUDA_MANAGED} (CUDA)"
        ))),
    }
}

/// A tensor's fields after the checks.
struct TensorView {
    kind: i32,
    id: i32,
    dtype: DType,
    shape: Vec<usize>,
    strides: Option<Vec<isize>>,
    pointer: usize,
    size: usize,
}

impl TensorView {
    fn new(tensor: &DLTensor) -> Result<Self> {
        let (shape, dtype) = shape_of(tensor)?;
        // SAFETY: the producer's promise: a number for each axis. Null is C order, as before version 1.2.
        let strides = unsafe { numbers(tensor.strides, shape.len()) };
        let strides: Option<Vec<isize>> =
            strides.map(|steps| steps.iter().map(|step| *step as isize).collect());
        let size = Layout::contiguous(&shape, dtype.itemsize())?.size();
        let pointer = usize::try_from(tensor.byte_offset)
            .ok()
            .and_then(|offset| (tensor.data as usize).checked_add(offset));
        let pointer = pointer.ok_or_else(|| broken("its byte offset leaves the address space"))?;
        if tensor.data.is_null() && size > 0 {
            return Err(broken("its data is null"));
        }
        let layout = Layout::foreign(&shape, strides.as_deref(), 0, dtype.itemsize())?;
        let bytes = layout.foreign_addresses(pointer, dtype.itemsize());
        let bytes = bytes.map_err(|_| broken("its strides leave the address space"))?;
        if tensor.device.kind == CPU && !bytes.as_ref().is_none_or(in_user_space) {
            return Err(broken("its addresses do not belong to memory of the host"));
        }
        Ok(Self { kind: tensor.device.kind, id: tensor.device.id, dtype, shape, strides, pointer, size })
    }

    fn in_place<T: Managed>(&self, readonly: bool, owner: Arc<ForeignTensor<T>>) -> Result<Array> {
        let descriptor = Descriptor {
            pointer: self.pointer,
            readonly,
            shape: self.shape.clone(),
            strides: self.strides.clone(),
            offset: 0,
            dtype: self.dtype,
        };
        let queue = if self.size == 0 {
            empty_queue(self.pointer, i64::from(self.id))?
        } else {
            queue_for(self.pointer, i64::from(self.id))?
        };
        // SAFETY: the producer's promise: the tensor's memory lives until its deleter is called.
        unsafe { suai::import(&descriptor, &SyclObject::Queue(queue), Box::new(owner)) }
    }

    /// Wraps CUDA memory whose producer has ordered its work on the stream of [`arrivals`].
    fn on_card<T: Managed>(&self, readonly: bool, owner: Arc<ForeignTensor<T>>) -> Result<CudaArray> {
        let stream = arrivals(usize::try_from(self.id).unwrap_or(0))?;
        let described = Described {
            pointer: self.pointer,
            shape: &self.shape,
            strides: self.strides.as_deref(),
            dtype: self.dtype,
            readonly,
            stream: Some(stream),
        };
        // SAFETY: the producer's promise: the tensor's memory lives until its deleter is called. The stream is ours.
        unsafe { CudaArray::foreign(&described, Box::new(owner)) }
    }

    fn host_memory(&self, readonly: bool) -> HostMemory {
        let itemsize = self.dtype.itemsize() as isize;
        let steps =
            self.strides.as_ref().map(|steps| steps.iter().map(|step| step.wrapping_mul(itemsize)).collect());
        HostMemory {
            pointer: self.pointer,
            shape: self.shape.clone(),
            strides: steps,
            dtype: self.dtype,
            readonly,
        }
    }

    /// Uses host memory in place.
    fn in_system<T: Managed>(
        &self,
        readonly: bool,
        owner: Arc<ForeignTensor<T>>,
        wanted: Import<'_>,
    ) -> Result<Array> {
        if let Some(kind) = wanted.kind {
            return Err(Error::interop(format!(
                "host memory cannot become {kind} USM without a copy, but {NO_COPY}"
            )));
        }
        let queue = wanted.queue.cloned().map_or_else(current_queue, Ok)?;
        let memory = self.host_memory(readonly);
        // SAFETY: the producer's promise: the tensor's memory lives until its deleter is called.
        unsafe { Array::from_host(&memory, &queue, Box::new(owner)) }.map_err(|error| match error {
            Error::Value { message: why, .. } => Error::interop(format!("{why}; {NO_COPY}")),
            other => other,
        })
    }

    /// Copies host memory; complete on return.
    fn copied(&self, wanted: Import<'_>) -> Result<Array> {
        let _why = with_reason(Reason::Import);
        let queue = wanted.queue.cloned().map_or_else(current_queue, Ok)?;
        let array = Array::uninit(&self.shape, self.dtype, wanted.kind.unwrap_or(UsmKind::Device), &queue)?;
        if self.size == 0 {
            return Ok(array);
        }
        let itemsize = self.dtype.itemsize();
        let layout = Layout::foreign(&self.shape, self.strides.as_deref(), 0, itemsize)?;
        if layout.is_contiguous() {
            // SAFETY: the producer's promise: this many bytes from its first element on.
            let bytes = unsafe { slice::from_raw_parts(self.pointer as *const u8, self.size * itemsize) };
            array.copy_from_bytes(bytes)?;
            return Ok(array);
        }
        let mut packed =
            try_reserve::try_with_capacity(self.size * itemsize, "the tensor's elements in C order")?;
        for offset in layout.offsets() {
            let element = self.pointer.wrapping_add_signed(offset * itemsize as isize);
            // SAFETY: the producer's promise: an element at each position of the shape.
            packed.extend_from_slice(unsafe { slice::from_raw_parts(element as *const u8, itemsize) });
        }
        array.copy_from_bytes(&packed)?;
        Ok(array)
    }
}

/// Reads only the shape and type of a tensor.
pub(super) fn shape_of(tensor: &DLTensor) -> Result<(Vec<usize>, DType)> {
    let ndim = usize::try_from(tensor.ndim).ok().filter(|ndim| *ndim <= 64);
    let ndim = ndim.ok_or_else(|| broken(format_args!("it has {} axes", tensor.ndim)))?;
    // SAFETY: the producer's promise: a number for each axis.
    let shape = unsafe { numbers(tensor.shape, ndim) }.ok_or_else(|| broken("its shape is null"))?;
    let extents = shape
        .iter()
        .map(|extent| usize::try_from(*extent).map_err(|_| broken(format_args!("its shape is {shape:?}"))));
    Ok((extents.collect::<Result<Vec<_>>>()?, dtype::read(tensor.dtype)?))
}

/// # Safety
/// `list` is null or has `count` numbers.
unsafe fn numbers<'a>(list: *const i64, count: usize) -> Option<&'a [i64]> {
    match (count, list.is_null()) {
        (0, _) => Some(&[]),
        (_, true) => None,
        // SAFETY: the caller's promise.
        _ => Some(unsafe { slice::from_raw_parts(list, count) }),
    }
}

fn broken(what: impl std::fmt::Display) -> Error {
    Error::interop(format!("the DLPack tensor is not valid: {what}"))
}
