//! The device header `usmq/kernel.h`, which usmq passes to the runtime's compiler with each source.
//!
//! It uses internal spellings of that compiler, which the tests check with each supported runtime. For another one, the
//! option `-DUSMQ_SYCL_HEADERS` makes it include SYCL's headers and use their macros.

/// The name by which kernels include it.
pub(crate) const NAME: &str = "usmq/kernel.h";
/// Its place in the compiler's file system, which contains this file only, and the option that finds it there.
pub(super) const PLACE: &str = "/usmq-include/usmq/kernel.h";
pub(super) const FOLDER: &str = "-I/usmq-include";
pub(super) const TEXT: &str = include_str!("../../python/usmq/include/usmq/kernel.h");
