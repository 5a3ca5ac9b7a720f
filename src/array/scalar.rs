//! Untyped numbers, as Python has them, and their bytes as any dtype. Pure.

use super::DType;
use num_complex::Complex;
use std::fmt;

/// A number that has no dtype yet.
///
/// ```
/// use usmq::Scalar;
///
/// assert_eq!(Scalar::from(3i64), Scalar::Int(3));
/// assert_eq!(Scalar::from(0.5).to_string(), "0.5");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A real number.
    Float(f64),
    /// A complex number.
    Complex(Complex<f64>),
}

impl Scalar {
    /// The value as a whole number, if it is an integer or a bool.
    pub(super) fn whole(self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(value.into()),
            Self::Int(value) => Some(value),
            Self::Float(_) | Self::Complex(_) => None,
        }
    }

    /// The value as a real number, unless it is complex.
    pub(super) fn real(self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(value),
            Self::Complex(_) => None,
            Self::Bool(_) | Self::Int(_) => self.whole().map(|value| value as f64),
        }
    }

    /// The value for an integer type of these bounds.
    pub(super) fn to_whole(self, dtype: DType, least: i128, most: i128) -> Result<i128, String> {
        let whole = self.whole().ok_or_else(|| format!("{self} is not an integer, which {dtype} needs"))?;
        if (least..=most).contains(&whole) {
            return Ok(whole);
        }
        Err(format!("{self} is out of range for {dtype} ({least} to {most})"))
    }

    pub(super) fn to_real(self, dtype: DType) -> Result<f64, String> {
        self.real().ok_or_else(|| format!("{self} is complex, and {dtype} is real"))
    }

    /// Rounds this number's real or imaginary part. A finite number must not silently become infinite.
    pub(super) fn rounded<T: Copy + Into<f64>>(
        self,
        part: f64,
        dtype: DType,
        round: fn(f64) -> T,
        most: T,
    ) -> Result<T, String> {
        let rounded = round(part);
        if part.is_finite() && rounded.into().is_infinite() {
            return Err(format!("{self} is out of range for {dtype} (largest {:e})", most.into()));
        }
        Ok(rounded)
    }

    pub(super) fn complex(self) -> Complex<f64> {
        match self {
            Self::Complex(value) => value,
            other => Complex::new(other.real().unwrap_or(f64::NAN), 0.0),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            // With a point or an exponent: 2.0 differs from 2, and 1e300 has no 300 zeros.
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Complex(Complex { re, im }) => write!(f, "{re:?}{im:+?}i"),
        }
    }
}

impl From<i64> for Scalar {
    fn from(value: i64) -> Self {
        Self::Int(value.into())
    }
}

impl From<f64> for Scalar {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_converts_only_without_loss() {
        for (number, dtype, fits) in [
            (Scalar::Int(255), DType::U8, true),
            (Scalar::Int(256), DType::U8, false),
            (Scalar::Int(-1), DType::U64, false),
            (Scalar::Int(2), DType::Bool, false),
            (Scalar::Bool(true), DType::I8, true),
            (Scalar::Float(2.0), DType::I32, false),
            (Scalar::Float(f64::NAN), DType::F16, true),
            (Scalar::Int(3), DType::C64, true),
            (Scalar::Complex(Complex::new(1.0, 0.0)), DType::F64, false),
            (Scalar::Int(1 << 100), DType::F32, true),
            (Scalar::Int(1 << 100), DType::U64, false),
            (Scalar::Int(65_519), DType::F16, true),
            (Scalar::Int(65_520), DType::F16, false),
            (Scalar::Float(1e39), DType::F32, false),
            (Scalar::Float(1e39), DType::BF16, false),
            (Scalar::Float(1e39), DType::C64, false),
            (Scalar::Complex(Complex::new(0.0, -1e39)), DType::C64, false),
            (Scalar::Complex(Complex::new(0.0, -1e39)), DType::C128, true),
            (Scalar::Float(f64::NEG_INFINITY), DType::F32, true),
        ] {
            let bytes = number.bytes_as(dtype);
            assert_eq!(bytes.is_ok(), fits, "{number} as {dtype}");
            if let Ok(bytes) = bytes {
                assert_eq!(bytes.len(), dtype.itemsize());
            }
        }
    }
}
