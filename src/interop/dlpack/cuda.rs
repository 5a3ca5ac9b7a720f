//! Exports an array in CUDA memory as a DLPack tensor, without a copy.

use super::abi::{CUDA, DLDevice, DLTensor, Managed, READ_ONLY};
use super::dtype;
use super::export::{ExportedTensor, wrap};
use crate::error::{Error, Result};
use crate::interop::cuda::CudaArray;
use std::ffi::c_void;
use std::ptr;

/// Exports the array as a tensor of type `kDLCUDA` that keeps its memory alive. Later work of the consumer's
/// stream (1, 2 or a handle; `None`: the consumer synchronizes) runs after the work submitted to the array's
/// stream.
///
/// # Errors
/// [`Error::Interop`] for stream 0, for a read-only array in the legacy struct, which cannot express that,
/// and with errors of the CUDA driver.
pub fn export_cuda<T: Managed>(array: &CudaArray, stream: Option<usize>) -> Result<ExportedTensor<T>> {
    if array.is_readonly() && !T::SAYS_READ_ONLY {
        return Err(Error::interop(format!(
            "{array} is read-only, which DLPack cannot express before version 1.0; request max_version=(1, 0)"
        )));
    }
    array.lead(stream)?;
    let flags = if array.is_readonly() { READ_ONLY } else { 0 };
    Ok(wrap(array.clone(), describe, flags))
}

/// The fields of a tensor. Its lists are those of `array`, which stays where it is while the tensor is used.
fn describe(array: &CudaArray) -> DLTensor {
    let lists = !array.shape().is_empty();
    let list = |numbers: *const i64| if lists { numbers.cast_mut() } else { ptr::null_mut() };
    DLTensor {
        data: if array.size() == 0 { ptr::null_mut() } else { array.address() as *mut c_void },
        device: DLDevice { kind: CUDA, id: array.ordinal() as i32 },
        ndim: array.shape().len() as i32,
        dtype: dtype::to_dlpack(array.dtype()),
        shape: list(array.shape().as_ptr().cast()),
        strides: list(array.strides().as_ptr().cast()),
        byte_offset: 0,
    }
}
