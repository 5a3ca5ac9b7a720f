//! A builder for arrays whose place and content the short constructors do not choose.

use super::{Array, Element, IntoShape};
use crate::device::{Queue, UsmKind};
use crate::error::Result;
use crate::manager::current_queue;
use std::fmt;

/// Makes an array step by step; see [`Array::builder`].
///
/// ```
/// use usmq::{Array, UsmKind};
///
/// let x = Array::builder::<f32>((2, 3)).kind(UsmKind::Shared).fill(1.0).build()?;
/// assert_eq!(x.memory_kind(), UsmKind::Shared.into());
/// assert_eq!(x.to_vec::<f32>()?, [1.0; 6]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[must_use = "call build()"]
#[derive(Clone)]
pub struct ArrayBuilder<T: Element> {
    shape: Vec<usize>,
    kind: UsmKind,
    queue: Option<Queue>,
    content: Option<T>,
    is_zeroed: bool,
}

impl Array {
    /// Makes an array of this shape: in device memory on the current queue, and uninitialised, unless the builder is
    /// told otherwise.
    ///
    /// ```
    /// use usmq::{Array, Queue, UsmKind};
    ///
    /// let queue = Queue::get("cpu")?;
    /// let x = Array::builder::<f32>((2, 3)).kind(UsmKind::Shared).queue(&queue).zeroed().build()?;
    /// assert_eq!((x.shape(), x.usm_kind()), (&[2, 3][..], Some(UsmKind::Shared)));
    /// assert_eq!(Array::builder(2).fill(7i32).build()?.to_vec::<i32>()?, [7, 7]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    pub fn builder<T: Element>(shape: impl IntoShape) -> ArrayBuilder<T> {
        let shape = shape.into_shape().as_ref().to_vec();
        ArrayBuilder { shape, kind: UsmKind::Device, queue: None, content: None, is_zeroed: false }
    }
}

impl<T: Element> ArrayBuilder<T> {
    /// The kind of the memory.
    pub fn kind(mut self, kind: UsmKind) -> Self {
        self.kind = kind;
        self
    }

    /// The queue of the array.
    pub fn queue(mut self, queue: &Queue) -> Self {
        self.queue = Some(queue.clone());
        self
    }

    /// Sets all bytes to zero.
    pub fn zeroed(mut self) -> Self {
        (self.content, self.is_zeroed) = (None, true);
        self
    }

    /// Sets every element to this value.
    pub fn fill(mut self, value: T) -> Self {
        (self.content, self.is_zeroed) = (Some(value), false);
        self
    }

    /// Allocates the array and submits the command that fills it, if any.
    ///
    /// # Errors
    /// As [`Array::uninit`].
    pub fn build(self) -> Result<Array> {
        let queue = self.queue.map_or_else(current_queue, Ok)?;
        let array = Array::uninit(self.shape, T::DTYPE, self.kind, &queue)?;
        match self.content {
            Some(value) => array.fill(value)?,
            None if self.is_zeroed => array.fill_bytes(&[0])?,
            None => {}
        }
        Ok(array)
    }
}

impl<T: Element> fmt::Debug for ArrayBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayBuilder")
            .field("shape", &self.shape)
            .field("dtype", &T::DTYPE)
            .field("kind", &self.kind)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
