//! Kernels: from source or binary to a launch that is checked, follows its data and keeps it alive.

mod arg;
mod given;
mod launch;
mod signature;
mod words;

pub use arg::{Arg, local, read, write};
pub use launch::{Kernel, KernelOptions, Launch};
pub use signature::Param;
pub(crate) use signature::read_signature;
