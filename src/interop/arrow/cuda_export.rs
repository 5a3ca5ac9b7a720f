//! Exports arrays in CUDA memory as Arrow arrays of type `ARROW_DEVICE_CUDA`, without a copy.

use super::abi::{ArrowArray, ArrowDeviceArray, DEVICE_CUDA};
use super::build::format_of;
use super::schema::Field;
use crate::error::{Error, Result};
use crate::interop::cuda::{CudaArray, ReadyEvent};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// The target of an exported struct's `private_data`.
struct ExportedCudaArray {
    field: Arc<Field>,
    _array: CudaArray,
    buffers: [*const c_void; 2],
    /// The target of `sync_event`.
    event: ReadyEvent,
}

/// Exports a contiguous array of one axis as an Arrow array without nulls, and returns its type. Its event, a
/// `cudaEvent_t`, completes after the commands submitted to the array's stream before this call.
///
/// Source: the Arrow C Device data interface.
///
/// # Errors
/// [`Error::Interop`] for an element type that Arrow lacks, for a strided array, or for more or fewer axes than one.
pub fn export_cuda(array: &CudaArray) -> Result<(Arc<Field>, ArrowDeviceArray)> {
    let refuse = |why: &str| Err(Error::interop(format!("cannot export {array} as an Arrow array: {why}")));
    let format = match format_of(array.dtype()) {
        Ok(format) => format,
        Err(why) => return refuse(why),
    };
    if array.shape().len() != 1 || !array.is_contiguous() {
        return refuse("it must be contiguous and have one axis");
    }
    let field = Arc::new(Field::new("", format)?);
    let mut owned = Box::new(ExportedCudaArray {
        field: field.clone(),
        buffers: [ptr::null(), array.address() as *const c_void],
        event: array.ready()?,
        _array: array.clone(),
    });
    let mut exported = ArrowArray::empty();
    exported.length = array.size() as i64;
    exported.n_buffers = 2;
    exported.buffers = owned.buffers.as_mut_ptr();
    exported.release = Some(release);
    let sync_event = owned.event.address();
    exported.private_data = Box::into_raw(owned).cast();
    let device = ArrowDeviceArray {
        array: exported,
        device_id: array.ordinal() as i64,
        device_type: DEVICE_CUDA,
        sync_event,
        reserved: [0; 3],
    };
    Ok((field, device))
}

/// The field of an array from [`export_cuda`]; `None` for others.
pub(super) fn exported(array: &ArrowArray) -> Option<Arc<Field>> {
    let ours: unsafe extern "C" fn(*mut ArrowArray) = release;
    array.release.filter(|release| ptr::fn_addr_eq(*release, ours))?;
    // SAFETY: `export_cuda` made `private_data` for this callback, and it lives until the release.
    Some(unsafe { &(*array.private_data.cast::<ExportedCudaArray>()).field }.clone())
}

unsafe extern "C" fn release(array: *mut ArrowArray) {
    // SAFETY: the consumer passes a struct that `export_cuda` filled and that is not released.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: made from a box in `export_cuda`, and taken once: `release` is gone.
    drop(unsafe { Box::from_raw(array.private_data.cast::<ExportedCudaArray>()) });
}
