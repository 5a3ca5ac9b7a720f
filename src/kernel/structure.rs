//! Structures as kernel arguments: `kernel_struct!` writes a structure that converts into an argument.
//!
//! A declarative macro, so that the package needs no second one for a derive macro. It copies the fields one by one
//! into zeroed bytes, so that padding is never read, and needs no `unsafe` and no promise of the user.

use crate::array::{Element, bytes_of};

/// A value that is part of a kernel's argument: a number, an array of such values, or a structure of
/// [`kernel_struct!`](crate::kernel_struct).
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

/// Declares structures that are arguments of kernels, by value: `#[repr(C)]`, `Copy`, and [`Into`]`<`[`Arg`](crate::Arg)`>`.
///
/// Each field is a number that can be an element of an array, an array of fields, or another structure of this macro.
/// The layout is that of C, which is the one of the kernel's compiler for the same structure of built-in types. Write
/// `float v[4]` there for `[f32; 4]` here: the vector `float4` has another alignment.
///
/// ```
/// use usmq::{Array, Kernel, kernel_struct};
///
/// kernel_struct! {
///     /// The same structure as in the kernel.
///     #[derive(Debug, PartialEq)]
///     pub struct Line {
///         pub slope: f32,
///         pub offset: f64,
///     }
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
#[macro_export]
macro_rules! kernel_struct {
    ($($(#[$attribute:meta])* $visible:vis struct $name:ident {
        $($(#[$note:meta])* $field_visible:vis $field:ident: $type:ty),+ $(,)?
    })+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $visible struct $name {
            $($(#[$note])* $field_visible $field: $type,)+
        }

        impl $crate::KernelField for $name {
            fn write_to(&self, bytes: &mut [u8]) {
                $({
                    let start = ::core::mem::offset_of!($name, $field);
                    let end = start + ::core::mem::size_of::<$type>();
                    <$type as $crate::KernelField>::write_to(&self.$field, &mut bytes[start..end]);
                })+
            }
        }

        impl ::core::convert::From<$name> for $crate::Arg<'_> {
            fn from(value: $name) -> Self {
                let mut bytes = [0u8; ::core::mem::size_of::<$name>()];
                $crate::KernelField::write_to(&value, &mut bytes);
                Self::bytes(&bytes)
            }
        }
    )+};
}
