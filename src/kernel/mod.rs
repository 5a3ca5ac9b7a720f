//! Kernels: from source or binary to a checked launch that follows its data and keeps it alive.

mod arg;
mod broadcast;
mod build;
mod build_log;
mod checked_source;
mod debug;
mod definitions;
mod elementwise;
mod expression;
mod host_args;
mod includes;
mod launch;
mod lexer;
mod macros;
mod module;
mod module_ids;
mod param;
mod reduction;
mod signature;
mod slots;
mod template;

pub use arg::Arg;
pub use build::{Kernel, KernelOptions};
pub(crate) use build_log::{Lack, TEMPORARY, install_compiler, is_root, lack, temporary_folder};
pub use elementwise::{Elementwise, ElementwiseLaunch};
pub use expression::ExpressionOptions;
pub use launch::Launch;
pub use param::Param;
pub use reduction::{Reduction, ReductionLaunch, ReductionOptions};
pub(crate) use signature::read_signature;
