//! Discovers every root device once: the runtime's list does not change while the process lives. The devices of foreign
//! queues, contexts and pointers are found in this list.

use super::selector::Candidate;
use super::{Backend, Context, Device, Platform, Selector, UsmAt, UsmKind};
use crate::error::{DOCTOR, During, Error, Result, spelled};
use crate::runtime::{CountedWait, Handle, Layers};
use crate::{completion, ffi, runtime};
use cxx::UniquePtr;
use once_cell::sync::OnceCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

struct Registry {
    devices: Vec<Device>,
    platforms: Vec<Platform>,
    problems: Vec<PlatformProblem>,
}

/// A platform that could not list its devices, or one of them, with the error.
///
/// ```
/// for problem in usmq::platform_problems()? {
///     println!("{} is left out: {}", problem.platform, problem.error);
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PlatformProblem {
    /// The platform's name, or its number if the name is not available.
    pub platform: String,
    /// The error.
    pub error: Error,
}

static REGISTRY: OnceCell<Arc<Registry>> = OnceCell::new();

/// Why a result is not cached.
enum Passing {
    Failed(Error),
    /// Only problems were found; they may be gone at the next query.
    Found(Arc<Registry>),
}

fn registry() -> Result<Arc<Registry>> {
    runtime::ready()?;
    completion::start()?;
    let mut is_first = false;
    let kept = REGISTRY.get_or_try_init(|| {
        let _counted = CountedWait::begin().map_err(Passing::Failed)?;
        let found = Arc::new(Registry::enumerate().map_err(Passing::Failed)?);
        if found.devices.is_empty() && !found.problems.is_empty() {
            return Err(Passing::Found(found));
        }
        runtime::exit::guard();
        is_first = true;
        Ok(found)
    });
    match kept {
        Ok(found) => {
            if is_first {
                super::layers::warn(&found.devices); // outside of the initialisation: a subscriber may ask for devices
            }
            Ok(found.clone())
        }
        Err(Passing::Found(found)) => Ok(found),
        Err(Passing::Failed(error)) => Err(error),
    }
}

impl Registry {
    /// One broken platform, or device, must not hide the others. The result is permanent, so a failed query
    /// is retried once.
    fn enumerate() -> Result<Self> {
        let mut found = Self { devices: Vec::new(), platforms: Vec::new(), problems: Vec::new() };
        let mut indices = HashMap::new();
        let count = ffi::platform_count().during("listing platforms").map_err(|error| match error {
            Error::Sycl { message, .. } => {
                Error::runtime_not_found(format!("no platform can be listed: {message}{}", hint()))
            }
            other => other,
        })?;
        for platform in 0..count {
            if let Err(error) = found.add_platform(platform, &mut indices) {
                found.add_problem(platform, error);
            }
        }
        Ok(found)
    }

    /// The reason for an empty device list, as a suffix of "none".
    fn why_none(&self) -> String {
        let told = |problem: &PlatformProblem| format!("; {}: {}", problem.platform, problem.error);
        self.problems.iter().map(told).collect::<String>() + &hint()
    }

    fn add_platform(
        &mut self,
        platform: usize,
        indices: &mut HashMap<(Backend, String), usize>,
    ) -> Result<()> {
        let list = twice(|| ffi::platform_devices(platform)).during("listing the devices of a platform")?;
        let first = self.devices.len();
        for raw in &*list {
            let device = twice(|| {
                let raw = ffi::device_copy(raw).during("copying a device")?;
                Device::root(raw, self.devices.len(), |backend, device_type| {
                    indices.get(&(backend, device_type.to_owned())).copied().unwrap_or(0)
                })
            });
            match device {
                Ok(device) => {
                    let kind = (device.backend(), device.device_type().name().to_owned());
                    *indices.entry(kind).or_default() += 1;
                    self.devices.push(device);
                }
                Err(error) => self.add_problem(platform, error),
            }
        }
        // Without a description the platform is a problem, but its devices can be used.
        let info = twice(|| ffi::platform_info(platform)).during("querying the description of a platform")?;
        self.platforms.push(Platform::new(info, self.devices[first..].to_vec()));
        Ok(())
    }

    fn add_problem(&mut self, platform: usize, error: Error) {
        let name =
            ffi::platform_info(platform).map_or_else(|_| format!("platform {platform}"), |info| info.name);
        self.problems.push(PlatformProblem { platform: name, error });
    }
}

fn twice<T, E>(mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    attempt().or_else(|_| attempt())
}

