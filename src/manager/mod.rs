//! The current queue: the default queue for work without an explicit one.
//!
//! Precedence, the same everywhere: explicit argument > queue of the data > innermost scope > process default
//! > SYCL's default device.

mod cache;
mod future;
mod queue_manager;
mod scope;
mod target;

pub use cache::QueueBuilder;
pub use future::{InQueue, Scoped};
#[cfg(feature = "python")]
pub(crate) use queue_manager::current_queue_is_known;
pub(crate) use queue_manager::enter;
pub use queue_manager::{QueueManager, current_queue, set_default_queue, with_queue};
pub use scope::Scope;
pub(crate) use scope::{Entered, thread_ends};
pub use target::Target;
#[cfg(feature = "python")]
pub(crate) use target::known_queue;
