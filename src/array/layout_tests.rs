//! Tests of the view arithmetic against a plain list of element numbers.

use super::*;
use proptest::prelude::*;

/// Element numbers of a view in C order, computed the slow way.
fn elements(layout: &Layout) -> Vec<isize> {
    let mut all = vec![layout.offset() as isize];
    for (extent, stride) in layout.shape().iter().zip(layout.strides()) {
        all = all.iter().flat_map(|base| (0..*extent).map(move |i| base + i as isize * stride)).collect();
    }
    all
}

fn contiguous(shape: &[usize]) -> Layout {
    Layout::contiguous(shape, 4).unwrap()
}

#[test]
fn zero_and_one_extents_are_contiguous() {
    assert_eq!(contiguous(&[]).size(), 1);
    assert!(contiguous(&[0, 5]).is_contiguous());
    assert_eq!(contiguous(&[0, 5]).extent(), None);
    assert!(contiguous(&[2, 3]).index(&[Index::NewAxis]).unwrap().is_contiguous());
}

#[test]
fn shapes_beyond_the_address_space_are_refused() {
    for shape in [&[usize::MAX][..], &[1 << 40, 1 << 40], &[0, usize::MAX], &[usize::MAX / 4]] {
        assert!(Layout::contiguous(shape, 4).is_err(), "{shape:?}");
    }
    assert!(Layout::foreign(&[2], Some(&[isize::MAX]), 0, 4).is_err());
    assert!(Layout::foreign(&[2, 2], Some(&[isize::MIN, -1]), 0, 1).is_err());
    assert!(Layout::foreign(&[2], Some(&[1]), usize::MAX, 4).is_err());
}

#[test]
fn a_foreign_view_may_be_anywhere_in_the_address_space_but_not_leave_it() {
    let two = Layout::foreign(&[2], Some(&[2]), 0, 4).unwrap();
    let back = Layout::foreign(&[2], Some(&[-2]), 0, 4).unwrap();
    for start in [64, 0x7fff_ffff_f000, isize::MAX as usize - 4, 0xff00_ffff_ffef_0000, usize::MAX - 12] {
        assert_eq!(two.foreign_addresses(start, 4).unwrap(), Some(start..start + 12));
        assert_eq!(back.foreign_addresses(start, 4).unwrap(), Some(start - 8..start + 4));
    }
    for (layout, start) in [(&two, 0), (&two, usize::MAX - 11), (&back, 8), (&back, 4)] {
        assert!(layout.foreign_addresses(start, 4).is_err(), "{layout:?} {start:#x}");
    }
    let half = Layout::foreign(&[2], Some(&[isize::MAX / 4 - 1]), 0, 4).unwrap();
    assert!(half.foreign_addresses(64, 4).is_ok());
    let both = Layout::foreign(&[2, 2], Some(&[isize::MAX / 8, isize::MIN / 8]), 0, 4).unwrap();
    assert!(both.foreign_addresses(1 << 63, 4).is_err(), "more than half of the address space");
    assert_eq!(contiguous(&[0, 3]).foreign_addresses(0, 4).unwrap(), None);
}

#[test]
fn slices_match_python() {
    // (extent, start, stop, step) and what list(range(extent))[start:stop:step] gives.
    for (extent, start, stop, step, expected) in [
        (5, None, None, 1, vec![0, 1, 2, 3, 4]),
        (5, None, None, -1, vec![4, 3, 2, 1, 0]),
        (5, Some(-2), None, 1, vec![3, 4]),
        (5, Some(10), None, -2, vec![4, 2, 0]),
        (5, Some(3), Some(-10), -1, vec![3, 2, 1, 0]),
        (5, Some(-10), Some(10), 3, vec![0, 3]),
        (0, None, None, -1, vec![]),
        (5, Some(4), Some(1), 1, vec![]),
        (5, Some(isize::MIN), Some(isize::MAX), isize::MAX, vec![0]),
    ] {
        let (first, count, by) = resolve(extent, start, stop, step).unwrap();
        let got: Vec<_> = (0..count as isize).map(|i| first as isize + i * by).collect();
        assert_eq!(got, expected, "{start:?}:{stop:?}:{step}");
    }
    assert!(resolve(5, None, None, 0).is_err());
}

