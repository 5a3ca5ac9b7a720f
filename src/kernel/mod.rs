//! Kernels: from source or binary to a checked launch that follows its data and keeps it alive.

mod arg;
mod build;
mod build_log;
mod definitions;
mod host_args;
mod launch;
mod lexer;
mod macros;
mod module;
mod module_ids;
mod signature;
mod slots;

pub use arg::Arg;
pub use build::{Kernel, KernelOptions};
pub(crate) use build_log::{Lack, TEMPORARY, install_compiler, is_root, lack, temporary_folder};
pub use launch::Launch;
pub use signature::Param;
pub(crate) use signature::read_signature;
