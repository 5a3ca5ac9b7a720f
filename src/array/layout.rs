//! Shape, strides and offset of a view: pure arithmetic on element indices.
//!
//! Strides and offset count elements, not bytes. A layout never reaches outside `offset + extent()`, and its
//! total size in bytes fits in `isize`, so address arithmetic on it cannot overflow.

use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::ops::Range;

pub(crate) type Shape = SmallVec<[usize; 4]>;
pub(crate) type Strides = SmallVec<[isize; 4]>;

/// One part of a basic index, as in `x[2, 1:5:2, None]`.
///
/// ```
/// use usmq::{Array, Index};
///
/// let x = Array::from_slice(&[0i32, 1, 2, 3])?;
/// assert_eq!(x.index(Index::ALL.step_by(-1))?.to_vec::<i32>()?, [3, 2, 1, 0]);
/// assert_eq!(x.index((Index::Ellipsis, Index::NewAxis))?.shape(), [4, 1]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// One position; removes the axis. Negative values count from the end.
    At(isize),
    /// `start:stop:step` as Python reads it.
    Slice {
        /// First position; the beginning (or end, for a negative step) when absent.
        start: Option<isize>,
        /// Position after the last; the end (or beginning) when absent.
        stop: Option<isize>,
        /// Never 0; 1 when absent.
        step: Option<isize>,
    },
    /// A new axis of length 1.
    NewAxis,
    /// All remaining axes.
    Ellipsis,
}

impl Index {
    /// The whole axis.
    pub const ALL: Self = Self::Slice { start: None, stop: None, step: None };
}

/// The position of each element of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    shape: Shape,
    strides: Strides,
    offset: usize,
}

impl Layout {
    /// C-contiguous, from offset 0.
    // A call copies the result twice, which takes a tenth of the time of an allocation.
    #[inline(always)]
    pub(crate) fn contiguous(shape: &[usize], itemsize: usize) -> Result<Self> {
        // Huge extents stay invalid beside a zero extent: their strides could not be computed.
        let too_large =
            || Error::value(format!("an array of shape {shape:?} is larger than the address space"));
        let mut bytes = itemsize;
        for extent in shape {
            bytes = bytes.checked_mul((*extent).max(1)).ok_or_else(too_large)?;
        }
        isize::try_from(bytes).map_err(|_| too_large())?;
        let mut strides = Strides::new();
        let mut step = 1;
        for extent in shape.iter().rev() {
            strides.push(step);
            step *= (*extent).max(1) as isize;
        }
        strides.reverse();
        Ok(Self { shape: shape.iter().copied().collect(), strides, offset: 0 })
    }

