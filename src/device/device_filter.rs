//! Finds devices by aspects, backend and device type.

use super::discovery::{devices, visible};
use super::{Backend, Device};
use crate::error::{During, Error, Result};
use crate::ffi;
use once_cell::sync::OnceCell;

/// Requirements for devices.
///
/// ```
/// use usmq::{Aspect, Backend, DeviceFilter, DeviceType};
///
/// let cpus = DeviceFilter::new().device_type(DeviceType::Cpu).aspect(Aspect::Fp64).devices()?;
/// assert!(cpus.iter().all(|device| device.device_type() == DeviceType::Cpu));
/// let others = DeviceFilter::new().backend(Backend::OpenCl).device_type("gpu").devices()?;
/// assert!(others.iter().all(|device| device.backend() == Backend::OpenCl));
/// let best = DeviceFilter::new().aspect("usm_shared_allocations").select()?;
/// assert!(best.has_usm(usmq::UsmKind::Shared));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "a filter does nothing until it is applied"]
pub struct DeviceFilter {
    aspects: Vec<String>,
    excluded_aspects: Vec<String>,
    backend: Option<String>,
    device_type: Option<String>,
}

impl DeviceFilter {
    /// A filter that accepts every root device.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires an [`Aspect`](crate::Aspect), or the one of this name, also an extension's.
    pub fn aspect(mut self, name: impl ToString) -> Self {
        self.aspects.push(name.to_string());
        self
    }

    /// Refuses devices with an [`Aspect`](crate::Aspect), such as [`Emulated`](crate::Aspect::Emulated), or the one of
    /// this name.
    pub fn without_aspect(mut self, name: impl ToString) -> Self {
        self.excluded_aspects.push(name.to_string());
        self
    }

    /// Requires a [`Backend`], or the one of this name, such as `level_zero`.
    pub fn backend(mut self, name: impl ToString) -> Self {
        self.backend = Some(name.to_string());
        self
    }

    /// Requires a [`DeviceType`](crate::DeviceType), or the one of this name: `cpu`, `gpu`, `accelerator` or `custom`.
    pub fn device_type(mut self, name: impl ToString) -> Self {
        self.device_type = Some(name.to_string());
        self
    }

    /// Every root device that meets the requirements, in the order of [`devices`](crate::devices).
    ///
    /// # Errors
    /// As [`devices`](crate::devices); [`Error::Value`] for an unknown name.
    pub fn devices(&self) -> Result<Vec<Device>> {
        self.check()?;
        let accepted = |device: &Device| self.accepts(device).map(|accepts| accepts.then(|| device.clone()));
        devices()?.iter().filter_map(|device| accepted(device).transpose()).collect()
    }

    /// The best of these devices, by the rating of SYCL's default selector.
    ///
    /// # Errors
    /// [`Error::DeviceNotFound`] if no device meets the requirements; otherwise as [`Self::devices`].
    pub fn select(&self) -> Result<Device> {
        let rated = self.devices()?.into_iter().filter(|device| device.default_selector_score() >= 0);
        // The first of the best, as SYCL chooses.
        rated
            .reduce(
                |best, next| {
                    if next.default_selector_score() > best.default_selector_score() { next } else { best }
                },
            )
            .ok_or_else(|| Error::DeviceNotFound { asked: self.described(), visible: visible() })
    }

    fn check(&self) -> Result<()> {
        self.aspects.iter().chain(&self.excluded_aspects).try_for_each(|name| check_aspect(name))?;
        if let Some(name) = &self.backend {
            check_name("backend", name, &Backend::NAMED.map(Backend::name))?;
        }
        match &self.device_type {
            Some(name) => check_name("device type", name, &["cpu", "gpu", "accelerator", "custom"]),
            None => Ok(()),
        }
    }

    fn accepts(&self, device: &Device) -> Result<bool> {
        let has = device.aspect_names()?;
        Ok(self.aspects.iter().all(|name| has.contains(name))
            && !self.excluded_aspects.iter().any(|name| has.contains(name))
            && self.backend.as_ref().is_none_or(|name| name == device.backend().name())
            && self.device_type.as_ref().is_none_or(|name| name == device.device_type().name()))
    }

    fn described(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.backend.iter().map(|name| format!("backend {name}")));
        parts.extend(self.device_type.iter().map(|name| format!("type {name}")));
        parts.extend(self.aspects.iter().map(|name| format!("aspect {name}")));
        parts.extend(self.excluded_aspects.iter().map(|name| format!("without aspect {name}")));
        if parts.is_empty() { "any device".to_owned() } else { parts.join(", ") }
    }
}

impl Device {
    /// Whether the device has a SYCL aspect: an [`Aspect`](crate::Aspect), or its name, also that of an extension.
    ///
    /// ```
    /// use usmq::{Aspect, UsmKind};
    ///
    /// let device = &usmq::devices()?[0];
    /// assert_eq!(device.has(Aspect::UsmDeviceAllocations)?, device.has_usm(UsmKind::Device));
    /// device.has("ext_intel_free_memory")?;
    /// assert!(device.has("fp65").is_err());
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Value`] for a name that is not an aspect's, [`Error::Sycl`] if the runtime cannot answer.
    pub fn has(&self, aspect: impl ToString) -> Result<bool> {
        let name = aspect.to_string();
        check_aspect(&name)?;
        Ok(self.aspect_names()?.contains(&name))
    }
}

/// An error for a name that is not an aspect's: a misspelt one would match no device.
fn check_aspect(name: &str) -> Result<()> {
    static NAMES: OnceCell<Vec<String>> = OnceCell::new();
    let names = NAMES.get_or_try_init(|| ffi::aspect_names().during("listing the aspects of SYCL"))?;
    if names.iter().any(|known| known == name) {
        return Ok(());
    }
    let standard: Vec<_> =
        names.iter().filter(|known| !known.starts_with("ext_")).map(String::as_str).collect();
    Err(Error::value(format!(
        "unknown aspect {name:?}; the aspects of SYCL are {}, and those of its extensions, such as \
         ext_intel_free_memory",
        standard.join(", ")
    )))
}

fn check_name(what: &str, name: &str, known: &[&str]) -> Result<()> {
    if known.contains(&name) {
        return Ok(());
    }
    Err(Error::value(format!("unknown {what} {name:?}; it is one of {}", known.join(", "))))
}
