//! Kernel arguments, and their conversion to the parameter's type.

use super::param::Param;
use crate::array::{Array, DType, Element, HostMemory, Number, Scalar, bytes_of, element_of, with_element};
use crate::device::submit::KernelArgs;
use crate::error::{Error, Result, spelled};
use crate::memory::Access;
use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

/// The fix for a wrong number of dimensions.
pub(super) const SHAPED: &str =
    spelled("give its shape, as usmq.local((rows, columns), dtype)", "give its shape to Arg::local_array");

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
///
/// ```
/// use usmq::{Arg, Array, Kernel};
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// USMQ_KERNEL(1) void scale(float a, float *x, float *y) { y[global_id(0)] = a * x[global_id(0)]; }"#;
/// let scale = Kernel::from_sycl(source, "scale")?;
/// let (x, y) = (Array::full(2, 3f32)?, Array::empty::<f32>(2)?);
/// // Narrower than the parameters, which are not const: the launch does not wait for other reads of x.
/// let args = [2f32.into(), Arg::read(&x), Arg::write(&y)];
/// // SAFETY: with 2 work-items scale reads the 2 elements of x and writes those of y.
/// unsafe { scale.launch(2, &args) }?;
/// assert_eq!(y.to_vec::<f32>()?, [6.0, 6.0]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Arg<'a>(pub(super) Value<'a>);

#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    /// An array; `None` takes the access from the parameter.
    Array(Held<'a>, Option<Access>),
    /// The first element of a view, whose strides are arguments of their own.
    Elements(Held<'a>, Option<Access>),
    /// Memory of the host. A launch replaces it by an array.
    Host(Box<HostArg>),
    /// A number of exactly this type.
    Typed(DType, [u8; 16]),
    /// A number that converts to the parameter's type; `dtype` applies if that type is unknown.
    Number { value: Scalar, dtype: Option<DType> },
    /// A vector of exactly this type, by its bytes.
    Vector(DType, Arc<[u8]>),
    /// Numbers that convert to the elements of the parameter's vector.
    Numbers(Arc<[Scalar]>),
    /// A structure, by its bytes.
    Bytes(Arc<[u8]>),
    /// Local memory.
    Local(LocalMemory),
}

/// The array of an argument. A launch borrows it: a clone of an array costs more than the rest of an argument.
#[derive(Debug, Clone)]
pub(super) enum Held<'a> {
    Borrowed(&'a Array),
    Owned(Box<Array>),
}

impl Deref for Held<'_> {
    type Target = Array;

    fn deref(&self) -> &Array {
        match self {
            Self::Borrowed(array) => array,
            Self::Owned(array) => array,
        }
    }
}

/// Local memory of a work-group.
#[derive(Debug, Clone)]
pub(super) struct LocalMemory {
    pub bytes: usize,
    /// Its elements, if the caller chose them.
    elements: Option<Box<Elements>>,
}

/// The elements of a `local_accessor`.
#[derive(Debug, Clone)]
struct Elements {
    dtype: DType,
    dimensions: usize,
    extents: [usize; 3],
}

impl<'a> From<&'a Array> for Arg<'a> {
    fn from(array: &'a Array) -> Self {
        Self(Value::Array(Held::Borrowed(array), None))
    }
}

impl From<Array> for Arg<'_> {
    fn from(array: Array) -> Self {
        Self(Value::Array(Held::Owned(Box::new(array)), None))
    }
}

impl<T: Element> From<T> for Arg<'_> {
    fn from(value: T) -> Self {
        let mut bytes = [0; 16];
        let of_value = [value];
        let own = bytes_of(&of_value);
        bytes[..own.len()].copy_from_slice(own);
        Self(Value::Typed(T::DTYPE, bytes))
    }
}

/// A size, as the kernel's `size_t` or `uint64_t`.
impl From<usize> for Arg<'_> {
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

/// As the kernel's `ptrdiff_t` or `int64_t`.
impl From<isize> for Arg<'_> {
    fn from(value: isize) -> Self {
        Self::from(value as i64)
    }
}