#[test]
fn a_step_beyond_the_extent_keeps_a_representable_stride() {
    for step in [isize::MIN, isize::MIN + 1, -(1 << 62), 1 << 62, isize::MAX] {
        let slice = Index::Slice { start: None, stop: None, step: Some(step) };
        let view = contiguous(&[3, 4]).index(&[slice, slice]).unwrap();
        assert_eq!((view.shape(), view.strides()), (&[1, 1][..], &[4, 1][..]), "{step}");
        let inner = view.index(&[slice]).unwrap();
        assert_eq!((inner.shape(), inner.offset()), (&[1, 1][..], view.offset()), "{step}");
    }
    let foreign = Layout::foreign(&[1, 0, 2], Some(&[isize::MAX, isize::MIN, 3]), 0, 8).unwrap();
    assert!(foreign.strides().iter().all(|stride| stride.checked_mul(8).is_some()), "{foreign:?}");
}

#[test]
fn an_index_out_of_bounds_reports_axis_and_extent() {
    let error = contiguous(&[2, 3]).index(&[Index::ALL, Index::At(3)]).unwrap_err().to_string();
    assert!(error.contains("axis 1") && error.contains("extent 3"), "{error}");
    assert!(contiguous(&[2]).index(&[Index::At(0), Index::At(0)]).is_err());
    assert!(contiguous(&[2]).index(&[Index::Ellipsis, Index::Ellipsis]).is_err());
}

#[test]
fn reshape_checks_the_number_of_elements() {
    let layout = contiguous(&[2, 6]);
    assert_eq!(layout.reshape(&[3, -1]).unwrap().unwrap().shape(), [3, 4]);
    for shape in [&[5][..], &[-1, -1], &[-2, -6], &[7, -1], &[isize::MAX, isize::MAX]] {
        assert!(layout.reshape(shape).is_err(), "{shape:?}");
    }
    assert!(contiguous(&[0]).reshape(&[0, -1]).is_err());
    assert_eq!(contiguous(&[0]).reshape(&[0, 5]).unwrap().unwrap().shape(), [0, 5]);
}

fn part() -> impl Strategy<Value = Index> {
    let bound = || prop::option::of(-6isize..6);
    prop_oneof![
        (bound(), bound(), prop::option::of(prop_oneof![-3isize..0, 1isize..4]))
            .prop_map(|(start, stop, step)| Index::Slice { start, stop, step }),
        Just(Index::NewAxis),
    ]
}

proptest! {
    #[test]
    fn a_view_of_a_view_reaches_elements_of_the_view(
        shape in prop::collection::vec(0usize..5, 1..4),
        first in prop::collection::vec(part(), 0..3),
        second in prop::collection::vec(part(), 0..3),
    ) {
        let whole = contiguous(&shape);
        let Ok(view) = whole.index(&first) else { return Ok(()) };
        let Ok(inner) = view.index(&second) else { return Ok(()) };
        let available = elements(&view);
        for element in elements(&inner) {
            prop_assert!(available.contains(&element));
        }
        if let Some((low, high)) = inner.extent() {
            let all = elements(&inner);
            prop_assert_eq!(all.iter().min().copied(), Some(inner.offset() as isize + low));
            prop_assert_eq!(all.iter().max().copied(), Some(inner.offset() as isize + high));
        }
        if inner.is_contiguous() {
            let all = elements(&inner);
            prop_assert!(all.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
    }

    #[test]
    fn merged_axes_visit_the_same_element_pairs(
        shape in prop::collection::vec(1usize..4, 1..5),
        parts in prop::collection::vec(part(), 0..4),
    ) {
        let Ok(view) = contiguous(&shape).index(&parts) else { return Ok(()) };
        let packed = contiguous(view.shape());
        let (extents, ours, theirs) = view.merged(&packed);
        let walk = |strides: &Strides, offset: usize| {
            elements(&Layout { shape: extents.clone(), strides: strides.clone(), offset })
        };
        prop_assert_eq!(walk(&ours, view.offset()), elements(&view));
        prop_assert_eq!(walk(&theirs, 0), elements(&packed));
    }
}