    /// A foreign view. `None` for strides means C-contiguous. The caller checks [`extent`](Self::extent)
    /// against the size of the memory.
    pub(crate) fn foreign(
        shape: &[usize],
        strides: Option<&[isize]>,
        offset: usize,
        itemsize: usize,
    ) -> Result<Self> {
        let mut layout = Self::contiguous(shape, itemsize)?;
        layout.offset = offset;
        if let Some(strides) = strides {
            if strides.len() != shape.len() {
                return Err(Error::value(format!(
                    "strides {strides:?} and shape {shape:?} have different lengths"
                )));
            }
            // An axis of one element may have any stride, even one that overflows in bytes.
            for ((own, stride), extent) in layout.strides.iter_mut().zip(strides).zip(shape) {
                if *extent > 1 {
                    *own = *stride;
                }
            }
            layout.checked_extent(itemsize).ok_or_else(|| {
                Error::value(format!("strides {strides:?} of shape {shape:?} leave the address space"))
            })?;
        }
        Ok(layout)
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Index of the first element, counted from the start of the allocation.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub(crate) fn size(&self) -> usize {
        self.shape.iter().product()
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        if self.size() == 0 {
            return true;
        }
        let mut expected = 1isize;
        for (extent, stride) in self.shape.iter().zip(&self.strides).rev() {
            if *extent != 1 && *stride != expected {
                return false;
            }
            expected *= *extent as isize;
        }
        true
    }

    /// The lowest and highest element relative to the first; `None` for an empty view.
    pub(crate) fn extent(&self) -> Option<(isize, isize)> {
        if self.size() == 0 { None } else { self.checked_extent(1) }
    }

    fn checked_extent(&self, itemsize: usize) -> Option<(isize, isize)> {
        let (mut low, mut high) = (0isize, 0isize);
        for (extent, stride) in self.shape.iter().zip(&self.strides) {
            let last = isize::try_from(extent.saturating_sub(1)).ok()?.checked_mul(*stride)?;
            if last < 0 {
                low = low.checked_add(last)?;
            } else {
                high = high.checked_add(last)?;
            }
        }
        // The extent in bytes, including the offset, must also fit.
        let offset = isize::try_from(self.offset).ok()?;
        let itemsize = isize::try_from(itemsize).ok()?;
        offset.checked_add(high)?.checked_add(1)?.checked_mul(itemsize)?;
        low.checked_mul(itemsize)?;
        Some((low, high))
    }

    /// The bytes of a view whose first element is at `pointer`; `None` without elements.
    pub(crate) fn addresses(&self, pointer: usize, itemsize: usize) -> Option<Range<usize>> {
        let (low, high) = self.extent()?;
        let at = |element: isize| pointer.wrapping_add_signed(element * itemsize as isize);
        Some(at(low)..at(high).wrapping_add(itemsize))
    }

    /// The same for a foreign pointer: an error if it is null, or if an element would be outside of the address space.
    /// Device memory may be anywhere in it: GPUs of Intel use the upper half.
    pub(crate) fn foreign_addresses(&self, pointer: usize, itemsize: usize) -> Result<Option<Range<usize>>> {
        let Some((low, high)) = self.extent() else { return Ok(None) };
        // `checked_extent` has multiplied both.
        let at = |element: isize| pointer.checked_add_signed(element * itemsize as isize);
        let first = at(low).filter(|first| *first != 0);
        let end = at(high).and_then(|last| last.checked_add(itemsize));
        match (first, end) {
            (Some(first), Some(end)) if end - first <= isize::MAX.unsigned_abs() => Ok(Some(first..end)),
            _ => Err(Error::value(format!(
                "address {pointer:#x}, shape {:?} and strides {:?} leave the address space",
                self.shape, self.strides
            ))),
        }
    }

    /// The position of each element relative to the first, in C order.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = isize> {
        (0..self.size()).map(|number| {
            let mut rest = number;
            let axes = self.shape.iter().zip(&self.strides).rev();
            axes.map(|(extent, stride)| {
                let at = rest % extent;
                rest /= extent;
                at as isize * stride
            })
            .sum()
        })
    }

    /// The same elements in C order with another shape; `None` if that needs a copy. One extent may be -1.
    pub(crate) fn reshape(&self, shape: &[isize]) -> Result<Option<Self>> {
        let shape = self.complete(shape)?;
        if !self.is_contiguous() {
            return Ok(None);
        }
        let mut layout = Self::contiguous(&shape, 1)?;
        layout.offset = self.offset;
        Ok(Some(layout))
    }

    /// Checks a shape against the number of elements and fills in its -1.
    pub(crate) fn complete(&self, shape: &[isize]) -> Result<Shape> {
        let size = self.size();
        let refuse = |why: &str| Error::value(format!("cannot reshape {size} elements to {shape:?}: {why}"));
        if shape.iter().any(|extent| *extent < -1) {
            return Err(refuse("an extent is negative"));
        }
        if shape.iter().filter(|extent| **extent == -1).count() > 1 {
            return Err(refuse("only one extent may be -1"));
        }
        let known = shape
            .iter()
            .filter(|extent| **extent != -1)
            .try_fold(1usize, |product, extent| product.checked_mul(extent.unsigned_abs()))
            .ok_or_else(|| refuse("it is larger than the address space"))?;
        let missing = size.checked_div(known).unwrap_or(0);
        let complete: Shape =
            shape.iter().map(|extent| if *extent == -1 { missing } else { extent.unsigned_abs() }).collect();
        let fits = complete.iter().product::<usize>() == size && !(known == 0 && shape.contains(&-1));
        if fits { Ok(complete) } else { Err(refuse("the numbers of elements differ")) }
    }

