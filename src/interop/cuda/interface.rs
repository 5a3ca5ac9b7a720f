//! `__cuda_array_interface__`, version 3, both ways.
//!
//! Source: numba's documentation, "CUDA Array Interface (Version 3)". Strides count bytes; `data[1]` is a
//! read-only flag; `stream` is 1, 2 or a handle, absent without pending work, and never 0.

use super::array::{CudaArray, Described};
use crate::array::DType;
use crate::error::{Error, Result};
use crate::memory::ForeignOwner;

/// The interface's description of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Address of the first element.
    pub pointer: usize,
    /// Whether the consumer must not write.
    pub readonly: bool,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Strides in bytes; C-contiguous if `None`.
    pub strides: Option<Vec<isize>>,
    /// The element type.
    pub dtype: DType,
    /// The stream whose work the consumer must wait for.
    pub stream: Option<usize>,
}

/// Imports another library's memory. `owner` is dropped after the last use.
///
/// # Safety
/// The memory stays allocated while `owner` lives, and the stream is a live one of this process.
///
/// # Errors
/// [`Error::Interop`] for stream 0, strides that are not multiples of an element, or memory unknown to CUDA;
/// [`Error::Value`] for an invalid layout; [`Error::RuntimeNotFound`] without a driver.
pub unsafe fn import(descriptor: &Descriptor, owner: ForeignOwner) -> Result<CudaArray> {
    let strides = elements(descriptor)?;
    let described = Described {
        pointer: descriptor.pointer,
        shape: &descriptor.shape,
        strides: strides.as_deref(),
        dtype: descriptor.dtype,
        readonly: descriptor.readonly,
        stream: descriptor.stream,
    };
    // SAFETY: the caller's promise.
    unsafe { CudaArray::foreign(&described, owner) }
}

/// Strides in elements.
pub(super) fn elements(descriptor: &Descriptor) -> Result<Option<Vec<isize>>> {
    let itemsize = descriptor.dtype.itemsize() as isize;
    let Some(strides) = &descriptor.strides else { return Ok(None) };
    let whole = |step: &isize| (step % itemsize == 0).then_some(step / itemsize);
    strides.iter().map(whole).collect::<Option<Vec<_>>>().map(Some).ok_or_else(|| {
        Error::interop(format!(
            "strides {strides:?} are not multiples of the {itemsize} bytes of {}",
            descriptor.dtype
        ))
    })
}

/// Exports the description of an array. Consumer work that waits for its stream runs after the work of usmq.
///
/// # Errors
/// [`Error::Interop`] for bfloat16, which the interface cannot express; [`Error::Fork`] in a forked child.
pub fn export(array: &CudaArray) -> Result<Descriptor> {
    crate::runtime::not_forked()?;
    if array.dtype().typestr().is_none() {
        return Err(Error::interop(format!(
            "__cuda_array_interface__ has no typestr for {}; cast to float32 first",
            array.dtype()
        )));
    }
    let itemsize = array.dtype().itemsize() as isize;
    Ok(Descriptor {
        pointer: if array.size() == 0 { 0 } else { array.address() },
        readonly: array.is_readonly(),
        shape: array.shape().to_vec(),
        strides: (!array.is_contiguous())
            .then(|| array.strides().iter().map(|step| step * itemsize).collect()),
        dtype: array.dtype(),
        stream: array.stream(),
    })
}
