//! Kernel arguments, and their conversion to the parameter's type.

use super::signature::Param;
use super::slots::ONE_DIMENSION;
use crate::array::{Array, DType, Element, HostMemory, Number, Scalar, bytes_of, element_of, with_element};
use crate::device::submit::KernelArg;
use crate::memory::Access;
use std::any::Any;
use std::sync::Arc;

/// Memory of the host as an argument.
#[derive(Debug, Clone)]
pub(super) struct HostArg {
    pub memory: HostMemory,
    /// `None` takes the access from the parameter.
    pub access: Option<Access>,
    /// Keeps the memory alive after an interrupt.
    pub owner: Option<Arc<dyn Any + Send + Sync>>,
}

/// A kernel argument. Arrays, numbers and [`local`](Self::local) memory convert into one.
#[derive(Debug, Clone)]
pub struct Arg(pub(super) Value);

#[derive(Debug, Clone)]
pub(super) enum Value {
    /// An array; `None` takes the access from the parameter.
    Array(Array, Option<Access>),
    /// The first element of a view, whose strides are arguments of their own.
    Elements(Array, Option<Access>),
    /// Memory of the host. A launch replaces it by an array.
    Host(HostArg),
    /// A number of exactly this type.
    Typed(DType, [u8; 16]),
    /// A number that converts to the parameter's type; `dtype` applies if that type is unknown.
    Number { value: Scalar, dtype: Option<DType> },
    /// Bytes of local memory.
    Local(usize),
}

impl From<&Array> for Arg {
    fn from(array: &Array) -> Self {
        Self(Value::Array(array.clone(), None))
    }
}

impl From<Array> for Arg {
    fn from(array: Array) -> Self {
        Self(Value::Array(array, None))
    }
}

impl<T: Element> From<T> for Arg {
    fn from(value: T) -> Self {
        let mut bytes = [0; 16];
        let of_value = [value];
        let own = bytes_of(&of_value);
        bytes[..own.len()].copy_from_slice(own);
        Self(Value::Typed(T::DTYPE, bytes))
    }
}

impl Arg {
    /// An array that the kernel only reads, even if its parameter allows writes.
    #[must_use]
    pub fn read(array: &Array) -> Self {
        Self(Value::Array(array.clone(), Some(Access::Read)))
    }

    /// An array whose previous elements the kernel does not read.
    #[must_use]
    pub fn write(array: &Array) -> Self {
        Self(Value::Array(array.clone(), Some(Access::Write)))
    }

    /// Memory of the host, on any device: used in place where the device reaches system memory, else copied to
    /// the device and, unless the kernel only reads it, back. Such a launch returns after the kernel and the
    /// copies. The memory lives until then; after an interrupt, `owner` keeps it alive for the commands that
    /// still use it. Without an owner the launch cannot be interrupted.
    ///
    /// Arguments with overlapping memory are one allocation for the kernel. A strided array arrives packed in C order.
    #[must_use]
    pub fn host(memory: HostMemory, owner: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self(Value::Host(HostArg { memory, access: None, owner }))
    }

    /// As [`Arg::host`], for memory that the kernel only reads, even if its parameter allows writes.
    #[must_use]
    pub fn host_read(memory: HostMemory, owner: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self(Value::Host(HostArg { memory, access: Some(Access::Read), owner }))
    }

    /// An array with a known access.
    pub(super) fn marked(array: Array, access: Access) -> Self {
        Self(Value::Array(array, Some(access)))
    }

    pub(super) fn host_arg(&self) -> Option<&HostArg> {
        if let Value::Host(host) = &self.0 { Some(host) } else { None }
    }

    /// Whether it is memory of the host, so that its launch waits.
    pub(crate) fn is_host(&self) -> bool {
        self.host_arg().is_some()
    }

    /// This many bytes of local memory for each work-group. The launch needs a local range.
    #[must_use]
    pub fn local(bytes: usize) -> Self {
        Self(Value::Local(bytes))
    }

    /// A number that converts to the parameter's type, if it can be read from the source; otherwise a `dtype`
    /// is required.
    #[must_use]
    pub fn number(value: Scalar, dtype: Option<DType>) -> Self {
        Self(Value::Number { value, dtype })
    }

    /// Bytes of local memory.
    pub(super) fn local_bytes(&self) -> Option<usize> {
        if let Value::Local(bytes) = self.0 { Some(bytes) } else { None }
    }

    pub(super) fn array(&self) -> Option<&Array> {
        match &self.0 {
            Value::Array(array, _) | Value::Elements(array, _) => Some(array),
            _ => None,
        }
    }

    /// The type of its elements or of the number, if it has one.
    pub(super) fn dtype(&self) -> Option<DType> {
        match &self.0 {
            Value::Array(array, _) | Value::Elements(array, _) => Some(array.dtype()),
            Value::Host(host) => Some(host.memory.dtype),
            Value::Typed(dtype, _) => Some(*dtype),
            Value::Number { dtype, .. } => *dtype,
            Value::Local(_) => None,
        }
    }

