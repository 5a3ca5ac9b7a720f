//! The picture of a profile: a self-contained timeline as SVG.

use super::axis::Axis;
use super::scale::{duration, mark, rate};
use super::style::{DEFINITIONS, Style, sheet};
use super::tracks::{Bar, Group, Track, groups};
use super::{Clock, Event, Kind, Profile};
use crate::error::{escape, size};
use std::collections::BTreeMap;
use std::fmt::Write;

pub(super) const WIDTH: f64 = 1200.0;
/// The horizontal range of the tracks.
const TRACKS: (f64, f64) = (196.0, 1180.0);
pub(super) const MARGIN: f64 = 20.0;
const ROW: f64 = 26.0;
const BAR: f64 = 20.0;
const MEMORY: f64 = 30.0;
/// The top of the tracks, below the title and the axis.
const TOP: f64 = 150.0;
/// The largest number of arrows.
const ARROWS: usize = 150;
/// The largest width of a character: in bar labels, and in other text.
const SMALL: f64 = 6.9;
pub(super) const NORMAL: f64 = 7.5;

impl Profile {
    /// Returns the picture. It needs no other file, supports light and dark pages, and shows a tooltip for
    /// each bar.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let commands = self.events.iter().filter(|event| event.kind.is_command());
        let work: Vec<_> = commands.map(|event| (event.start, event.end)).collect();
        let axis = Axis::new(self.duration, &work, TRACKS);
        let groups = groups(self, &axis);
        let mut painter = Painter {
            profile: self,
            axis,
            text: String::new(),
            ground: String::new(),
            y: TOP,
            places: BTreeMap::new(),
            bands: Vec::new(),
        };
        painter.tracks(&groups);
        let (tracks, bottom) = (std::mem::take(&mut painter.text), painter.y);
        painter.head();
        painter.text += &std::mem::take(&mut painter.ground);
        painter.grid();
        painter.text += &tracks;
        painter.arrows();
        painter.y = bottom + 26.0;
        painter.legend(&groups);
        painter.remarks();
        painter.page()
    }
}

pub(super) struct Painter<'a> {
    pub profile: &'a Profile,
    pub axis: Axis,
    pub text: String,
    /// The background layer.
    ground: String,
    pub y: f64,
    /// The tracks' tops and heights.
    bands: Vec<(f64, f64)>,
    /// The position of an event's bar: left, right, middle.
    places: BTreeMap<usize, (f64, f64, f64)>,
}

