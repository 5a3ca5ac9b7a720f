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
        let repeated = self.repeated();
        let mut lines: BTreeMap<(Reason, Option<&str>, usize), Vec<&Event>> = BTreeMap::new();
        for event in self.of_kind(Kind::Copy) {
            let same = if repeated.contains(&origin(event)) { event.host } else { 0 };
            lines.entry((event.reason, event.source.as_deref(), same)).or_default().push(event);
        }
        let mut found: Vec<(u64, Advice)> = lines
            .into_iter()
            .filter_map(|((reason, source, same), events)| {
                let bytes: u64 = events.iter().map(|event| event.bytes).sum();
                let (what, fix) = if same == 0 {
                    let is_foreign = events.iter().all(|event| event.host != 0);
                    (format!("for {}", reason.name()), fix_for(reason, calls(&events), is_foreign)?)
                } else {
                    ("from the same host memory".to_owned(), COPY_ONCE)
                };
                let seen = format!("{} {what} moved {}", copies(events.len()), size(bytes));
                Some((bytes, Advice { seen, fix, source: source.map(str::to_owned) }))
            })
            .collect();
        found.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        found.into_iter().map(|(_, advice)| advice).collect()
    }

    /// The ranges of host memory that lines of the program have copied often.
    fn repeated(&self) -> BTreeSet<Origin<'_>> {
        let mut counts: BTreeMap<Origin<'_>, usize> = BTreeMap::new();
        let written =
            |event: &&Event| event.reason == Reason::HostWrite && event.host != 0 && event.bytes >= LASTING;
        for event in self.of_kind(Kind::Copy).filter(written) {
            *counts.entry(origin(event)).or_default() += 1;
        }
        counts.into_iter().filter(|(_, count)| *count >= OFTEN).map(|(origin, _)| origin).collect()
    }
}

/// Line, address and bytes.
type Origin<'a> = (Option<&'a str>, usize, u64);

fn origin(event: &Event) -> Origin<'_> {
    (event.source.as_deref(), event.host, event.bytes)
}

/// Smaller ranges of host memory may be temporary ones, each at the address of the one before.
const LASTING: u64 = 1 << 10;

const COPY_ONCE: &str = "if the data did not change, copy it once and keep the array";

/// The number of calls of a line; without known lines, each copy counts.
fn calls(events: &[&Event]) -> usize {
    let calls: BTreeSet<_> = events.iter().map(|event| (event.thread, event.call)).collect();
    if events.iter().all(|event| event.source.is_none()) { events.len() } else { calls.len() }
}

fn copies(count: usize) -> String {
    if count == 1 { "1 copy".to_owned() } else { format!("{count} copies") }
}

fn fix_for(reason: Reason, calls: usize, is_foreign: bool) -> Option<&'static str> {
    match reason {
        Reason::HostRead | Reason::HostWrite if is_foreign && calls < OFTEN => None,
        Reason::HostRead if is_foreign => {
            Some("keep the results on the device, and read once after the loop")
        }
        Reason::HostWrite if is_foreign => Some("write once before the loop"),
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
