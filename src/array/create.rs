//! New arrays: uninitialised, filled, evenly spaced, from host memory.

use super::pieces::{in_pieces, rounded};
use super::{Array, DType, Element, IntoShape, Layout, Scalar, bytes_of};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::manager::current_queue;
use crate::memory::{Access, Allocation, by_host, ordered_all};
use crate::trace::{Kind, Reason, as_continuation, as_fill, with_default_reason};
use std::sync::Arc;

/// The host writes this many bytes of a pattern; copies on the device double it from there. Each fill in
/// flight holds as many.
const SEED: usize = 16 << 10;

impl Array {
    /// An uninitialised array of any dtype and USM kind on `queue`. The elements are undefined.
    ///
    /// # Errors
    /// [`Error::Value`] for a shape beyond the address space, [`Error::Allocation`] when memory is short.
    pub fn uninit(shape: impl IntoShape, dtype: DType, kind: UsmKind, queue: &Queue) -> Result<Self> {
        let layout = Layout::contiguous(shape.into_shape().as_ref(), dtype.itemsize())?;
        let allocation = Allocation::new(layout.size() * dtype.itemsize(), kind, queue)?;
        Ok(Self::from_parts(allocation, layout, dtype, queue.clone(), false))
    }

    /// As [`Array::uninit`], if a pool has kept such memory: never blocks, and calls no runtime.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "only Python has a lock to keep"))]
    pub(crate) fn uninit_kept(
        shape: impl IntoShape,
        dtype: DType,
        kind: UsmKind,
        queue: &Queue,
    ) -> Result<Option<Self>> {
        let layout = Layout::contiguous(shape.into_shape().as_ref(), dtype.itemsize())?;
        let kept = Allocation::kept(layout.size() * dtype.itemsize(), kind, queue);
        Ok(kept.map(|allocation| Self::from_parts(allocation, layout, dtype, queue.clone(), false)))
    }

    /// An uninitialised array in device memory on the current queue.
    ///
    /// # Errors
    /// As [`Array::uninit`].
    pub fn empty<T: Element>(shape: impl IntoShape) -> Result<Self> {
        Self::uninit(shape, T::DTYPE, UsmKind::Device, &current_queue()?)
    }

    /// Zeros in device memory on the current queue.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// assert_eq!(Array::zeros::<f64>((2, 2))?.to_vec::<f64>()?, [0.0; 4]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Array::uninit`].
    pub fn zeros<T: Element>(shape: impl IntoShape) -> Result<Self> {
        let array = Self::empty::<T>(shape)?;
        array.fill_bytes(&[0])?;
        Ok(array)
    }

    /// One value everywhere, in device memory on the current queue.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// assert_eq!(Array::full(3, 2u8)?.to_vec::<u8>()?, [2, 2, 2]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Array::uninit`].
    pub fn full<T: Element>(shape: impl IntoShape, value: T) -> Result<Self> {
        let array = Self::empty::<T>(shape)?;
        array.fill(value)?;
        Ok(array)
    }

    /// Ones in device memory on the current queue.
    ///
    /// # Errors
    /// As [`Array::uninit`].
    pub fn ones<T: Element>(shape: impl IntoShape) -> Result<Self> {
        let array = Self::empty::<T>(shape)?;
        array.fill_number(Scalar::Int(1))?;
        Ok(array)
    }

    /// An uninitialised array with shape, dtype, USM kind and queue of this one; of system memory in host USM.
    ///
    /// # Errors
    /// As [`Array::uninit`].
    pub fn empty_like(&self) -> Result<Self> {
        Self::uninit(self.shape(), self.dtype, self.kind_of_copies(), &self.queue)
    }

    /// Zeros; otherwise as [`empty_like`](Self::empty_like).
    ///
    /// ```
    /// let x = usmq::Array::from_slice(&[1.0f32, 2.0])?;
    /// assert_eq!(x.zeros_like()?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Array::uninit`].
    pub fn zeros_like(&self) -> Result<Self> {
        let array = self.empty_like()?;
        array.fill_bytes(&[0])?;
        Ok(array)
    }

    /// Ones; otherwise as [`empty_like`](Self::empty_like).
    ///
    /// # Errors
    /// As [`Array::uninit`].
    pub fn ones_like(&self) -> Result<Self> {
        let array = self.empty_like()?;
        array.fill_number(Scalar::Int(1))?;
        Ok(array)
    }

    /// One value everywhere; otherwise as [`empty_like`](Self::empty_like).
    ///
    /// # Errors
    /// [`Error::Type`] if `T` is not the array's element type; as [`Array::uninit`].
    pub fn full_like<T: Element>(&self, value: T) -> Result<Self> {
        self.check_element::<T>()?;
        let array = self.empty_like()?;
        array.fill(value)?;
        Ok(array)
    }

    /// A copy of host values, one axis, in device memory on the current queue.
    ///
    /// ```
    /// let x = usmq::Array::from_slice(&[1.0f32, 2.0])?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Array::uninit`].
    pub fn from_slice<T: Element>(values: &[T]) -> Result<Self> {
        let array = Self::empty::<T>([values.len()])?;
        array.copy_from_slice(values)?;
        Ok(array)
    }

    /// Sets every element. May return before the fill is complete.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::zeros::<i32>(4)?;
    /// x.index(1..3)?.fill(7i32)?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 7, 7, 0]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Type`] if `T` is not the array's element type, [`Error::Value`] if the array is read-only;
    /// [`Error::Sycl`], after which some elements may be set.
    pub fn fill<T: Element>(&self, value: T) -> Result<()> {
        self.check_element::<T>()?;
        self.fill_bytes(bytes_of(&[value]))
    }

