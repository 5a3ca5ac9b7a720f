//! The access logs of system memory, by range of addresses.
//!
//! System memory belongs to no context and has no known allocation: two views of one numpy array are two
//! ranges, which may overlap in any way. A new range uses the logs of all live ranges that it overlaps, and its
//! own log unless one of them contains it. So of two overlapping ranges, the newer one always uses the log of
//! the older one.

use super::ordered_submit::Log;
use crate::error::Result;
use crate::runtime::ForkMutex;
use once_cell::sync::Lazy;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// The log of one range. It lives while an allocation uses it.
pub(super) struct RangeLog {
    start: usize,
    end: usize,
    pub(super) log: ForkMutex<Log>,
}

#[derive(Default)]
struct Ranges {
    /// By start; ranges may overlap and start together.
    by_start: BTreeMap<usize, SmallVec<[(usize, Weak<RangeLog>); 1]>>,
    /// No range is longer. Grows only, until no range is left.
    longest: usize,
}

static RANGES: Lazy<ForkMutex<Ranges>> = Lazy::new(ForkMutex::default);

impl Drop for RangeLog {
    fn drop(&mut self) {
        let Ok(mut ranges) = RANGES.lock() else { return };
        if let Some(entries) = ranges.by_start.get_mut(&self.start) {
            entries.retain(|(_, log)| log.strong_count() > 0);
            if entries.is_empty() {
                ranges.by_start.remove(&self.start);
            }
        }
        if ranges.by_start.is_empty() {
            ranges.longest = 0;
        }
    }
}

/// The logs that order the uses of the range from `start` to `end`, which is not empty.
pub(super) fn logs_of(start: usize, end: usize) -> Result<SmallVec<[Arc<RangeLog>; 1]>> {
    let mut ranges = RANGES.lock()?;
    let lowest = start.saturating_sub(ranges.longest);
    let near = ranges.by_start.range(lowest..end).flat_map(|(_, entries)| entries);
    let mut logs: SmallVec<[Arc<RangeLog>; 1]> =
        near.filter(|(other, _)| *other > start).filter_map(|(_, log)| log.upgrade()).collect();
    if logs.iter().any(|log| log.start <= start && end <= log.end) {
        return Ok(logs);
    }
    let own = Arc::new(RangeLog { start, end, log: ForkMutex::default() });
    ranges.by_start.entry(start).or_insert_with(|| smallvec![]).push((end, Arc::downgrade(&own)));
    ranges.longest = ranges.longest.max(end - start);
    logs.push(own);
    // The found logs outlive the lock: their last drop takes it.
    drop(ranges);
    Ok(logs)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Logs = SmallVec<[Arc<RangeLog>; 1]>;

    fn share(a: &Logs, b: &Logs) -> bool {
        a.iter().any(|one| b.iter().any(|other| Arc::ptr_eq(one, other)))
    }

    /// Tests run in parallel, so each uses addresses of its own.
    fn at(base: usize) -> impl Fn(usize, usize) -> Logs {
        move |start, end| logs_of(base + start, base + end).unwrap()
    }

    #[test]
    fn overlapping_ranges_share_a_log_in_every_order_of_creation() {
        let logs = at(1 << 40);
        let spans = [(0, 10), (5, 15), (10, 20), (14, 30), (0, 30), (7, 8), (29, 31), (31, 32)];
        for first in 0..spans.len() {
            let order = (0..spans.len()).map(|number| spans[(first + number * 3) % spans.len()]);
            let made: Vec<_> = order.map(|(start, end)| ((start, end), logs(start, end))).collect();
            for ((a, b), one) in &made {
                for ((c, d), other) in &made {
                    assert!(share(one, other) || !(a < d && c < b), "{a}..{b} and {c}..{d}");
                }
            }
        }
    }

    #[test]
    fn separate_ranges_and_equal_ranges() {
        let logs = at(1 << 41);
        let (a, b, again) = (logs(0, 10), logs(10, 20), logs(0, 10));
        assert!(!share(&a, &b));
        assert!(a.len() == 1 && again.len() == 1 && share(&a, &again));
        assert_eq!(logs(2, 3).len(), 1, "a range inside another needs no log of its own");
    }

    #[test]
    fn a_log_lives_as_long_as_its_users() {
        let logs = at(1 << 42);
        let a = logs(0, 10);
        let first = Arc::downgrade(&a[0]);
        let b = logs(5, 15);
        drop(a);
        assert!(first.upgrade().is_some(), "the second range still uses it");
        drop(b);
        assert!(first.upgrade().is_none());
        let entries = RANGES.lock().unwrap().by_start.range(1 << 42..(1 << 42) + 100).count();
        assert_eq!(entries, 0);
    }
}
