//! Profiles: what ran where and when, what was copied, and why.
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
//! Times are the device's where its queue keeps timestamps: made with `profiling`, or by usmq in a process that was
//! started with `USMQ_PROFILING=1`. Else they are what the host observed, to about a tenth of a millisecond; each event
//! says which ([`Clock`]).

mod advice;
mod axis;
mod html;
mod legend;
mod scale;
mod style;
mod summary;
mod svg;
mod table;
mod timeline;
mod trace;
mod tracks;

pub use crate::device::{Clock, Kind, Reason};
pub use advice::Advice;
pub use summary::{DeviceSummary, KernelSummary, ReasonSummary, Summary};

use crate::device::trace::log::{self, Window};
use crate::error::{Error, Result};
use crate::memory;
use crate::runtime::interrupt::poll_until;
use std::fs;
use std::io;
use std::path::Path;

/// A profile in the making: from [`start`](Self::start) to [`finish`](Self::finish), everything that usmq does in this
/// process is recorded, on all threads.
///
/// Sessions may nest and overlap: each sees what was submitted while it was open, and knows nothing of the others. At
/// most 262,144 records are kept at once; later ones are counted ([`Profile::dropped`]) but not kept. In a child that is
/// forked while a session is open, that session is over.
#[must_use = "a session records until it is finished or dropped"]
pub struct Session {
    window: Option<Window>,
    /// What arrays held when it was opened.
    held: Vec<(crate::device::Device, u64)>,
}

impl Session {
    /// Opens a session. Needs no device and asks for none.
    pub fn start() -> Self {
        let held = memory::held();
        Self { window: Some(log::open()), held }
    }

    /// Closes the session, waits until the commands it has seen are complete, and gives the profile.
    ///
    /// # Errors
    /// [`Error::Value`] in a child that was forked while the session was open; [`Error::Interrupted`], without a
    /// profile, inside [`with_interrupt`](crate::with_interrupt) only.
    pub fn finish(mut self) -> Result<Profile> {
        let Some(window) = self.window.take().filter(|window| !window.is_forked()) else {
            return Err(Error::Value(
                "the profile was started before this process was forked; start one in the child".to_owned(),
            ));
        };
        let (to, closed) = (log::next(), log::now());
        if let Err(interrupted) = poll_until(|| !log::poll(to), || ()) {
            log::close(&window, 0);
            return Err(interrupted);
        }
        let (records, dropped) = log::close(&window, to);
        Ok(timeline::profile(&records, dropped, (window.opened, closed), &self.held))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(window) = self.window.take().filter(|window| !window.is_forked()) {
            log::close(&window, 0);
        }
    }
}

/// Has profiles show calls of other libraries into the SYCL runtime, too: as events of kind [`Kind::Call`], with the time
/// that the host spent in the call, not the device with the work. May be called more than once, before the first use
/// of a device.
///
/// The runtime must have been told to trace when the process was started, by the variables `XPTI_TRACE_ENABLE=1`,
/// `XPTI_FRAMEWORK_DISPATCHER` and `XPTI_SUBSCRIBERS` (paths of libxptifw.so and libsycl_ur_trace_collector.so, which lie
/// beside libsycl) and `UR_ENABLE_LAYERS=UR_LAYER_TRACING`. The Python package does so by `python -m usmq trace`.
///
/// # Errors
/// [`Error::RuntimeNotFound`] when it was not.
pub fn watch_calls() -> Result<()> {
    crate::device::trace::xpti::watch()
}

/// A device of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The filter string; for a part of a device that of the whole, with a note.
    pub filter: String,
    /// The device's own name.
    pub name: String,
    /// Bytes that arrays held there when the session began, in pools of any kind.
    pub(crate) held: u64,
}

/// A queue of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Which device, as a place in [`Profile::devices`].
    pub device: usize,
    /// Whether commands run in the order of their submission.
    pub in_order: bool,
    /// Whose clock its times are from: the device's as soon as one event has its timestamps.
    pub clock: Clock,
}

/// One thing that happened. Times are in nanoseconds since the session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: Kind,
    /// Why.
    pub reason: Reason,
    /// The kernel's name; for others what they are.
    pub name: String,
    /// On which queue, as a place in [`Profile::queues`]; None for memory, builds and calls of other libraries.
    pub queue: Option<usize>,
    /// On which device, as a place in [`Profile::devices`]; None for calls of other libraries.
    pub device: Option<usize>,
    /// The host thread that asked for it, numbered from 1.
    pub thread: u32,
    /// Bytes that are copied, filled, taken or given back; 0 where that does not apply.
    pub bytes: u64,
    /// When the host asked for it.
    pub submit: u64,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Whose clock `start` and `end` are from.
    pub clock: Clock,
    /// For memory taken from a pool: whether the pool had it, without asking the runtime.
    pub hit: bool,
    /// `file:line` of the caller; known in Python only.
    pub source: Option<String>,
    /// Which call of the thread, where lines are known.
    pub(crate) call: u32,
    /// The events that it waited for, as places in [`Profile::events`]. What an in-order queue orders by itself, and
    /// what was complete at submission, is not among them.
    pub waited_for: Vec<usize>,
}

impl Event {
    /// Nanoseconds from start to end.
    #[must_use]
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// What a [`Session`] has seen; only a session makes one. `Display` gives a table.
///
/// Its events name devices, queues and each other by their places in these lists, so the lists are only read:
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
    /// The devices that took part.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The queues that took part.
    #[must_use]
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// The events, in the order in which the host asked for them.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Nanoseconds from the start of the session until it was closed and its last command was complete.
    #[must_use]
    pub fn duration(&self) -> u64 {
        self.duration
    }

    /// Number of events beyond the limit, which were not kept.
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
    /// [`io::ErrorKind::InvalidInput`] for another ending; what the file system says.
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

    /// The clocks that the times of commands are from: one, or both.
    #[must_use]
    pub fn clocks(&self) -> Vec<Clock> {
        [Clock::Device, Clock::Host]
            .into_iter()
            .filter(|clock| self.events.iter().any(|event| event.kind.is_command() && event.clock == *clock))
            .collect()
    }
}
