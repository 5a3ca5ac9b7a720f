//! Profiles: the device and time of each command, and the copies with their reasons.
//!
//! ```no_run
//! use usmq::{Array, profile::Session};
//!
//! let session = Session::start();
//! let x = Array::from_slice(&[1f32, 2.0])?;
//! assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
//! let profile = session.finish()?;
//! println!("{profile}"); // a table
//! profile.save("run.json")?; // for ui.perfetto.dev or chrome://tracing
//! profile.save("run.svg")?; // a picture
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Times are device timestamps if the queue records them: queues created with `profiling`, or by usmq in a
//! process started with `USMQ_PROFILING=1`. Otherwise they are host observations, precise to about a tenth of
//! a millisecond. Each event names its [`Clock`].

mod advice;
mod axis;
mod html;
mod legend;
mod scale;
mod session;
mod style;
mod summary;
mod svg;
mod table;
mod timeline;
mod trace;
mod tracks;

pub use crate::trace::{Clock, Kind, Reason};
pub use advice::Advice;
pub use session::{Session, watch_calls};
pub use summary::{DeviceSummary, KernelSummary, ReasonSummary, Summary};

use std::fs;
use std::io;
use std::path::Path;

/// A device of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The filter string; for a sub-device that of its root device, with a note.
    pub filter: String,
    /// The device's own name.
    pub name: String,
    /// Bytes that arrays held there when the session began, per USM kind in the order of `UsmKind::ALL`.
    pub(crate) held: [u64; 3],
}

/// A queue of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The device, as an index into [`Profile::devices`].
    pub device: usize,
    /// Whether commands run in the order of their submission.
    pub in_order: bool,
    /// The clock of its times: the device's if any event has device timestamps.
    pub clock: Clock,
}

/// One event. Times are in nanoseconds since the start of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The kind of event.
    pub kind: Kind,
    /// The reason.
    pub reason: Reason,
    /// The kernel's name; for other events a description.
    pub name: String,
    /// The queue, as an index into [`Profile::queues`]; None for memory, builds and waits of other
    /// libraries.
    pub queue: Option<usize>,
    /// The device, as an index into [`Profile::devices`]; None for waits and host USM of other libraries.
    pub device: Option<usize>,
    /// The requesting host thread, numbered from 1.
    pub thread: u32,
    /// Bytes copied, filled, allocated or freed; 0 for other events.
    pub bytes: u64,
    /// Time of the host's request.
    pub submit: u64,
    /// Time of the start.
    pub start: u64,
    /// Time of the end.
    pub end: u64,
    /// The clock of `start` and `end`.
    pub clock: Clock,
    /// For an allocation from a pool: whether the pool had a free block, so that the runtime was not called.
    pub hit: bool,
    /// `file:line` of the caller; known in Python only.
    pub source: Option<String>,
    /// The USM kind of an allocation or a free, as an index into `UsmKind::ALL`.
    pub(crate) usm: Option<usize>,
    /// The number of the call on its thread, if lines are known.
    pub(crate) call: u32,
    /// For copies of other libraries: the address of the host's memory; 0 if unknown.
    pub(crate) host: usize,
    /// The events that it waited for, as indices into [`Profile::events`]. Without events ordered by an
    /// in-order queue, and without events complete at submission.
    pub waited_for: Vec<usize>,
}

impl Event {
    /// Nanoseconds from start to end.
    #[must_use]
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// The record of a [`Session`], which creates it. `Display` prints a table.
///
/// Events refer to devices, queues and each other by indices into these lists, so the lists are read-only:
///
/// ```compile_fail,E0616
/// let mut profile = usmq::profile::Session::start().finish()?;
/// profile.events.clear();
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    devices: Vec<Device>,
    queues: Vec<Queue>,
    events: Vec<Event>,
    duration: u64,
    dropped: u64,
    began: u64,
}

impl Profile {
    /// The devices with recorded activity.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The queues with recorded activity.
    #[must_use]
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// The events, in the order of the host's requests.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Nanoseconds from the start of the session until it was closed and its last command was complete.
    #[must_use]
    pub fn duration(&self) -> u64 {
        self.duration
    }

    /// Number of events dropped beyond the limit.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The start, in nanoseconds of the host's steady clock.
    #[must_use]
    pub fn began(&self) -> u64 {
        self.began
    }

    /// Writes the profile: `.json` for Perfetto and Chrome, `.svg` for a picture, `.html` for a page with the table and
    /// the picture, `.txt` for the table.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for another suffix; errors of the file system.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let text = match ending.as_deref() {
            Some("json") => self.to_json(),
            Some("svg") => self.to_svg(),
            Some("html") => self.to_page(),
            Some("txt") => format!("{self}\n"),
            _ => {
                let why = format!(
                    "cannot save a profile as {:?}; use .json (Perfetto, Chrome), .svg, .html or .txt",
                    path.file_name().unwrap_or(path.as_os_str())
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        };
        fs::write(path, text)
    }

    /// The clocks of the commands' times: one or both.
    #[must_use]
    pub fn clocks(&self) -> Vec<Clock> {
        [Clock::Device, Clock::Host]
            .into_iter()
            .filter(|clock| self.events.iter().any(|event| event.kind.is_command() && event.clock == *clock))
            .collect()
    }
}
