//! One queue per (device, context, properties): equal requests return the same queue.

use super::Target;
use crate::device::{Context, ContextKey, Device, Queue, QueueProperties, Queues};
use crate::error::Result;
use once_cell::sync::Lazy;
use std::ffi::c_void;
use std::ptr::NonNull;

static QUEUES: Lazy<Queues<(Device, ContextKey, QueueProperties)>> = Lazy::new(Queues::default);

impl Queue {
    /// The queue for `target`: a filter string, a device, or a queue, which stands for its device and
    /// context.
    ///
    /// Equal arguments return the same queue; in a context that [may be freed](Context), as long as the queue
    /// is in use. Without `context`, a root device's queue uses its platform's default context, which other
    /// SYCL libraries use too, and a sub-device's queue a context of its own, or on Level Zero that of its root.
    ///
    /// Default properties do not constrain the result: without `context`, a queue is returned as it is, with
    /// its own properties. See [`with_properties`](Self::with_properties).
    ///
    /// # Errors
    /// [`Error::Selector`](crate::Error::Selector), [`Error::DeviceNotFound`](crate::Error::DeviceNotFound),
    /// or [`Error::Sycl`](crate::Error::Sycl) if device, context and properties cannot be combined.
    pub fn new(
        target: impl Into<Target>,
        context: Option<&Context>,
        properties: QueueProperties,
    ) -> Result<Self> {
        let (device, context) = match (target.into(), context) {
            (Target::Queue(queue), None) if properties == QueueProperties::default() => return Ok(queue),
            (Target::Queue(queue), None) => return queue.with_properties(properties),
            (target, context) => {
                let device = target.device()?;
                let context =
                    context.map_or_else(|| device.default_context(), |context| Ok(context.clone()))?;
                (device, context)
            }
        };
        Self::cached(device, context, properties)
    }

    /// The cached queue for `target`: [`Queue::new`] without context and properties. [`Queue::builder`] has both, and makes
    /// queues of its own.
    ///
    /// ```
    /// use usmq::Queue;
    ///
    /// assert_eq!(Queue::get("cpu")?, Queue::get("cpu")?);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn get(target: impl Into<Target>) -> Result<Self> {
        Self::new(target, None, QueueProperties::default())
    }

    /// A builder for a queue with properties or a context; see [`QueueBuilder`].
    pub fn builder(target: impl Into<Target>) -> QueueBuilder {
        QueueBuilder {
            target: target.into(),
            context: None,
            properties: QueueProperties::default(),
            is_cached: true,
        }
    }

    /// The queue with the same device and context and exactly these properties: this queue, if it has them.
    ///
    /// ```
    /// use usmq::{Queue, QueueProperties, current_queue};
    ///
    /// let loose = current_queue()?.with_properties(QueueProperties { in_order: false, ..Default::default() })?;
    /// assert!(!loose.in_order());
    /// assert_eq!(Queue::new(&loose, None, QueueProperties::default())?, loose);
    /// assert!(loose.with_properties(QueueProperties::default())?.in_order());
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Sycl`](crate::Error::Sycl) when the runtime refuses.
    pub fn with_properties(&self, properties: QueueProperties) -> Result<Self> {
        if properties == self.properties() {
            return Ok(self.clone());
        }
        Self::cached(self.device().clone(), self.context().clone(), properties)
    }

    fn cached(device: Device, context: Context, properties: QueueProperties) -> Result<Self> {
        let make = |(device, ..): &(Device, _, _)| Self::create(&context, device, properties);
        QUEUES.get_or_make((device, context.key(), properties), &context, make)
    }

    /// A handle to a queue of another library, not a new queue: commands of both libraries share its order.
    ///
    /// # Safety
    /// `handle` points to a live `sycl::queue` made by the libsycl of this process. It is copied, not kept.
    ///
    /// # Errors
    /// [`Error::Interop`](crate::Error::Interop) when its device is not visible to usmq.
    pub unsafe fn from_raw(handle: NonNull<c_void>) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::adopt(handle.as_ptr() as usize) }
    }
}

/// Chooses the properties and the context of a queue.
///
/// ```
/// use usmq::Queue;
///
/// let queue = Queue::builder("cpu").out_of_order().profiling().build()?;
/// assert!(!queue.in_order() && queue.profiling());
/// // Equal requests return the same queue; `uncached` makes a new one, whose commands no other code orders.
/// assert_eq!(Queue::builder("cpu").out_of_order().profiling().build()?, queue);
/// let own = Queue::builder("cpu").uncached().build()?;
/// assert_ne!(own, Queue::get("cpu")?);
/// assert_eq!(own.context(), Queue::get("cpu")?.context());
/// # Ok::<(), usmq::Error>(())
/// ```
#[must_use = "call build()"]
#[derive(Debug, Clone)]
pub struct QueueBuilder {
    target: Target,
    context: Option<Context>,
    properties: QueueProperties,
    is_cached: bool,
}

impl QueueBuilder {
    /// Commands may run in any order that their data allows.
    pub fn out_of_order(mut self) -> Self {
        self.properties.in_order = false;
        self
    }

    /// Events carry device timestamps.
    pub fn profiling(mut self) -> Self {
        self.properties.profiling = true;
        self
    }

    /// The context; the default context of the device without it.
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// Makes a new queue instead of the cached one. Its commands overlap with those of other queues, and it is freed
    /// with its last handle, array and event.
    pub fn uncached(mut self) -> Self {
        self.is_cached = false;
        self
    }

    /// The queue.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn build(self) -> Result<Queue> {
        let Self { target, context, properties, is_cached } = self;
        if is_cached {
            return Queue::new(target, context.as_ref(), properties);
        }
        let context = match (context, &target) {
            (Some(context), _) => context,
            (None, Target::Queue(queue)) => queue.context().clone(),
            (None, target) => target.device()?.default_context()?,
        };
        Queue::create(&context, &target.device()?, properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::manager::current_queue;

    #[test]
    fn a_queue_found_again_reports_its_unreported_errors() -> Result<()> {
        let home = current_queue()?;
        let context = Context::new(std::slice::from_ref(home.device()))?;
        let queue = Queue::new(&home, Some(&context), QueueProperties::default())?;
        queue.store_error(&Error::value("it went wrong"));
        let address = queue.to_raw()?;
        drop(queue);
        // SAFETY: another library's handle to the queue, which lives.
        let again = unsafe { Queue::from_raw(address) }?;
        // SAFETY: it came from `to_raw` and is freed once.
        unsafe { Queue::free_raw(address) };
        let told = again.wait().unwrap_err().to_string();
        assert!(told.contains("it went wrong"), "{told}");
        again.wait()
    }
}
