//! Unified shared memory: allocation, reuse in stream order, and who touched an allocation last.

mod access;
mod allocation;
mod blocks;
mod budget;
pub(crate) mod heap;
mod left;
mod order;
mod pool;
mod retire;
mod stats;

pub(crate) use access::Access;
pub(crate) use allocation::{Allocation, Failure};
pub(crate) use budget::limit;
pub(crate) use order::{Operand, ordered, ordered_across, ordered_all};
pub(crate) use retire::{Foreign as Keep, keep_until, undisturbed};
pub(crate) use stats::held;
pub use stats::{KindStats, set_limit, stats, trim};
