//! `arange`: evenly spaced values.

use super::{Array, DType, Family, Scalar};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};

impl Array {
    /// `first`, `first + step`, … up to `end`, which is not included. Computed as numpy does: `first + i *
    /// step`.
    ///
    /// # Errors
    /// [`Error::Value`] for a zero step or a value that is not a `dtype`, [`Error::Allocation`] if memory is
    /// short.
    pub fn arange(
        first: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        dtype: DType,
        kind: UsmKind,
        queue: &Queue,
    ) -> Result<Self> {
        let (first, end, step) = (first.into(), end.into(), step.into());
        let counted = match (first.whole(), end.whole(), step.whole()) {
            (Some(first), Some(end), Some(step)) => Counted::whole(first, end, step)?,
            _ => Counted::real(number(first)?, number(end)?, number(step)?)?,
        };
        let array = Self::uninit([counted.count()], dtype, kind, queue)?;
        array.upload(|bytes| counted.write(dtype, bytes))?;
        Ok(array)
    }
}

/// Values that are computed, but not yet stored.
enum Counted {
    Whole { count: usize, first: i128, step: i128 },
    Real { count: usize, first: f64, step: f64 },
}

impl Counted {
    fn whole(first: i128, end: i128, step: i128) -> Result<Self> {
        if step == 0 {
            return Err(Error::value("arange needs a nonzero step"));
        }
        let ahead = if step > 0 { end > first } else { end < first };
        let count = if ahead { (end.abs_diff(first) - 1) / step.unsigned_abs() + 1 } else { 0 };
        let count = usize::try_from(count).map_err(|_| too_many())?;
        Ok(Self::Whole { count, first, step })
    }

    fn real(first: f64, end: f64, step: f64) -> Result<Self> {
        let count = ((end - first) / step).ceil();
        if !count.is_finite() {
            return Err(Error::value(format!(
                "arange from {first} to {end} by {step} does not have a finite number of values"
            )));
        }
        if count > isize::MAX as f64 {
            return Err(too_many());
        }
        Ok(Self::Real { count: count.max(0.0) as usize, first, step })
    }

    fn count(&self) -> usize {
        match *self {
            Self::Whole { count, .. } | Self::Real { count, .. } => count,
        }
    }

    fn write(&self, dtype: DType, bytes: &mut [u8]) -> Result<()> {
        let places = bytes.chunks_exact_mut(dtype.itemsize());
        match *self {
            // The value is before `end`, so it fits, even where the product alone overflows.
            Self::Whole { first, step, .. } => {
                put(places, dtype, |i| Scalar::Int(first.wrapping_add((i as i128).wrapping_mul(step))))
            }
            Self::Real { first, step, .. } if !matches!(dtype.family(), Family::Float | Family::Complex) => {
                put(places, dtype, |i| match first + i as f64 * step {
                    value if value.fract() == 0.0 => Scalar::Int(value as i128),
                    value => Scalar::Float(value),
                })
            }
            Self::Real { first, step, .. } if dtype == DType::F64 => {
                let values = (0..).map(|i: usize| first + i as f64 * step);
                places.zip(values).for_each(|(place, value)| place.copy_from_slice(&value.to_le_bytes()));
                Ok(())
            }
            Self::Real { first, step, .. } => put(places, dtype, |i| Scalar::Float(first + i as f64 * step)),
        }
    }
}

fn put<'a>(
    places: impl Iterator<Item = &'a mut [u8]>,
    dtype: DType,
    value: impl Fn(usize) -> Scalar,
) -> Result<()> {
    for (i, place) in places.enumerate() {
        place.copy_from_slice(&value(i).bytes_as(dtype).map_err(Error::value)?);
    }
    Ok(())
}

fn number(number: Scalar) -> Result<f64> {
    number.real().ok_or_else(|| Error::value(format!("arange takes real numbers, not {number}")))
}

fn too_many() -> Error {
    Error::value("arange has more values than fit in the address space")
}
