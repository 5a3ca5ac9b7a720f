//! Unified shared memory: allocation, reuse in stream order, and who touched an allocation last.

mod access;
mod allocation;
mod blocks;
mod budget;
mod deferred_drop;
pub(crate) mod heap;
mod known_memory;
mod order;
mod pool;
mod stats;

pub(crate) use access::Access;
pub(crate) use allocation::{Allocation, Failure, Import};
pub(crate) use budget::limit;
pub(crate) use deferred_drop::{Foreign as Keep, drop_after};
pub(crate) use order::{Operand, ordered, ordered_across, ordered_all};
pub(crate) use stats::held;
pub use stats::{KindStats, set_limit, stats, trim};
