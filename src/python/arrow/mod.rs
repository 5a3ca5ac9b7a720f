//! Arrow in Python: `from_arrow`, and columns and tables with the Arrow PyCapsule interface.

mod capsule;
mod column;
mod export;
mod field;
pub(super) mod import;
pub(super) mod stream;
mod table;
mod to_numpy;
pub(super) mod view;

pub(super) use export::{cuda_array, device_array, schema};
pub(super) use import::{METHODS, numbers};