/// Every visible root device, in the runtime's order. The runtime applies `ONEAPI_DEVICE_SELECTOR`.
///
/// ```
/// for device in usmq::devices()? {
///     println!("{device}: {} bytes of memory", device.global_mem_size());
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::RuntimeNotFound`], [`Error::RuntimeConflict`] or [`Error::Fork`]. A platform that cannot be
/// listed is not an error here; see [`platform_problems`].
pub fn devices() -> Result<Vec<Device>> {
    Ok(registry()?.devices.clone())
}

/// The parts of usmq's OpenCL layer that this process uses, as the layer itself reports them.
///
/// A warning says why a part is off that the process needs: in the events of `tracing`, and on standard error.
///
/// ```
/// let layers = usmq::layers()?;
/// println!("ordered waits: {}, emulated GPUs: {}", layers.waits, layers.emulator);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// As [`devices`]: it queries the devices first.
pub fn layers() -> Result<Layers> {
    devices()?;
    Ok(runtime::opencl_layers::layers())
}

/// Every platform that can list its devices, in the runtime's order.
///
/// ```
/// let devices = usmq::platforms()?.iter().flat_map(|platform| platform.devices().to_vec()).collect::<Vec<_>>();
/// assert_eq!(devices, usmq::devices()?);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// As [`devices`].
pub fn platforms() -> Result<Vec<Platform>> {
    Ok(registry()?.platforms.clone())
}

impl Device {
    /// The platform of the device, or of its root device.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime cannot describe the platform; [`platform_problems`] has the reason.
    pub fn platform(&self) -> Result<Platform> {
        let root = self.root_device();
        let found = platforms()?.into_iter().find(|platform| platform.devices().contains(root));
        found.ok_or_else(|| Error::Sycl {
            operation: "querying a platform".to_owned(),
            code: "unknown".to_owned(),
            message: format!("the runtime did not describe the platform of {root}"),
        })
    }
}

/// The device of a foreign queue or pointer: a known root device, or a sub-device.
pub(super) fn adopt(raw: UniquePtr<ffi::Device>) -> Result<Device> {
    let raw = Handle::new(raw);
    let id = ffi::device_id(raw.get()?).during("identifying a device")?;
    if let Some(known) = registry()?.devices.iter().find(|device| device.id() == id) {
        return Ok(known.clone());
    }
    let parent = ffi::device_parent(raw.get()?).during("querying the parent of a sub-device")?;
    if parent.is_null() {
        return Err(Error::interop("the device is not among the visible root devices"));
    }
    adopt(parent)?.known_part_or(id, raw)
}

/// Kind, device and allocation of an address in USM. [`Context::pointer_info`] returns it.
///
/// ```
/// use usmq::{Array, UsmKind};
///
/// let x = Array::builder::<f32>(3).kind(UsmKind::Host).build()?;
/// let found = x.context().pointer_info(x.address())?.expect("USM of this context");
/// assert_eq!(found.kind, UsmKind::Host);
/// assert!(x.context().pointer_info(0)?.is_none());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointerInfo {
    /// The USM kind.
    pub kind: UsmKind,
    /// The device that owns device or shared memory; for host memory a device of the context.
    pub device: Device,
    /// First address of the allocation; `None` if the driver does not report it.
    pub base: Option<usize>,
    /// Bytes of the allocation; `None` if the driver does not report it.
    pub bytes: Option<usize>,
}

impl Context {
    /// A handle to a context of another library.
    ///
    /// # Safety
    /// `handle` points to a live `sycl::context` made by the libsycl of this process. It is copied, not kept.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime refuses it.
    pub unsafe fn from_raw(handle: NonNull<c_void>) -> Result<Self> {
        devices()?;
        let address = handle.as_ptr() as usize;
        // SAFETY: the caller's promise.
        Self::adopt(unsafe { ffi::context_copy_from(address) }.during("copying a context")?)
    }

