//! The current queue: which queue work goes to when no one says otherwise.
//!
//! Precedence, the same everywhere: explicit argument > queue of the data > innermost scope > process default >
//! SYCL's default device.

mod cache;
mod default;
mod future;
mod scope;
mod target;

#[cfg(feature = "python")]
pub(crate) use default::current_queue_is_known;
pub(crate) use default::enter;
pub use default::{QueueManager, current_queue, set_default_queue, with_queue};
pub use future::{InQueue, Scoped};
pub use scope::Scope;
pub(crate) use scope::{Entered, thread_ends};
pub use target::Target;
