//! `arange`: evenly spaced values.

use super::{Array, DType, Number, bytes_of};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};

impl Array {
    /// `first`, `first + step`, … up to `end`, which is not included. Computed as numpy does: `first + i * step`.
    ///
    /// # Errors
    /// [`Error::Value`] for a zero step or a value that is no `dtype`, [`Error::Allocation`] when memory is short.
    pub fn arange(
        first: impl Into<Number>,
        end: impl Into<Number>,
        step: impl Into<Number>,
        dtype: DType,
        kind: UsmKind,
        queue: &Queue,
    ) -> Result<Self> {
        let (first, end, step) = (first.into(), end.into(), step.into());
        let values = match (first.whole(), end.whole(), step.whole()) {
            (Some(first), Some(end), Some(step)) => whole(first, end, step, dtype)?,
            _ => real(number(first)?, number(end)?, number(step)?, dtype)?,
        };
        let array = Self::uninit([values.len() / dtype.itemsize()], dtype, kind, queue)?;
        array.upload(&values)?;
        Ok(array)
    }
}

fn number(number: Number) -> Result<f64> {
    number.real().ok_or_else(|| Error::Value(format!("arange takes real numbers, not {number}")))
}

fn too_many() -> Error {
    Error::Value("arange has more values than the address space".to_owned())
}

fn whole(first: i128, end: i128, step: i128, dtype: DType) -> Result<Vec<u8>> {
    if step == 0 {
        return Err(Error::Value("arange needs a step that is not 0".to_owned()));
    }
    let distance = if step > 0 { end - first } else { first - end };
    let count = if distance <= 0 { 0 } else { (distance - 1) / step.abs() + 1 };
    collect((0..count).map(|i| Number::Int(first + i * step)), count as f64, dtype)
}

fn real(first: f64, end: f64, step: f64, dtype: DType) -> Result<Vec<u8>> {
    let count = ((end - first) / step).ceil();
    if !count.is_finite() {
        return Err(Error::Value(format!("arange from {first} to {end} by {step} has no number of values")));
    }
    let count = count.max(0.0);
    if count > isize::MAX as f64 {
        return Err(too_many());
    }
    let values = (0..count as usize).map(|i| first + i as f64 * step);
    if dtype == DType::F64 {
        return Ok(bytes_of(&values.collect::<Vec<_>>()).to_vec());
    }
    let truncate = !matches!(dtype.family(), super::dtype::Family::Float | super::dtype::Family::Complex);
    let values = values.map(|value| if truncate { Number::Int(value as i128) } else { Number::Float(value) });
    collect(values, count, dtype)
}

fn collect(values: impl Iterator<Item = Number>, count: f64, dtype: DType) -> Result<Vec<u8>> {
    if count * dtype.itemsize() as f64 > isize::MAX as f64 {
        return Err(too_many());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count as usize * dtype.itemsize()).map_err(|_| too_many())?;
    for value in values {
        bytes.extend_from_slice(&value.bytes_as(dtype).map_err(Error::Value)?);
    }
    Ok(bytes)
}
