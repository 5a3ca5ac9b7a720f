//! Diagnoses why a device is visible or not, with fixes.
//!
//! [`doctor()`] checks everything that affects which devices a process sees, and reports the state and the
//! fix of each fact. It does not start the runtime in this process: child processes run the checks, so that a
//! driver that crashes or hangs is a finding. If this process has already started the runtime, the doctor
//! queries it here.

mod adapters;
mod devices;
mod dlopen;
mod icd;
mod installation;
mod intel;
mod kernels;
mod layers;
mod level_zero;
mod limits;
mod machine;
mod nvidia;
mod opencl;
mod probe;
mod report;
mod search_path;
mod settings;
mod subprocess;
mod system;
mod variables;

pub use report::{Finding, Report, State, Topic};

use crate::error::{Error, Result};
use crate::runtime::interrupt::uninterruptible;
use kernels::Trial;
use probe::{Asker, Change, Probe};
use std::time::Duration;
use system::{System, named};

/// How long [`doctor()`] waits for the runtime's list of devices.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Reports everything that affects which devices are visible. Never fails: problems are findings.
///
/// ```no_run
/// let report = usmq::doctor();
/// println!("{report}");
/// std::process::exit(if report.is_ok() { 0 } else { 1 });
/// ```
#[must_use]
pub fn doctor() -> Report {
    uninterruptible(|| report(&Asker::new(LIMIT)))
}

/// As [`doctor()`], with another time limit for each query of a driver.
///
/// ```
/// use std::time::Duration;
///
/// let report = usmq::doctor::within(Duration::from_secs(30))?;
/// println!("{}", report.verdict());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Interrupted`], inside [`with_interrupt`](crate::with_interrupt) only.
pub fn within(limit: Duration) -> Result<Report> {
    let asker = Asker::new(limit);
    let report = report(&asker);
    if asker.is_interrupted() { Err(Error::Interrupted) } else { Ok(report) }
}

fn report(asker: &Asker) -> Report {
    let system = System::real();
    let mut found = installation::findings(&system);
    if system.libsycl().is_none() {
        return Report::new(found, 0);
    }
    if let Some(forked) = installation::forked() {
        found.push(forked);
        return Report::new(found, 0);
    }
    let no_folder = installation::no_folder().filter(|_| !asker.is_here());
    if let Some(fault) = no_folder.or_else(|| layers::fault(&system)) {
        found.push(fault);
        return Report::new(found, 0);
    }
    let probe = asker.devices();
    let chosen = variables::without_choice(&system, asker);
    let plain = chosen.as_ref().unwrap_or(&probe);
    let hidden = probe.count() == 0 && chosen.is_some();
    // Hidden devices are not a fault of the drivers, and the test kernel needs a device.
    let changes: &[_] = if hidden { &variables::NONE_CHOOSES } else { &[] };
    let trial = kernels::trial(&system, asker, if hidden { plain } else { &probe }, changes);
    let works = plain.count() > 0 && trial.as_ref().is_none_or(Trial::works);
    let cause = if works { None } else { cause(&system, asker, changes, plain.count()) };
    let fix = cause.as_ref().and_then(|cause| cause.fix.clone());
    let fix = fix.as_deref();
    found.extend(adapters::findings(&system, asker, &probe, fix));
    let (drivers, repaired) = opencl::findings(&system, asker, plain, fix);
    found.extend(drivers);
    let loads = |name: &str| asker.refusal(name) == Some(Ok(String::new()));
    let hardware = intel::findings(&system, &probe, loads);
    let level_zero = level_zero::findings(&system, plain, &hardware, loads);
    found.extend(hardware.into_iter().chain(level_zero));
    found.extend(nvidia::findings(&system, asker, has_cuda_adapter(&system, &probe), cuda_devices));
    found.extend(choices(&system, asker, &probe, chosen.as_ref(), repaired));
    found.extend(settings::findings(&system));
    found.extend(layers::findings(&system, &probe));
    if let Some(trial) = trial {
        found.extend(kernels::findings(&system, asker, changes, &trial, fix));
    }
    if let Some(cause) = cause {
        found.push(judged(cause, &found));
    } else {
        found.extend(limits::harmless(&system));
        found.extend(search_path::finding(&system).map(|finding| Finding { fix: None, ..finding }));
        found.extend(installation::too_early(plain.count()));
    }
    found.extend(devices::findings(&system, asker, &probe, &found));
    Report::new(found, probe.count())
}

