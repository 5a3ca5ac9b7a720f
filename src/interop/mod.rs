//! Hand-over between libraries: foreign memory in, our memory out, without copies.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod suai;
