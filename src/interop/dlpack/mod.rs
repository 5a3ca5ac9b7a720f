//! DLPack, both ways: `kDLOneAPI` without a copy, `kDLCPU` for host and shared USM without one and else by one.
//!
//! Source: `dlpack/dlpack.h` and "Python Specification for DLPack". A `kDLOneAPI` number is the ordinal of a root device,
//! and its memory belongs to the platform's default context. What usmq exports is [`Local`], what another library
//! exported is [`Foreign`]: vouching for it is the one unsafe step.

mod abi;
mod cuda;
mod dtype;
mod exchange;
mod export;
mod import;

pub use abi::{Legacy, Managed, Tensor, Versioned};
pub use cuda::export_cuda;
pub use exchange::{allocate, work_queue, work_stream};
pub use export::{Destination, Export, Local, Order, device_of, export, lend};
pub use import::{Foreign, Import, adopt, import};

/// Says in an error that a copy was not allowed.
const NO_COPY: &str = crate::error::spelled("copy=False", "`copy` is Some(false)");

/// The version of DLPack whose structs usmq exports, and up to which it asks others for theirs.
pub const VERSION: (u32, u32) = (abi::VERSION.major, abi::VERSION.minor);
