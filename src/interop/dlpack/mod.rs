//! DLPack, both ways: `kDLOneAPI` without a copy, `kDLCPU` for host and shared USM without one and else by one.
//!
//! Source: `dlpack/dlpack.h` and "Python Specification for DLPack". A `kDLOneAPI` number is the ordinal of a root device,
//! and its memory belongs to the platform's default context. What usmq exports is [`Local`], what another library
//! exported is [`Foreign`]: vouching for it is the one unsafe step.

mod abi;
mod dtype;
mod export;
mod import;

pub use abi::{Legacy, Managed, Versioned};
pub use export::{Destination, Export, Local, Order, device_of, export};
pub use import::{Foreign, Import, import};
