//! Reads into a vector that the operation owns, as a future.

use super::transfer::normalise;
use super::{Array, DType, Element};
use crate::device::EventFuture;
use crate::error::{Error, Result};
use crate::memory::{Access, Logged, by_host, drop_after, ordered};
use crate::trace::{Reason, with_default_reason};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

impl Array {
    /// As [`Array::to_vec`], as a future: submits the copy now, and blocks no thread until the device has made it.
    ///
    /// The vector gets the elements as of this call; later commands do not change it. Dropping the future ends the
    /// wait; the copy continues, and its memory is freed after it.
    ///
    /// ```
    /// let x = usmq::Array::from_slice(&[1f32, 2.0])?;
    /// let read = x.to_vec_async::<f32>();
    /// x.fill(0f32)?; // runs after the copy
    /// assert_eq!(futures::executor::block_on(read)?, [1.0, 2.0]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future has those of [`Array::to_vec`].
    pub fn to_vec_async<T: Element>(&self) -> ReadFuture<T> {
        let read = self.start_read();
        ReadFuture { error: read.as_ref().err().cloned(), read: read.ok() }
    }

    fn start_read<T: Element>(&self) -> Result<Read<T>> {
        self.check_element::<T>()?;
        let size = self.size();
        let mut values = self.room_for::<T>(size)?;
        if size == 0 {
            return Ok(Read { values, size, copy: None, array: self.clone() });
        }
        let _why = with_default_reason(Reason::HostRead);
        let packed = self.contiguous()?;
        let target = values.as_mut_ptr() as usize;
        let (operand, bytes) = ((packed.allocation(), Access::Read), packed.nbytes());
        // SAFETY: the range of the operand, and the new memory of a vector.
        if unsafe { by_host::copy_at_once(packed.queue(), &[operand], (target, packed.address(), bytes)) }? {
            return Ok(Read { values, size, copy: None, array: self.clone() });
        }
        let mut submits = false;
        let copied = ordered(packed.queue(), &[(packed.allocation(), Access::Read)], |after| {
            submits = true;
            // SAFETY: the source is inside the allocation, which its log keeps. The target is the vector's memory, which
            // `Read` frees after the event only, and never if it is leaked.
            unsafe { packed.queue().memcpy(target, packed.address(), packed.nbytes(), after) }
        });
        match copied {
            Ok(event) => Ok(Read { values, size, copy: Some(event.into_future()), array: self.clone() }),
            Err(error) => {
                if submits {
                    // Whether the device got the command is unknown.
                    std::mem::forget(values);
                }
                Err(error)
            }
        }
    }
}

/// The future of [`Array::to_vec_async`].
///
/// ```
/// use usmq::{Array, Error};
///
/// async fn sum(x: &Array) -> Result<i32, Error> {
///     Ok(x.to_vec_async::<i32>().await?.iter().sum())
/// }
/// # let x = Array::from_slice(&[1, 2, 3])?;
/// # assert_eq!(futures::executor::block_on(sum(&x))?, 6);
/// # Ok::<(), usmq::Error>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct ReadFuture<T: Element> {
    /// `None` after the result was taken, or if the copy could not be submitted.
    read: Option<Read<T>>,
    error: Option<Error>,
}

/// A copy in flight, and the memory into which it writes.
struct Read<T: Element> {
    /// Of length 0: its elements become valid with the end of the copy.
    values: Vec<T>,
    size: usize,
    copy: Option<EventFuture>,
    array: Array,
}

impl<T: Element> Read<T> {
    /// After the copy is complete.
    fn take(mut self) -> Result<Vec<T>> {
        self.copy = None;
        let mut values = std::mem::take(&mut self.values);
        if T::DTYPE == DType::Bool {
            // SAFETY: the copy has written one byte for each element; every byte is a u8.
            normalise(unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), self.size) });
        }
        // SAFETY: the copy has written all elements of the array to the vector, which has room for them.
        unsafe { self.array.assume_read(&mut values, self.size) }?;
        self.array.allocation().check()?;
        Ok(values)
    }
}

impl<T: Element> Drop for Read<T> {
    fn drop(&mut self) {
        if let Some(copy) = self.copy.take() {
            let values = std::mem::take(&mut self.values);
            drop_after(Box::new(values), [copy.event().clone()].into_iter().collect());
        }
    }
}

/// The vector lives on the heap, so the future may move while the copy writes to the vector.
impl<T: Element> Unpin for ReadFuture<T> {}

impl<T: Element> Future for ReadFuture<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(error) = this.error.take() {
            return Poll::Ready(Err(error));
        }
        let Some(read) = &mut this.read else {
            return Poll::Ready(Err(Error::value("the result of this future was already taken")));
        };
        let waited = match &mut read.copy {
            None if read.size == 0 => Ok(()),
            // The host has made the copy. As with an event, the caller gets the errors that the queue has stored.
            None => read.array.queue().raise_errors(),
            Some(copy) => match Pin::new(copy).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(waited) => waited,
            },
        };
        match (this.read.take(), waited) {
            (Some(read), Ok(())) => Poll::Ready(read.take()),
            (mut read, Err(error)) => {
                // The copy may still write to the memory, and no event tells when it stops.
                if let Some(read) = &mut read
                    && read.copy.take().is_some_and(|copy| !copy.event().is_complete())
                {
                    std::mem::forget(std::mem::take(&mut read.values));
                }
                Poll::Ready(Err(error))
            }
            (None, Ok(())) => Poll::Pending,
        }
    }
}

impl<T: Element> fmt::Debug for ReadFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadFuture").field("array", &self.read.as_ref().map(|read| &read.array)).finish()
    }
}
