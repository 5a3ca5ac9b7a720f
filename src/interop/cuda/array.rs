//! Arrays in CUDA memory: import, export, and copies to and from USM. Other libraries compute on them.

use super::device::CudaDevice;
use super::driver::{Handle, Recorded};
use super::transfer::{Direction, Remote, is_direct, register, start};
use crate::array::{Array, DType, Layout};
use crate::completion::release;
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::interop::suai::{self, SyclObject};
use crate::memory::{ForeignOwner, OWN_RANGE, drop_after, refuse};
use crate::placement::{Action, Step};
use crate::runtime::checks::InDestructor;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// A view of CUDA memory with a dtype, a shape and strides. Clones share the memory.
///
/// Create it with [`CudaArray::from_array`], or over another library's memory with [`import`](super::import).
#[derive(Clone)]
pub struct CudaArray {
    memory: Arc<Memory>,
    pointer: usize,
    layout: Layout,
    dtype: DType,
    readonly: bool,
}

/// Memory of a CUDA device, and the stream of the library that shares it.
struct Memory {
    device: Arc<CudaDevice>,
    owner: CudaOwner,
    /// The stream of the other library, and its context.
    stream: Option<(Handle, Handle)>,
}

enum CudaOwner {
    /// Allocated by usmq.
    Ours(usize),
    /// Another library's; dropped by the release thread after the last view and the last transfer.
    Foreign(Option<ForeignOwner>),
    /// No memory, for an empty array.
    Nothing,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _mark = InDestructor::enter();
        match &mut self.owner {
            CudaOwner::Ours(pointer) => {
                let (device, pointer) = (self.device.clone(), *pointer);
                release(move || device.free(pointer));
            }
            CudaOwner::Foreign(keep) => {
                keep.take().into_iter().for_each(|keep| drop_after(keep, Default::default()));
            }
            CudaOwner::Nothing => {}
        }
    }
}

/// A `cudaEvent_t` and its owner, or nothing to wait for.
pub(crate) struct ReadyEvent(Option<Box<(Handle, Recorded)>>);

impl ReadyEvent {
    /// Address of the `cudaEvent_t`, valid while this lives; null without an event.
    pub(crate) fn address(&mut self) -> *mut c_void {
        self.0.as_mut().map_or(std::ptr::null_mut(), |event| (&raw mut event.0).cast())
    }
}

/// Memory of another library, as it describes it.
pub(crate) struct Described<'a> {
    pub(crate) pointer: usize,
    pub(crate) shape: &'a [usize],
    /// In elements; C order if `None`.
    pub(crate) strides: Option<&'a [isize]>,
    pub(crate) dtype: DType,
    pub(crate) readonly: bool,
    pub(crate) stream: Option<usize>,
}

impl CudaArray {
    /// Copies an array to the CUDA device with this number. Commands submitted later to the stream of
    /// [`export`](super::export) run after the copy. Waits for at most 0.1 ms if the array's device is of the OpenCL
    /// backend; other backends have no event for the copy, so the call waits for its end.
    ///
    /// # Errors
    /// [`Error::RuntimeNotFound`] without a driver, [`Error::DeviceNotFound`] for another number.
    pub fn from_array(array: &Array, ordinal: usize) -> Result<Self> {
        Self::copied(array, &CudaDevice::get(ordinal)?)
    }

    pub(super) fn copied(array: &Array, device: &Arc<CudaDevice>) -> Result<Self> {
        refuse(|| "a transfer to CUDA memory".to_owned())?;
        let source = array.contiguous()?;
        let (bytes, dtype, stream) =
            (source.nbytes(), source.dtype(), Some((device.context(), device.shown)));
        let layout = Layout::contiguous(source.shape(), dtype.itemsize())?;
        let made = |owner, pointer| {
            let memory = Arc::new(Memory { device: device.clone(), owner, stream });
            Self { memory, pointer, layout, dtype, readonly: false }
        };
        if bytes == 0 {
            return Ok(made(CudaOwner::Nothing, 0));
        }
        let source = registered(source, device)?;
        let (pointer, ready) = device.allocate(bytes)?;
        let remote = Remote { device: device.clone(), pointer, ready: Some(ready), stream, keep: None };
        start(Direction::FromUsm, remote, (source.allocation(), source.address()), bytes, source.queue())
            .inspect_err(|_| device.free_unused(pointer))?;
        Ok(made(CudaOwner::Ours(pointer), pointer))
    }

    /// An array over another library's memory.
    ///
    /// # Safety
    /// The memory stays allocated while `owner` lives, and the stream belongs to this process.
    pub(crate) unsafe fn foreign(described: &Described<'_>, owner: ForeignOwner) -> Result<Self> {
        let layout = described.layout()?;
        // SAFETY: the caller's promise.
        unsafe { Self::over(described, layout, |pointer| locate(pointer, described), owner) }
    }

