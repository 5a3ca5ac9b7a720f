//! The legend below the picture: the meaning of colours, with numbers, and avoidable costs.

use super::scale::duration;
use super::style::Style;
use super::svg::{MARGIN, NORMAL, Painter, WIDTH, clipped, file_and_line};
use super::tracks::Group;
use super::{Clock, Kind, Profile};
use crate::error::size;
use std::collections::BTreeMap;
use std::fmt::Write;

impl Profile {
    pub(super) fn headline(&self) -> String {
        let summary = self.summary();
        let count = |kind: Kind, one: &str, many: &str| {
            let count = self.of_kind(kind).count();
            format!("{count} {}", if count == 1 { one } else { many })
        };
        let moved = summary.copies.iter().map(|row| row.bytes).sum();
        let mut parts = vec![duration(self.duration), count(Kind::Kernel, "kernel", "kernels")];
        parts.push(format!("{} of {}", count(Kind::Copy, "copy", "copies"), size(moved)));
        let devices = self.devices.len();
        parts.push(format!("{devices} {}", if devices == 1 { "device" } else { "devices" }));
        parts.join("  ·  ")
    }
}

impl Painter<'_> {
    pub(super) fn legend(&mut self, groups: &[Group]) {
        let mut items: BTreeMap<Style, (usize, u64, u64)> = BTreeMap::new();
        let shown = groups.iter().flat_map(|group| &group.tracks).flat_map(|track| &track.bars);
        for event in shown.flat_map(|bar| &bar.events).map(|place| &self.profile.events[*place]) {
            let (count, bytes, time) = items.entry(Style::from_event(event)).or_default();
            (*count, *bytes, *time) = (*count + 1, *bytes + event.bytes, *time + event.duration());
        }
        let mut x = MARGIN;
        for (style, (count, bytes, time)) in items {
            let moved = if bytes > 0 { format!(", {}", size(bytes)) } else { String::new() };
            let text = format!("{} ({count}{moved}, {})", style.title(), duration(time));
            self.turn(&mut x, &text);
            let place =
                format!("x=\"{x:.1}\" y=\"{:.1}\" width=\"18\" height=\"12\" rx=\"2\"", self.y - 10.0);
            let _ = write!(self.text, "<rect class=\"{}\" {place}/>", style.class());
            if style.is_striped() {
                let _ = write!(self.text, "<rect class=\"u-stripes\" {place}/>");
            }
            self.item(&mut x, &text);
        }
        if self.profile.clocks().contains(&Clock::Host) {
            let text = "dashed: times observed by the host, to 0.1 ms";
            self.turn(&mut x, text);
            let _ = write!(
                self.text,
                "<rect class=\"u-lane u-host\" x=\"{x:.1}\" y=\"{:.1}\" width=\"18\" height=\"12\" rx=\"2\"/>",
                self.y - 10.0
            );
            self.item(&mut x, text);
        }
        if self.text.contains("class=\"u-flow\"") {
            let text = "dependency";
            self.turn(&mut x, text);
            let _ = write!(
                self.text,
                "<path class=\"u-flow\" marker-end=\"url(#usmq-head)\" d=\"M{x:.1} {:.1}h18\"/>",
                self.y - 4.0
            );
            self.item(&mut x, text);
        }
        if self.axis.pieces.iter().any(|piece| piece.is_break) {
            let text = "idle, shortened";
            self.turn(&mut x, text);
            let _ = write!(
                self.text,
                "<path class=\"u-gap\" stroke-width=\"12\" d=\"M{x:.1} {:.1}h18\"/>",
                self.y - 4.0
            );
            self.item(&mut x, text);
        }
    }

    /// Starts a new row if an entry does not fit.
    fn turn(&mut self, x: &mut f64, text: &str) {
        if *x > MARGIN && *x + 24.0 + text.chars().count() as f64 * NORMAL > WIDTH - MARGIN {
            *x = MARGIN;
            self.y += 21.0;
        }
    }

    fn item(&mut self, x: &mut f64, text: &str) {
        self.write("u-text", (*x + 24.0, self.y), text);
        *x += 24.0 + text.chars().count() as f64 * NORMAL + 14.0;
    }

    pub(super) fn remarks(&mut self) {
        let room = WIDTH - 2.0 * MARGIN;
        self.y += 8.0;
        if self.profile.dropped > 0 {
            self.y += 19.0;
            let text = format!("{} events beyond the limit are not shown.", self.profile.dropped);
            self.write("u-muted", (MARGIN, self.y), &text);
        }
        for advice in self.profile.advice().into_iter().take(4) {
            let source =
                advice.source.map_or(String::new(), |source| format!(", {}", file_and_line(&source)));
            let text = format!("⚠ {}{source}: {}", advice.seen, advice.fix);
            self.y += 19.0;
            self.write("u-muted", (MARGIN, self.y), &clipped(&text, room, NORMAL));
        }
    }
}
