//! Interoperability between libraries: imports and exports memory without copies.

pub mod arrow;
pub mod cuda;
pub(crate) mod device_ordinal;
pub mod dlpack;
#[path = "usm_array_interface.rs"]
pub mod suai;
