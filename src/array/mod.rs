//! Arrays: a typed, n-dimensional view of USM or system memory, and the queue on which its work runs.

mod arange;
mod axes;
mod builder;
mod cast_kernel;
mod complex;
mod create;
mod display;
mod dtype;
mod element;
mod extents;
mod format;
mod host;
mod host_view;
mod layout;
mod overlap;
mod pack_bits;
mod pieces;
mod read;
mod scalar;
mod slicing;
mod transfer;
mod tuples;

pub(crate) use axes::axis_position;
pub use builder::ArrayBuilder;
pub use dtype::DType;
pub(crate) use dtype::Family;
pub use element::Element;
pub(crate) use element::{Number, bytes_of, element_of, with_element};
pub use extents::{Extent, IntoNewShape, IntoShape};
pub(crate) use format::single as element_text;
pub use host::HostMemory;
pub(crate) use host::in_user_space;
pub use host_view::{HostView, HostViewMut};
pub use layout::Index;
pub(crate) use layout::{Layout, Shape, Strides, merge_axes};
pub(crate) use pieces::rounded;
pub use read::ReadFuture;
pub use scalar::Scalar;
pub use slicing::{IndexPart, Indices};
pub(crate) use tuples::tuples;

use crate::device::recording::{Entered, suspend};
use crate::device::{Context, Device, MemoryKind, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::memory::Allocation;
use overlap::{View, shares_bytes};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A view of unified shared memory with a dtype, a shape, strides and a queue. Devices that reach system memory
/// also use memory of the host in place; see [`Array::from_host`].
///
/// Clones and views share the memory, which lives until the last of them is dropped and the last command that
/// uses it is complete. Commands on one array from any number of queues and threads run in an order that
/// keeps every read after earlier writes, without a wait on the host. Dropping an array never waits.
///
/// An array is a handle to device memory, like a file: writing needs no `&mut`, and code that shares one
/// across threads must synchronize its writes.
///
/// ```
/// use usmq::Array;
///
/// let x = Array::from_slice(&[0f32, 1.0, 2.0, 3.0])?.reshape((2, 2))?;
/// let column = x.index((.., 1))?; // a view
/// column.fill(9f32)?;
/// assert_eq!(x.to_vec::<f32>()?, [0.0, 9.0, 2.0, 9.0]);
/// println!("{x}"); // float32[2, 2] (device USM, queue 0x… on opencl:cpu:0 …)
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Clone)]
pub struct Array {
    allocation: Arc<Allocation>,
    layout: Layout,
    dtype: DType,
    queue: Queue,
    readonly: bool,
}

impl Array {
    /// A view of an allocation. The caller has checked that the layout stays inside it.
    pub(crate) fn from_parts(
        allocation: Arc<Allocation>,
        layout: Layout,
        dtype: DType,
        queue: Queue,
        readonly: bool,
    ) -> Self {
        Self { allocation, layout, dtype, queue, readonly }
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    pub(crate) fn shared_allocation(&self) -> Arc<Allocation> {
        self.allocation.clone()
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Another view of the same elements.
    fn view(&self, layout: Layout) -> Self {
        Self { layout, ..self.clone() }
    }

    /// Extents, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Steps between neighbours along each axis, in elements.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// Number of axes.
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// Number of elements.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Bytes of all elements, without the gaps of a strided view.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.size() * self.dtype.itemsize()
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The kind of the memory.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.allocation.kind()
    }

    /// The USM kind of the memory; `None` for system memory.
    #[must_use]
    pub fn usm_kind(&self) -> Option<UsmKind> {
        self.memory_kind().usm()
    }

    /// The kind of memory for a copy on the same queue: the host can also read a copy of system memory.
    pub(crate) fn kind_of_copies(&self) -> UsmKind {
        self.usm_kind().unwrap_or(UsmKind::Host)
    }

    /// The queue on which this array's own work runs, and which kernels follow.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The queue's device.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.queue.device()
    }

