//! What commands, waits and allocations leave for profiles.

pub(crate) mod log;
pub(crate) mod record;
pub(crate) mod recorder;
pub(crate) mod xpti;
