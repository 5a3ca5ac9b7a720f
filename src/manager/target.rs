//! The argument type for a device or queue.

use crate::device::{Device, Queue, QueueProperties, Selector, default_device, select};
use crate::error::Result;
use crate::runtime::ForkMutex;

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
            Self::Filter(text) => {
                if let Some(known) = known_queue(&text)? {
                    return Ok(Some(known));
                }
                let queue = Queue::new(&*text, None, QueueProperties::default())?;
                remember(text, &queue)?;
                Ok(Some(queue))
            }
            device => Queue::new(device, None, QueueProperties::default()).map(Some),
        }
    }
}

/// The queues of some filter strings. The devices do not change, and their queues live as long as the process.
static KNOWN: ForkMutex<Vec<(String, Queue)>> = ForkMutex::new(Vec::new());

/// The most filter strings to keep: programs use a few.
const MOST: usize = 16;

/// The queue of a filter string that was used before.
pub(crate) fn known_queue(filter: &str) -> Result<Option<Queue>> {
    let known = KNOWN.lock()?;
    Ok(known.iter().find(|(text, _)| text == filter).map(|(_, queue)| queue.clone()))
}

fn remember(filter: String, queue: &Queue) -> Result<()> {
    let mut known = KNOWN.lock()?;
    if known.len() < MOST && queue.context().is_process_lifetime() {
        known.push((filter, queue.clone()));
    }
    Ok(())
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