    /// # Safety
    /// As for [`CudaArray::foreign`].
    pub(super) unsafe fn over(
        described: &Described<'_>,
        layout: Layout,
        find: impl FnOnce(usize) -> Result<(Arc<CudaDevice>, Handle)>,
        owner: ForeignOwner,
    ) -> Result<Self> {
        let (device, context) = find(described.pointer)?;
        let stream = described.stream.map(|stream| (context, stream));
        let owner = CudaOwner::Foreign(Some(owner));
        Ok(Self {
            memory: Arc::new(Memory { device, owner, stream }),
            pointer: described.pointer,
            layout,
            dtype: described.dtype,
            readonly: described.readonly,
        })
    }

    /// Returns the array as USM of `kind` for `queue`: the same memory if the address is USM of a SYCL context,
    /// else a copy. A copy waits as [`CudaArray::from_array`] does, and also if the other library names no stream. Work on
    /// the result runs after the copy, and so does work that the other library later submits to its stream.
    ///
    /// # Errors
    /// [`Error::Allocation`] if memory is short; [`Error::Interop`] with errors of the CUDA driver.
    pub fn to_queue(&self, queue: &Queue, kind: UsmKind) -> Result<Array> {
        let Some((low, high)) = self.layout.extent() else {
            return Array::uninit(self.shape(), self.dtype, kind, queue);
        };
        if queue.context().kind_of(self.pointer)?.is_some() {
            return self.shared(queue);
        }
        let itemsize = self.dtype.itemsize();
        let bytes = (high - low + 1).unsigned_abs() * itemsize;
        let direct = is_direct(kind, queue, bytes);
        let copy = if direct {
            Array::uninit([bytes], DType::U8, kind, queue)?
        } else {
            Array::uninit([bytes.max(OWN_RANGE)], DType::U8, UsmKind::Host, queue)?
        };
        let device = &self.memory.device;
        register(device, copy.allocation())?;
        let after = |(context, stream)| Recorded::after(&device.driver, context, stream);
        let remote = Remote {
            device: device.clone(),
            pointer: self.pointer.wrapping_add_signed(low * itemsize as isize),
            ready: self.memory.stream.map(after).transpose()?,
            stream: self.memory.stream,
            keep: Some(Box::new(self.memory.clone())),
        };
        start(Direction::ToUsm, remote, (copy.allocation(), copy.address()), bytes, queue)?;
        if self.memory.stream.is_none() {
            // Without this wait, the owner's next write could overtake the copy.
            copy.wait()?;
        }
        let layout =
            Layout::foreign(self.shape(), Some(self.layout.strides()), low.unsigned_abs(), itemsize)?;
        let copy = Array::from_parts(copy.shared_allocation(), layout, self.dtype, queue.clone(), false);
        if direct {
            return copy.contiguous();
        }
        let result = Array::uninit(self.shape(), self.dtype, kind, queue)?;
        result.assign(&copy)?;
        Ok(result)
    }

    /// Returns the same memory as USM, if SYCL also uses the device.
    fn shared(&self, queue: &Queue) -> Result<Array> {
        self.wait()?;
        let descriptor = suai::Descriptor {
            pointer: self.pointer,
            readonly: self.readonly,
            shape: self.shape().to_vec(),
            strides: Some(self.layout.strides().to_vec()),
            offset: 0,
            dtype: self.dtype,
        };
        let owner = Box::new(self.memory.clone());
        // SAFETY: the owner keeps the memory.
        unsafe { suai::import(&descriptor, &SyclObject::Queue(queue.clone()), owner) }
    }

    /// Returns the step of [`CudaArray::to_queue`] without running it.
    ///
    /// # Errors
    /// [`Error::Sycl`] when the runtime cannot answer.
    pub fn explain(&self, queue: &Queue) -> Result<Step> {
        let what = self.to_string();
        let shared = self.size() > 0 && queue.context().kind_of(self.pointer)?.is_some();
        let (action, bytes, reason) = if shared {
            (Action::Rebind, 0, "the address is USM of a SYCL context".to_owned())
        } else {
            let strided = if self.is_contiguous() { "" } else { "; made contiguous on arrival" };
            let reason = format!("CUDA memory{strided}");
            (Action::FromCuda, self.spanned() as u64, reason)
        };
        Ok(Step { action, bytes, reason, what })
    }

    /// Returns the step of [`CudaArray::from_array`] without running it.
    #[must_use]
    pub fn explain_from_array(array: &Array) -> Step {
        let strided = if array.is_contiguous() { "" } else { "; made contiguous on the way" };
        let reason = format!("CUDA memory is the target{strided}");
        Step { action: Action::ToCuda, bytes: array.nbytes() as u64, reason, what: array.to_string() }
    }

