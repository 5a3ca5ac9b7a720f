//! DLPack, import and export: `kDLOneAPI` without a copy, `kDLCPU` without a copy for host and shared USM,
//! else with one.
//!
//! Source: `dlpack/dlpack.h` and "Python Specification for DLPack". A `kDLOneAPI` number is the ordinal of a
//! root device, and its memory belongs to the platform's default context. [`ExportedTensor`] is an export of
//! usmq, [`ForeignTensor`] one of another library; creating the latter is the only unsafe step.

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
#[cfg_attr(not(feature = "python"), expect(unused_imports))]
pub(crate) use import::host_memory;
pub use import::{ForeignTensor, Import, adopt, import};

/// The part of an error that a copy was not allowed.
const NO_COPY: &str = crate::error::spelled("copy=False", "`copy` is Some(false)");

/// The version of DLPack that usmq exports, and the newest that it requests.
pub const VERSION: (u32, u32) = (abi::VERSION.major, abi::VERSION.minor);
