//! Safe handles: devices, contexts, queues, events, built kernels, and the commands a queue takes.

mod bridge;
pub(crate) mod calls;
mod code;
pub(crate) mod command;
mod context;
mod event;
mod helper;
mod insist;
pub(crate) mod journal;
mod kind;
mod program;
mod promise;
mod queue;
pub(crate) mod record;
mod registry;
mod root;
mod selector;
pub(crate) mod watch;
pub(crate) mod what;

pub use context::Context;
pub(crate) use context::ContextKey;
pub use event::Event;
pub(crate) use insist::insist;
pub use kind::UsmKind;
pub(crate) use program::{Code, Program, Slot};
pub(crate) use promise::Promise;
pub(crate) use queue::Queues;
pub use queue::{Queue, QueueProperties};
pub use registry::{PlatformProblem, devices, platform_problems};
pub(crate) use registry::{default_device, select};
pub use root::{Device, Partition};
pub(crate) use selector::Candidate;
pub use selector::Selector;
pub use what::{Clock, Kind, Reason};
