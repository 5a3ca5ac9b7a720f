//! Safe handles: devices, contexts, queues, events, built kernels, and the commands of a queue.

mod assist;
mod backend;
mod brief;
mod compile;
mod context;
mod cross_context;
#[allow(clippy::module_inception, reason = "its type is Device")]
mod device;
mod device_filter;
mod discovery;
mod event;
mod future;
pub(crate) mod header;
mod in_flight;
mod kernel_cache;
mod kind;
mod platform;
mod program;
mod properties;
mod queue;
mod selector;
pub(crate) mod submit;
mod timer;
mod user_event;

pub use backend::Backend;
pub(crate) use backend::Capabilities;
pub use context::Context;
pub use device::{Device, Partition};
pub use device_filter::DeviceFilter;
pub use discovery::{PlatformProblem, PointerInfo, devices, platform_problems, platforms};
pub(crate) use discovery::{default_device, select};
pub use event::{Event, Timestamps};
pub use future::EventFuture;
pub use kernel_cache::{clear_kernel_cache, set_kernel_cache_limit};
pub use kind::{MemoryKind, Priority, UsmKind};
pub use platform::Platform;
pub(crate) use program::{Code, ContextKey, Program, Slot};
pub use properties::{DeviceProperties, VectorWidths};
pub(crate) use queue::Queues;
pub use queue::{Queue, QueueProperties};
pub(crate) use selector::Candidate;
pub use selector::Selector;
pub use timer::{Elapsed, Timer};
pub(crate) use user_event::UserEvent;
