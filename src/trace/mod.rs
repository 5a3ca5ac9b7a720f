//! Records commands, waits and allocations for profiles.

pub(crate) mod foreign;
pub(crate) mod log;
pub(crate) mod record;
pub(crate) mod recorder;
pub(crate) mod tell;
mod ur;
pub(crate) mod xpti;

pub use record::{Clock, Kind, Reason};
pub(crate) use record::{Completion, DeviceHandle, QueueHandle, TracedDevice, TracedQueue};
pub(crate) use recorder::{Label, as_continuation, as_fill, with_default_reason, with_reason};
