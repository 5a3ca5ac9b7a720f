//! Unified shared memory: allocation, stream-ordered reuse, and the last uses of each allocation.

mod access_log;
mod account;
mod allocation;
mod attached;
mod budget;
pub(crate) mod by_host;
mod deferred_drop;
mod free_list;
mod history;
mod ordered_submit;
mod parse_size;
mod pool;
mod recording;
mod relief;
mod shared_on;
#[cfg_attr(not(feature = "python"), allow(dead_code, reason = "only Python has such a consumer"))]
pub(crate) mod shared_pointer;
pub(crate) mod sharing;
mod slabs;
mod source;
mod stats;
mod system;
pub(crate) mod try_reserve;
mod unused;
mod views;

pub(crate) use access_log::Access;
pub(crate) use account::{Account, Share};
pub(crate) use allocation::{Allocation, Found, Import, Operand, PoisonCell};
pub(crate) use attached::{Attached, OWN_RANGE, attach};
pub(crate) use budget::limit;
pub(crate) use deferred_drop::{ForeignOwner, drop_after};
pub use history::{LiveAllocation, live_allocations, record_allocations};
pub(crate) use ordered_submit::{
    Logged, after_writes, ordered, ordered_across, ordered_all, ordered_as_one, ordered_or_complete,
};
pub use parse_size::parse_size;
pub(crate) use recording::{Node, Recording, Used, is_capturing, refuse};
pub use relief::set_relief;
pub(crate) use stats::held;
pub use stats::{KindStats, set_limit, stats, trim};
pub(crate) use views::ViewToken;
