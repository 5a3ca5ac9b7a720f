//! Every root device, found once: the runtime's list does not change while the process lives.

use super::queue::finish_work;
use super::selector::Candidate;
use super::{Device, Selector, UsmKind};
use crate::error::{During, Error, Result};
use crate::{ffi, runtime};
use once_cell::sync::OnceCell;
use std::collections::HashMap;

struct Registry {
    devices: Vec<Device>,
    problems: Vec<PlatformProblem>,
}

/// A platform whose devices could not be listed, and why.
#[derive(Debug, Clone)]
pub struct PlatformProblem {
    /// The platform's name, or its number when it does not even tell that.
    pub platform: String,
    /// What went wrong.
    pub error: Error,
}

static REGISTRY: OnceCell<Registry> = OnceCell::new();

fn registry() -> Result<&'static Registry> {
    runtime::ready()?;
    REGISTRY.get_or_try_init(|| {
        let found = Registry::enumerate()?;
        runtime::exit::finish_with(finish_work);
        runtime::exit::guard();
        Ok(found)
    })
}

impl Registry {
    /// One broken platform must not hide the others.
    fn enumerate() -> Result<Self> {
        let mut found = Self { devices: Vec::new(), problems: Vec::new() };
        let mut indices = HashMap::new();
        let count = ffi::platform_count().during("listing platforms").map_err(|error| match error {
            Error::Sycl { message, .. } => {
                Error::RuntimeNotFound(format!("no platform can be listed: {message}{}", hint()))
            }
            other => other,
        })?;
        for platform in 0..count {
            if let Err(error) = found.add_platform(platform, &mut indices) {
                let name = ffi::platform_info(platform)
                    .map_or_else(|_| format!("platform {platform}"), |info| info.name);
                found.problems.push(PlatformProblem { platform: name, error });
            }
        }
        Ok(found)
    }

    fn add_platform(
        &mut self,
        platform: usize,
        indices: &mut HashMap<(String, String), usize>,
    ) -> Result<()> {
        let list = ffi::platform_devices(platform).during("listing the devices of a platform")?;
        for raw in &*list {
            let raw = ffi::device_copy(raw).during("keeping a device")?;
            let device = Device::root(raw, self.devices.len(), |backend, device_type| {
                indices.get(&(backend.to_owned(), device_type.to_owned())).copied().unwrap_or(0)
            })?;
            *indices.entry((device.backend().to_owned(), device.device_type().to_owned())).or_default() += 1;
            self.devices.push(device);
        }
        Ok(())
    }
}

/// Every visible root device, in the runtime's order. `ONEAPI_DEVICE_SELECTOR` is respected by the runtime.
///
/// # Errors
/// [`Error::RuntimeNotFound`], [`Error::RuntimeConflict`] or [`Error::Fork`]. A platform that cannot be listed is no
/// error here; see [`platform_problems`].
pub fn devices() -> Result<Vec<Device>> {
    Ok(registry()?.devices.clone())
}

/// Platforms whose devices could not be listed.
///
/// # Errors
/// As [`devices`].
pub fn platform_problems() -> Result<Vec<PlatformProblem>> {
    Ok(registry()?.problems.clone())
}

/// Why devices may be missing, to be put behind "none".
fn hint() -> String {
    match std::env::var("ONEAPI_DEVICE_SELECTOR") {
        Ok(selector) => format!("; ONEAPI_DEVICE_SELECTOR={selector:?} chooses which devices there are"),
        Err(_) => "; `python -m usmq doctor` says what is missing".to_owned(),
    }
}

/// The visible devices in one line, for errors.
fn visible() -> String {
    match registry() {
        Ok(found) if found.devices.is_empty() => format!("none{}", hint()),
        Ok(found) => found.devices.iter().map(Device::to_string).collect::<Vec<_>>().join(", "),
        Err(error) => format!("none ({error})"),
    }
}

/// The device that a filter string chooses.
pub(crate) fn select(selector: &Selector) -> Result<Device> {
    choose(selector, &registry()?.devices)
        .ok_or_else(|| Error::DeviceNotFound { asked: selector.as_str().to_owned(), visible: visible() })
}

/// SYCL's own choice, the best rated device, among those that can hold an array.
pub(crate) fn default_device() -> Result<Device> {
    let devices = &registry()?.devices;
    let with_usm: Vec<_> = devices
        .iter()
        .filter(|device| UsmKind::ALL.iter().any(|kind| device.has_usm(*kind)))
        .cloned()
        .collect();
    choose(&Selector::parse(":")?, if with_usm.is_empty() { devices } else { &with_usm })
        .ok_or_else(|| Error::RuntimeNotFound(format!("no SYCL device is visible{}", hint())))
}

fn choose(selector: &Selector, devices: &[Device]) -> Option<Device> {
    let candidates: Vec<_> = devices
        .iter()
        .map(|d| Candidate { backend: d.backend(), device_type: d.device_type(), score: d.score() })
        .collect();
    selector.choose(&candidates).map(|position| devices[position].clone())
}
