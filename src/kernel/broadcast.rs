//! The common shape of arrays, their strides in it, and overlaps between them.

use crate::array::{Array, Shape, Strides};

/// The shape to which all of these broadcast. Source: numpy's rules.
pub(super) fn common_shape<'a>(shapes: impl Iterator<Item = &'a [usize]> + Clone) -> Option<Shape> {
    let ndim = shapes.clone().map(<[usize]>::len).max().unwrap_or(0);
    let mut common = Shape::from_elem(1, ndim);
    for shape in shapes {
        for (all, extent) in common.iter_mut().rev().zip(shape.iter().rev()) {
            match (*all, *extent) {
                (_, 1) => {}
                (1, extent) => *all = extent,
                (all, extent) if all == extent => {}
                _ => return None,
            }
        }
    }
    Some(common)
}

/// The strides of an array in a shape to which it broadcasts: 0 where it repeats.
pub(super) fn strides_in(array: &Array, shape: &[usize]) -> Strides {
    let missing = shape.len() - array.ndim();
    let own = array.shape().iter().zip(array.strides());
    let own = own.map(|(extent, stride)| if *extent == 1 { 0 } else { *stride });
    std::iter::repeat_n(0, missing).chain(own).collect()
}

/// Whether two indices of this shape may lead to one element.
pub(super) fn repeats(shape: &[usize], strides: &[isize]) -> bool {
    if shape.contains(&0) {
        return false;
    }
    let mut axes: Vec<(usize, usize)> = strides
        .iter()
        .zip(shape)
        .filter(|(_, extent)| **extent > 1)
        .map(|(stride, extent)| (stride.unsigned_abs(), *extent))
        .collect();
    axes.sort_unstable();
    let mut reach = 0usize;
    axes.into_iter().any(|(stride, extent)| {
        let overlaps = stride <= reach;
        reach = reach.saturating_add(stride.saturating_mul(extent - 1));
        overlaps
    })
}

/// How the memory of two arrays of one launch relates.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    /// No byte is shared.
    None,
    /// Element i is the same memory in both.
    Same,
    /// Elements of different numbers may share memory.
    Mixed,
}

/// `strides`: of both in the common shape of the launch; `None` for an array that is used as a whole.
pub(super) fn overlap(a: (&Array, Option<&[isize]>), b: (&Array, Option<&[isize]>)) -> Overlap {
    let ((a, in_a), (b, in_b)) = (a, b);
    let is_same_place = a.address() == b.address() && a.dtype().itemsize() == b.dtype().itemsize();
    if is_same_place && in_a.is_some() && in_a == in_b {
        return Overlap::Same;
    }
    if a.shares_bytes(b) { Overlap::Mixed } else { Overlap::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(shapes: &[&[usize]]) -> Option<Vec<usize>> {
        common_shape(shapes.iter().copied()).map(|shape| shape.to_vec())
    }

    #[test]
    fn shapes_broadcast_as_in_numpy() {
        assert_eq!(common(&[]), Some(vec![]));
        assert_eq!(common(&[&[], &[3]]), Some(vec![3]));
        assert_eq!(common(&[&[2, 1], &[3]]), Some(vec![2, 3]));
        assert_eq!(common(&[&[2, 1, 4], &[5, 1], &[1]]), Some(vec![2, 5, 4]));
        assert_eq!(common(&[&[1], &[0]]), Some(vec![0]));
        assert_eq!(common(&[&[2], &[3]]), None);
        assert_eq!(common(&[&[2], &[0]]), None);
    }

    #[test]
    fn strides_that_lead_to_one_element_twice_are_found() {
        assert!(!repeats(&[2, 3], &[3, 1]));
        assert!(!repeats(&[3, 2], &[1, 3]));
        assert!(!repeats(&[4], &[-1]));
        assert!(!repeats(&[1, 5], &[0, 1]));
        assert!(!repeats(&[0, 2], &[0, 0]));
        assert!(repeats(&[2], &[0]));
        assert!(repeats(&[3, 3], &[1, 1]));
        assert!(repeats(&[2, 3], &[2, 1]));
    }
}