    /// Bytes from the lowest to the highest element.
    fn spanned(&self) -> usize {
        self.layout.addresses(self.pointer, self.dtype.itemsize()).map_or(0, |bytes| bytes.len())
    }

    /// Blocks until the work submitted so far to the array's stream, transfers included, is complete.
    ///
    /// # Errors
    /// [`Error::Interop`] with errors of the CUDA driver.
    pub fn wait(&self) -> Result<()> {
        if let Some((context, stream)) = self.memory.stream {
            Recorded::after(&self.memory.device.driver, context, stream)?.wait()?;
        }
        Ok(())
    }

    /// Orders later work of another library's stream after the work submitted to the array's stream.
    pub(crate) fn lead(&self, stream: Option<usize>) -> Result<()> {
        crate::runtime::not_forked()?;
        let (Some((context, own)), Some(stream)) = (self.memory.stream, stream) else { return Ok(()) };
        if stream == 0 {
            return Err(ambiguous_stream());
        }
        let driver = &self.memory.device.driver;
        let event = Recorded::after(driver, context, own)?;
        driver.stream_wait_event(context, stream, event.raw())
    }

    /// An event that completes after the work submitted so far to the array's stream, if any.
    pub(crate) fn ready(&self) -> Result<ReadyEvent> {
        crate::runtime::not_forked()?;
        let Some((context, stream)) = self.memory.stream else { return Ok(ReadyEvent(None)) };
        let event = Recorded::after(&self.memory.device.driver, context, stream)?;
        Ok(ReadyEvent(Some(Box::new((event.raw(), event)))))
    }

    /// The stream that another library must wait for.
    pub(super) fn stream(&self) -> Option<usize> {
        self.memory.stream.map(|(_, stream)| stream)
    }

    /// Number of the CUDA device.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.memory.device.ordinal
    }

    /// Address of the first element; may be 0 for an empty array.
    #[must_use]
    pub fn address(&self) -> usize {
        self.pointer
    }

    /// Extents, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Strides along each axis, in elements.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// Number of elements.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Bytes of all elements.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.size() * self.dtype.itemsize()
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether the owner of the memory declared it read-only.
    #[must_use]
    pub fn is_readonly(&self) -> bool {
        self.readonly
    }

    /// Whether the elements are contiguous in C order.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }
}

/// `float32[3, 4] on cuda:0 NVIDIA H200`.
impl fmt::Display for CudaArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} on {}", self.dtype, self.shape(), self.memory.device)
    }
}

impl fmt::Debug for CudaArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaArray({self}, {:#x})", self.pointer)
    }
}

impl Described<'_> {
    /// The layout, checked to stay in the address space.
    pub(super) fn layout(&self) -> Result<Layout> {
        let itemsize = self.dtype.itemsize();
        if self.stream == Some(0) {
            return Err(ambiguous_stream());
        }
        let layout = Layout::foreign(self.shape, self.strides, 0, itemsize)?;
        if self.pointer == 0 && layout.size() > 0 {
            return Err(Error::interop(format!("the address of shape {:?} is null", self.shape)));
        }
        layout.foreign_addresses(self.pointer, itemsize)?;
        Ok(layout)
    }
}

/// The array in memory that is registered with the driver: itself, or a copy in host USM.
fn registered(source: Array, device: &CudaDevice) -> Result<Array> {
    let queue = source.queue().clone();
    let direct = source.usm_kind().is_some_and(|kind| is_direct(kind, &queue, source.nbytes()));
    if direct && register(device, source.allocation())? {
        return Ok(source);
    }
    let staged = Array::uninit([source.nbytes().max(OWN_RANGE)], DType::U8, UsmKind::Host, &queue)?;
    register(device, staged.allocation())?;
    let layout = Layout::contiguous(source.shape(), source.dtype().itemsize())?;
    let staged = Array::from_parts(staged.shared_allocation(), layout, source.dtype(), queue, false);
    staged.assign(&source)?;
    Ok(staged)
}

fn ambiguous_stream() -> Error {
    Error::interop(
        "stream 0 is ambiguous; pass 1 (legacy default stream), 2 (per-thread default stream) or a handle",
    )
}

/// The CUDA device of an address, and the context of its stream.
fn locate(pointer: usize, described: &Described<'_>) -> Result<(Arc<CudaDevice>, Handle)> {
    let (driver, _) = super::cuda_driver::open()?;
    if described.shape.contains(&0) {
        let device = CudaDevice::get(0)?;
        let context = device.context();
        return Ok((device, context));
    }
    let location = driver.locate(pointer)?.ok_or_else(|| {
        Error::interop(format!(
            "{pointer:#x} was passed as CUDA memory, but the CUDA driver does not know it"
        ))
    })?;
    let device = CudaDevice::get(location.device)?;
    let context = if location.context == 0 { device.context() } else { location.context };
    Ok((device, context))
}
