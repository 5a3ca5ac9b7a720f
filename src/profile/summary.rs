//! The numbers of a profile: per device, per reason of copies, per kernel.

use super::timeline::change;
use super::{Event, Kind, Profile, Reason};
use std::collections::{BTreeMap, HashMap};

/// The activity of one device.
///
/// ```
/// use usmq::{Array, profile::Session};
///
/// let session = Session::start();
/// Array::from_slice(&[1f32, 2.0])?.to_vec::<f32>()?;
/// let profile = session.finish()?;
/// for device in profile.summary().devices {
///     println!("{}: {} ns busy", profile.devices()[device.device].name, device.busy);
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSummary {
    /// An index into [`Profile::devices`].
    pub device: usize,
    /// Kernels that ran.
    pub kernels: usize,
    /// Copies that ran.
    pub copies: usize,
    /// Nanoseconds in which a kernel, copy or fill ran.
    pub busy: u64,
    /// Nanoseconds between its first and last command in which none ran.
    pub idle: u64,
    /// The most bytes that arrays held at once.
    pub peak: u64,
    /// Allocations.
    pub allocations: usize,
    /// Allocations served without a call to the runtime.
    pub hits: usize,
}

/// The copies of one reason.
///
/// ```
/// use usmq::{Array, profile::Session};
///
/// let session = Session::start();
/// Array::from_slice(&[1f32, 2.0])?.to_vec::<f32>()?;
/// let profile = session.finish()?;
/// for copies in profile.summary().copies {
///     println!("{}: {} at {} GB/s", copies.reason.name(), copies.count, copies.gigabytes_per_second());
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasonSummary {
    /// The reason.
    pub reason: Reason,
    /// The number of copies.
    pub count: usize,
    /// Total bytes.
    pub bytes: u64,
    /// Total nanoseconds.
    pub time: u64,
    /// The source line with most bytes, if known.
    pub source: Option<String>,
}

impl ReasonSummary {
    /// 10⁹ bytes per second during copies; 0 without a measured time.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> f64 {
        if self.time == 0 { 0.0 } else { self.bytes as f64 / self.time as f64 }
    }
}

/// The launches of one kernel.
///
/// ```
/// use usmq::{Array, profile::Session};
///
/// let session = Session::start();
/// Array::from_slice(&[1f32, 2.0])?.to_vec::<f32>()?;
/// let profile = session.finish()?;
/// for kernel in profile.summary().kernels {
///     println!("{} ran {} times, {} ns", kernel.name, kernel.count, kernel.time);
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSummary {
    /// Its name.
    pub name: String,
    /// The number of launches.
    pub count: usize,
    /// Total nanoseconds.
    pub time: u64,
}

/// The numbers of a profile.
///
/// ```
/// use usmq::{Array, profile::Session};
///
/// let session = Session::start();
/// Array::from_slice(&[1f32, 2.0])?.to_vec::<f32>()?;
/// let profile = session.finish()?;
/// let summary = profile.summary();
/// assert_eq!(summary.kernels, []);
/// println!("waited {} ns, {} kinds of copies", summary.waited, summary.copies.len());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// In the order of [`Profile::devices`].
    pub devices: Vec<DeviceSummary>,
    /// The reason with most bytes first.
    pub copies: Vec<ReasonSummary>,
    /// The kernel with most time first.
    pub kernels: Vec<KernelSummary>,
    /// Nanoseconds in which host threads waited.
    pub waited: u64,
    /// Nanoseconds in which host threads built kernels.
    pub built: u64,
}

impl Profile {
    /// The numbers.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let time = |kind: Kind| self.of_kind(kind).map(Event::duration).sum();
        Summary {
            devices: (0..self.devices.len()).map(|device| self.device_summary(device)).collect(),
            copies: self.copies(),
            kernels: self.kernels(),
            waited: time(Kind::Wait),
            built: time(Kind::Build),
        }
    }

    pub(super) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.kind == kind)
    }

    fn device_summary(&self, device: usize) -> DeviceSummary {
        let here = |kind: Kind| self.of_kind(kind).filter(move |event| event.device == Some(device));
        let work = [Kind::Kernel, Kind::Copy, Kind::Fill].into_iter().flat_map(here);
        let mut spans: Vec<(u64, u64)> = work.map(|event| (event.start, event.end)).collect();
        spans.sort_unstable();
        let (mut busy, mut until) = (0, 0);
        for (start, end) in &spans {
            busy += end.saturating_sub((*start).max(until));
            until = until.max(*end);
        }
        let first = spans.first().map_or(0, |(start, _)| *start);
        let mut held = self.devices[device].held.iter().sum::<u64>() as i64;
        let mut peak = held;
        for event in self.events.iter().filter(|event| event.device == Some(device)) {
            held += change(event);
            peak = peak.max(held);
        }
        DeviceSummary {
            device,
            kernels: here(Kind::Kernel).count(),
            copies: here(Kind::Copy).count(),
            busy,
            idle: (until - first).saturating_sub(busy),
            peak: peak.unsigned_abs(),
            allocations: here(Kind::Allocate).count(),
            hits: here(Kind::Allocate).filter(|event| event.hit).count(),
        }
    }

    fn copies(&self) -> Vec<ReasonSummary> {
        let mut reasons: BTreeMap<Reason, Vec<&Event>> = BTreeMap::new();
        for event in self.of_kind(Kind::Copy) {
            reasons.entry(event.reason).or_default().push(event);
        }
        let mut all: Vec<_> = reasons
            .into_iter()
            .map(|(reason, events)| ReasonSummary {
                reason,
                count: events.len(),
                bytes: events.iter().map(|event| event.bytes).sum(),
                time: events.iter().map(|event| event.duration()).sum(),
                source: top_source(&events),
            })
            .collect();
        all.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        all
    }

    fn kernels(&self) -> Vec<KernelSummary> {
        let mut kernels: BTreeMap<&str, KernelSummary> = BTreeMap::new();
        for event in self.of_kind(Kind::Kernel) {
            let row = kernels.entry(&event.name).or_insert_with(|| KernelSummary {
                name: event.name.clone(),
                count: 0,
                time: 0,
            });
            row.count += 1;
            row.time += event.duration();
        }
        let mut all: Vec<_> = kernels.into_values().collect();
        all.sort_by_key(|row| std::cmp::Reverse(row.time));
        all
    }
}

fn top_source(events: &[&Event]) -> Option<String> {
    let mut bytes: HashMap<&str, u64> = HashMap::new();
    for event in events {
        if let Some(source) = &event.source {
            *bytes.entry(source).or_default() += event.bytes;
        }
    }
    let top = bytes.into_iter().max_by_key(|(source, bytes)| (*bytes, std::cmp::Reverse(*source)));
    top.map(|(source, _)| source.to_owned())
}
