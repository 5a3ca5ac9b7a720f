//! Avoidable copies, and how to avoid them.

use super::{Event, Kind, Profile, Reason};
use crate::error::{size, spelled};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An avoidable cost, and its fix.
///
/// ```
/// use usmq::{Array, profile::Session};
///
/// let session = Session::start();
/// Array::from_slice(&[1f32, 2.0])?.to_vec::<f32>()?;
/// let profile = session.finish()?;
/// for advice in profile.advice() {
///     println!("{}; {}", advice.seen, advice.fix);
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The observation.
    pub seen: String,
    /// The fix.
    pub fix: &'static str,
    /// The source line, if known.
    pub source: Option<String>,
}

/// `3 copies for collocate moved 6.0 MiB (job.py:12): …`.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.seen)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        write!(f, ": {}", self.fix)
    }
}

/// The number of calls of one line that make a pattern.
const OFTEN: usize = 3;

impl Profile {
    /// Avoidable copies, those with most bytes first.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        let mut lines: BTreeMap<(Reason, Option<&str>), Vec<&Event>> = BTreeMap::new();
        for event in self.of_kind(Kind::Copy) {
            lines.entry((event.reason, event.source.as_deref())).or_default().push(event);
        }
        let mut found: Vec<(u64, Advice)> = lines
            .into_iter()
            .filter_map(|((reason, source), events)| {
                let bytes: u64 = events.iter().map(|event| event.bytes).sum();
                let fix = fix_for(reason, calls(&events))?;
                let seen = format!("{} for {} moved {}", copies(events.len()), reason.name(), size(bytes));
                Some((bytes, Advice { seen, fix, source: source.map(str::to_owned) }))
            })
            .collect();
        found.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        found.into_iter().map(|(_, advice)| advice).collect()
    }
}

/// The number of calls of a line; without known lines, each copy counts.
fn calls(events: &[&Event]) -> usize {
    let calls: BTreeSet<_> = events.iter().map(|event| (event.thread, event.call)).collect();
    if events.iter().all(|event| event.source.is_none()) { events.len() } else { calls.len() }
}

fn copies(count: usize) -> String {
    if count == 1 { "1 copy".to_owned() } else { format!("{count} copies") }
}

fn fix_for(reason: Reason, calls: usize) -> Option<&'static str> {
    match reason {
        Reason::ContextMismatch => {
            Some("create the data on the device that uses it, or collocate it once and keep the result")
        }
        Reason::Collocate => Some(
            "create the data on the device that uses it; devices cannot access the device memory of others",
        ),
        Reason::Contiguity => {
            Some("keep a contiguous copy() of the view, or choose a layout in which the views are contiguous")
        }
        Reason::Conversion => Some("create the data with the dtype and USM kind that its consumers need"),
        Reason::Import if calls >= OFTEN => Some("import the data once and keep the array"),
        Reason::HostRead if calls >= OFTEN => Some(spelled(
            "read once after the loop, or read shared or host USM in place (host_view)",
            "read once after the loop",
        )),
        Reason::HostWrite if calls >= OFTEN => {
            Some("write once before the loop, or let the host write to shared or host USM in place")
        }
        Reason::HostArgument if calls >= OFTEN => Some(
            "copy the data to an array once, and pass the array; or use a device with usm_system_allocations",
        ),
        _ => None,
    }
}
