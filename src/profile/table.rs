//! The table of a profile as text.

use super::scale::{duration, rate};
use super::{Clock, Profile};
use crate::error::{size, spelled};
use std::fmt;

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sections = self.sections();
        for (number, section) in sections.iter().enumerate() {
            if number > 0 {
                f.write_str("\n\n")?;
            }
            section.fmt(f)?;
        }
        for note in self.notes() {
            write!(f, "\n\n{note}")?;
        }
        Ok(())
    }
}

/// A list of rows with a header; numbers are right-aligned, text is left-aligned.
pub(super) struct Section {
    pub title: &'static str,
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// The text columns.
    pub text: &'static [usize],
}

impl Profile {
    pub(super) fn sections(&self) -> Vec<Section> {
        let summary = self.summary();
        let devices = summary.devices.iter().map(|row| {
            let device = &self.devices[row.device];
            vec![
                device.filter.clone(),
                row.kernels.to_string(),
                row.copies.to_string(),
                duration(row.busy),
                duration(row.idle),
                size(row.peak),
                format!("{} of {}", row.hits, row.allocations),
                device.name.clone(),
            ]
        });
        let mut sections = vec![Section {
            title: "Devices",
            head: vec!["device", "kernels", "copies", "busy", "idle", "peak memory", "pool hits", "name"],
            rows: devices.collect(),
            text: &[0, 7],
        }];
        if !summary.copies.is_empty() {
            let row = |row: &super::ReasonSummary| {
                vec![
                    row.reason.name().to_owned(),
                    row.count.to_string(),
                    size(row.bytes),
                    duration(row.time),
                    rate(row.gigabytes_per_second()),
                    row.source.clone().unwrap_or_default(),
                ]
            };
            sections.push(Section {
                title: "Copies",
                head: vec!["reason", "count", "moved", "time", "GB/s", "mostly from"],
                rows: summary.copies.iter().map(row).collect(),
                text: &[0, 5],
            });
        }
        if !summary.kernels.is_empty() {
            let row = |row: &super::KernelSummary| {
                let mean = duration(row.time / row.count.max(1) as u64);
                vec![row.name.clone(), row.count.to_string(), duration(row.time), mean]
            };
            sections.push(Section {
                title: "Kernels",
                head: vec!["kernel", "count", "total", "mean"],
                rows: summary.kernels.iter().map(row).collect(),
                text: &[0],
            });
        }
        sections
    }

    /// Notes on the numbers, and advice.
    pub(super) fn notes(&self) -> Vec<String> {
        let summary = self.summary();
        let mut notes = vec![format!(
            "{} in total; the host waited for {} and built kernels for {}.",
            duration(self.duration),
            duration(summary.waited),
            duration(summary.built)
        )];
        notes.extend(match self.clocks()[..] {
            [Clock::Host] => Some(
                format!(
                "Times were observed by the host, to 0.1 ms. A queue created with {}, or USMQ_PROFILING=1, gives the \
                 device's own{}.",
                spelled("profiling=True", "QueueProperties { profiling: true, .. }"),
                spelled("; a queue of dpctl with property=\"enable_profiling\"", "")
            )),
            [Clock::Device, Clock::Host] => {
                let queue = |(place, queue): (usize, &super::Queue)| {
                    (queue.clock == Clock::Host).then(|| format!("queue {}", place + 1))
                };
                let queues: Vec<_> = self.queues.iter().enumerate().filter_map(queue).collect();
                let which = if queues.is_empty() { "some commands".to_owned() } else { queues.join(", ") };
                Some(format!("Times of {which} were observed by the host, to 0.1 ms."))
            }
            _ => None,
        });
        if self.dropped > 0 {
            notes.push(format!("{} events beyond the limit were counted, but not recorded.", self.dropped));
        }
        notes.extend(self.advice().into_iter().map(|advice| {
            let place = advice.source.map_or(String::new(), |source| format!(" ({source})"));
            format!("warning: {}{place}\n  fix: {}", advice.seen, advice.fix)
        }));
        notes
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)?;
        let columns = self.head.len();
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.head[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| -> fmt::Result {
            let mut text = String::new();
            for (column, cell) in cells.enumerate() {
                let width = widths[column];
                text += "  ";
                text += &if self.text.contains(&column) {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                };
            }
            write!(f, "\n{}", text.trim_end())
        };
        let mut head = self.head.iter().copied();
        line(&mut head)?;
        for row in &self.rows {
            line(&mut row.iter().map(String::as_str))?;
        }
        Ok(())
    }
}
