//! Compute follows data: selects the queue of a command, and the copies that bring its operands together.

mod collocate;
mod follow;
mod hints;
mod join;
mod plan;

#[cfg(feature = "python")]
pub(crate) use collocate::{Item, explain_items};
pub use collocate::{collocate, collocate_all, explain};
pub use follow::follow;
pub(crate) use follow::usable_from;
pub use join::{concatenate, stack};
pub use plan::{Action, Plan, PlanTarget, Step};
