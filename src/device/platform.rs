//! A platform: the devices of one driver.

use super::{Backend, Context, Device};
use crate::error::{Error, Result};
use crate::ffi;
use std::fmt;
use std::sync::Arc;

/// A SYCL platform: the devices of one driver, with their default context. Cheap to clone.
///
/// Source: SYCL 2020, section 4.6.2.
///
/// ```
/// for platform in usmq::platforms()? {
///     println!("{} {}: {} devices", platform.name(), platform.version(), platform.devices().len());
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Clone)]
pub struct Platform(Arc<Inner>);

struct Inner {
    info: ffi::PlatformInfo,
    devices: Vec<Device>,
}

impl Platform {
    pub(super) fn new(info: ffi::PlatformInfo, devices: Vec<Device>) -> Self {
        Self(Arc::new(Inner { info, devices }))
    }

    /// The platform's name, as reported by its driver.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// The vendor's name.
    #[must_use]
    pub fn vendor(&self) -> &str {
        &self.0.info.vendor
    }

    /// The version, as reported by its driver.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.0.info.version
    }

    /// The backend of its devices.
    #[must_use]
    pub fn backend(&self) -> Backend {
        Backend::from_name(&self.0.info.backend)
    }

    /// Its root devices, in the order of [`devices`](crate::devices).
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// The default context of its devices, which other SYCL libraries use too.
    ///
    /// # Errors
    /// [`Error::Value`] for a platform without devices, [`Error::Sycl`] if the runtime cannot create one.
    pub fn default_context(&self) -> Result<Context> {
        match self.devices() {
            [first, ..] => first.default_context(),
            [] => Err(Error::value(format!("{self} has no devices, and thus no context"))),
        }
    }
}

/// Platforms are equal if they have the same devices.
impl PartialEq for Platform {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.devices() == other.devices() && self.name() == other.name())
    }
}

impl Eq for Platform {}

impl std::hash::Hash for Platform {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.devices().hash(state);
    }
}

/// `platform Intel(R) OpenCL (opencl), 1 device`.
impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.devices().len();
        let plural = if devices == 1 { "" } else { "s" };
        write!(f, "platform {} ({}), {devices} device{plural}", self.name().trim(), self.backend())
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Platform({self})")
    }
}
