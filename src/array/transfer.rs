//! Copies between host and array, and between arrays of one context.

use super::pieces::in_pieces;
use super::{Array, DType, Element, Family, bytes_of};
use crate::device::{Event, Queue};
use crate::error::{Error, Result, spelled};
use crate::memory::{
    Access, ForeignOwner, Logged, by_host, drop_after, is_capturing, ordered_all, refuse, try_reserve,
};
use crate::runtime::interrupt::{self, uninterruptible};
use crate::trace::{Reason, with_default_reason, with_reason};

/// The content of a host allocation, for errors.
const ELEMENTS: &str = "the elements";

/// Returns the owner of the host side of a copy, kept while the device uses it.
pub(crate) type MakeOwner<'a> = &'a (dyn Fn() -> ForeignOwner + Sync);

impl Array {
    /// The elements in C order. Waits for earlier writes only. A `bool` is true if its byte is not 0.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::from_slice(&[1i32, 2, 3])?;
    /// assert_eq!(x.index((0..3).step_by(2))?.to_vec::<i32>()?, [1, 3]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Type`] if `T` is not the array's element type; [`Error::Value`] if the memory holds bits that
    /// are not a valid `T`; [`Error::HostMemory`] if host memory is short;
    /// [`Error::Sycl`] with the error that the work reported.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_element::<T>()?;
        let size = self.size();
        let mut values = self.room_for::<T>(size)?;
        if let Err(error) = self.read_into(values.as_mut_ptr().cast(), size * size_of::<T>(), None) {
            return Err(self.give_up(values, error));
        }
        // SAFETY: `read_into` has written all elements of the array, which the vector has room for.
        unsafe { self.assume_read(&mut values, size) }?;
        Ok(values)
    }

    /// An empty vector into which `count` values of the array are read.
    pub(super) fn room_for<T: Element>(&self, count: usize) -> Result<Vec<T>> {
        if count > 0 {
            self.refuse_read()?;
        }
        try_reserve::try_with_capacity::<T>(count, ELEMENTS)
    }

    /// Sets the length of a vector into which a copy has written the elements, if they are valid.
    ///
    /// # Safety
    /// `size` elements are written, and the vector has room for them.
    pub(super) unsafe fn assume_read<T: Element>(&self, values: &mut Vec<T>, size: usize) -> Result<()> {
        // SAFETY: the caller's promise; every byte is a u8.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size * size_of::<T>()) };
        if !T::is_valid(bytes) {
            return Err(self.invalid());
        }
        // SAFETY: the caller's promise; the elements are valid.
        unsafe { values.set_len(size) };
        Ok(())
    }

    /// Copies the elements, in C order, to a slice of the same length. Waits for earlier writes only.
    ///
    /// ```
    /// let x = usmq::Array::from_slice(&[1f32, 2.0])?;
    /// let mut values = [0f32; 2];
    /// x.copy_to_slice(&mut values)?;
    /// assert_eq!(values, [1.0, 2.0]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Array::to_vec`]; [`Error::Value`] also if the length does not match. After another error the values of the
    /// slice are unspecified.
    pub fn copy_to_slice<T: Element>(&self, target: &mut [T]) -> Result<()> {
        self.check_element::<T>()?;
        if target.len() != self.size() {
            return Err(Error::value(format!(
                "{self} has {} elements, but the slice has {}",
                self.size(),
                target.len()
            )));
        }
        let Some(first) = target.first().copied() else { return Ok(()) };
        let read = self.read_into(target.as_mut_ptr().cast(), size_of_val(target), None);
        // SAFETY: the bytes of the slice; every byte is a u8.
        let bytes = unsafe { std::slice::from_raw_parts(target.as_ptr().cast(), size_of_val(target)) };
        let is_valid = T::is_valid(bytes);
        if read.is_err() || !is_valid {
            // The slice must not keep bits that are not a value.
            target.fill(first);
        }
        read.and_then(|()| if is_valid { Ok(()) } else { Err(self.invalid()) })
    }

    /// The error for bits that are not a value of the element type.
    pub(super) fn invalid(&self) -> Error {
        Error::value(format!("{self} holds bytes that are not valid {} values", self.dtype))
    }

    /// The elements as bytes in C order. Waits for earlier writes only.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// assert_eq!(Array::from_slice(&[258u16])?.to_bytes()?, 258u16.to_ne_bytes());
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::HostMemory`] if host memory is short; [`Error::Sycl`] with the error that the work reported.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = self.room_for(self.nbytes())?;
        if let Err(error) = self.read_into(bytes.as_mut_ptr(), self.nbytes(), None) {
            return Err(self.give_up(bytes, error));
        }
        // SAFETY: `read_into` has written this many bytes.
        unsafe { bytes.set_len(self.nbytes()) };
        Ok(bytes)
    }

    /// Leaks memory into which a copy may still write, rather than free it. An interrupted wait ended before
    /// the copy was submitted.
    fn give_up<T>(&self, target: Vec<T>, error: Error) -> Error {
        if !matches!(error, Error::Interrupted) && !self.queue.drain() {
            std::mem::forget(target);
        }
        error
    }

    /// Copies the elements to `target`, which has `nbytes` bytes, and waits for the copy. The wait can be
    /// interrupted if `owner` returns an object that keeps the target alive.
    pub(crate) fn read_into(
        &self,
        target: *mut u8,
        bytes: usize,
        owner: Option<MakeOwner<'_>>,
    ) -> Result<()> {
        debug_assert_eq!(bytes, self.nbytes());
        if bytes == 0 {
            return Ok(());
        }
        self.refuse_read()?;
        let _why = with_default_reason(Reason::HostRead);
        let packed = self.contiguous()?;
        let (to, from) = (target as usize, packed.address());
        if are_overlapping((to, from), bytes) {
            // One command must not copy between overlapping ranges.
            let values = packed.to_bytes()?;
            self.allocation().wait_for_host(Access::Write)?;
            // SAFETY: the caller's range, which the host may write; the vector is elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), target, bytes) };
            return Ok(());
        }
        if !packed.copied_by_host(Access::Read, (to, from), true)? {
            packed.copied_by_device(to, owner)?;
        }
        if self.dtype == DType::Bool {
            // SAFETY: the caller's range, which the copy has written; every byte is a u8.
            normalise(unsafe { std::slice::from_raw_parts_mut(target, bytes) });
        }
        // The work that fills the memory may have failed during the wait.
        self.allocation().check()
    }

    /// Copies a contiguous array to memory of the caller by a command, and waits for it.
    fn copied_by_device(&self, to: usize, owner: Option<MakeOwner<'_>>) -> Result<()> {
        let (from, bytes) = (self.address(), self.nbytes());
        self.before_lending(Access::Read, owner)?;
        let event = ordered_all(&self.queue, &[(self.allocation(), Access::Read)], |after, sent| {
            in_pieces(&self.queue, bytes, after, sent, |queue, start, bytes, after| {
                // SAFETY: the source is inside the allocation; the target outlives the copy, as `finish` ensures.
                unsafe { queue.memcpy(to + start, from + start, bytes, after) }
            })
        });
        finish(&self.queue, event, owner)
    }

    /// An error inside a capture: the host cannot read what a replay computes later.
    pub(super) fn refuse_read(&self) -> Result<()> {
        let call = spelled(
            "a read by the host (to_numpy, tolist, item, pickle)",
            "a read by the host (to_vec, to_bytes, copy_to_slice, Display)",
        );
        refuse(|| format!("{call} of {self}"))
    }

    /// Sets the elements, in C order, from host values. Returns when `values` may be reused. Inside a capture, each replay
    /// copies the values of this call.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::zeros::<i32>(3)?;
    /// x.copy_from_slice(&[1i32, 2, 3])?;
    /// assert!(x.copy_from_slice(&[1i32]).is_err(), "another length");
    /// assert_eq!(x.to_vec::<i32>()?, [1, 2, 3]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Type`] or [`Error::Value`] if type or length do not match, or the array is read-only.
    /// [`Error::Sycl`] with the error that the work reported; the elements then have the old or the new
    /// values.
    pub fn copy_from_slice<T: Element>(&self, values: &[T]) -> Result<()> {
        self.check_element::<T>()?;
        self.copy_from_bytes(bytes_of(values))
    }

    /// As [`Array::copy_from_slice`], for bytes in C order.
    ///
    /// # Errors
    /// [`Error::Value`] if the length does not match, or the array is read-only.
    pub fn copy_from_bytes(&self, values: &[u8]) -> Result<()> {
        self.write_from(values.as_ptr(), values.len(), None)
    }

    /// As [`Array::copy_from_bytes`], for `bytes` bytes at `values`, which may be memory of the array. The wait can be
    /// interrupted if `owner` returns an object that keeps the values alive; the queue then copies the values that they
    /// have when the command runs.
    pub(crate) fn write_from(
        &self,
        values: *const u8,
        bytes: usize,
        owner: Option<MakeOwner<'_>>,
    ) -> Result<()> {
        self.check_writable()?;
        if bytes != self.nbytes() {
            return Err(Error::value(format!(
                "{self} takes {} bytes ({} elements), not {bytes}",
                self.nbytes(),
                self.size(),
            )));
        }
        if bytes == 0 {
            return Ok(());
        }
        let _why = with_default_reason(Reason::HostWrite);
        if !self.is_contiguous() {
            let packed = Self::uninit(self.shape(), self.dtype, self.kind_of_copies(), &self.queue)?;
            packed.write_from(values, bytes, owner)?;
            let _why = with_reason(Reason::Contiguity);
            return self.assign(&packed);
        }
        let (to, from) = (self.address(), values as usize);
        let is_overlapping = are_overlapping((to, from), bytes);
        let is_bool = self.dtype == DType::Bool;
        // SAFETY: the caller's range; every byte is a u8.
        let read = || unsafe { std::slice::from_raw_parts(values, bytes) };
        let has_other_bytes = is_bool && read().iter().any(|byte| *byte > 1);
        if is_capturing() || is_overlapping || has_other_bytes {
            // A replay cannot wait for host memory of the caller, so it copies the values that they have now. One command
            // must not copy between overlapping ranges, and the caller may read the changed range after the call.
            let waits = is_overlapping && !is_capturing();
            if waits {
                self.allocation().wait_for_host(Access::Write)?;
            }
            self.upload(|staged| {
                staged.copy_from_slice(read());
                if is_bool {
                    normalise(staged);
                }
                Ok(())
            })?;
            return if waits { self.allocation().wait_for_host(Access::Write) } else { Ok(()) };
        }
        // After an interrupted wait, the queue still copies the values.
        let may_wait = owner.is_none() || !interrupt::is_possible();
        if self.copied_by_host(Access::Write, (to, from), may_wait)? {
            return Ok(());
        }
        self.before_lending(Access::Write, owner)?;
        let event = ordered_all(&self.queue, &[(self.allocation(), Access::Write)], |after, sent| {
            in_pieces(&self.queue, bytes, after, sent, |queue, start, bytes, after| {
                // SAFETY: the target is inside the allocation; the values outlive the copy, as `finish` ensures.
                unsafe { queue.memcpy(to + start, from + start, bytes, after) }
            })
        });
        finish(&self.queue, event, owner)
    }

    /// Copies between a small contiguous array and memory of the caller, if the host may. `to` and `from` are its address
    /// and one of as many bytes.
    fn copied_by_host(&self, access: Access, (to, from): (usize, usize), may_wait: bool) -> Result<bool> {
        let bytes = self.nbytes();
        by_host::waited_copy(&self.queue, (self.allocation(), access), (bytes, may_wait), || {
            // SAFETY: the array's memory, which is the host's and which no command uses, and memory of the caller. The
            // caller's may be in the same allocation, and even overlap.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) }
        })
    }

    /// Waits for earlier work first, since that wait can be interrupted and the wait for the copy cannot.
    fn before_lending(&self, access: Access, owner: Option<MakeOwner<'_>>) -> Result<()> {
        if owner.is_some() || !interrupt::is_possible() {
            return Ok(());
        }
        self.allocation().wait_for_host(access)?;
        self.queue.wait_interruptible()
    }

    /// Sets the elements from an array of the same shape, converting its dtype as [`cast`](Self::cast). Returns before the
    /// copy is complete.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::zeros::<i32>((2, 2))?;
    /// x.index((.., 1))?.assign(&Array::from_slice(&[5, 6])?)?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 5, 0, 6]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Value`] if the shapes differ or this array is read-only, [`Error::Type`] from complex to real numbers,
    /// [`Error::Placement`] if `source` is not usable from this array's queue (`collocate` fixes that).
    pub fn assign(&self, source: &Self) -> Result<()> {
        self.check_writable()?;
        if self.shape() != source.shape() {
            return Err(Error::value(format!(
                "cannot copy an array of shape {:?} into one of shape {:?}",
                source.shape(),
                self.shape()
            )));
        }
        self.check_conversion(source.dtype)?;
        let source = source.on_queue(&self.queue).map_err(|error| match error {
            Error::Placement { message, queues, position } => {
                let call = spelled("collocate(source, like=target)", "collocate(&source, target.queue())");
                Error::placement(format!("{message}; {call} copies it"), queues, position)
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
            if !self.shares_bytes(&source) {
                return self.copy_bytes(&source);
            }
        }
        if self.shares_bytes(&source) {
            // Work-items run in any order, so an overlapping source must be copied first.
            return self.convert_from(&source.copy()?);
        }
        self.convert_from(&source)
    }

    /// A contiguous copy in memory of the same kind, on the same queue; of system memory in host USM.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::from_slice(&[1, 2])?;
    /// let copy = x.copy()?;
    /// x.fill(0i32)?;
    /// assert_eq!(copy.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Allocation`] when memory is short.
    pub fn copy(&self) -> Result<Self> {
        self.cast(self.dtype)
    }

    /// A contiguous copy with another element type. Numbers convert as in C++: a float to an integer is
    /// truncated, and unspecified if out of range. To `bool`, each number except 0 is true.
    ///
    /// ```
    /// use usmq::{Array, DType};
    ///
    /// let x = Array::from_slice(&[1.5f32, -2.5])?;
    /// assert_eq!(x.cast(DType::I32)?.to_vec::<i32>()?, [1, -2]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Type`] from complex to real numbers, which would lose the imaginary parts: use [`Array::real`].
    /// [`Error::Allocation`] when memory is short.
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        let copy = Self::uninit(self.shape(), dtype, self.kind_of_copies(), &self.queue)?;
        let _why = (dtype != self.dtype).then(|| with_reason(Reason::Conversion));
        copy.assign(self)?;
        Ok(copy)
    }

    /// An error if elements of `source` would silently lose a part.
    fn check_conversion(&self, source: DType) -> Result<()> {
        let loses = source.family() == Family::Complex
            && !matches!(self.dtype.family(), Family::Complex | Family::Bool);
        if !loses {
            return Ok(());
        }
        let parts = spelled("x.real and x.imag", "Array::real and Array::imag");
        let message = format!(
            "{source} to {} would drop the imaginary parts; {parts} are views of the parts",
            self.dtype
        );
        Err(Error::type_mismatch(self.dtype, source, message))
    }

    /// This array if it is contiguous, else a contiguous copy.
    ///
    /// ```
    /// use usmq::Array;
    ///
    /// let x = Array::from_slice(&[1, 2, 3, 4])?.reshape((2, 2))?;
    /// let column = x.index((.., 0))?;
    /// assert!(!column.is_contiguous() && column.contiguous()?.is_contiguous());
    /// assert_eq!(x.contiguous()?.address(), x.address(), "x is contiguous already");
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Allocation`] when memory is short.
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        let _why = with_reason(Reason::Contiguity);
        self.copy()
    }

    fn copy_bytes(&self, source: &Self) -> Result<()> {
        let operands = [(self.allocation(), Access::Write), (source.allocation(), Access::Read)];
        let (to, from, bytes) = (self.address(), source.address(), self.nbytes());
        // SAFETY: two ranges of the operands, which do not overlap.
        if unsafe { by_host::copy_at_once(&self.queue, &operands, (to, from, bytes)) }? {
            return Ok(());
        }
        ordered_all(&self.queue, &operands, |after, sent| {
            in_pieces(&self.queue, bytes, after, sent, |queue, start, bytes, after| {
                // SAFETY: both ranges are inside allocations that their logs keep until the event is complete, of
                // one context, and do not overlap.
                unsafe { queue.memcpy(to + start, from + start, bytes, after) }
            })
        })?;
        Ok(())
    }
}

/// Whether two ranges of as many bytes share one.
fn are_overlapping((one, other): (usize, usize), bytes: usize) -> bool {
    one.abs_diff(other) < bytes
}

/// The bytes of truth values as numpy counts them: memory of another library may hold any byte, of which 0 is false.
pub(super) fn normalise(truths: &mut [u8]) {
    truths.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
}

/// Waits for a copy from or to host memory that the caller owns. If the wait fails, the copy may still use
/// memory that is about to be freed, so this waits for all work on the queue before it returns the error. An
/// interrupted wait keeps the owner alive instead; without an owner the wait cannot be interrupted.
fn finish(queue: &Queue, copy: Result<Event>, owner: Option<MakeOwner<'_>>) -> Result<()> {
    let drain = |_: &Error| {
        queue.drain();
    };
    let Some(owner) = owner else {
        return uninterruptible(|| copy.and_then(|event| event.wait())).inspect_err(drain);
    };
    let event = copy.inspect_err(drain)?;
    match event.wait() {
        Err(Error::Interrupted) => {
            drop_after(owner(), [event].into_iter().collect());
            Err(Error::Interrupted)
        }
        waited => waited.inspect_err(drain),
    }
}

#[cfg(test)]
mod tests {
    use crate::array::{Array, DType};
    use crate::device::{Queue, QueueProperties, UserEvent, UsmKind, devices};
    use crate::error::Result;
    use crate::runtime::is_own_process;
    use std::time::{Duration, Instant};

    /// The first element of memory of the host, as it is now.
    fn now(array: &Array) -> i32 {
        // SAFETY: memory of the host, with an element that no thread writes in the test; commands wait for the gate.
        unsafe { (array.address() as *const i32).read_volatile() }
    }

    /// Small copies and fills on an idle queue, behind a command that no log has, and after it.
    fn in_the_order_of(queue: &Queue, kind: UsmKind) -> Result<()> {
        let array = |value: i32| -> Result<Array> {
            let array = Array::uninit([64], DType::I32, kind, queue)?;
            array.fill(value)?;
            Ok(array)
        };
        let (x, y) = (array(1)?, array(2)?);
        assert_eq!((now(&x), now(&y)), (1, 2), "filled at once");
        x.assign(&y)?;
        assert_eq!(now(&x), 2, "copied at once");

        let Some((gate, event)) = UserEvent::new(queue)? else { return Ok(()) };
        queue.barrier_now(std::slice::from_ref(&event))?;
        x.fill(3)?;
        y.assign(&x)?;
        assert_eq!((now(&x), now(&y)), (2, 2), "the queue orders both after the barrier");
        let begun = Instant::now();
        let signal = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            gate.signal();
        });
        assert_eq!(y.to_vec::<i32>()?, [3; 64]);
        x.copy_from_slice(&[4i32; 64])?;
        assert_eq!(x.to_vec::<i32>()?, [4; 64]);
        assert!(begun.elapsed() >= Duration::from_millis(40), "the reads waited for the gate");
        signal.join().expect("the thread does not panic");
        queue.wait()
    }

    #[test]
    fn small_copies_by_the_host_keep_the_order_of_commands() -> Result<()> {
        const NAME: &str = "array::transfer::tests::small_copies_by_the_host_keep_the_order_of_commands";
        if !is_own_process(NAME) {
            return Ok(());
        }
        let mut devices = devices()?;
        devices.retain(|device| device.capabilities().user_events);
        if devices.is_empty() {
            println!("skipped: no device with user events");
        }
        for device in devices {
            let kinds: &[_] = if device.host_reads_device_memory() {
                &[UsmKind::Host, UsmKind::Device, UsmKind::Shared]
            } else {
                &[UsmKind::Host]
            };
            for (in_order, kind) in
                [true, false].into_iter().flat_map(|order| kinds.iter().map(move |kind| (order, *kind)))
            {
                let properties = QueueProperties { in_order, ..QueueProperties::default() };
                in_the_order_of(&Queue::create(&device.default_context()?, &device, properties)?, kind)?;
            }
        }
        Ok(())
    }
}
