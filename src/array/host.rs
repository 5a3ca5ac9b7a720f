//! Arrays in memory of the host, used in place by devices that reach system memory.

use super::{Array, DType, Element, Layout};
use crate::device::Queue;
use crate::error::{Error, Result, spelled};
use crate::memory::{Allocation, ForeignOwner};
use std::any::Any;
use std::ops::Range;

/// No machine has as many bytes of memory.
const LARGEST: usize = 1 << 52;

/// Whether the processor could reach these addresses: memory of a process is in the lower half of the address space.
/// Device memory may be anywhere.
pub(crate) fn in_user_space(bytes: &Range<usize>) -> bool {
    bytes.end <= isize::MAX.unsigned_abs()
}

/// A description of numbers in memory of the host: where they are, and how they are arranged.
///
/// ```
/// use usmq::{Arg, Array, HostMemory, Kernel};
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// USMQ_KERNEL(1) void copy(const int *x, int *y) { y[global_id(0)] = x[global_id(0)]; }"#;
/// let (values, y) = ([1i32, 2], Array::zeros::<i32>(2)?);
/// let host = Arg::host(HostMemory::from_slice(&values), None);
/// // SAFETY: with 2 work-items copy touches 2 elements of each, and only the kernel uses the values meanwhile.
/// unsafe { Kernel::from_sycl(source, "copy")?.launch(2, (host, &y)) }?;
/// assert_eq!(y.to_vec::<i32>()?, values);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMemory {
    /// Address of the first element.
    pub pointer: usize,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Steps between neighbours along each axis, in bytes; C-contiguous if `None`.
    pub strides: Option<Vec<isize>>,
    /// The element type.
    pub dtype: DType,
    /// Whether commands must not write to it.
    pub readonly: bool,
}

impl HostMemory {
    /// The elements of a slice.
    #[must_use]
    pub fn from_slice<T: Element>(values: &[T]) -> Self {
        let (pointer, shape) = (values.as_ptr() as usize, vec![values.len()]);
        Self { pointer, shape, strides: None, dtype: T::DTYPE, readonly: true }
    }

    /// The elements of a slice, which commands may write.
    #[must_use]
    pub fn from_slice_mut<T: Element>(values: &mut [T]) -> Self {
        Self { pointer: values.as_mut_ptr() as usize, readonly: false, ..Self::from_slice(values) }
    }

    /// Number of elements.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// The positions of the elements in bytes.
    pub(crate) fn byte_layout(&self) -> Result<Layout> {
        let itemsize = self.dtype.itemsize();
        let whole = Layout::contiguous(&self.shape, itemsize)?;
        let steps: Vec<isize> = whole.strides().iter().map(|step| step * itemsize as isize).collect();
        Layout::foreign(&self.shape, Some(self.strides.as_deref().unwrap_or(&steps)), 0, 1)
    }

    /// Addresses of the first byte and after the last one; `None` without elements.
    pub(crate) fn span(&self) -> Result<Option<(usize, usize)>> {
        let outside = || {
            Error::value(format!(
                "host memory at {:#x} with shape {:?} and strides {:?} leaves the address space",
                self.pointer, self.shape, self.strides
            ))
        };
        let bytes = self.byte_layout()?.foreign_addresses(self.pointer, 1).map_err(|_| outside())?;
        let Some(Range { start, end }) = bytes else { return Ok(None) };
        let end = (end - 1).checked_add(self.dtype.itemsize()).ok_or_else(outside)?;
        // The runtime does not know the size of host memory, so only impossible ones are errors.
        if end - start > LARGEST || !in_user_space(&(start..end)) {
            return Err(outside());
        }
        Ok(Some((start, end)))
    }

    /// Strides in elements, or why a device cannot use the memory in place.
    pub(crate) fn element_strides(&self) -> Result<Option<Vec<isize>>, String> {
        let (dtype, itemsize) = (self.dtype, self.dtype.itemsize());
        if self.size() == 0 {
            return Ok(None);
        }
        let unaligned = |what| format!("{what} is not a multiple of the {itemsize} bytes of {dtype}");
        if !self.pointer.is_multiple_of(itemsize) {
            return Err(unaligned(format!("address {:#x}", self.pointer)));
        }
        let Some(strides) = &self.strides else { return Ok(None) };
        // Only steps of more than one element are taken.
        let axes = strides.iter().zip(&self.shape);
        let taken = axes.map(|(step, extent)| if *extent > 1 { *step } else { 0 });
        let in_elements = |step: isize| match (step / itemsize as isize, step % itemsize as isize) {
            (elements, 0) => Ok(elements),
            _ => Err(unaligned(format!("stride {step}"))),
        };
        taken.map(in_elements).collect::<Result<_, _>>().map(Some)
    }

    /// Whether element i is the same memory in both, as in a view with other axes of one element.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let steps = |memory: &Self| {
            let layout = memory.byte_layout().ok()?;
            let axes = memory.shape.iter().copied().zip(layout.strides().iter().copied());
            Some(axes.filter(|(extent, _)| *extent != 1).collect::<Vec<_>>())
        };
        self.pointer == other.pointer
            && self.dtype.itemsize() == other.dtype.itemsize()
            && steps(self).is_some_and(|own| steps(other) == Some(own))
    }

    /// Whether a kernel on any device can use the memory as it is: aligned, and contiguous in C order.
    pub(crate) fn is_plain(&self) -> bool {
        let layout = |strides: Option<Vec<isize>>| {
            Layout::foreign(&self.shape, strides.as_deref(), 0, self.dtype.itemsize())
        };
        self.element_strides().is_ok_and(|strides| layout(strides).is_ok_and(|layout| layout.is_contiguous()))
    }
}