    /// The context in which the memory's addresses are valid. System memory has none: the context of the queue.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.allocation.place().map_or(self.queue.context(), |(context, _)| context)
    }

    /// Address of the first element.
    #[must_use]
    pub fn address(&self) -> usize {
        self.allocation.pointer() + self.layout.offset() * self.dtype.itemsize()
    }

    /// Whether the owner of the memory forbids writes.
    #[must_use]
    pub fn is_readonly(&self) -> bool {
        self.readonly
    }

    /// Whether the elements are contiguous in C order.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The elements of a contiguous array as bytes on one axis.
    pub(crate) fn as_bytes(&self) -> Result<Self> {
        let first = self.layout.offset() * self.dtype.itemsize();
        let layout = Layout::foreign(&[self.nbytes()], None, first, 1)?;
        Ok(Self { layout, dtype: DType::U8, ..self.clone() })
    }

    /// All memory from the lowest to the highest element as one axis, and the position of the first element
    /// in it.
    pub(crate) fn span(&self) -> Result<(Self, usize)> {
        let (low, high) = self.layout.extent().unwrap_or((0, -1));
        let first = self.layout.offset().wrapping_add_signed(low);
        let layout = Layout::foreign(&[(high - low + 1).unsigned_abs()], None, first, self.dtype.itemsize())?;
        Ok((self.view(layout), low.unsigned_abs()))
    }

    /// The same memory as a read-only array.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::zeros::<i32>(2)?;
    /// let view = x.as_readonly();
    /// assert!(view.fill(1i32).is_err());
    /// x.fill(1i32)?;
    /// assert_eq!(view.to_vec::<i32>()?, [1, 1]); // the same memory
    /// # Ok::<(), usmq::Error>(())
    /// ```
    #[must_use]
    pub fn as_readonly(&self) -> Self {
        Self { readonly: true, ..self.clone() }
    }

    /// The same memory as a writable array, for memory that no other owner uses.
    #[cfg(feature = "python")]
    pub(crate) fn as_writable(&self) -> Self {
        Self { readonly: false, ..self.clone() }
    }

    /// The same memory with another queue for its work. Order is kept, since the allocation records its last
    /// uses.
    ///
    /// ```
    /// use usmq::{Array, Queue};
    ///
    /// let x = Array::zeros::<i32>(2)?;
    /// let other = Queue::builder(x.device()).out_of_order().build()?;
    /// let same = x.on_queue(&other)?;
    /// assert_eq!((same.queue(), same.address()), (&other, x.address()));
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Placement`] when kernels on `queue` cannot use this memory.
    pub fn on_queue(&self, queue: &Queue) -> Result<Self> {
        if let Some(why) = self.unusable_from(queue)? {
            let message = format!("{self} cannot be used from {queue}: {why}");
            return Err(Error::placement(message, vec![self.queue.to_string()], Some(0)));
        }
        Ok(Self { queue: queue.clone(), ..self.clone() })
    }

    /// Whether both are the same elements of the same memory on the same queue.
    #[cfg(feature = "python")]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.allocation, &other.allocation)
            && self.layout == other.layout
            && self.dtype == other.dtype
            && self.queue == other.queue
    }

    /// Why kernels on `queue` cannot use this memory; `None` if they can. Decided by context and device,
    /// never by whether the access happens to work: a CPU device reaches every address, a GPU does not.
    pub(crate) fn unusable_from(&self, queue: &Queue) -> Result<Option<String>> {
        let Some((context, device)) = self.allocation.place() else {
            return Ok((!queue.device().has_system_usm()).then(|| {
                format!(
                    "it is system memory, which {} does not reach (usm_system_allocations)",
                    queue.device()
                )
            }));
        };
        if context != queue.context() {
            return Ok(Some(format!("it is USM of {context}, but the queue uses {}", queue.context())));
        }
        // Host memory belongs to its context, other kinds to their device.
        let reachable = self.usm_kind() == Some(UsmKind::Host) || queue.device().reaches_memory_of(device)?;
        Ok((!reachable).then(|| {
            format!(
                "it is {} memory of {device}, but {} has no peer access to it",
                self.memory_kind(),
                queue.device()
            )
        }))
    }

    /// The same elements in C order with another shape, in which one extent may be -1. A view where the
    /// layout allows it, else a contiguous copy.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::from_slice(&[1, 2, 3, 4, 5, 6])?;
    /// assert_eq!(x.reshape((2, -1))?.shape(), [2, 3]);
    /// assert!(x.reshape(4).is_err());
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Value`] when the numbers of elements differ.
    pub fn reshape(&self, shape: impl IntoNewShape) -> Result<Self> {
        let shape = shape.into_new_shape();
        if let Some(layout) = self.layout.reshape(&shape)? {
            return Ok(self.view(layout));
        }
        let copy = self.copy()?;
        let layout = copy.layout.reshape(&shape)?;
        Ok(layout.map_or_else(|| copy.clone(), |layout| copy.view(layout)))
    }

    /// The axes in another order; `axes[i]` is the old number of new axis `i`.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::zeros::<f32>((2, 3, 4))?;
    /// assert_eq!(x.permute([2, 0, 1])?.shape(), [4, 2, 3]);
    /// assert!(x.permute([0, 0, 1]).is_err());
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Value`] if `axes` is not a permutation of all axes.
    pub fn permute(&self, axes: impl AsRef<[usize]>) -> Result<Self> {
        Ok(self.view(self.layout.permute(axes.as_ref())?))
    }

    /// The axes in reverse order.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::from_slice(&[1, 2, 3, 4])?.reshape((2, 2))?;
    /// assert_eq!(x.transpose().to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    #[must_use]
    pub fn transpose(&self) -> Self {
        let axes: Vec<_> = (0..self.ndim()).rev().collect();
        // The reversal of all axes is a valid permutation.
        self.layout.permute(&axes).map_or_else(|_| self.clone(), |layout| self.view(layout))
    }

    /// A view of some elements: numpy's basic indexing. The parts are positions and ranges in a tuple, such as
    /// `(0, .., 1..3)`; see [`Indices`].
    ///
    /// # Errors
    /// [`Error::Index`] for a position outside an axis or too many parts, [`Error::Value`] for a zero step.
    pub fn index(&self, parts: impl Indices) -> Result<Self> {
        Ok(self.view(self.layout.index(&parts.into_indices())?))
    }

    /// Blocks until all work submitted so far on the memory is complete.
    ///
    /// # Errors
    /// [`Error::Sycl`] with the error that the work reported.
    pub fn wait(&self) -> Result<()> {
        let _direct = self.outside_capture("wait()")?;
        self.allocation.wait()?;
        self.queue.write_output(false);
        Ok(())
    }

    /// For an export by `call`: an error inside a capture that writes the array. Else commands that the export needs run
    /// at once while the guard lives, also inside a capture.
    pub(crate) fn outside_capture(&self, call: &str) -> Result<Option<Entered>> {
        self.allocation.check_capture(|| format!("{call} of {self}"))?;
        Ok(suspend())
    }

    /// The bytes from the lowest to the highest element; `None` without elements.
    pub(crate) fn addresses(&self) -> Option<Range<usize>> {
        self.layout.addresses(self.address(), self.dtype.itemsize())
    }

    /// Whether an element of the other array uses a byte of this one.
    pub(crate) fn shares_bytes(&self, other: &Self) -> bool {
        shares_bytes(self.overlap_view(), other.overlap_view())
    }

    fn overlap_view(&self) -> View<'_> {
        View { address: self.address(), layout: &self.layout, itemsize: self.dtype.itemsize() }
    }

    /// Records the addresses of the array, which a launch of a capture uses.
    pub(crate) fn touch(&self) {
        if let Some(bytes) = self.addresses() {
            self.allocation.touch(bytes);
        }
    }

    /// An error unless the array is writable.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.readonly {
            return Err(Error::value(format!("{self} is read-only; copy() returns a writable array")));
        }
        Ok(())
    }
}

/// `float32[3, 4] (device USM, queue 0x55… on opencl:cpu:0 AMD EPYC)`.
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} ({}, {})", self.dtype, self.shape(), self.memory_kind().title(), self.queue)
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({self}, {:#x})", self.address())
    }
}
