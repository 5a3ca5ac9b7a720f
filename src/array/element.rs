//! Rust types that can be elements of an array.

use super::DType;
use num_complex::Complex;

/// A Rust type with the memory layout of a [`DType`].
///
/// # Safety
/// `DTYPE` has the size and the layout of `Self`, `Self` has no padding and no drop, and every pattern of
/// bits that `is_valid` accepts is a value of `Self`.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The element type.
    const DTYPE: DType;

    /// Whether these bytes from a device are a valid value of this type.
    fn is_valid(_bytes: &[u8]) -> bool {
        true
    }
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        // SAFETY: a plain number of the size that DType gives; all its bit patterns are values.
        unsafe impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
        const _: () = assert!(size_of::<$rust>() == DType::$dtype.itemsize());
    )*};
}

elements! {
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    half::f16 => F16, half::bf16 => BF16, f32 => F32, f64 => F64,
    Complex<f32> => C64, Complex<f64> => C128,
}

// SAFETY: one byte, and only 0 and 1 are accepted.
unsafe impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn is_valid(bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| *byte <= 1)
    }
}

/// The bytes of a slice of elements.
pub(crate) fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: an Element has no padding, so every byte is initialised; the length is that of the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
