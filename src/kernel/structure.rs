//! Structures as kernel arguments: the trait of their fields, and the derive macro, which `derive/` implements.
//!
//! The macro copies the fields one by one into zeroed bytes, so that padding is never read. It needs no `unsafe` and
//! no promise of the user.

use crate::array::{Element, bytes_of};

/// A value that is part of a kernel's argument: a number, an array of such values, or a structure with
/// `#[derive(`[`KernelStruct`]`)]`.
///
/// ```
/// use usmq::KernelField;
///
/// let mut bytes = [0; 4];
/// [1u16, 2].write_to(&mut bytes);
/// assert_eq!(bytes, [1, 0, 2, 0]);
/// ```
pub trait KernelField: Copy {
    /// Copies the value to `bytes`, which has `size_of::<Self>()` of them. Padding stays as it is.
    fn write_to(&self, bytes: &mut [u8]);
}

impl<T: Element> KernelField for T {
    fn write_to(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(bytes_of(std::slice::from_ref(self)));
    }
}

impl<T: KernelField, const N: usize> KernelField for [T; N] {
    fn write_to(&self, bytes: &mut [u8]) {
        let size = size_of::<T>().max(1);
        self.iter().zip(bytes.chunks_exact_mut(size)).for_each(|(value, bytes)| value.write_to(bytes));
    }
}

/// Makes a structure an argument of kernels, by value. Implements [`KernelField`] and
/// [`Into`]`<`[`Arg`](crate::Arg)`>`.
///
/// The structure has `#[repr(C)]`, is [`Copy`] and not generic. Each field is a number that can be an element of an
/// array, an array of fields, or another such structure. Padding is zero in the kernel.
///
/// The layout is that of C, which is the one of the kernel's compiler for the same structure of built-in types. Write
/// `float v[4]` there for `[f32; 4]` here: the vector `float4` has another alignment.
///
/// ```
/// use usmq::{Array, Kernel, KernelStruct};
///
/// /// The same structure as in the kernel.
/// #[derive(KernelStruct, Clone, Copy, Debug, PartialEq)]
/// #[repr(C)]
/// pub struct Line {
///     pub slope: f32,
///     pub offset: f64,
/// }
///
/// let source = r#"
/// #include <usmq/kernel.h>
/// struct Line { float slope; double offset; };
/// USMQ_KERNEL(1) void draw(Line line, float *y) {
///   size_t i = global_id(0);
///   y[i] = line.slope * i + line.offset;
/// }"#;
/// let draw = Kernel::from_sycl(source, "draw")?;
/// let y = Array::zeros::<f32>(3)?;
/// // SAFETY: with 3 work-items draw writes the 3 elements of y only.
/// unsafe { draw.launch(3, (Line { slope: 2.0, offset: 0.5 }, &y)) }?;
/// assert_eq!(y.to_vec::<f32>()?, [0.5, 2.5, 4.5]);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// A structure without a defined layout, or with a field that a kernel cannot take, does not compile:
///
/// ```compile_fail
/// #[derive(usmq::KernelStruct, Clone, Copy)] // add #[repr(C)]
/// struct Line {
///     slope: f32,
/// }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(usmq::KernelStruct, Clone, Copy)]
/// #[repr(C)]
/// struct Named {
///     name: &'static str, // does not implement KernelField
/// }
/// ```
///
/// ```compile_fail
/// #[derive(usmq::KernelStruct, Clone, Copy)]
/// #[repr(C)]
/// struct Pair<T> { // is generic
///     first: T,
/// }
/// ```
pub use usmq_derive::KernelStruct;
