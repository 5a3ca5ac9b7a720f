//! Safe handles: devices, contexts, queues, events, built kernels, and the commands a queue takes.

mod assist;
mod brief;
pub(crate) mod calls;
mod code;
pub(crate) mod command;
mod context;
mod cross_context;
mod event;
mod in_flight;
pub(crate) mod journal;
mod kind;
mod program;
mod queue;
pub(crate) mod record;
mod registry;
mod root;
mod selector;
mod user_event;
pub(crate) mod watch;
pub(crate) mod what;

pub use context::Context;
pub(crate) use context::ContextKey;
pub use event::Event;
pub use kind::UsmKind;
pub(crate) use program::{Code, Program, Slot};
pub(crate) use queue::Queues;
pub use queue::{Queue, QueueProperties};
pub use registry::{PlatformProblem, devices, platform_problems};
pub(crate) use registry::{default_device, select};
pub use root::{Device, Partition};
pub(crate) use selector::Candidate;
pub use selector::Selector;
pub(crate) use user_event::UserEvent;
pub use what::{Clock, Kind, Reason};
