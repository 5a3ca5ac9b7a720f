//! The layout of the picture: groups of tracks, rows for overlapping events, and merged bars of short events.

use super::axis::Axis;
use super::style::Style;
use super::{Event, Kind, Profile};
use std::collections::BTreeMap;

/// Rows of one track; further overlaps share the last row.
const ROWS: usize = 6;
/// Narrower bars may be merged with their neighbours.
const NARROW: f64 = 2.5;

/// A device or the host.
pub(super) struct Group {
    pub title: String,
    pub note: String,
    pub tracks: Vec<Track>,
    /// For devices: the device whose memory curve is drawn below.
    pub device: Option<usize>,
}

/// A queue or a thread.
pub(super) struct Track {
    pub title: String,
    pub note: String,
    pub rows: usize,
    pub bars: Vec<Bar>,
}

/// One event, or several that are too short to distinguish.
pub(super) struct Bar {
    pub events: Vec<usize>,
    pub style: Style,
    pub row: usize,
    pub left: f64,
    pub right: f64,
}

/// All groups with events.
pub(super) fn groups(profile: &Profile, axis: &Axis) -> Vec<Group> {
    let mut groups = vec![threads(profile, axis)];
    for (place, device) in profile.devices.iter().enumerate() {
        let queues = profile.queues.iter().enumerate().filter(|(_, queue)| queue.device == place);
        let tracks = queues.map(|(number, queue)| {
            let order = if queue.in_order { "in order" } else { "out of order" };
            let here = |event: &&(usize, &Event)| event.1.queue == Some(number) && event.1.kind.is_command();
            track(
                profile,
                axis,
                (format!("queue {}", number + 1), format!("{order}, {} clock", queue.clock.name())),
                &here,
            )
        });
        let tracks = tracks.filter(|track| !track.bars.is_empty()).collect();
        groups.push(Group {
            title: device.filter.clone(),
            note: device.name.clone(),
            tracks,
            device: Some(place),
        });
    }
    groups.retain(|group| !group.tracks.is_empty());
    groups
}

/// The host's threads.
fn threads(profile: &Profile, axis: &Axis) -> Group {
    let of = |event: &Event| matches!(event.kind, Kind::Build | Kind::Wait);
    let mut numbers: Vec<u32> =
        profile.events.iter().filter(|event| of(event)).map(|event| event.thread).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let tracks = numbers.into_iter().map(|number| {
        let here = |event: &&(usize, &Event)| of(event.1) && event.1.thread == number;
        track(profile, axis, (format!("thread {number}"), String::new()), &here)
    });
    Group { title: "host".to_owned(), note: String::new(), tracks: tracks.collect(), device: None }
}

fn track(
    profile: &Profile,
    axis: &Axis,
    (title, note): (String, String),
    here: &dyn Fn(&&(usize, &Event)) -> bool,
) -> Track {
    let all: Vec<(usize, &Event)> = profile.events.iter().enumerate().collect();
    let mut events: Vec<&(usize, &Event)> = all.iter().filter(here).collect();
    events.sort_by_key(|(place, event)| (event.start, event.end, *place));
    let mut rows: Vec<Vec<Bar>> = Vec::new();
    let mut ends: Vec<u64> = Vec::new();
    for (place, event) in events {
        let free = ends.iter().position(|end| *end <= event.start);
        let row = free.unwrap_or(if ends.len() < ROWS { ends.len() } else { ROWS - 1 });
        if row == ends.len() {
            ends.push(0);
            rows.push(Vec::new());
        }
        ends[row] = ends[row].max(event.end);
        let bar = Bar {
            events: vec![*place],
            style: Style::from_event(event),
            row,
            left: axis.place(event.start),
            right: axis.place(event.end),
        };
        match rows[row].last_mut() {
            Some(last) if belongs(last, &bar) => join(last, bar),
            _ => rows[row].push(bar),
        }
    }
    let mut bars: Vec<Bar> = rows.into_iter().flatten().collect();
    for bar in &mut bars {
        bar.style = main_style(profile, &bar.events);
    }
    Track { title, note, rows: ends.len().max(1), bars }
}

/// Whether two neighbours are merged.
fn belongs(last: &Bar, next: &Bar) -> bool {
    let narrow = |bar: &Bar| bar.right - bar.left < NARROW;
    narrow(next)
        && (narrow(last) || last.events.len() > 1)
        && next.left - last.right.max(last.left + NARROW) < 0.5
}

fn join(last: &mut Bar, next: Bar) {
    last.right = last.right.max(next.right);
    last.events.extend(next.events);
}

/// The style with the most time.
fn main_style(profile: &Profile, events: &[usize]) -> Style {
    let mut times: BTreeMap<Style, u64> = BTreeMap::new();
    for event in events.iter().map(|place| &profile.events[*place]) {
        *times.entry(Style::from_event(event)).or_default() += event.duration() + 1;
    }
    times.into_iter().max_by_key(|(_, time)| *time).map_or(Style::Barrier, |(style, _)| style)
}
