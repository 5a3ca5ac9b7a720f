//! The time axis of the picture. Long idle intervals are shortened between break marks, so that the rest
//! stays visible.

use super::scale::step;

/// Width of a shortened interval.
const BREAK: f64 = 20.0;
/// An idle interval is shortened if it is at least this fraction of the remaining time.
const LONG: f64 = 0.05;
/// The largest number of breaks.
const MOST: usize = 9;

/// A segment of the axis: linear from time `from` to `to`, drawn from `left` to `right`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Piece {
    pub from: u64,
    pub to: u64,
    pub left: f64,
    pub right: f64,
    /// Whether this is a shortened idle interval.
    pub is_break: bool,
}

/// Maps times to positions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    pub pieces: Vec<Piece>,
    /// The time between two marks.
    pub step: u64,
}

impl Axis {
    /// Creates an axis from 0 to `end` between two positions. `work` holds the busy intervals of devices, in
    /// any order.
    pub(super) fn new(end: u64, work: &[(u64, u64)], (left, right): (f64, f64)) -> Self {
        let end = end.max(1);
        let breaks = breaks(end, work);
        let skipped: u64 = breaks.iter().map(|(from, to)| to - from).sum();
        let even = (end - skipped).max(1);
        let per = (right - left - BREAK * breaks.len() as f64) / even as f64;
        let mut pieces = Vec::new();
        let (mut time, mut place) = (0, left);
        for (from, to) in breaks.into_iter().chain([(end, end)]) {
            if from > time {
                let width = (from - time) as f64 * per;
                pieces.push(Piece {
                    from: time,
                    to: from,
                    left: place,
                    right: place + width,
                    is_break: false,
                });
                place += width;
            }
            if to > from {
                pieces.push(Piece { from, to, left: place, right: place + BREAK, is_break: true });
                place += BREAK;
            }
            time = to;
        }
        // About 90 units from mark to mark.
        let marks = ((right - left) / 90.0) as u64;
        Self { pieces, step: step(even, marks) }
    }

    /// The position of a time.
    pub(super) fn place(&self, time: u64) -> f64 {
        let piece = self.pieces.iter().find(|piece| time <= piece.to).or(self.pieces.last());
        piece.map_or(0.0, |piece| {
            let part = time.saturating_sub(piece.from) as f64 / (piece.to - piece.from).max(1) as f64;
            piece.left + part.min(1.0) * (piece.right - piece.left)
        })
    }

    /// Round times with space for their text, and their positions.
    pub(super) fn marks(&self, room: f64) -> Vec<(u64, f64)> {
        let mut marks: Vec<(u64, f64)> = Vec::new();
        for piece in self.pieces.iter().filter(|piece| !piece.is_break) {
            let first = piece.from.div_ceil(self.step) * self.step;
            let times = (first..=piece.to).step_by(usize::try_from(self.step).unwrap_or(usize::MAX));
            for time in times {
                let place = self.place(time);
                if marks.last().is_none_or(|(_, last)| place - last >= room) {
                    marks.push((time, place));
                }
            }
        }
        marks
    }
}

/// The longest idle intervals, in order; each is long compared with the remaining time.
fn breaks(end: u64, work: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut spans = work.to_vec();
    spans.sort_unstable();
    let mut gaps = Vec::new();
    let mut until = 0;
    for (from, to) in spans.iter().copied().chain([(end, end)]) {
        if from > until {
            gaps.push((until, from));
        }
        until = until.max(to);
    }
    if spans.is_empty() {
        return Vec::new();
    }
    gaps.sort_by_key(|(from, to)| std::cmp::Reverse(to - from));
    let mut remaining = end;
    let mut found = Vec::new();
    for (from, to) in gaps.into_iter().take(MOST) {
        let gap = to - from;
        if (gap as f64) < LONG * remaining as f64 {
            break;
        }
        // Keep a margin of the interval, so that its neighbours stay separate.
        let margin = gap / 50;
        let margin = margin.min((remaining - gap) / 50);
        found.push((if from == 0 { 0 } else { from + margin }, if to == end { end } else { to - margin }));
        remaining -= gap;
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_on_an_axis_never_decrease() {
        let work = [(1_000, 2_000), (2_000, 2_500), (900_000, 901_000), (901_500, 902_000)];
        let axis = Axis::new(1_000_000, &work, (100.0, 1100.0));
        let ends = (axis.pieces.first().unwrap().left, axis.pieces.last().unwrap().right);
        assert!((ends.0 - 100.0).abs() < 1e-6 && (ends.1 - 1100.0).abs() < 1e-6, "{ends:?}");
        assert!(axis.pieces.windows(2).all(|two| two[0].to == two[1].from && two[0].right == two[1].left));
        let places: Vec<f64> = (0..=1_000_000).step_by(500).map(|time| axis.place(time)).collect();
        assert!(places.windows(2).all(|two| two[0] <= two[1]), "{axis:?}");
    }

    #[test]
    fn long_idle_gaps_are_shortened_and_work_is_not() {
        let work = [(0, 1_000), (1_000_000, 1_001_000)];
        let axis = Axis::new(1_001_000, &work, (0.0, 1000.0));
        for (from, to) in work {
            assert!(axis.place(to) - axis.place(from) > 300.0, "{axis:?}");
        }
        let busy: Vec<(u64, u64)> = (0..100).map(|n| (n * 10, n * 10 + 10)).collect();
        assert!(Axis::new(1_000, &busy, (0.0, 1000.0)).pieces.iter().all(|piece| !piece.is_break));
        assert!(Axis::new(1_000, &[], (0.0, 1000.0)).pieces.iter().all(|piece| !piece.is_break));
    }

    #[test]
    fn marks_are_round_numbers_with_space_between_them() {
        let work = [(0, 1_000), (1_000_000, 1_001_000), (5_000_000, 5_003_000)];
        let axis = Axis::new(6_000_000, &work, (0.0, 1000.0));
        let marks = axis.marks(60.0);
        assert!(!marks.is_empty());
        assert!(marks.iter().all(|(time, _)| time % axis.step == 0));
        assert!(marks.windows(2).all(|two| two[1].1 - two[0].1 >= 60.0), "{marks:?}");
    }
}
