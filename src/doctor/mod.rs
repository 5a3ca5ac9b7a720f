//! Why a device is visible or not, and what to do about it.
//!
//! [`doctor()`] looks at everything that decides which devices a process sees, and says of each fact how it stands and
//! how it is mended. It starts no runtime in this process: it asks in child processes, so that a driver that crashes or
//! hangs is a finding, not the end. Only where this process has started the runtime already is it asked here.

mod adapters;
mod child;
mod devices;
mod icd;
mod intel;
mod library;
mod machine;
mod nvidia;
mod opencl;
mod origin;
mod probe;
mod report;
mod settings;
mod variables;
mod world;

pub use report::{Finding, Report, State, Topic};

use crate::error::{Error, Result};
use crate::runtime::interrupt::shielded;
use probe::{Asker, Probe};
use std::time::Duration;
use world::{World, named};

/// How long [`doctor()`] waits for the runtime to tell its devices.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Everything that decides which devices are visible. Never fails: what goes wrong is a finding.
///
/// ```no_run
/// let report = usmq::doctor();
/// println!("{report}");
/// std::process::exit(if report.is_ok() { 0 } else { 1 });
/// ```
#[must_use]
pub fn doctor() -> Report {
    shielded(|| report(&Asker::new(LIMIT)))
}

/// [`doctor()`] with another limit for each question that a driver may not answer.
///
/// # Errors
/// [`Error::Interrupted`], inside [`with_interrupt`](crate::with_interrupt) only.
pub fn within(limit: Duration) -> Result<Report> {
    let asker = Asker::new(limit);
    let report = report(&asker);
    if asker.is_interrupted() { Err(Error::Interrupted) } else { Ok(report) }
}

fn report(asker: &Asker) -> Report {
    let world = World::real();
    let mut found = origin::findings(&world);
    if world.libsycl().is_none() {
        return Report::new(found, 0);
    }
    if let Some(forked) = origin::forked() {
        found.push(forked);
        return Report::new(found, 0);
    }
    let probe = asker.devices();
    found.extend(adapters::findings(&world, asker, &probe));
    found.extend(opencl::findings(&world, asker, &probe));
    let loads = |name: &str| asker.refusal(name) == Some(Ok(String::new()));
    found.extend(intel::findings(&world, &probe, loads));
    found.extend(nvidia::findings(&world, asker, has_cuda_adapter(&world, &probe), cuda_devices));
    found.extend(variables::findings(&world, asker, &probe));
    found.extend(settings::findings(&world));
    found.extend(devices::findings(asker, &probe, &found));
    Report::new(found, probe.count())
}

fn has_cuda_adapter(world: &World, probe: &Probe) -> bool {
    const NAME: &str = "libur_adapter_cuda.so.0";
    let loaded = probe.seen().is_some_and(|seen| named(&seen.loaded, NAME).next().is_some());
    loaded || world.find_library(NAME).is_some()
}

/// Number of devices of the NVIDIA driver; `None` when only its library was asked for.
#[cfg(feature = "cuda")]
fn cuda_devices() -> std::result::Result<Option<usize>, String> {
    crate::interop::cuda::device_count().map(Some).map_err(|error| error.to_string())
}

/// Without the feature `cuda`: whether the driver's library can be loaded.
#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> std::result::Result<Option<usize>, String> {
    library::refusal("libcuda.so.1").map_or(Ok(None), Err)
}
