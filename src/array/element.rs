//! Rust types that can be elements of an array.

use super::{DType, Family, Scalar};
use num_complex::Complex;
use smallvec::SmallVec;
use std::fmt::Display;

/// A Rust type with the memory layout of a [`DType`].
///
/// ```
/// use usmq::{Array, DType, Element};
///
/// fn is_of<T: Element>(array: &Array) -> bool {
///     array.dtype() == T::DTYPE
/// }
///
/// assert_eq!(f32::DTYPE, DType::F32);
/// assert!(is_of::<i64>(&Array::zeros::<i64>(2)?));
/// # Ok::<(), usmq::Error>(())
/// ```
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

/// The conversions of an element, for code that knows its type only at run time.
pub(crate) trait Number: Element + Display {
    /// The number as this type, or why it cannot be represented.
    fn from_scalar(number: Scalar) -> Result<Self, String>;

    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "only Python converts elements so"))]
    fn to_scalar(self) -> Scalar;

    /// The number in an error.
    fn to_text(self) -> String {
        self.to_string()
    }
}

/// The Rust type of each dtype, and the arm of [`implement`] for its conversions.
///
/// `with_element!(dtype, T => expression)` evaluates the expression with `T` as the type of `dtype`.
macro_rules! with_element {
    (@list $($job:tt)+) => {
        $crate::array::with_element! { @$($job)+;
            bool => Bool: truth();
            i8 => I8: whole();
            i16 => I16: whole();
            i32 => I32: whole();
            i64 => I64: whole();
            u8 => U8: whole();
            u16 => U16: whole();
            u32 => U32: whole();
            u64 => U64: whole();
            half::f16 => F16: real(half::f16::from_f64);
            half::bf16 => BF16: real(half::bf16::from_f64);
            f32 => F32: real(|value| value as f32);
            f64 => F64: real(|value| value);
            num_complex::Complex<f32> => C64: complex(|value| value as f32, f32::MAX);
            num_complex::Complex<f64> => C128: complex(|value| value, f64::MAX);
        }
    };
    (@implement; $($type:ty => $dtype:ident: $family:ident $how:tt;)+) => {$(
        // SAFETY: a plain number of the size that DType gives; `is_valid` has the bit patterns that are values.
        unsafe impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            fn is_valid(bytes: &[u8]) -> bool {
                // One byte, 0 or 1. All patterns of other types are values.
                DType::$dtype.family() != Family::Bool || bytes.iter().all(|byte| *byte <= 1)
            }
        }
        const _: () = assert!(size_of::<$type>() == DType::$dtype.itemsize());
        impl Number for $type {
            implement! { $family $how }
        }
    )+};
    (@match $dtype:expr, $T:ident => $body:expr; $($type:ty => $variant:ident: $family:ident $how:tt;)+) => {
        match $dtype {
            $($crate::array::DType::$variant => {
                type $T = $type;
                $body
            })+
        }
    };
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::array::with_element! { @list match $dtype, $T => $body }
    };
}
pub(crate) use with_element;

/// The functions of [`Number`] for one family.
macro_rules! implement {
    (truth()) => {
        fn from_scalar(number: Scalar) -> Result<Self, String> {
            Ok(number.to_whole(Self::DTYPE, 0, 1)? == 1)
        }

        fn to_scalar(self) -> Scalar {
            Scalar::Bool(self)
        }
    };
    (whole()) => {
        fn from_scalar(number: Scalar) -> Result<Self, String> {
            Ok(number.to_whole(Self::DTYPE, Self::MIN.into(), Self::MAX.into())? as Self)
        }

        fn to_scalar(self) -> Scalar {
            Scalar::Int(self.into())
        }
    };
    (real($round:expr)) => {
        fn from_scalar(number: Scalar) -> Result<Self, String> {
            number.rounded(number.to_real(Self::DTYPE)?, Self::DTYPE, $round, Self::MAX)
        }

        fn to_scalar(self) -> Scalar {
            Scalar::Float(self.into())
        }
    };
    (complex($round:expr, $most:expr)) => {
        fn from_scalar(number: Scalar) -> Result<Self, String> {
            let part = |part| number.rounded(part, Self::DTYPE, $round, $most);
            let value = number.complex();
            Ok(Self::new(part(value.re)?, part(value.im)?))
        }

        fn to_scalar(self) -> Scalar {
            Scalar::Complex(Complex::new(self.re.into(), self.im.into()))
        }

        fn to_text(self) -> String {
            format!("{}+{}i", self.re, self.im)
        }
    };
}
with_element!(@list implement);

impl Scalar {
    /// The bytes of this number as a `dtype`, or why the dtype cannot represent it: 0.5 is not an integer,
    /// 300 exceeds uint8, 1e300 exceeds float32. Floats are rounded to the precision of the dtype.
    pub(crate) fn bytes_as(self, dtype: DType) -> Result<SmallVec<[u8; 16]>, String> {
        with_element!(dtype, T => Ok(bytes_of(&[T::from_scalar(self)?]).into()))
    }
}

/// The bytes of a slice of elements.
pub(crate) fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: an Element has no padding, so every byte is initialised; the length is that of the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The element at the start of these bytes, if they hold a valid one.
pub(crate) fn element_of<T: Element>(bytes: &[u8]) -> Option<T> {
    let own = bytes.get(..size_of::<T>()).filter(|own| T::is_valid(own))?;
    // SAFETY: an Element has no padding, and these are as many bytes as it has, which are a valid value.
    Some(unsafe { own.as_ptr().cast::<T>().read_unaligned() })
}
