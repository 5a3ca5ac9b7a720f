//! Arrow: the C data, C stream and C Device data interfaces, both ways, over unified shared memory.
//!
//! A [`Column`] is an Arrow array of any layout in USM, a [`Table`] several of one length. Device arrays carry type
//! `ARROW_DEVICE_ONEAPI` (14), the ordinal of the root device and the address of a `sycl::event`; both libraries must
//! share one libsycl, since that event is a C++ object.
//!
//! What usmq exports is the plain struct ([`ArrowDeviceArray`] and its like), which carries its own field. What is
//! imported is a [`Foreign`]: an export of usmq becomes one safely, and taking another library's struct, together with the
//! field that describes it, is the one unsafe step.

mod abi;
mod async_consume;
mod async_handler;
mod async_produce;
mod async_worker;
mod build;
mod check;
mod collect;
mod column;
mod consume;
mod contents;
mod cuda;
mod cuda_export;
mod export;
mod foreign;
#[cfg(feature = "arrow")]
mod host;
mod import;
mod layout;
mod pack;
mod produce;
mod schema;
mod sound;
mod source;
mod table;
mod validate_full;
mod wire;

#[cfg(feature = "arrow")]
use host::joined;

/// Without arrow-rs batches stay apart.
#[cfg(not(feature = "arrow"))]
fn joined(
    _: &std::sync::Arc<Field>,
    arrays: Vec<Foreign<ArrowArray>>,
) -> crate::Result<Vec<Foreign<ArrowArray>>> {
    Ok(arrays)
}

pub use abi::{
    ArrowArray, ArrowArrayStream, ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask,
    ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};
pub use async_consume::AsyncArrays;
pub use async_handler::AsyncHandler;
pub use async_produce::{Ended, Producing};
pub use collect::Imported;
pub use column::Column;
pub use consume::{Arrays, Stream};
pub use cuda_export::export_cuda;
pub use export::Ready;
pub use foreign::{ArrayStruct, Foreign, Struct};
pub use import::Placed;
pub use pack::Packed;
pub use produce::Batches;
pub use schema::Field;
pub use table::Table;