/// A small vector, such as `float4`, by value.
impl<T: Element, const N: usize> From<[T; N]> for Arg<'_> {
    fn from(values: [T; N]) -> Self {
        Self(Value::Vector(T::DTYPE, bytes_of(&values).into()))
    }
}

impl<'a> Arg<'a> {
    /// An array that the kernel only reads, even if its parameter allows writes.
    ///
    /// Only the unsafe launches of a [`Kernel`](crate::Kernel) rely on a mark. One-line kernels use the access that they
    /// declare, and return [`Error::Launch`] for a mark that contradicts it.
    #[must_use]
    pub fn read(array: &'a Array) -> Self {
        Self(Value::Array(Held::Borrowed(array), Some(Access::Read)))
    }

    /// An array whose previous elements the kernel does not read. See [`Arg::read`].
    #[must_use]
    pub fn write(array: &'a Array) -> Self {
        Self(Value::Array(Held::Borrowed(array), Some(Access::Write)))
    }

    /// Memory of the host, on any device: used in place where the device reaches system memory, else copied to
    /// the device and, unless the kernel only reads it, back. Such a launch returns after the kernel and the
    /// copies. The memory lives until then; after an interrupt, `owner` keeps it alive for the commands that
    /// still use it. Without an owner the launch cannot be interrupted.
    ///
    /// Arguments with overlapping memory are one allocation for the kernel. A strided array arrives packed in C order.
    #[must_use]
    pub fn host(memory: HostMemory, owner: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self(Value::Host(Box::new(HostArg { memory, access: None, owner })))
    }

    /// As [`Arg::host`], for memory that the kernel only reads, even if its parameter allows writes. See [`Arg::read`].
    #[must_use]
    pub fn host_read(memory: HostMemory, owner: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self(Value::Host(Box::new(HostArg { memory, access: Some(Access::Read), owner })))
    }

    /// An array with a known access.
    pub(crate) fn marked(array: Array, access: Access) -> Self {
        Self(Value::Array(Held::Owned(Box::new(array)), Some(access)))
    }

    /// States the access to its array.
    pub(super) fn mark(&mut self, access: Access) {
        if let Value::Array(_, marked) = &mut self.0 {
            *marked = Some(access);
        }
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
        Self(Value::Local(LocalMemory { bytes, elements: None }))
    }

    /// Local memory for an array of each work-group, of one to three dimensions: for a `local_accessor` of as many,
    /// and for each other form of local memory. The launch needs a local range.
    ///
    /// # Errors
    /// [`Error::Value`] for another number of dimensions, or more bytes than the address space has.
    pub fn local_array(extents: &[usize], dtype: DType) -> Result<Self> {
        let bytes = extents.iter().try_fold(dtype.itemsize(), |all, extent| all.checked_mul(*extent));
        let (Some(bytes), 1..=3) = (bytes, extents.len()) else {
            return Err(Error::value(format!(
                "local memory of shape {extents:?} is not possible; give one to three extents that fit in memory"
            )));
        };
        let mut elements = Elements { dtype, dimensions: extents.len(), extents: [1; 3] };
        elements.extents[..extents.len()].copy_from_slice(extents);
        Ok(Self(Value::Local(LocalMemory { bytes, elements: Some(Box::new(elements)) })))
    }

    /// A value of any other type, such as a structure, by its bytes. They have the layout that the kernel's compiler
    /// gives to the type, padding included.
    ///
    /// Pointers inside are not checked, and usmq does not order the launch with other uses of their memory.
    #[must_use]
    pub fn bytes(value: &[u8]) -> Self {
        Self(Value::Bytes(value.into()))
    }

    /// Numbers that convert to the elements of a vector, such as `float4`, if the parameter can be read from the
    /// source.
    #[must_use]
    pub fn vector(numbers: &[Scalar]) -> Self {
        Self(Value::Numbers(numbers.into()))
    }

