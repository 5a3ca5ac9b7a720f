//! Hints about shared memory: the device that uses it next, and how.

use super::follow::usable_from;
use crate::array::Array;
use crate::device::{Event, MemoryKind, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::memory::{Access, ordered};

impl Array {
    /// Moves shared memory towards the device of `queue`, before a kernel there uses it. `None` is the array's own queue.
    /// Whether data moves is up to the driver. Ordered as a read of the array.
    ///
    /// ```
    /// use usmq::{Array, DType, UsmKind, current_queue};
    ///
    /// let x = Array::uninit([4], DType::F32, UsmKind::Shared, &current_queue()?)?;
    /// x.fill(1f32)?;
    /// x.prefetch(None)?.wait()?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0; 4]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Value`] for device and host memory, which does not move; [`Error::Placement`] if the queue cannot use the
    /// array.
    pub fn prefetch(&self, queue: Option<&Queue>) -> Result<Event> {
        self.hint("prefetch", queue, |queue, pointer, bytes, after| {
            // SAFETY: the range is inside the allocation, which its log keeps; `hint` has checked the queue.
            unsafe { queue.prefetch(pointer, bytes, after) }
        })
    }

    /// Tells the driver how shared memory is used. The numbers are those of the backend; 0 takes earlier advice back.
    /// Ordered as a read of the array.
    ///
    /// Source: SYCL 2020, section 4.9.4.3 (`mem_advise`).
    ///
    /// # Errors
    /// As [`Array::prefetch`]; [`Error::Sycl`] if the driver refuses the advice.
    pub fn mem_advise(&self, advice: i32, queue: Option<&Queue>) -> Result<Event> {
        self.hint("mem_advise", queue, |queue, pointer, bytes, after| {
            // SAFETY: as in `prefetch`.
            unsafe { queue.mem_advise(pointer, bytes, advice, after) }
        })
    }

    fn hint(
        &self,
        name: &str,
        queue: Option<&Queue>,
        submit: impl FnOnce(&Queue, usize, usize, &[Event]) -> Result<Event>,
    ) -> Result<Event> {
        if matches!(self.memory_kind(), MemoryKind::Usm(UsmKind::Device | UsmKind::Host)) {
            return Err(Error::value(format!(
                "{name} is for shared memory, which moves between host and device; {self} is in {}, which does not \
                 move",
                self.memory_kind().title()
            )));
        }
        let queue = queue.unwrap_or(self.queue());
        usable_from(queue, &[self])?;
        let (span, _) = self.span()?;
        ordered(queue, &[(self.allocation(), Access::Read)], |after| match span.nbytes() {
            0 => queue.barrier_now(after),
            bytes => submit(queue, span.address(), bytes, after),
        })
    }
}