/// Why a process that starts now sees no emulated GPU, though it asks for some; for `usmq emulate`. A child process asks
/// for the devices.
#[cfg(feature = "python")]
pub(crate) fn why_no_emulated_gpu() -> Option<String> {
    use crate::runtime::emulator::{GPUS, NAME};
    match Asker::new(LIMIT).devices() {
        Probe::Seen(seen) if seen.devices.iter().any(|device| device.name.starts_with(NAME)) => None,
        Probe::Seen(seen) => {
            let told =
                seen.layer_problems.into_iter().map(|(text, _)| text).find(|text| text.starts_with(GPUS));
            Some(told.or(seen.error).unwrap_or_else(|| "no emulated GPU is visible".to_owned()))
        }
        Probe::Died { how, said } => Some(format!("asking for the devices {}", probe::ended(&how, &said))),
        Probe::TooLong(limit) => {
            Some(format!("the drivers do not list their devices within {} s", limit.as_secs_f32()))
        }
    }
}

/// A reason why the whole runtime may fail here, with its fix. A problem is certain; any other state is a
/// suspect.
fn cause(system: &System, asker: &Asker, changes: &[Change<'_>], devices: usize) -> Option<Finding> {
    let works = |more: &[Change<'_>]| {
        let all: Vec<_> = changes.iter().chain(more).copied().collect();
        let Some(probe) = asker.devices_with(&all) else { return false };
        probe.count() > 0 && kernels::trial(system, asker, &probe, &all).is_none_or(|trial| trial.works())
    };
    installation::too_early(devices)
        .filter(|finding| finding.state == State::Problem)
        .or_else(|| limits::cause(system, asker, works))
        .or_else(|| search_path::finding(system))
        .or_else(|| variables::asked_before(system))
}

/// A suspect becomes the problem if a failed check names its fix, or if no other finding explains the
/// failure.
fn judged(cause: Finding, found: &[Finding]) -> Finding {
    const RELATED: [Topic; 5] =
        [Topic::Runtime, Topic::Adapters, Topic::OpenCl, Topic::Variables, Topic::Kernels];
    let problems = || found.iter().filter(|finding| finding.state == State::Problem);
    let needed = problems().any(|finding| finding.fix == cause.fix);
    if cause.state == State::Problem || needed || !problems().any(|finding| RELATED.contains(&finding.topic))
    {
        Finding { state: State::Problem, ..cause }
    } else {
        Finding { fix: None, ..cause }
    }
}

/// Reports the effect of the variables that select devices. If a driver does not work, queries with the
/// drivers in `repaired`.
fn choices(
    system: &System,
    asker: &Asker,
    probe: &Probe,
    chosen: Option<&Probe>,
    repaired: Option<String>,
) -> Vec<Finding> {
    if let (Some(0), Some(drivers)) = (chosen.map(Probe::count), repaired) {
        let set = Change::Set("OCL_ICD_FILENAMES", &drivers);
        let without: Vec<_> = variables::NONE_CHOOSES.into_iter().chain([set]).collect();
        if let (Some(probe), Some(plain)) = (asker.devices_with(&[set]), asker.devices_with(&without)) {
            return variables::findings(system, asker, &probe, Some(&plain), &[set]);
        }
    }
    variables::findings(system, asker, probe, chosen, &[])
}

fn has_cuda_adapter(system: &System, probe: &Probe) -> bool {
    const NAME: &str = "libur_adapter_cuda.so.0";
    let loaded = probe.seen().is_some_and(|seen| named(&seen.loaded, NAME).next().is_some());
    loaded || system.find_library(NAME).is_some()
}

/// Number of devices of the NVIDIA driver; `None` if only its library was checked.
#[cfg(feature = "cuda")]
fn cuda_devices() -> std::result::Result<Option<usize>, String> {
    crate::interop::cuda::device_count().map(Some).map_err(|error| error.to_string())
}

/// Without the feature `cuda`: whether the driver's library can be loaded.
#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> std::result::Result<Option<usize>, String> {
    dlopen::refusal("libcuda.so.1").map_or(Ok(None), Err)
}
