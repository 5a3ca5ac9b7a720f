//! Arrays joined along one axis.

use super::follow::follow;
use crate::array::{Array, Index, axis_position};
use crate::device::UsmKind;
use crate::error::{Error, Result, spelled};

/// A new array that holds `arrays` one after the other along `axis`, which counts from the end if negative; with
/// `None`, all elements on one axis. It is on the queue of the arrays, in USM of their kind, or in device USM if they
/// differ in kind. Returns before the copies are complete.
///
/// ```
/// use usmq::{Array, concatenate};
///
/// let (a, b) = (Array::from_slice(&[1i32, 2])?, Array::from_slice(&[3i32])?);
/// assert_eq!(concatenate(&[&a, &b], 0)?.to_vec::<i32>()?, [1, 2, 3]);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Placement`] if the arrays are on different queues; [`Error::Type`] if the dtypes differ; [`Error::Value`]
/// without arrays, for arrays without axes, and if other extents than those of `axis` differ; [`Error::Index`] for an
/// axis that does not exist; [`Error::Allocation`] when memory is short.
pub fn concatenate(arrays: &[&Array], axis: impl Into<Option<isize>>) -> Result<Array> {
    check(arrays, "concatenate")?;
    match axis.into() {
        Some(axis) => along(arrays, axis),
        None => {
            let flat = arrays.iter().map(|array| array.ravel()).collect::<Result<Vec<_>>>()?;
            along(&flat.iter().collect::<Vec<_>>(), 0)
        }
    }
}

/// As [`concatenate`], along a new axis. All arrays have one shape.
///
/// ```
/// use usmq::{Array, stack};
///
/// let (a, b) = (Array::from_slice(&[1i32, 2])?, Array::from_slice(&[3i32, 4])?);
/// let rows = stack(&[&a, &b], 0)?;
/// assert_eq!((rows.shape(), rows.to_vec::<i32>()?), (&[2, 2][..], vec![1, 2, 3, 4]));
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// As [`concatenate`]; [`Error::Value`] if the shapes differ.
pub fn stack(arrays: &[&Array], axis: isize) -> Result<Array> {
    let first = check(arrays, "stack")?;
    if let Some(number) = arrays.iter().position(|array| array.shape() != first.shape()) {
        return Err(Error::value(format!(
            "array {number} of shape {:?} cannot be stacked on array 0 of shape {:?}: the shapes must be equal",
            arrays[number].shape(),
            first.shape()
        )));
    }
    let rows = arrays.iter().map(|array| array.expand_dims([axis])).collect::<Result<Vec<_>>>()?;
    along(&rows.iter().collect::<Vec<_>>(), axis)
}

/// Checks number and dtypes, and returns the first array.
fn check<'a>(arrays: &[&'a Array], what: &str) -> Result<&'a Array> {
    let Some(first) = arrays.first() else {
        return Err(Error::value(format!("{what} needs at least one array")));
    };
    let wanted = first.dtype();
    match arrays.iter().position(|array| array.dtype() != wanted) {
        None => Ok(first),
        Some(number) => {
            let fix = spelled("astype()", "Array::cast");
            let found = arrays[number].dtype();
            let message = format!(
                "array 0 has dtype {wanted}, but array {number} has {found}; convert one of them with {fix}"
            );
            Err(Error::type_mismatch(wanted, found, message))
        }
    }
}

fn along(arrays: &[&Array], axis: isize) -> Result<Array> {
    let Some(first) = arrays.first() else { return Err(Error::value("no arrays")) };
    if first.ndim() == 0 {
        return Err(Error::value(format!(
            "arrays without axes cannot be concatenated; {} joins them along a new axis",
            spelled("stack()", "stack")
        )));
    }
    let axis = axis_position(axis, first.ndim()).ok_or_else(|| Error::no_axis(axis, first.shape()))?;
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for (number, array) in arrays.iter().enumerate() {
        let other = array.shape();
        let has_extent = |at: usize| at == axis || other[at] == shape[at];
        if other.len() != shape.len() || !(0..shape.len()).all(has_extent) {
            return Err(Error::value(format!(
                "array {number} of shape {other:?} does not fit array 0 of shape {:?}: only the extents of axis \
                 {axis} may differ",
                first.shape()
            )));
        }
        shape[axis] = shape[axis]
            .checked_add(other[axis])
            .ok_or_else(|| Error::value("the joined array is larger than the address space"))?;
    }
    let queue = follow(arrays)?;
    let kind = first.kind_of_copies();
    let is_common = arrays.iter().all(|array| array.kind_of_copies() == kind);
    let joined =
        Array::uninit(&shape, first.dtype(), if is_common { kind } else { UsmKind::Device }, &queue)?;
    let mut start = 0;
    for array in arrays {
        let stop = start + array.shape()[axis] as isize;
        let mut parts = vec![Index::ALL; axis];
        parts.push(Index::Slice { start: Some(start), stop: Some(stop), step: None });
        joined.index(&parts)?.assign(array)?;
        start = stop;
    }
    Ok(joined)
}