    /// A number that converts to the parameter's type, if it can be read from the source; otherwise a `dtype`
    /// is required.
    #[must_use]
    pub fn number(value: Scalar, dtype: Option<DType>) -> Self {
        Self(Value::Number { value, dtype })
    }

    /// Bytes of local memory.
    pub(super) fn local_bytes(&self) -> Option<usize> {
        if let Value::Local(LocalMemory { bytes, .. }) = self.0 { Some(bytes) } else { None }
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
            Value::Vector(..) | Value::Numbers(_) | Value::Bytes(_) | Value::Local(_) => None,
        }
    }

    /// The access that the caller has stated.
    pub(super) fn marked_access(&self) -> Option<Access> {
        match &self.0 {
            Value::Array(_, marked) | Value::Elements(_, marked) => *marked,
            Value::Host(host) => host.access,
            _ => None,
        }
    }

    /// The kernel's access to the array of this argument.
    pub(super) fn access(&self, param: Option<&Param>) -> Access {
        self.marked_access().or(param.map(Param::access)).unwrap_or(Access::ReadWrite)
    }

    /// Adds the argument to those for the shim, or returns why the parameter does not accept it. `is_group`: local
    /// memory is a `work_group_memory` if the parameter does not determine its form.
    pub(super) fn bind(
        &self,
        param: Option<&Param>,
        is_group: bool,
        to: &mut KernelArgs,
    ) -> Result<(), String> {
        let param = param.unwrap_or(&Param::Unknown);
        match &self.0 {
            Value::Array(array, _) => {
                to.pointer(address(array, self.access(Some(param)), param, true)?);
            }
            Value::Elements(array, _) => {
                to.pointer(address(array, self.access(Some(param)), param, false)?);
            }
            Value::Host(_) => return Err("memory of the host needs Kernel::launch or launch_with".to_owned()),
            Value::Local(local) => return local.bind(param, is_group, to),
            Value::Vector(dtype, bytes) => match param {
                Param::Vector { element, count, bytes: size }
                    if element == dtype && bytes.len() == count * element.itemsize() =>
                {
                    to.value(&padded(bytes, *size));
                }
                Param::Unknown => to.value(bytes),
                other => return Err(format!("got {}, but the kernel takes {other}", shown(self))),
            },
            Value::Numbers(numbers) => match param {
                Param::Vector { element, count, bytes } if *count == numbers.len() => {
                    let mut all = Vec::with_capacity(*bytes);
                    for number in numbers.iter() {
                        all.extend(number.bytes_as(*element)?);
                    }
                    to.value(&padded(&all, *bytes));
                }
                Param::Unknown => {
                    return Err(format!(
                        "numbers for a vector need a parameter whose type usmq can read, as float4; pass {}",
                        spelled("a numpy scalar with fields", "an array of Rust, or Arg::bytes")
                    ));
                }
                other => return Err(format!("got {}, but the kernel takes {other}", shown(self))),
            },
            Value::Bytes(bytes) => match param {
                Param::Vector { bytes: size, .. } if bytes.len() == *size => to.value(bytes),
                Param::Unknown if bytes.is_empty() => {
                    return Err("a value by its bytes needs at least one".to_owned());
                }
                Param::Unknown => to.value(bytes),
                other => return Err(format!("got {}, but the kernel takes {other}", shown(self))),
            },
            Value::Typed(dtype, bytes) => match param {
                Param::Scalar(wanted) if wanted != dtype => {
                    return Err(format!("got {dtype}, but the kernel takes {wanted}"));
                }
                Param::Scalar(_) | Param::Unknown => to.value(&bytes[..dtype.itemsize()]),
                other => return Err(format!("got {dtype}, but the kernel takes {other}")),
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
                        return Err(format!("got a number, but the kernel takes {other}"));
                    }
                };
                to.value(&value.bytes_as(wanted)?);
            }
        }
        Ok(())
    }
}

