//! Basic indices as callers write them: positions and ranges, in a tuple.

use super::extents::Extent;
use super::layout::Index;
use std::iter::StepBy;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// One part of a basic index: a position, a range, a range with `step_by`, or an [`Index`].
///
/// `..` is one whole axis. Negative numbers count from the end, as in Python: `-3..` is the last three positions.
///
/// ```
/// use usmq::{Array, IndexPart};
///
/// fn column(x: &Array, part: impl IndexPart) -> usmq::Result<Array> {
///     x.index((.., part))
/// }
///
/// let x = Array::from_slice(&[1, 2, 3, 4])?.reshape((2, 2))?;
/// assert_eq!(column(&x, -1)?.to_vec::<i32>()?, [2, 4]);
/// assert_eq!(column(&x, 0..1)?.shape(), [2, 1]);
/// # Ok::<(), usmq::Error>(())
/// ```
pub trait IndexPart {
    /// The part as an [`Index`].
    fn into_index(self) -> Index;
}

/// A basic index: one part, a tuple of up to 8 parts, or a list of [`Index`]. Parts that are missing at the end are
/// whole axes.
///
/// ```
/// use usmq::{Array, Index};
///
/// let x = Array::from_slice(&[0i32, 1, 2, 3, 4, 5])?.reshape((2, 3))?;
/// assert_eq!(x.index(1)?.to_vec::<i32>()?, [3, 4, 5]);
/// assert_eq!(x.index((.., 1..3))?.to_vec::<i32>()?, [1, 2, 4, 5]);
/// assert_eq!(x.index((-1, (0..3).step_by(2)))?.to_vec::<i32>()?, [3, 5]);
/// assert_eq!(x.index((0, Index::ALL.step_by(-1)))?.to_vec::<i32>()?, [2, 1, 0]);
/// assert_eq!(x.index((Index::NewAxis, 0, ..))?.shape(), [1, 3]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an index of an array",
    note = "pass a position, a range or a tuple of them, such as `(0, .., 1..3)`"
)]
pub trait Indices {
    /// The parts, outermost first.
    fn into_indices(self) -> Vec<Index>;
}

impl Index {
    /// Every `step`-th position of a slice; a negative step reverses the order, and then `start` and `stop` count as
    /// in Python. Positions and new axes do not change.
    #[must_use]
    pub const fn step_by(self, step: isize) -> Self {
        match self {
            Self::Slice { start, stop, .. } => Self::Slice { start, stop, step: Some(step) },
            other => other,
        }
    }

    const fn slice(start: Option<isize>, stop: Option<isize>) -> Self {
        Self::Slice { start, stop, step: None }
    }
}

/// The position after this one, for a range that includes its end.
fn after(last: isize) -> Option<isize> {
    // After position -1, the last one, comes the end.
    if last == -1 { None } else { Some(last.saturating_add(1)) }
}

impl IndexPart for Index {
    fn into_index(self) -> Index {
        self
    }
}

impl<E: Extent> IndexPart for E {
    fn into_index(self) -> Index {
        Index::At(self.to_isize())
    }
}

impl IndexPart for RangeFull {
    fn into_index(self) -> Index {
        Index::ALL
    }
}

impl<E: Extent> IndexPart for Range<E> {
    fn into_index(self) -> Index {
        Index::slice(Some(self.start.to_isize()), Some(self.end.to_isize()))
    }
}

impl<E: Extent> IndexPart for RangeInclusive<E> {
    fn into_index(self) -> Index {
        Index::slice(Some(self.start().to_isize()), after(self.end().to_isize()))
    }
}

impl<E: Extent> IndexPart for RangeFrom<E> {
    fn into_index(self) -> Index {
        Index::slice(Some(self.start.to_isize()), None)
    }
}

impl<E: Extent> IndexPart for RangeTo<E> {
    fn into_index(self) -> Index {
        Index::slice(None, Some(self.end.to_isize()))
    }
}

impl<E: Extent> IndexPart for RangeToInclusive<E> {
    fn into_index(self) -> Index {
        Index::slice(None, after(self.end.to_isize()))
    }
}

