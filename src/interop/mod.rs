//! Hand-over between libraries: foreign memory in, our memory out, without copies.

pub mod arrow;
pub mod cuda;
mod device_ordinal;
pub mod dlpack;
#[path = "usm_array_interface.rs"]
pub mod suai;