impl Painter<'_> {
    fn page(self) -> String {
        let height = self.y + 14.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"usmq\" role=\"img\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             width=\"{WIDTH}\" height=\"{height:.0}\" style=\"max-width:100%;height:auto\">\n<title>{}</title>\n\
             <style>\n{}</style>\n<defs>\n{DEFINITIONS}</defs>\n\
             <rect class=\"u-page\" width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"6\"/>\n{}</svg>\n",
            escape(&self.profile.headline()),
            sheet(),
            self.text
        )
    }

    pub(super) fn write(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let _ =
            writeln!(self.text, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
    }

    fn head(&mut self) {
        self.write("u-text u-h1", (MARGIN, 36.0), "Kernels, copies and waits by device");
        let headline = self.profile.headline();
        self.write("u-muted", (MARGIN, 58.0), &headline);
    }

    /// Draws the axis, with marks and breaks in every track.
    fn grid(&mut self) {
        let (tracks, top) = (std::mem::take(&mut self.bands), TOP - 52.0);
        let down = |x: f64| {
            tracks
                .iter()
                .fold(String::new(), |path, (y, height)| path + &format!("M{x:.1} {y:.1}v{height:.1}"))
        };
        for piece in self.axis.pieces.clone().into_iter().filter(|piece| piece.is_break) {
            let (x, width) = (piece.left, piece.right - piece.left);
            let text = duration(piece.to - piece.from);
            let middle = x + width / 2.0;
            let _ = write!(
                self.text,
                "<g><title>{text} idle, shortened</title><path class=\"u-gap\" stroke-width=\"{width:.1}\" \
                 d=\"M{middle:.1} {top:.1}V{TOP}{}\"/></g>\n<text class=\"u-muted u-small\" transform=\"translate({:.1} {:.1})rotate(-90)\">{text}</text>\n",
                down(middle),
                middle + 4.0,
                TOP - 5.0
            );
        }
        for (time, x) in self.axis.marks(64.0) {
            let _ = writeln!(self.text, "<path class=\"u-rule\" d=\"M{x:.1} {top:.1}V{TOP}{}\"/>", down(x));
            if x < TRACKS.1 - 26.0 {
                self.write("u-muted u-small u-mid", (x, top - 6.0), &mark(time, self.axis.step));
            }
        }
    }

    fn tracks(&mut self, groups: &[Group]) {
        for group in groups {
            self.y += 22.0;
            self.write("u-text u-h2", (MARGIN, self.y), &group.title);
            let x = MARGIN + 14.0 + group.title.chars().count() as f64 * 8.4;
            self.write("u-muted", (x, self.y), &clipped(&group.note, WIDTH - x, NORMAL));
            self.y += 8.0;
            for track in &group.tracks {
                self.track(track);
            }
            if let Some(device) = group.device {
                self.memory(device);
            }
        }
        self.y += 4.0;
    }

    fn track(&mut self, track: &Track) {
        let height = (track.rows as f64 * ROW).max(34.0);
        let (left, right) = TRACKS;
        let _ = writeln!(
            self.ground,
            "<rect class=\"u-lane\" x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" rx=\"3\"/>",
            self.y,
            right - left
        );
        self.bands.push((self.y, height));
        let middle = self.y + height / 2.0;
        if track.note.is_empty() {
            self.write("u-text", (MARGIN, middle + 4.0), &track.title);
        } else {
            self.write("u-text", (MARGIN, middle - 3.0), &track.title);
            self.write("u-muted u-small", (MARGIN, middle + 12.0), &track.note);
        }
        let first = self.y + (height - track.rows as f64 * ROW) / 2.0 + (ROW - BAR) / 2.0;
        for (place, bar) in track.bars.iter().enumerate() {
            let next = track.bars[place + 1..].iter().find(|other| other.row == bar.row);
            self.bar(bar, first + bar.row as f64 * ROW, next.map_or(right, |next| next.left));
        }
        self.y += height + 5.0;
    }

    fn bar(&mut self, bar: &Bar, y: f64, free_until: f64) {
        let events: Vec<&Event> = bar.events.iter().map(|place| &self.profile.events[*place]).collect();
        let width = (bar.right - bar.left).max(2.0);
        let left = bar.left.min(TRACKS.1 - width);
        for place in &bar.events {
            self.places.insert(*place, (left, left + width, y + BAR / 2.0));
        }
        let class = bar.style.class();
        let observed = events.iter().any(|event| event.clock == Clock::Host && event.kind.is_command());
        let edge = match (width < 4.0, observed) {
            (true, _) => "",
            (_, true) => " u-host",
            (_, false) => " u-edge",
        };
        let place = format!("x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\"");
        let _ = write!(
            self.text,
            "<g><title>{}</title><rect class=\"{class}{edge}\" {place}/>",
            escape(&self.profile.tooltip(bar))
        );
        if bar.style.is_striped() && width >= 4.0 {
            let _ = write!(self.text, "<rect class=\"u-stripes\" {place}/>");
        }
        self.text += "</g>\n";
        let labels = labels(bar, &events);
        let room = |text: &&String| text.chars().count() as f64 * SMALL + 8.0;
        if bar.style == Style::Wait {
            return; // Stripes are sufficient, and text on them is illegible.
        }
        let (inside, beside) = (left + width / 2.0, left + width + 4.0);
        let on_bar = format!("u-in u-mid u-on-{class}");
        let base = y + BAR / 2.0 + 4.0;
        if let Some(text) = labels.iter().find(|text| room(text) <= width) {
            self.write(&on_bar, (inside, base), text);
        } else if let Some(text) = labels.iter().find(|text| beside + room(text) <= free_until) {
            self.write("u-in u-text", (beside, base), text);
        } else if let Some(text) = labels.last().filter(|_| width >= 44.0) {
            self.write(&on_bar, (inside, base), &clipped(text, width - 8.0, SMALL));
        }
    }

    /// Draws the memory of arrays on a device as a curve.
    fn memory(&mut self, device: usize) {
        let mut held = self.profile.devices[device].held.iter().sum::<u64>() as i64;
        let mut steps = vec![(TRACKS.0, held)];
        for event in self.profile.events.iter().filter(|event| event.device == Some(device)) {
            let change = super::timeline::change(event);
            if change == 0 {
                continue;
            }
            held += change;
            let x = self.axis.place(event.end);
            match steps.last_mut() {
                // Of points at one position the largest counts.
                Some((last, most)) if x - *last < 0.7 && *last > TRACKS.0 => *most = held.max(*most),
                _ => steps.push((x, held)),
            }
        }
        let peak = steps.iter().map(|(_, held)| *held).max().unwrap_or(0);
        if peak <= 0 {
            return;
        }
        steps.push((TRACKS.1, held));
        self.bands.push((self.y, MEMORY));
        let (base, mut path) = (self.y + MEMORY, String::new());
        for (x, held) in &steps {
            let height = (*held).max(0) as f64 / peak as f64 * (MEMORY - 4.0);
            let _ = write!(path, "H{x:.1}V{:.1}", base - height);
        }
        let text = format!("array memory, peak {}", size(peak.unsigned_abs()));
        let _ = writeln!(
            self.text,
            "<g><title>{text}</title><path class=\"u-memory\" d=\"M{:.1} {base:.1}{path}V{base:.1}z\"/></g>",
            TRACKS.0
        );
        self.write("u-text", (MARGIN, base - 17.0), "array memory");
        self.write(
            "u-muted u-small",
            (MARGIN, base - 3.0),
            &format!("at most {}", size(peak.unsigned_abs())),
        );
        self.y += MEMORY + 6.0;
    }

    /// Draws arrows between tracks, from an event to those that waited for it.
    fn arrows(&mut self) {
        let mut drawn = std::collections::BTreeSet::new();
        for (place, event) in
            self.profile.events.iter().enumerate().filter(|(_, event)| event.kind.is_command())
        {
            let Some(&(to, _, y)) = self.places.get(&place) else { continue };
            for before in event.waited_for.iter() {
                let Some(&(_, from, above)) = self.places.get(before) else { continue };
                let key = [from, above, to, y].map(|number| (number * 2.0) as i64);
                if (above - y).abs() < 1.0 || drawn.len() >= ARROWS || !drawn.insert(key) {
                    continue;
                }
                let bend = ((to - from) / 2.0).clamp(10.0, 60.0);
                let _ = writeln!(
                    self.text,
                    "<path class=\"u-flow\" marker-end=\"url(#usmq-head)\" d=\"M{from:.1} {above:.1}C{:.1} {above:.1} \
                     {:.1} {y:.1} {to:.1} {y:.1}\"/>",
                    from + bend,
                    to - bend
                );
            }
        }
    }
}

/// Truncates a text to the available width.
pub(super) fn clipped(text: &str, room: f64, character: f64) -> String {
    let most = (room / character).max(1.0) as usize;
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

impl Profile {
    /// The tooltip of a bar.
    fn tooltip(&self, bar: &Bar) -> String {
        if let [only] = bar.events[..] {
            return describe_event(&self.events[only]);
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
        let mut text = format!("{} events, {} in total", bar.events.len(), duration(time));
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

fn describe_event(event: &Event) -> String {
    let mut text = format!("{}: {}", Style::from_event(event).title(), event.name);
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

/// Possible labels of a bar, the longest first.
fn labels(bar: &Bar, events: &[&Event]) -> Vec<String> {
    let [event] = events else {
        let what = match bar.style {
            Style::Copy(reason) => reason.name().to_owned(),
            style => style.title(),
        };
        return vec![format!("{what} {}×", events.len()), format!("{}×", events.len())];
    };
    match bar.style {
        Style::Kernel => vec![event.name.clone()],
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

/// Removes the folder: pictures are shared, and folder names may be private.
pub(super) fn file_and_line(source: &str) -> &str {
    source.rsplit('/').next().unwrap_or(source)
}