impl Array {
    /// Uses memory of the host in place, on a device that reaches system memory
    /// ([`Device::has_system_usm`](crate::Device::has_system_usm)); CPU devices do. `owner` is dropped after the last
    /// use is complete.
    ///
    /// Commands on arrays whose memory overlaps run in order, as on views of one array. The host may access the memory
    /// after [`Array::wait`].
    ///
    /// # Safety
    /// The described memory stays allocated while `owner` lives. Between a command's submission and its
    /// completion, other code does not write to memory that the command reads, and does not access memory that
    /// it writes.
    ///
    /// # Errors
    /// [`Error::Value`] if the queue's device does not reach system memory, or for memory that is not aligned
    /// for its dtype or outside of the address space.
    pub unsafe fn from_host(
        memory: &HostMemory,
        queue: &Queue,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        Self::in_system(memory, queue, Some(owner))
    }

    /// Uses values of the host in place, as a read-only array of one axis on `queue`; see [`Array::from_host`].
    ///
    /// ```
    /// let queue = usmq::with_queue("cpu", usmq::current_queue)?;
    /// let x = usmq::Array::from_owner(vec![1.0f32, 2.0], &queue)?;
    /// assert_eq!(x.memory_kind(), usmq::MemoryKind::System);
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Array::from_host`].
    pub fn from_owner<T: Element>(
        values: impl AsRef<[T]> + Send + Sync + 'static,
        queue: &Queue,
    ) -> Result<Self> {
        // The slice may be part of the owner, so the owner moves to its final place first.
        let owner = Box::new(values);
        let memory = HostMemory::from_slice((*owner).as_ref());
        Self::in_system(&memory, queue, Some(owner))
    }

    /// As [`Array::from_host`]. Without an owner, the caller keeps the memory until its last use is complete.
    pub(crate) fn in_system(memory: &HostMemory, queue: &Queue, owner: Option<ForeignOwner>) -> Result<Self> {
        let HostMemory { pointer, shape, dtype, readonly, .. } = memory;
        if !queue.device().has_system_usm() {
            return Err(Error::value(format!(
                "{} cannot use host memory in place: it lacks usm_system_allocations; copy the data ({}), or use a \
                 device that has it, as \"cpu\"",
                queue.device(),
                spelled("copy=None", "Array::from_slice"),
            )));
        }
        let in_place = |why| Error::value(format!("host memory cannot be used in place: {why}; copy it"));
        let strides = memory.element_strides().map_err(in_place)?;
        let span = memory.span()?;
        let (start, end) = span.unwrap_or((*pointer, *pointer));
        let allocation = Allocation::system(start, end - start, owner)?;
        let first = (pointer - start) / dtype.itemsize();
        let layout = Layout::foreign(shape, strides.as_deref(), first, dtype.itemsize())?;
        Ok(Self::from_parts(allocation, layout, *dtype, queue.clone(), *readonly))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(pointer: usize, shape: &[usize], strides: Option<&[isize]>) -> HostMemory {
        let strides = strides.map(<[isize]>::to_vec);
        HostMemory { pointer, shape: shape.to_vec(), strides, dtype: DType::F32, readonly: false }
    }

    #[test]
    fn spans_cover_all_elements_in_bytes() {
        let span = |shape: &[usize], strides| memory(0x1000, shape, strides).span();
        assert_eq!(span(&[3, 4], None).unwrap(), Some((0x1000, 0x1000 + 48)));
        assert_eq!(span(&[3], Some(&[-8])).unwrap(), Some((0x1000 - 16, 0x1004)));
        assert_eq!(span(&[0, 3], None).unwrap(), None);
        assert_eq!(span(&[], None).unwrap(), Some((0x1000, 0x1004)));
        assert_eq!(span(&[2], Some(&[0])).unwrap(), Some((0x1000, 0x1004)));
        assert!(span(&[2], Some(&[isize::MAX])).is_err());
        assert!(memory(usize::MAX - 6, &[2], None).span().is_err());
        assert!(memory(0, &[2], None).span().is_err());
    }

    #[test]
    fn views_with_other_axes_of_one_element_are_the_same() {
        let same = |a: HostMemory, b: HostMemory| a.is_same(&b) && b.is_same(&a);
        assert!(same(memory(0x1000, &[3], None), memory(0x1000, &[1, 3, 1], Some(&[7, 4, 9]))));
        assert!(!same(memory(0x1000, &[3], None), memory(0x1000, &[3], Some(&[8]))));
        assert!(!same(memory(0x1000, &[3], None), memory(0x1004, &[3], None)));
        assert!(!same(memory(0x1000, &[3], None), memory(0x1000, &[2], None)));
    }

    #[test]
    fn only_aligned_contiguous_memory_is_plain() {
        let plain = |pointer, shape: &[usize], strides| memory(pointer, shape, strides).is_plain();
        assert!(plain(0x1000, &[3, 4], None));
        assert!(plain(0x1000, &[3, 1], Some(&[4, 3])), "the stride of one element is not taken");
        assert!(!plain(0x1001, &[3], None));
        assert!(!plain(0x1000, &[3], Some(&[8])));
        assert!(!plain(0x1000, &[3], Some(&[6])));
    }
}
