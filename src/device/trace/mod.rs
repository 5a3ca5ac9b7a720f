//! Records commands, waits and allocations for profiles.

pub(crate) mod log;
pub(crate) mod record;
pub(crate) mod recorder;
pub(crate) mod xpti;
