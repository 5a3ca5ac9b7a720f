//! Hand-over between libraries: foreign memory in, our memory out, without copies.

pub mod arrow;
pub mod cuda;
pub mod dlpack;
mod place;
pub mod suai;