    /// Permutes the axes; `axes[i]` is the old number of the new axis `i`.
    pub(crate) fn permute(&self, axes: &[usize]) -> Result<Self> {
        let mut sorted: Shape = axes.into();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.ndim()) {
            return Err(Error::value(format!(
                "{axes:?} is not a permutation of the {} axes of this array",
                self.ndim()
            )));
        }
        Ok(Self {
            shape: axes.iter().map(|axis| self.shape[*axis]).collect(),
            strides: axes.iter().map(|axis| self.strides[*axis]).collect(),
            offset: self.offset,
        })
    }

    /// A basic index with numpy's semantics: missing parts at the end are whole axes.
    pub(crate) fn index(&self, parts: &[Index]) -> Result<Self> {
        let used = parts.iter().filter(|part| matches!(part, Index::At(_) | Index::Slice { .. })).count();
        if used > self.ndim() {
            return Err(Error::index(format!("{used} indices for an array of {} axes", self.ndim())));
        }
        if parts.iter().filter(|part| **part == Index::Ellipsis).count() > 1 {
            return Err(Error::index("an index has at most one ellipsis"));
        }
        let rest = self.ndim() - used;
        let mut view = Self { shape: Shape::new(), strides: Strides::new(), offset: self.offset };
        let mut axis = 0;
        let implied = if parts.contains(&Index::Ellipsis) { None } else { Some(&Index::Ellipsis) };
        for part in parts.iter().chain(implied) {
            match part {
                Index::NewAxis => view.push(1, 0),
                Index::Ellipsis => {
                    for _ in 0..rest {
                        view.push(self.shape[axis], self.strides[axis]);
                        axis += 1;
                    }
                }
                Index::At(position) => {
                    view.advance(self.position(axis, *position)?, self.strides[axis]);
                    axis += 1;
                }
                Index::Slice { start, stop, step } => {
                    let (first, count, step) = resolve(self.shape[axis], *start, *stop, step.unwrap_or(1))?;
                    if count > 0 {
                        view.advance(first, self.strides[axis]);
                    }
                    view.push(count, self.strides[axis] * step);
                    axis += 1;
                }
            }
        }
        Ok(view)
    }

    fn push(&mut self, extent: usize, stride: isize) {
        self.shape.push(extent);
        self.strides.push(stride);
    }

    /// Moves the first element by `count` strides. Stays within the extent of the original view.
    fn advance(&mut self, count: usize, stride: isize) {
        self.offset = self.offset.wrapping_add_signed(stride * count as isize);
    }

    fn position(&self, axis: usize, position: isize) -> Result<usize> {
        let extent = self.shape[axis] as isize;
        let at = if position < 0 { position + extent } else { position };
        if (0..extent).contains(&at) {
            Ok(at.unsigned_abs())
        } else {
            Err(Error::Index {
                message: format!("index {position} is out of range for axis {axis} with extent {extent}"),
                index: Some(position),
                extent: Some(self.shape[axis]),
                axis: Some(axis),
            })
        }
    }

    /// Extents and strides of two views of one shape, with fewer axes where [`merge_axes`] allows it.
    pub(crate) fn merged(&self, other: &Self) -> (Shape, Strides, Strides) {
        let (shape, mut strides) = merge_axes(&self.shape, [self.strides.clone(), other.strides.clone()]);
        (shape, std::mem::take(&mut strides[0]), std::mem::take(&mut strides[1]))
    }
}

/// Merges neighbouring axes of a shape where the strides of all views allow it, and removes axes of extent 1:
/// fewer axes need less arithmetic in a kernel.
pub(crate) fn merge_axes<T: AsMut<[Strides]>>(shape: &[usize], mut views: T) -> (Shape, T) {
    let mut merged = Shape::new();
    let all = views.as_mut();
    let mut ends = 0;
    for (axis, extent) in shape.iter().enumerate() {
        if *extent == 1 {
            continue;
        }
        let joins = ends > 0 && all.iter().all(|view| view[ends - 1] == view[axis] * *extent as isize);
        if joins {
            merged[ends - 1] *= extent;
        } else {
            merged.push(*extent);
            ends += 1;
        }
        for view in all.iter_mut() {
            view[ends - 1] = view[axis];
        }
    }
    for view in all {
        view.truncate(ends);
    }
    (merged, views)
}

/// First position, number of positions and step of a Python slice over `extent` positions. The step is 1 if
/// at most one position is selected, since the given step may be larger than the address space.
fn resolve(
    extent: usize,
    start: Option<isize>,
    stop: Option<isize>,
    step: isize,
) -> Result<(usize, usize, isize)> {
    if step == 0 {
        return Err(Error::value("a slice step cannot be zero"));
    }
    let extent = extent as isize;
    let (lowest, highest) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
    let clamp = |position: isize| {
        let from_start = if position < 0 { position.saturating_add(extent) } else { position };
        from_start.clamp(lowest, highest)
    };
    let first = start.map_or(if step > 0 { lowest } else { highest }, clamp);
    let end = stop.map_or(if step > 0 { highest } else { lowest }, clamp);
    let distance = if step > 0 { end - first } else { first - end };
    let count = if distance <= 0 { 0 } else { (distance.unsigned_abs() - 1) / step.unsigned_abs() + 1 };
    Ok((first.max(0).unsigned_abs(), count, if count > 1 { step } else { 1 }))
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
