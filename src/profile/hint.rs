//! What the picture says of a bar: on it, and when it is pointed at.

use super::lanes::Bar;
use super::legend::file_and_line;
use super::paint::Style;
use super::scale::{duration, rate};
use super::{Event, Kind, Profile};
use crate::error::size;
use std::collections::BTreeMap;
use std::fmt::Write;

impl Profile {
    /// What is shown when a bar is pointed at.
    pub(super) fn hint(&self, bar: &Bar) -> String {
        if let [only] = bar.events[..] {
            return hint_of(&self.events[only]);
        }
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut bytes, mut time) = (0, 0);
        for event in bar.events.iter().map(|place| &self.events[*place]) {
            *names.entry(&event.name).or_default() += 1;
            bytes += event.bytes;
            time += event.duration();
        }
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let more = names.len().saturating_sub(6);
        let mut text = format!("{} events, {} in all", bar.events.len(), duration(time));
        if bytes > 0 {
            let _ = write!(text, ", {}", size(bytes));
        }
        for (name, count) in names.into_iter().take(6) {
            let _ = write!(text, "\n{count} × {name}");
        }
        if more > 0 {
            let _ = write!(text, "\nand {more} more");
        }
        text
    }
}

fn hint_of(event: &Event) -> String {
    let mut text = format!("{}: {}", Style::of(event).title(), event.name);
    let _ = write!(text, "\n{}, from {} on", duration(event.duration()), duration(event.start));
    if event.kind.is_command() {
        let _ = write!(text, " ({} clock)", event.clock.name());
    }
    if event.bytes > 0 {
        let _ = write!(text, "\n{}", size(event.bytes));
        let speed = event.bytes as f64 / event.duration().max(1) as f64;
        if event.kind == Kind::Copy {
            let _ = write!(text, ", {} GB/s", rate(speed));
        }
    }
    if let Some(source) = &event.source {
        let _ = write!(text, "\n{}", file_and_line(source));
    }
    text
}

/// What a bar may say, the longest first.
pub(super) fn labels(bar: &Bar, events: &[&Event]) -> Vec<String> {
    let [event] = events else {
        let what = match bar.style {
            Style::Copy(reason) => reason.name().to_owned(),
            style => style.title(),
        };
        return vec![format!("{what} {}×", events.len()), format!("{}×", events.len())];
    };
    match bar.style {
        Style::Kernel | Style::Call => vec![event.name.clone()],
        Style::Build => vec![format!("build {}", event.name), "build".to_owned()],
        Style::Copy(reason) => {
            vec![
                format!("{} {}", reason.name(), size(event.bytes)),
                reason.name().to_owned(),
                size(event.bytes),
            ]
        }
        Style::Fill => vec![format!("fill {}", size(event.bytes)), "fill".to_owned()],
        Style::Barrier | Style::Wait => Vec::new(),
    }
}
