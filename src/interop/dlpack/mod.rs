//! DLPack, both ways: `kDLOneAPI` without a copy, `kDLCPU` for host and shared USM without one and else by one.
//!
//! Source: `dlpack/dlpack.h` and "Python Specification for DLPack". A `kDLOneAPI` number is the ordinal of a root device,
//! and its memory belongs to the platform's default context. What usmq exports is [`ExportedTensor`], what another
//! library exported is [`ForeignTensor`]: vouching for it is the one unsafe step.

mod abi;
mod cuda;
mod dtype;
mod exchange;
mod export;
mod import;

pub use abi::{DLManagedTensor, DLManagedTensorVersioned, DLTensor, Managed};
pub use cuda::export_cuda;
pub use exchange::{allocate, work_queue, work_stream};
pub use export::{Destination, Export, ExportedTensor, Order, device_of, export, lend};
pub use import::{ForeignTensor, Import, adopt, import};

/// Says in an error that a copy was not allowed.
const NO_COPY: &str = crate::error::spelled("copy=False", "`copy` is Some(false)");

/// The version of DLPack whose structs usmq exports, and up to which it asks others for theirs.
pub const VERSION: (u32, u32) = (abi::VERSION.major, abi::VERSION.minor);
