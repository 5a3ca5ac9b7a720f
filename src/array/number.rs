//! Numbers without a type, as Python has them, and their bytes as any dtype. Pure.

use super::{DType, bytes_of};
use num_complex::Complex;
use smallvec::SmallVec;
use std::fmt;

/// A number that has no dtype yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A real number.
    Float(f64),
    /// A complex number.
    Complex(Complex<f64>),
}

type Bytes = SmallVec<[u8; 16]>;

impl Number {
    /// The value as a whole number, if it is of such a kind.
    pub(super) fn whole(self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(value.into()),
            Self::Int(value) => Some(value),
            Self::Float(_) | Self::Complex(_) => None,
        }
    }

    /// The value as a real number, unless it is of the complex kind.
    pub(super) fn real(self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(value),
            Self::Complex(_) => None,
            Self::Bool(_) | Self::Int(_) => self.whole().map(|value| value as f64),
        }
    }

    /// The bytes of this number as a `dtype`, or why it is none: a fraction is no integer, 300 is no uint8.
    pub(crate) fn bytes_as(self, dtype: DType) -> Result<Bytes, String> {
        let refuse = || format!("{self} is no {dtype}");
        macro_rules! int {
            ($type:ty) => {
                <$type>::try_from(self.whole().ok_or_else(refuse)?)
                    .map_err(|_| refuse())?
                    .to_le_bytes()
                    .as_slice()
                    .into()
            };
        }
        let real = || self.real().ok_or_else(refuse);
        Ok(match dtype {
            DType::Bool => match self.whole() {
                Some(value @ (0 | 1)) => [value as u8].as_slice().into(),
                _ => return Err(refuse()),
            },
            DType::I8 => int!(i8),
            DType::I16 => int!(i16),
            DType::I32 => int!(i32),
            DType::I64 => int!(i64),
            DType::U8 => int!(u8),
            DType::U16 => int!(u16),
            DType::U32 => int!(u32),
            DType::U64 => int!(u64),
            DType::F16 => half::f16::from_f64(real()?).to_le_bytes().as_slice().into(),
            DType::BF16 => half::bf16::from_f64(real()?).to_le_bytes().as_slice().into(),
            DType::F32 => (real()? as f32).to_le_bytes().as_slice().into(),
            DType::F64 => real()?.to_le_bytes().as_slice().into(),
            DType::C64 => {
                let value = self.complex();
                bytes_of(&[Complex::new(value.re as f32, value.im as f32)]).into()
            }
            DType::C128 => bytes_of(&[self.complex()]).into(),
        })
    }

    fn complex(self) -> Complex<f64> {
        match self {
            Self::Complex(value) => value,
            other => Complex::new(other.real().unwrap_or(f64::NAN), 0.0),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Complex(value) => value.fmt(f),
        }
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Int(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_becomes_only_what_it_is() {
        for (number, dtype, fits) in [
            (Number::Int(255), DType::U8, true),
            (Number::Int(256), DType::U8, false),
            (Number::Int(-1), DType::U64, false),
            (Number::Int(2), DType::Bool, false),
            (Number::Bool(true), DType::I8, true),
            (Number::Float(2.0), DType::I32, false),
            (Number::Float(f64::NAN), DType::F16, true),
            (Number::Int(3), DType::C64, true),
            (Number::Complex(Complex::new(1.0, 0.0)), DType::F64, false),
        ] {
            let bytes = number.bytes_as(dtype);
            assert_eq!(bytes.is_ok(), fits, "{number} as {dtype}");
            if let Ok(bytes) = bytes {
                assert_eq!(bytes.len(), dtype.itemsize());
            }
        }
    }
}
