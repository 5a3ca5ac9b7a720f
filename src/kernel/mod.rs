//! Kernels: from source or binary to a launch that is checked, follows its data and keeps it alive.

mod arg;
mod launch;
mod signature;

pub use arg::{Arg, local, read, write};
pub use launch::{Kernel, KernelOptions, Launch};
pub use signature::Param;
