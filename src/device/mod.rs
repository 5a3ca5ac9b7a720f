//! Safe handles: devices, contexts, queues, events, built kernels, and the commands of a queue.

mod assist;
mod backend;
mod brief;
mod compile;
mod context;
mod cross_context;
#[allow(clippy::module_inception, reason = "its type is Device")]
mod device;
mod discovery;
mod event;
pub(crate) mod header;
mod header_trial;
mod in_flight;
mod kernel_cache;
mod kind;
mod program;
mod queue;
mod selector;
pub(crate) mod submit;
mod user_event;

pub use backend::Backend;
pub(crate) use backend::Capabilities;
pub use context::Context;
pub use device::{Device, Partition};
pub use discovery::{PlatformProblem, PointerInfo, devices, platform_problems};
pub(crate) use discovery::{default_device, select};
pub use event::{Event, Timestamps};
pub use kernel_cache::{clear_kernel_cache, set_kernel_cache_limit};
pub use kind::{MemoryKind, UsmKind};
pub(crate) use program::{Code, ContextKey, Program, Slot};
pub(crate) use queue::Queues;
pub use queue::{Queue, QueueProperties};
pub(crate) use selector::Candidate;
pub use selector::Selector;
pub(crate) use user_event::UserEvent;