    /// The devices of this context.
    ///
    /// # Errors
    /// [`Error::Interop`] if one of them is not visible to this process.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let list = ffi::context_devices(self.raw()?).during("querying the devices of a context")?;
        list.iter().map(|device| adopt(ffi::device_copy(device).during("copying a device")?)).collect()
    }

    /// Queries kind, device and allocation of an address. `None` if it is not USM of this context. Any
    /// address is valid. The result is out of date once another thread frees the memory.
    ///
    /// ```
    /// let x = usmq::Array::zeros::<f32>([3])?;
    /// let found = x.context().pointer_info(x.address())?;
    /// assert!(found.is_some_and(|found| Some(found.kind) == x.usm_kind() && found.device == *x.device()));
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime cannot answer.
    pub fn pointer_info(&self, address: usize) -> Result<Option<PointerInfo>> {
        let Some(found) = self.usm_at(address)? else { return Ok(None) };
        Ok(Some(PointerInfo {
            kind: found.kind,
            device: self.device_of(address, &found)?,
            base: found.range.map(|(base, _)| base),
            bytes: found.range.map(|(base, end)| end - base),
        }))
    }

    /// The device of a USM pointer, as [`Context::usm_at`] found it.
    pub(crate) fn device_of(&self, pointer: usize, found: &UsmAt) -> Result<Device> {
        if found.device != 0
            && let Some(device) = self.device_named(found.device)?
        {
            return Ok(device);
        }
        adopt(ffi::usm_device(pointer, self.raw()?).during("querying the device of a pointer")?)
    }

    /// The device of this context with the driver's handle; `None` for the parent of its sub-devices, which drivers report
    /// for their memory.
    fn device_named(&self, native: usize) -> Result<Option<Device>> {
        for root in &registry()?.devices {
            // The default context has all root devices of the platform.
            let is_named = root.capabilities().pointer_info && root.native().is_ok_and(|own| own == native);
            if is_named && root.default_context().is_ok_and(|context| context == *self) {
                return Ok(Some(root.clone()));
            }
        }
        for device in self.devices()? {
            if device.native()? == native {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }
}

/// Platforms whose devices could not be listed.
///
/// ```
/// assert!(usmq::platform_problems()?.iter().all(|problem| !problem.platform.is_empty()));
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// As [`devices`].
pub fn platform_problems() -> Result<Vec<PlatformProblem>> {
    Ok(registry()?.problems.clone())
}

/// Why devices may be missing, as a suffix of "none".
fn hint() -> String {
    if let Some(driver) = runtime::asked_too_early() {
        return format!(
            "; {}. {} before that library's first use, or set OCL_ICD_FILENAMES={} before the program starts",
            runtime::TOO_EARLY,
            spelled("Put `import usmq`", "Call `usmq::devices()`"),
            driver.display()
        );
    }
    match std::env::var("ONEAPI_DEVICE_SELECTOR") {
        Ok(selector) => {
            let own = runtime::without_own_term(&selector);
            let order = if own == selector {
                ""
            } else {
                ", and hides all devices if another library queries them before usmq"
            };
            format!("; ONEAPI_DEVICE_SELECTOR={own:?} restricts the visible devices{order}")
        }
        Err(_) => format!("; {DOCTOR} reports what is missing"),
    }
}

/// The visible devices in one line, for errors.
pub(super) fn visible() -> String {
    match registry() {
        Ok(found) if found.devices.is_empty() => format!("none{}", found.why_none()),
        Ok(found) => found.devices.iter().map(Device::to_string).collect::<Vec<_>>().join(", "),
        Err(error) => format!("none ({error})"),
    }
}

/// The device that a filter string selects.
pub(crate) fn select(selector: &Selector) -> Result<Device> {
    choose(selector, &registry()?.devices).ok_or_else(|| {
        let change = runtime::emulator::ignored_change().map(|change| format!("; {change}"));
        let visible = visible() + &change.unwrap_or_default();
        Error::DeviceNotFound { asked: selector.as_str().to_owned(), visible }
    })
}

/// SYCL's default choice, the best rated device, among the devices that support USM.
pub(crate) fn default_device() -> Result<Device> {
    let found = registry()?;
    let devices = &found.devices;
    let with_usm: Vec<_> = devices
        .iter()
        .filter(|device| UsmKind::ALL.iter().any(|kind| device.has_usm(*kind)))
        .cloned()
        .collect();
    choose(&Selector::parse(":")?, if with_usm.is_empty() { devices } else { &with_usm })
        .ok_or_else(|| Error::runtime_not_found(format!("no SYCL device is visible{}", found.why_none())))
}

fn choose(selector: &Selector, devices: &[Device]) -> Option<Device> {
    let candidates: Vec<_> = devices
        .iter()
        .map(|d| Candidate {
            backend: d.backend(),
            device_type: d.device_type().name(),
            score: d.default_selector_score(),
        })
        .collect();
    selector.choose(&candidates).map(|position| devices[position].clone())
}
