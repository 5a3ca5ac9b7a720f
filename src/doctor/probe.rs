//! Queries the runtime: in a child if it has not started here, else in this process.

use super::dlopen::{self, Driver};
use super::subprocess::{self, Outcome};
use super::system::raise_limits;
use crate::device::{self, Device, UsmKind};
use crate::error::DOCTOR;
use crate::runtime;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// A device as the runtime reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub filter: String,
    pub name: String,
    pub driver: String,
    pub memory: u64,
    /// USM kinds, as `device shared host`; empty for none.
    pub usm: String,
}

/// The answer of the runtime.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub devices: Vec<Shown>,
    /// Platforms whose devices could not be listed, with reasons.
    pub broken: Vec<(String, String)>,
    /// The reason why no list exists.
    pub error: Option<String>,
    /// Libraries that were loaded afterwards.
    pub loaded: BTreeSet<PathBuf>,
    /// Whether all queues of the CPU driver are in-order.
    pub has_in_order_queues: bool,
    /// Parts of usmq's OpenCL layer that the process needs and does not use, with fixes.
    pub layer_problems: Vec<(String, String)>,
}

impl Seen {
    /// Filter strings and names, for a sentence.
    pub(super) fn names(&self) -> String {
        let names = self.devices.iter().map(|device| format!("{} {}", device.filter, device.name));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// The outcome of querying the runtime.
#[derive(Debug)]
pub(super) enum Probe {
    Seen(Seen),
    Died { how: String, said: String },
    TooLong(Duration),
}

impl Probe {
    pub(super) fn seen(&self) -> Option<&Seen> {
        match self {
            Self::Seen(seen) => Some(seen),
            _ => None,
        }
    }

    /// Number of devices that are visible.
    pub(super) fn count(&self) -> usize {
        self.seen().map_or(0, |seen| seen.devices.len())
    }
}

/// Queries the runtime and drivers.
pub(super) struct Asker {
    limit: Duration,
    here: bool,
    interrupted: Cell<bool>,
}

/// A change of a child's environment before its query.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'a> {
    Unset(&'a str),
    Set(&'a str, &'a str),
    /// Raises its memory limits as far as permitted.
    RaiseLimits,
}

impl Asker {
    pub(super) fn new(limit: Duration) -> Self {
        // Another library may also have started the runtime.
        let here = runtime::started() || runtime::drivers_are_loaded();
        Self { limit, here, interrupted: Cell::new(false) }
    }

    /// Whether a query was interrupted, which also skips all later ones.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.get()
    }

    fn ask(&self, limit: Duration, work: impl FnOnce() -> String) -> Outcome {
        if self.is_interrupted() {
            return Outcome::Interrupted;
        }
        let outcome = subprocess::ask(limit, work);
        self.interrupted.set(outcome == Outcome::Interrupted);
        outcome
    }

    /// Whether this process has started the runtime, so that no child can query it.
    pub(super) fn is_here(&self) -> bool {
        self.here
    }

    /// The devices of the runtime.
    pub(super) fn devices(&self) -> Probe {
        if self.here { Probe::Seen(look()) } else { self.in_child(&[]) }
    }

    /// The devices of the runtime in another environment; `None` if no child can run.
    pub(super) fn devices_with(&self, changes: &[Change<'_>]) -> Option<Probe> {
        (!self.here).then(|| self.in_child(changes))
    }

    fn in_child(&self, changes: &[Change<'_>]) -> Probe {
        match self.ask(self.limit, || {
            apply(changes);
            encode(&look())
        }) {
            Outcome::Answer(text) => Probe::Seen(decode(&text)),
            Outcome::Died { how, said } => Probe::Died { how, said },
            Outcome::TooLong(limit) => Probe::TooLong(limit),
            Outcome::Interrupted => Probe::Seen(Seen::default()),
            Outcome::Unasked(reason) => {
                Probe::Seen(Seen { error: Some(format!("no child process: {reason}")), ..Seen::default() })
            }
        }
    }

    /// Runs some work of the runtime in a child with these changes. Returns `None` where no child can run.
    pub(super) fn trial(&self, changes: &[Change<'_>], work: impl FnOnce() -> String) -> Option<Outcome> {
        if self.here {
            return None;
        }
        let outcome = self.ask(self.limit, || {
            apply(changes);
            work()
        });
        (!matches!(outcome, Outcome::Interrupted | Outcome::Unasked(_))).then_some(outcome)
    }

    /// Loads an OpenCL driver; `None` if it cannot be tested, `Err` when it crashes the calling process.
    pub(super) fn driver(&self, name: &str) -> Option<Result<Driver, String>> {
        self.line(|| dlopen::driver(name).to_line())
            .map(|answer| answer.and_then(|line| Driver::from_line(&line).ok_or(line)))
    }

    /// Why a library cannot be loaded; `Ok("")` if it can. `None` if it cannot be tested.
    pub(super) fn refusal(&self, name: &str) -> Option<Result<String, String>> {
        self.line(|| dlopen::refusal(name).unwrap_or_default())
    }

    /// Returns a one-line answer of a child; `Err` describes how it ended instead.
    pub(super) fn line(&self, work: impl FnOnce() -> String) -> Option<Result<String, String>> {
        if self.here {
            return None;
        }
        // One driver is faster than all of them, and there are several to test.
        match self.ask(self.limit.min(Duration::from_secs(20)), work) {
            Outcome::Answer(line) => Some(Ok(line)),
            Outcome::Died { how, said } => Some(Err(ended(&how, &said))),
            Outcome::TooLong(limit) => Some(Err(format!("does not answer within {} s", limit.as_secs_f32()))),
            Outcome::Interrupted | Outcome::Unasked(_) => None,
        }
    }
}

fn apply(changes: &[Change<'_>]) {
    for change in changes {
        match change {
            // SAFETY: the child has one thread.
            Change::Unset(name) => unsafe { std::env::remove_var(name) },
            // SAFETY: as above.
            Change::Set(name, value) => unsafe { std::env::set_var(name, value) },
            Change::RaiseLimits => raise_limits(),
        }
    }
}

/// Describes how a process ended, for a sentence.
pub(super) fn ended(how: &str, said: &str) -> String {
    if said.is_empty() {
        format!("crashes the calling process ({how})")
    } else {
        format!("crashes the calling process ({how}): {said}")
    }
}

/// Queries the runtime of this process.
fn look() -> Seen {
    let mut seen = Seen::default();
    match device::devices() {
        Ok(devices) => {
            seen.devices = devices.iter().map(shown).collect();
            seen.has_in_order_queues = runtime::cpu_queues_are_in_order();
            let problems = device::layer_problems(&devices).into_iter();
            seen.layer_problems = problems.map(|problem| (problem.text, problem.fix)).collect();
        }
        Err(error) => seen.error = Some(without_hint(&error.to_string()).to_owned()),
    }
    let problems = device::platform_problems().unwrap_or_default();
    seen.broken = problems.into_iter().map(|found| (found.platform, found.error.to_string())).collect();
    seen.loaded = runtime::libraries("lib");
    seen
}

/// The text of an error without its advice to run the doctor or to check a variable, which the doctor checks
/// itself.
fn without_hint(error: &str) -> &str {
    let hints = [DOCTOR, "ONEAPI_DEVICE_SELECTOR="].map(|hint| format!("; {hint}"));
    let end = hints.iter().filter_map(|hint| error.find(hint)).min();
    &error[..end.unwrap_or(error.len())]
}

fn shown(device: &Device) -> Shown {
    let kinds = UsmKind::ALL.into_iter().filter(|kind| device.has_usm(*kind)).map(|kind| kind.to_string());
    Shown {
        filter: device.filter_string().unwrap_or_default().to_owned(),
        name: device.name().to_owned(),
        driver: device.driver_version().to_owned(),
        memory: device.global_mem_size(),
        usm: kinds.collect::<Vec<_>>().join(" "),
    }
}

/// Neither occurs in names.
const FIELD: char = '\u{1f}';
const RECORD: char = '\u{1e}';

fn encode(seen: &Seen) -> String {
    let mut text = String::new();
    let mut record = |fields: &[&str]| {
        text += &fields.join(&FIELD.to_string());
        text.push(RECORD);
    };
    for d in &seen.devices {
        record(&["device", &d.filter, &d.name, &d.driver, &d.memory.to_string(), &d.usm]);
    }
    for (platform, error) in &seen.broken {
        record(&["broken", platform, error]);
    }
    if let Some(error) = &seen.error {
        record(&["error", error]);
    }
    if seen.has_in_order_queues {
        record(&["in-order queues"]);
    }
    for (problem, fix) in &seen.layer_problems {
        record(&["layer", problem, fix]);
    }
    for path in &seen.loaded {
        record(&["loaded", &path.to_string_lossy()]);
    }
    text
}

fn decode(text: &str) -> Seen {
    let mut seen = Seen::default();
    for record in text.split_terminator(RECORD) {
        match *record.split(FIELD).collect::<Vec<_>>() {
            ["device", filter, name, driver, memory, usm] => seen.devices.push(Shown {
                filter: filter.to_owned(),
                name: name.to_owned(),
                driver: driver.to_owned(),
                memory: memory.parse().unwrap_or_default(),
                usm: usm.to_owned(),
            }),
            ["broken", platform, error] => seen.broken.push((platform.to_owned(), error.to_owned())),
            ["error", error] => seen.error = Some(error.to_owned()),
            ["in-order queues"] => seen.has_in_order_queues = true,
            ["layer", problem, fix] => seen.layer_problems.push((problem.to_owned(), fix.to_owned())),
            ["loaded", path] => {
                seen.loaded.insert(path.into());
            }
            _ => {}
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_to_run_the_doctor_is_omitted() {
        assert_eq!(without_hint(&format!("bad; worse; {DOCTOR} says more")), "bad; worse");
        assert_eq!(without_hint("bad; ONEAPI_DEVICE_SELECTOR=\"x\" chooses"), "bad");
        assert_eq!(without_hint("bad"), "bad");
    }

    #[test]
    fn results_of_the_child_process_reach_the_parent() {
        let device = |filter: &str, usm: &str| Shown {
            filter: filter.to_owned(),
            name: "a name, (R) of: 1".to_owned(),
            driver: String::new(),
            memory: 1 << 40,
            usm: usm.to_owned(),
        };
        let seen = Seen {
            devices: vec![device("opencl:cpu:0", "device shared"), device("opencl:cpu:1", "")],
            broken: vec![("bad one".to_owned(), "error\nof two lines".to_owned())],
            error: Some("none".to_owned()),
            loaded: ["/a/libx.so", "/b c/liby.so"].map(PathBuf::from).into(),
            has_in_order_queues: true,
            layer_problems: vec![("off".to_owned(), "unset X".to_owned())],
        };
        assert_eq!(decode(&encode(&seen)), seen);
        assert_eq!(decode(""), Seen::default());
    }
}