impl LocalMemory {
    fn bind(&self, param: &Param, is_group: bool, to: &mut KernelArgs) -> Result<(), String> {
        if self.bytes == 0 {
            return Err("local memory needs a size above 0".to_owned());
        }
        match param {
            Param::WorkGroupMemory => to.work_group_memory(self.bytes),
            Param::Local | Param::Unknown if is_group => to.work_group_memory(self.bytes),
            Param::Local | Param::Unknown => self.accessor(None, to),
            Param::LocalAccessor { element, dimensions } => {
                self.check_elements(*element, *dimensions)?;
                self.accessor(*element, to);
            }
            other => return Err(format!("got local memory, but the kernel takes {other}")),
        }
        Ok(())
    }

    fn accessor(&self, element: Option<DType>, to: &mut KernelArgs) {
        match &self.elements {
            Some(elements) => to.local(self.bytes, elements.dtype.itemsize(), elements.extents()),
            None => {
                let size = element.map_or(1, DType::itemsize);
                to.local(self.bytes, size, &[self.bytes / size]);
            }
        }
    }

    fn check_elements(&self, element: Option<DType>, dimensions: Option<usize>) -> Result<(), String> {
        let given = self.elements.as_ref().map_or(1, |elements| elements.dimensions);
        if let Some(dimensions) = dimensions.filter(|dimensions| *dimensions != given) {
            return Err(format!(
                "got {given}-dimensional local memory, but the kernel takes a {dimensions}-dimensional local_accessor; {SHAPED}"
            ));
        }
        match (element, &self.elements) {
            (Some(element), Some(elements)) if element != elements.dtype => Err(format!(
                "got local memory of {}, but the kernel's elements are {element}",
                elements.dtype
            )),
            (Some(element), None) if !self.bytes.is_multiple_of(element.itemsize()) => Err(format!(
                "{} bytes of local memory are not a multiple of the kernel's element type {element}",
                self.bytes
            )),
            _ => Ok(()),
        }
    }
}

impl Elements {
    fn extents(&self) -> &[usize] {
        &self.extents[..self.dimensions]
    }
}

/// A vector with zeros up to its size.
fn padded(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(size, 0);
    all
}

/// The address of an array, if the kernel may use it.
fn address(array: &Array, access: Access, param: &Param, is_whole: bool) -> Result<usize, String> {
    let wanted = match (param.pointee(), param) {
        (Some(wanted), _) => wanted,
        (None, Param::Unknown) => None,
        (None, other) => {
            return Err(format!("got an array, but the kernel takes {other}"));
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
    Ok(array.address())
}

/// The argument with its value, for errors: `float32 1.5`, `an array of int32 with shape [4]`.
pub(super) fn shown(arg: &Arg<'_>) -> String {
    match &arg.0 {
        Value::Array(array, _) | Value::Elements(array, _) => {
            format!("an array of {} with shape {:?}", array.dtype(), array.shape())
        }
        Value::Host(host) => {
            format!("host memory of {} with shape {:?}", host.memory.dtype, host.memory.shape)
        }
        Value::Typed(dtype, bytes) => format!("{dtype} {}", value(*dtype, bytes)),
        Value::Number { value, dtype: Some(dtype) } => format!("{dtype} {value}"),
        Value::Number { value, dtype: None } => value.to_string(),
        Value::Vector(dtype, bytes) => format!("a vector of {} {dtype}", bytes.len() / dtype.itemsize()),
        Value::Numbers(numbers) => {
            format!("({})", numbers.iter().map(Scalar::to_string).collect::<Vec<_>>().join(", "))
        }
        Value::Bytes(bytes) => format!("a value of {} bytes", bytes.len()),
        Value::Local(LocalMemory { bytes, elements: None }) => format!("{bytes} bytes of local memory"),
        Value::Local(LocalMemory { elements: Some(elements), .. }) => {
            format!("local memory of {} with shape {:?}", elements.dtype, elements.extents())
        }
    }
}

/// The number that these bytes represent.
fn value(dtype: DType, bytes: &[u8; 16]) -> String {
    with_element!(dtype, T => element_of::<T>(bytes).map(T::to_text)).unwrap_or_default()
}