    /// As [`fill`](Self::fill), for a number of any type that the dtype can hold.
    ///
    /// # Errors
    /// [`Error::Value`] if the dtype cannot hold the number, as 0.5 in int32, or if the array is read-only.
    pub fn fill_number(&self, number: Scalar) -> Result<()> {
        let misfit = |why| Error::value(format!("value does not fit: {why}"));
        self.fill_bytes(&number.bytes_as(self.dtype).map_err(misfit)?)
    }

    /// Sets every element to these bytes: one byte repeated, or one element.
    pub(crate) fn fill_bytes(&self, element: &[u8]) -> Result<()> {
        self.check_writable()?;
        if self.size() == 0 {
            return Ok(());
        }
        if !self.is_contiguous() {
            let filled = Self::uninit(self.shape(), self.dtype, self.kind_of_copies(), &self.queue)?;
            filled.fill_bytes(element)?;
            return self.assign(&filled);
        }
        match element {
            [first, rest @ ..] if rest.iter().all(|byte| byte == first) => self.set_bytes(*first),
            _ => self.repeat(element),
        }
    }

    fn set_bytes(&self, value: u8) -> Result<()> {
        let (address, bytes) = (self.address(), self.nbytes());
        // SAFETY: the memory is the host's, and no command uses it.
        let set = || unsafe { std::ptr::write_bytes(address as *mut u8, value, bytes) };
        if self.filled_by_host(set)? {
            return Ok(());
        }
        ordered_all(&self.queue, &[(self.allocation(), Access::Write)], |after, sent| {
            in_pieces(&self.queue, bytes, after, sent, |queue, start, bytes, after| {
                // SAFETY: the range is inside the allocation, which its log keeps until the event is complete.
                unsafe { queue.memset(address + start, value, bytes, after) }
            })
        })?;
        Ok(())
    }

    /// Fills by doubling: needs no kernel, so it works the same on every backend.
    fn repeat(&self, element: &[u8]) -> Result<()> {
        let (address, bytes) = (self.address(), self.nbytes());
        // By doubling, too.
        let repeated = |all: &mut [u8]| {
            all[..element.len()].copy_from_slice(element);
            let mut done = element.len();
            while done < all.len() {
                let next = done.min(all.len() - done);
                all.copy_within(..next, done);
                done += next;
            }
        };
        // SAFETY: the memory is the host's, and no command uses it; any byte is a u8.
        let all = || repeated(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) });
        if self.filled_by_host(all)? {
            return Ok(());
        }
        let seed = stage(bytes.min(SEED) / element.len() * element.len(), &self.queue, |seed| {
            repeated(seed);
            Ok(())
        })?;
        let operands = [(self.allocation(), Access::Write), (&seed, Access::Read)];
        let _fills = as_fill();
        ordered_all(&self.queue, &operands, |after, sent| {
            let mut done = seed.bytes();
            // SAFETY: both ranges are inside allocations that their logs keep until the last event is
            // complete.
            let mut last = unsafe { self.queue.memcpy(address, seed.pointer(), done, after) }?;
            let _rest = as_continuation();
            while done < bytes {
                sent.push(last.clone());
                let next = rounded(done.min(bytes - done));
                // SAFETY: as above; source and target do not overlap, since `next <= done`.
                last =
                    unsafe { self.queue.memcpy(address + done, address, next, std::slice::from_ref(&last)) }?;
                done += next;
            }
            Ok(last)
        })?;
        Ok(())
    }

    fn filled_by_host(&self, fill: impl FnOnce()) -> Result<bool> {
        let operand = (self.allocation(), Access::Write);
        by_host::at_once(&self.queue, &[operand], (Kind::Fill, self.nbytes()), fill)
    }

    /// Copies the bytes that `write` produces to a contiguous array, without waiting for the device.
    pub(crate) fn upload(&self, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        if self.size() == 0 {
            return Ok(());
        }
        let _why = with_default_reason(Reason::HostWrite);
        let staged = stage(self.nbytes(), &self.queue, write)?;
        let operands = [(self.allocation(), Access::Write), (&staged, Access::Read)];
        let (to, from) = (self.address(), staged.pointer());
        // SAFETY: two ranges of the operands; `staged` is a new allocation.
        if unsafe { by_host::copy_at_once(&self.queue, &operands, (to, from, staged.bytes())) }? {
            return Ok(());
        }
        ordered_all(&self.queue, &operands, |after, sent| {
            in_pieces(&self.queue, staged.bytes(), after, sent, |queue, start, bytes, after| {
                // SAFETY: both ranges are inside allocations that their logs keep until the event is complete.
                unsafe { queue.memcpy(to + start, from + start, bytes, after) }
            })
        })?;
        Ok(())
    }

    pub(crate) fn check_element<T: Element>(&self) -> Result<()> {
        if T::DTYPE == self.dtype {
            return Ok(());
        }
        let (expected, found) = (T::DTYPE, self.dtype);
        let message = format!("{self} has elements of {found}, not {expected}; cast() converts");
        Err(Error::type_mismatch(expected, found, message))
    }
}

/// Host USM of this size, filled by `write`.
fn stage(
    bytes: usize,
    queue: &Queue,
    write: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<Arc<Allocation>> {
    let staged = Allocation::new(bytes, UsmKind::Host, queue)?;
    // SAFETY: new host USM of this length that no command and no other code uses; any byte is a u8.
    write(unsafe { std::slice::from_raw_parts_mut(staged.pointer() as *mut u8, bytes) })?;
    Ok(staged)
}