/// From the positions of the iterator, which does not show its range. A range from a negative number to a positive one
/// selects nothing.
impl<E: Extent> IndexPart for StepBy<Range<E>>
where
    Self: Iterator<Item = E>,
{
    fn into_index(mut self) -> Index {
        let (count, _) = self.size_hint();
        let Some(start) = self.next().map(Extent::to_isize) else { return Index::slice(Some(0), Some(0)) };
        let step = self.next().map_or(1, |second| second.to_isize().saturating_sub(start));
        let steps = isize::try_from(count.saturating_sub(1)).unwrap_or(isize::MAX);
        let last = start.saturating_add(step.saturating_mul(steps));
        if start < 0 && last >= 0 {
            return Index::slice(Some(0), Some(0));
        }
        Index::slice(Some(start), after(last)).step_by(step)
    }
}

impl<E: Extent> IndexPart for StepBy<RangeFrom<E>>
where
    Self: Iterator<Item = E>,
{
    fn into_index(mut self) -> Index {
        let Some(start) = self.next().map(Extent::to_isize) else { return Index::slice(Some(0), Some(0)) };
        let step = self.next().map_or(1, |second| second.to_isize().saturating_sub(start));
        Index::slice(Some(start), None).step_by(step)
    }
}

impl<T: IndexPart> Indices for T {
    fn into_indices(self) -> Vec<Index> {
        vec![self.into_index()]
    }
}

macro_rules! lists {
    ($([$($generic:tt)*] $type:ty;)*) => {$(
        impl<$($generic)*> Indices for $type {
            fn into_indices(self) -> Vec<Index> {
                self.to_vec()
            }
        }
    )*};
}

lists! {
    [] &[Index];
    [const N: usize] &[Index; N];
    [] Vec<Index>;
    [] &Vec<Index>;
}

macro_rules! implement {
    ($($name:ident)*) => {
        impl<$($name: IndexPart),*> Indices for ($($name,)*) {
            fn into_indices(self) -> Vec<Index> {
                let ($($name,)*) = self;
                vec![$($name.into_index()),*]
            }
        }
    };
}

#[allow(non_camel_case_types, reason = "one name stands for the value and its type")]
mod of_tuples {
    use super::{Index, IndexPart, Indices};
    use crate::array::tuples;

    tuples!(implement: () a b c d e f g h);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Layout;

    /// The positions that an index of one axis with 10 positions selects.
    fn selected(part: impl Indices) -> Vec<isize> {
        let layout = Layout::contiguous(&[10], 1).unwrap().index(&part.into_indices()).unwrap();
        let offset = layout.offset() as isize;
        layout.offsets().map(|position| offset + position).collect()
    }

    #[test]
    fn ranges_select_the_positions_that_they_name() {
        assert_eq!(selected(1..4), [1, 2, 3]);
        assert_eq!(selected(1..=4usize), [1, 2, 3, 4]);
        assert_eq!(selected(7..), [7, 8, 9]);
        assert_eq!(selected(..2i64), [0, 1]);
        assert_eq!(selected(..=2), [0, 1, 2]);
        assert_eq!(selected(-3..), [7, 8, 9]);
        assert_eq!(selected(-3..=-1), [7, 8, 9]);
        assert_eq!(selected(-3..-1), [7, 8]);
        assert_eq!(selected(..=-8), [0, 1, 2]);
        assert_eq!(selected(..).len(), 10);
        assert_eq!(selected(5..100usize), [5, 6, 7, 8, 9]);
        assert_eq!(selected(usize::MAX - 1..usize::MAX), [0isize; 0]);
        assert_eq!(selected(-1), [9]);
    }

    #[test]
    fn steps_of_iterators_become_steps_of_slices() {
        assert_eq!(selected((1..8).step_by(3)), [1, 4, 7]);
        assert_eq!(selected((1..7).step_by(3)), [1, 4]);
        assert_eq!(selected((4..5usize).step_by(9)), [4]);
        assert_eq!(selected((5..5).step_by(2)), [0isize; 0]);
        assert_eq!(selected((6..).step_by(2)), [6, 8]);
        assert_eq!(selected((-4..-1).step_by(2)), [6, 8]);
        assert_eq!(selected((-5..0).step_by(2)), [5, 7, 9]);
        assert_eq!(selected((-2..3).step_by(2)), [0isize; 0]);
        assert_eq!(selected((0..i64::MAX).step_by(usize::MAX >> 1)), [0]);
        assert_eq!(selected(Index::ALL.step_by(-4)), [9, 5, 1]);
        assert_eq!(selected(Index::slice(Some(8), Some(2)).step_by(-3)), [8, 5]);
    }

    #[test]
    fn a_zero_step_is_an_error() {
        let layout = Layout::contiguous(&[10], 1).unwrap();
        assert!(layout.index(&[Index::ALL.step_by(0)]).is_err());
    }
}
