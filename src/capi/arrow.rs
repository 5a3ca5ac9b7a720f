//! Exports blocks of the C API as Arrow device arrays without a copy: numbers without nulls.

use super::memory::block;
use super::status::{call, give, text};
use crate::array::{Array, DType, Family, Layout};
use crate::error::{Error, Result};
use crate::interop::arrow::{ArrowDeviceArray, ArrowSchema, Column, SyncMode};
use std::ffi::{c_char, c_int, c_void};

/// The format strings of the Arrow C data interface for numbers.
fn dtype(format: &str) -> Result<DType> {
    DType::find(|row| row.arrow == Some(format)).ok_or_else(|| {
        // Arrow's own order: by size, floats last.
        let mut numbers: Vec<_> =
            DType::ALL.into_iter().filter(|dtype| dtype.row().arrow.is_some()).collect();
        numbers.sort_by_key(|dtype| (dtype.row().family == Family::Float, dtype.itemsize()));
        let known: Vec<_> = numbers.iter().filter_map(|dtype| dtype.row().arrow).collect();
        Error::wrong_type(format!(
            "format {format:?} is not one of Arrow's number formats: {}",
            known.join(" ")
        ))
    })
}

fn column(bytes: &Array, format: &str, length: i64) -> Result<Column> {
    let dtype = dtype(format)?;
    let fits = usize::try_from(length)
        .ok()
        .filter(|length| length.checked_mul(dtype.itemsize()).is_some_and(|needed| needed <= bytes.size()));
    let Some(length) = fits else {
        return Err(Error::value(format!(
            "{length} values of {dtype} do not fit into a block of {} bytes",
            bytes.size()
        )));
    };
    let layout = Layout::contiguous(&[length], dtype.itemsize())?;
    let values = Array::from_parts(bytes.shared_allocation(), layout, dtype, bytes.queue().clone(), true);
    Column::from_array("", &values)
}

/// # Safety
/// As documented for the arguments in usmq.h.
#[unsafe(no_mangle)]
unsafe extern "C" fn usmq_arrow_export(
    memory: *mut c_void,
    format: *const c_char,
    length: i64,
    schema: *mut ArrowSchema,
    array: *mut ArrowDeviceArray,
) -> c_int {
    call(|| {
        // SAFETY: the caller's string.
        let format = unsafe { text(format) }?.unwrap_or_default();
        let column = column(&block(memory)?, format, length)?;
        let description = column.export_schema()?;
        // SAFETY: the caller's output pointer.
        unsafe { give(array, "array", || column.export_device(SyncMode::Event)) }?;
        if !schema.is_null() {
            // SAFETY: the caller's output pointer. Without one, the description is released here.
            unsafe { schema.write(description) };
        }
        Ok(())
    })
}
