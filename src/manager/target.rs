//! The argument type for a device or queue.

use crate::device::{Device, Queue, QueueProperties, Selector, default_device, select};
use crate::error::Result;

/// A filter string, a device, a queue, or nothing.
///
/// ```
/// use usmq::{Queue, Target};
///
/// let queue = Queue::get("cpu")?;
/// for target in [Target::from("cpu"), Target::from(queue.device()), Target::from(&queue)] {
///     assert_eq!(Queue::get(target)?, queue);
/// }
/// assert!(matches!(Target::from(None::<&str>), Target::Unset));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub enum Target {
    /// No choice: the next rule of the precedence decides.
    #[default]
    Unset,
    /// A filter string, as `"gpu:1"`; see [`Selector`].
    Filter(String),
    /// A device.
    Device(Device),
    /// A queue.
    Queue(Queue),
}

impl Target {
    /// The selected device; SYCL's default device for [`Target::Unset`].
    pub(crate) fn device(&self) -> Result<Device> {
        match self {
            Self::Unset => default_device(),
            Self::Filter(text) => select(&Selector::parse(text)?),
            Self::Device(device) => Ok(device.clone()),
            Self::Queue(queue) => Ok(queue.device().clone()),
        }
    }

    /// The selected queue; `None` for [`Target::Unset`].
    pub(crate) fn queue(self) -> Result<Option<Queue>> {
        match self {
            Self::Unset => Ok(None),
            Self::Queue(queue) => Ok(Some(queue)),
            other => Queue::new(other, None, QueueProperties::default()).map(Some),
        }
    }
}

impl From<&str> for Target {
    fn from(filter: &str) -> Self {
        Self::Filter(filter.to_owned())
    }
}

impl From<String> for Target {
    fn from(filter: String) -> Self {
        Self::Filter(filter)
    }
}

impl From<&String> for Target {
    fn from(filter: &String) -> Self {
        Self::Filter(filter.clone())
    }
}

impl From<Selector> for Target {
    fn from(selector: Selector) -> Self {
        Self::Filter(selector.as_str().to_owned())
    }
}

impl From<&Selector> for Target {
    fn from(selector: &Selector) -> Self {
        Self::Filter(selector.as_str().to_owned())
    }
}

impl From<Device> for Target {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}

impl From<&Device> for Target {
    fn from(device: &Device) -> Self {
        Self::Device(device.clone())
    }
}

impl From<Queue> for Target {
    fn from(queue: Queue) -> Self {
        Self::Queue(queue)
    }
}

impl From<&Queue> for Target {
    fn from(queue: &Queue) -> Self {
        Self::Queue(queue.clone())
    }
}

impl<T: Into<Target>> From<Option<T>> for Target {
    fn from(target: Option<T>) -> Self {
        target.map_or(Self::Unset, Into::into)
    }
}
