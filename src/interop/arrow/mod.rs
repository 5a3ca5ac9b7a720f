//! Arrow: the C data, C stream and C Device data interfaces, both ways, over unified shared memory.
//!
//! A [`Column`] is an Arrow array of any layout in USM, a [`Table`] several of one length. Device arrays carry type
//! `ARROW_DEVICE_ONEAPI` (14), the ordinal of the root device and the address of a `sycl::event`; both libraries must
//! share one libsycl, since that event is a C++ object.
//!
//! usmq exports the plain structs ([`ArrowDeviceArray`] and others), which carry their own field. It imports
//! a [`ForeignStruct`]: an export of usmq converts to one safely. Taking another library's struct, with the
//! field that describes it, is the only unsafe step.

mod abi;
#[cfg(feature = "arrow")]
mod arrow_rs;
mod async_export;
mod async_handler;
mod async_import;
mod buffer_source;
mod build;
mod column;
mod cuda;
mod cuda_export;
#[cfg(feature = "arrow")]
mod dictionaries;
mod export;
mod filter;
mod filter_kernels;
mod foreign;
mod import;
mod join;
#[cfg(feature = "arrow")]
mod join_limits;
mod layout;
mod null_slots;
mod parts;
mod preview;
mod schema;
mod serialize;
mod serialize_header;
mod soundness;
mod stream_export;
mod stream_import;
mod table;
mod type_name;
mod validate;
mod validate_contents;
mod validate_full;

#[cfg(feature = "arrow")]
use arrow_rs::joined;

/// Without arrow-rs, batches are not joined.
#[cfg(not(feature = "arrow"))]
fn joined(
    _: &std::sync::Arc<Field>,
    arrays: Vec<ForeignStruct<ArrowArray>>,
) -> crate::Result<Vec<ForeignStruct<ArrowArray>>> {
    Ok(arrays)
}

pub use abi::{
    ArrowArray, ArrowArrayStream, ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask,
    ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};
pub use async_export::{AsyncExport, StreamEnd};
pub use async_handler::AsyncHandler;
pub use async_import::AsyncStreamReader;
pub use column::Column;
pub use cuda_export::export_cuda;
pub use export::SyncMode;
pub use foreign::{ArrayStruct, FfiStruct, ForeignStruct};
pub use import::ImportOptions;
pub use schema::Field;
pub use serialize::Packed;
pub use stream_export::Batches;
pub use stream_import::{ColumnOrTable, Stream, StreamReader};
pub use table::Table;