    /// The kernel's access to the array of this argument.
    pub(super) fn access(&self, param: Option<&Param>) -> Access {
        match (&self.0, param) {
            (Value::Array(_, Some(marked)) | Value::Elements(_, Some(marked)), _) => *marked,
            (Value::Host(HostArg { access: Some(marked), .. }), _) => *marked,
            (_, Some(param)) => param.access(),
            _ => Access::ReadWrite,
        }
    }

    /// Converts the argument for the shim, or returns why the parameter does not accept it. `is_group`: local
    /// memory is a `work_group_memory` if the parameter does not determine its form.
    pub(super) fn bind(&self, param: Option<&Param>, is_group: bool) -> Result<KernelArg, String> {
        let param = param.unwrap_or(&Param::Unknown);
        match &self.0 {
            Value::Array(array, _) => bind_array(array, self.access(Some(param)), param, true),
            Value::Elements(array, _) => bind_array(array, self.access(Some(param)), param, false),
            Value::Host(_) => Err("memory of the host needs Kernel::launch or launch_with".to_owned()),
            Value::Local(0) => Err("local memory needs a size above 0".to_owned()),
            Value::Local(bytes) => match param {
                Param::WorkGroupMemory => Ok(KernelArg::work_group_memory(*bytes)),
                Param::Local | Param::Unknown if is_group => Ok(KernelArg::work_group_memory(*bytes)),
                Param::Local | Param::Unknown => Ok(KernelArg::local(*bytes, 1)),
                Param::LocalAccessor { element, dimensions } => {
                    bind_accessor(*bytes, *element, dimensions.unwrap_or(1))
                }
                other => Err(format!("got local memory, but the kernel takes {}", other)),
            },
            Value::Typed(dtype, bytes) => match param {
                Param::Scalar(wanted) if wanted == dtype => Ok(KernelArg::scalar(&bytes[..dtype.itemsize()])),
                Param::Unknown => Ok(KernelArg::scalar(&bytes[..dtype.itemsize()])),
                other => Err(format!("got {dtype}, but the kernel takes {}", other)),
            },
            Value::Number { value, dtype } => {
                let wanted = match (param, dtype) {
                    (Param::Scalar(wanted), _) | (Param::Unknown, Some(wanted)) => *wanted,
                    (Param::Unknown, None) => {
                        return Err(
                            "a plain number needs a type here: give params= or a typed scalar".to_owned()
                        );
                    }
                    (other, _) => {
                        return Err(format!("got a number, but the kernel takes {}", other));
                    }
                };
                Ok(KernelArg::scalar(&value.bytes_as(wanted)?))
            }
        }
    }
}

fn bind_accessor(bytes: usize, element: Option<DType>, dimensions: usize) -> Result<KernelArg, String> {
    if dimensions > 1 {
        return Err(format!(
            "the kernel takes a local_accessor of {dimensions} dimensions, but local memory has one; {ONE_DIMENSION}"
        ));
    }
    let size = element.map_or(1, DType::itemsize);
    match element {
        Some(element) if !bytes.is_multiple_of(size) => Err(format!(
            "{bytes} bytes of local memory are not a multiple of the kernel's element type {element}"
        )),
        _ => Ok(KernelArg::local(bytes, size)),
    }
}

fn bind_array(array: &Array, access: Access, param: &Param, is_whole: bool) -> Result<KernelArg, String> {
    let wanted = match (param.pointee(), param) {
        (Some(wanted), _) => wanted,
        (None, Param::Unknown) => None,
        (None, other) => {
            return Err(format!("got an array, but the kernel takes {}", other));
        }
    };
    if let Some(wanted) = wanted.filter(|wanted| *wanted != array.dtype()) {
        return Err(format!("got elements of {}, but the kernel takes {wanted}", array.dtype()));
    }
    if access.writes() && array.is_readonly() {
        return Err("the array is read-only, but the kernel may write to it".to_owned());
    }
    if is_whole && !array.is_contiguous() {
        return Err(
            "the array is a strided view, but a kernel gets an address only; pass a contiguous copy()"
                .to_owned(),
        );
    }
    Ok(KernelArg::pointer(array.address()))
}

/// The argument with its value, for errors: `float32 1.5`, `an array of int32 with shape [4]`.
pub(super) fn shown(arg: &Arg) -> String {
    match &arg.0 {
        Value::Array(array, _) | Value::Elements(array, _) => {
            format!("an array of {} with shape {:?}", array.dtype(), array.shape())
        }
        Value::Host(HostArg { memory, .. }) => {
            format!("host memory of {} with shape {:?}", memory.dtype, memory.shape)
        }
        Value::Typed(dtype, bytes) => format!("{dtype} {}", value(*dtype, bytes)),
        Value::Number { value, dtype: Some(dtype) } => format!("{dtype} {value}"),
        Value::Number { value, dtype: None } => value.to_string(),
        Value::Local(bytes) => format!("{bytes} bytes of local memory"),
    }
}

/// The number that these bytes represent.
fn value(dtype: DType, bytes: &[u8; 16]) -> String {
    with_element!(dtype, T => element_of::<T>(bytes).map(T::to_text)).unwrap_or_default()
}
