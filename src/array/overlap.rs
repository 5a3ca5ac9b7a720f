//! Whether two strided views share a byte. Pure.

use super::Layout;
use smallvec::SmallVec;

/// The bytes of a view: the address of its first element, and the positions of the others.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub address: usize,
    pub layout: &'a Layout,
    pub itemsize: usize,
}

/// A step in bytes, and how often it can be taken.
type Step = (i128, i128);

/// Nested views, such as rows, columns and every second element of one array, take fewer tries.
const MAX_TRIES: u32 = 4096;

/// Whether two views share a byte. Also true if that is not decided within [`MAX_TRIES`].
///
/// An element of `a` and one of `b` share a byte if the distance between their addresses is less than the size of the
/// lower one. The distances are sums of the steps of both views, so this looks for numbers of steps whose sum is in
/// that range. It tries the numbers of the largest step, and skips those that the smaller steps cannot complete.
pub(crate) fn shares_bytes(a: View<'_>, b: View<'_>) -> bool {
    let (Some(in_a), Some(in_b)) = (a.bytes(), b.bytes()) else { return false };
    let last_of_b = in_b.1 - b.itemsize as i128;
    let between = in_a.0 - last_of_b;
    let mut steps: SmallVec<[Step; 8]> = a.steps().chain(b.steps()).collect();
    steps.sort_unstable_by(|one, other| other.cmp(one));
    // Equal steps of both views count as one.
    steps.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0 };
        same
    });
    let mut tries = MAX_TRIES;
    reaches(&steps, 1 - a.itemsize as i128 - between, b.itemsize as i128 - 1 - between, &mut tries)
}

impl View<'_> {
    /// The first byte and the one after the last.
    fn bytes(&self) -> Option<(i128, i128)> {
        let (low, high) = self.layout.extent()?;
        let at = |element: isize| self.address as i128 + element as i128 * self.itemsize as i128;
        Some((at(low), at(high) + self.itemsize as i128))
    }

    fn steps(&self) -> impl Iterator<Item = Step> {
        let axes = self.layout.shape().iter().zip(self.layout.strides());
        let taken = axes.filter(|(extent, stride)| **extent > 1 && **stride != 0);
        taken.map(|(extent, stride)| {
            (stride.unsigned_abs() as i128 * self.itemsize as i128, *extent as i128 - 1)
        })
    }
}

/// Whether a sum of steps is between `low` and `high`. `steps` has the largest first.
fn reaches(steps: &[Step], low: i128, high: i128, tries: &mut u32) -> bool {
    if high < 0 || low <= 0 {
        return high >= 0;
    }
    let Some(((step, most), smaller)) = steps.split_first() else { return false };
    let divisor = steps.iter().fold(0, |divisor, (step, _)| gcd(*step, divisor));
    if high.div_euclid(divisor) * divisor < low {
        return false;
    }
    let rest: i128 = smaller.iter().map(|(step, most)| step * most).sum();
    let fewest = ((low - rest).max(0) + step - 1) / step;
    for number in fewest..=(high / step).min(*most) {
        let Some(left) = tries.checked_sub(1) else { return true };
        *tries = left;
        if reaches(smaller, low - number * step, high - number * step, tries) {
            return true;
        }
    }
    false
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn bytes(view: View<'_>) -> HashSet<usize> {
        let first = |offset: isize| view.address.wrapping_add_signed(offset * view.itemsize as isize);
        view.layout.offsets().flat_map(|offset| first(offset)..first(offset) + view.itemsize).collect()
    }

    fn layout(shape: &[usize], strides: &[isize]) -> Layout {
        Layout::foreign(shape, Some(strides), 0, 8).unwrap()
    }

    /// Rows, columns, channels and checkers of one array of 4-byte elements.
    #[test]
    fn interleaved_views_of_one_array_share_nothing() {
        for (a, b) in [
            ((0, &[2, 4][..], &[8, 1][..]), (16, &[2, 4][..], &[8, 1][..])),
            ((0, &[4, 2], &[4, 1]), (8, &[4, 2], &[4, 1])),
            ((0, &[4], &[4]), (4, &[4], &[4])),
            ((16, &[2, 2], &[8, 2]), (4, &[2, 2], &[8, 2])),
            ((0, &[4, 4], &[12, 3]), (8, &[4, 4], &[12, 3])),
            ((48, &[2, 4], &[-8, 1]), (0, &[2, 4], &[8, 1])),
        ] {
            let (of_a, of_b) = (layout(a.1, a.2), layout(b.1, b.2));
            let view = |start: usize, layout| View { address: 0x1000 + start, layout, itemsize: 4 };
            assert!(!shares_bytes(view(a.0, &of_a), view(b.0, &of_b)), "{a:?} {b:?}");
            assert!(shares_bytes(view(a.0, &of_a), view(a.0, &of_a)), "{a:?}");
        }
    }

    #[test]
    fn addresses_of_the_upper_half_are_like_others() {
        let one = layout(&[4], &[2]);
        let at = |address, itemsize| View { address, layout: &one, itemsize };
        let base = 0xff00_ffff_ffef_0000;
        assert!(!shares_bytes(at(base, 4), at(base + 4, 4)));
        assert!(shares_bytes(at(base, 4), at(base + 2, 4)));
        assert!(!shares_bytes(at(base, 4), at(0x1000, 4)));
    }

    #[test]
    fn a_pair_that_takes_too_many_tries_counts_as_shared() {
        let wide = layout(&[1 << 12, 1 << 12, 1 << 12], &[30_000_001, 29_999_983, 29_999_957]);
        let one = layout(&[1], &[1]);
        let far = View { address: (1 << 37) + 1, layout: &one, itemsize: 1 };
        assert!(shares_bytes(View { address: 0, layout: &wide, itemsize: 1 }, far));
    }

    proptest! {
        #[test]
        fn the_answer_is_that_of_the_sets_of_bytes(
            shapes in proptest::array::uniform2(proptest::collection::vec((0usize..4, -7isize..8), 0..4)),
            distance in 0usize..60,
            sizes in proptest::array::uniform2(prop_oneof![Just(1usize), Just(2), Just(4), Just(8)]),
        ) {
            let layouts = shapes.map(|axes| {
                let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
                layout(&shape, &strides)
            });
            let a = View { address: 0x1000, layout: &layouts[0], itemsize: sizes[0] };
            let b = View { address: 0x1000 + distance, layout: &layouts[1], itemsize: sizes[1] };
            let expected = !bytes(a).is_disjoint(&bytes(b));
            prop_assert_eq!(shares_bytes(a, b), expected);
            prop_assert_eq!(shares_bytes(b, a), expected);
        }
    }
}
