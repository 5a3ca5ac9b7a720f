//! Copies between host and array, and between arrays of one context.

use super::{Array, DType, Element, bytes_of};
use crate::device::record::{because, because_if_unsaid};
use crate::device::{Event, Queue, Reason};
use crate::error::{Error, Result};
use crate::memory::{Access, ordered};

impl Array {
    /// The elements in C order. Waits for the writes before, nothing else.
    ///
    /// # Errors
    /// [`Error::Type`] when `T` is not the array's element type; [`Error::Value`] when the memory holds bits that are
    /// no `T`, as an uninitialised `bool`; [`Error::Sycl`] with what the work reported.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_element::<T>()?;
        let size = self.size();
        let mut values = Vec::<T>::with_capacity(size);
        if let Err(error) = self.read_into(values.as_mut_ptr().cast(), size * size_of::<T>()) {
            self.give_up(values);
            return Err(error);
        }
        // SAFETY: `read_into` has written this many bytes, which the vector owns.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size * size_of::<T>()) };
        if !T::is_valid(bytes) {
            return Err(Error::Value(format!("{self} holds bytes that are no {}", self.dtype)));
        }
        // SAFETY: all `size` elements are written and valid.
        unsafe { values.set_len(size) };
        Ok(values)
    }

    /// The elements as bytes in C order. Waits for the writes before, nothing else.
    ///
    /// # Errors
    /// [`Error::Sycl`] with what the work reported.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.nbytes());
        if let Err(error) = self.read_into(bytes.as_mut_ptr(), self.nbytes()) {
            self.give_up(bytes);
            return Err(error);
        }
        // SAFETY: `read_into` has written this many bytes.
        unsafe { bytes.set_len(self.nbytes()) };
        Ok(bytes)
    }

    /// Lets go of memory into which a copy may still be running: better lost than written to by then.
    fn give_up<T>(&self, target: Vec<T>) {
        if !self.queue.settle() {
            std::mem::forget(target);
        }
    }

    /// Copies the elements to `target`, which has room for `nbytes`, and waits for that.
    pub(crate) fn read_into(&self, target: *mut u8, bytes: usize) -> Result<()> {
        debug_assert_eq!(bytes, self.nbytes());
        if bytes == 0 {
            return Ok(());
        }
        let _why = because_if_unsaid(Reason::HostRead);
        let packed = self.contiguous()?;
        let event = ordered(&packed.queue, &[(packed.allocation(), Access::Read)], |after| {
            // SAFETY: the source is inside the allocation; the caller's buffer outlives the wait below.
            unsafe { packed.queue.memcpy(target as usize, packed.address(), bytes, after) }
        });
        finish(&packed.queue, event)
    }

    /// Sets the elements, in C order, from host values. Returns when `values` may be reused.
    ///
    /// # Errors
    /// [`Error::Type`] or [`Error::Value`] when type or number do not fit, or the array is read-only. [`Error::Sycl`] with
    /// what the work reported; the elements are then the old ones or the new ones.
    pub fn copy_from_slice<T: Element>(&self, values: &[T]) -> Result<()> {
        self.check_element::<T>()?;
        self.copy_from_bytes(bytes_of(values))
    }

    /// As [`Array::copy_from_slice`], for bytes in C order.
    ///
    /// # Errors
    /// [`Error::Value`] when the number does not fit, or the array is read-only.
    pub fn copy_from_bytes(&self, values: &[u8]) -> Result<()> {
        self.check_writable()?;
        if values.len() != self.nbytes() {
            return Err(Error::Value(format!(
                "{self} takes {} bytes ({} elements), not {}",
                self.nbytes(),
                self.size(),
                values.len()
            )));
        }
        if values.is_empty() {
            return Ok(());
        }
        let _why = because_if_unsaid(Reason::HostWrite);
        if !self.is_contiguous() {
            let packed = Self::uninit(self.shape(), self.dtype, self.usm_kind(), &self.queue)?;
            packed.copy_from_bytes(values)?;
            let _why = because(Reason::Contiguity);
            return self.assign(&packed);
        }
        let event = ordered(&self.queue, &[(self.allocation(), Access::Write)], |after| {
            // SAFETY: the target is inside the allocation; `values` is borrowed until the wait below has ended.
            unsafe { self.queue.memcpy(self.address(), values.as_ptr() as usize, values.len(), after) }
        });
        finish(&self.queue, event)
    }

    /// Sets the elements from an array of the same shape, converting its dtype. Returns before it is done.
    ///
    /// # Errors
    /// [`Error::Value`] when the shapes differ or this array is read-only, [`Error::Placement`] when `source` is not
    /// usable from this array's queue (`collocate` mends that).
    pub fn assign(&self, source: &Self) -> Result<()> {
        self.check_writable()?;
        if self.shape() != source.shape() {
            return Err(Error::Value(format!(
                "cannot copy an array of shape {:?} into one of shape {:?}",
                source.shape(),
                self.shape()
            )));
        }
        let source = source.on_queue(&self.queue).map_err(|error| match error {
            Error::Placement(why) => {
                Error::Placement(format!("{why}; collocate(source, like=target) copies it"))
            }
            other => other,
        })?;
        if self.size() == 0 {
            return Ok(());
        }
        if self.dtype == source.dtype && self.is_contiguous() && source.is_contiguous() {
            if self.address() == source.address() {
                return Ok(());
            }
            if !self.overlaps(&source) {
                return self.copy_bytes(&source);
            }
        }
        if self.overlaps(&source) {
            // The kernel's work-items run in no order, so an overlapping source must be read whole first.
            return self.convert_from(&source.copy()?);
        }
        self.convert_from(&source)
    }

    /// A contiguous copy in memory of the same kind, on the same queue.
    ///
    /// # Errors
    /// [`Error::Allocation`] when memory is short.
    pub fn copy(&self) -> Result<Self> {
        self.cast(self.dtype)
    }

    /// A contiguous copy with elements of another type. Numbers convert as in C++: a float to an integer is cut off,
    /// out of range it is unspecified; a complex number to a real one loses its imaginary part.
    ///
    /// # Errors
    /// [`Error::Allocation`] when memory is short.
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        let copy = Self::uninit(self.shape(), dtype, self.usm_kind(), &self.queue)?;
        let _why = (dtype != self.dtype).then(|| because(Reason::Conversion));
        copy.assign(self)?;
        Ok(copy)
    }

    /// This array if it is contiguous, else a contiguous copy.
    ///
    /// # Errors
    /// [`Error::Allocation`] when memory is short.
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        let _why = because(Reason::Contiguity);
        self.copy()
    }

    fn copy_bytes(&self, source: &Self) -> Result<()> {
        let operands = [(self.allocation(), Access::Write), (source.allocation(), Access::Read)];
        ordered(&self.queue, &operands, |after| {
            // SAFETY: both ranges are inside allocations that their logs keep until the event is complete, of one
            // context, and do not overlap.
            unsafe { self.queue.memcpy(self.address(), source.address(), self.nbytes(), after) }
        })?;
        Ok(())
    }

    /// Whether the two views may share an element. Compares the spans, so interleaved views count as overlapping.
    fn overlaps(&self, other: &Self) -> bool {
        let span = |array: &Self| {
            let itemsize = array.dtype.itemsize() as isize;
            let (low, high) = array.layout.extent()?;
            let first = array.address() as isize;
            Some((first + low * itemsize, first + (high + 1) * itemsize))
        };
        match (span(self), span(other)) {
            (Some((a, b)), Some((c, d))) => a < d && c < b,
            _ => false,
        }
    }
}

/// Waits for a copy from or to host memory that someone else owns. Should that fail, the copy may still be running over
/// memory that is about to go away; then everything on the queue is awaited before the error is told.
fn finish(queue: &Queue, copy: Result<Event>) -> Result<()> {
    copy.and_then(|event| event.wait()).inspect_err(|_| {
        queue.settle();
    })
}
