//! A device: a root device of a platform, or a sub-device.

use super::partition::{Partition, Partitions};
use super::{Aspect, Backend, Capabilities, Context, DeviceProperties, DeviceType, UsmKind};
use crate::error::{During, Error, Result};
use crate::ffi;
use crate::runtime::{ForkMutex, Handle};
use crate::trace::{DeviceHandle, TracedDevice};
use cxx::{CxxVector, UniquePtr};
use once_cell::sync::OnceCell;
use std::fmt;
use std::sync::Arc;

/// A SYCL device. Cheap to clone; equal handles are the same device of the runtime.
///
/// ```
/// use usmq::{Aspect, UsmKind};
///
/// for device in usmq::devices()? {
///     println!("{device}: {} MiB, {:?}", device.global_mem_size() >> 20, device.filter_string());
///     assert_eq!(device.has_usm(UsmKind::Device), device.has(Aspect::UsmDeviceAllocations)?);
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// Source: SYCL 2020, section 4.6.4.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    raw: Handle<ffi::Device>,
    id: usize,
    backend: Backend,
    device_type: DeviceType,
    info: ffi::DeviceInfo,
    origin: DeviceOrigin,
    /// Sub-devices are created once per partition: the runtime creates new, unequal ones at each request.
    parts: ForkMutex<Vec<(Partition, Vec<Device>)>>,
    context: OnceCell<Context>,
    aspects: OnceCell<Vec<String>>,
    properties: OnceCell<DeviceProperties>,
    /// Whether this device has access to the memory of another device, by that device's id.
    peers: ForkMutex<Vec<(usize, bool)>>,
    native: OnceCell<usize>,
}

enum DeviceOrigin {
    /// Index among all root devices and the filter string that selects it.
    Root { ordinal: usize, filter: String },
    /// Sub-device `index` of its parent, if usmq created it.
    Part { parent: Device, index: Option<usize> },
}

impl Device {
    pub(super) fn root(
        raw: UniquePtr<ffi::Device>,
        ordinal: usize,
        index: impl Fn(Backend, &str) -> usize,
    ) -> Result<Self> {
        let raw = Handle::new(raw);
        let info = ffi::device_info(raw.get()?).during("querying the description of a device")?;
        let backend = Backend::from_name(&info.backend);
        let index = index(backend, &info.device_type);
        let filter = format!("{backend}:{}:{index}", info.device_type);
        Self::new(raw, info, DeviceOrigin::Root { ordinal, filter })
    }

    /// The sub-device of this device with this id; if it is not known yet, a new handle for `raw`.
    pub(super) fn known_part_or(&self, id: usize, raw: Handle<ffi::Device>) -> Result<Self> {
        if let Some(known) = self.known_parts()?.into_iter().find(|device| device.0.id == id) {
            return Ok(known);
        }
        let info = ffi::device_info(raw.get()?).during("querying the description of a device")?;
        Self::new(raw, info, DeviceOrigin::Part { parent: self.clone(), index: None })
    }

    fn new(raw: Handle<ffi::Device>, info: ffi::DeviceInfo, origin: DeviceOrigin) -> Result<Self> {
        let id = ffi::device_id(raw.get()?).during("identifying a device")?;
        let backend = Backend::from_name(&info.backend);
        let device_type = DeviceType::from_name(&info.device_type);
        let (parts, context, peers) = (ForkMutex::default(), OnceCell::new(), ForkMutex::default());
        let (aspects, properties, native) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        let inner = Inner {
            raw,
            id,
            backend,
            device_type,
            info,
            origin,
            parts,
            context,
            aspects,
            properties,
            peers,
            native,
        };
        Ok(Self(Arc::new(inner)))
    }

    pub(crate) fn raw(&self) -> Result<&ffi::Device> {
        self.0.raw.get()
    }

    /// The driver's handle, on OpenCL and Level Zero.
    pub(super) fn native(&self) -> Result<usize> {
        let find = || ffi::device_native(self.raw()?).during("querying the driver's handle of a device");
        self.0.native.get_or_try_init(find).copied()
    }

    /// The driver's handle, by which the runtime's trace names the device; None on other backends.
    pub(crate) fn native_handle(&self) -> Option<usize> {
        matches!(self.0.backend, Backend::OpenCl | Backend::LevelZero).then(|| self.native().ok()).flatten()
    }

    /// Identifies the device while it lives.
    pub(crate) fn id(&self) -> usize {
        self.0.id
    }

    /// The rating of SYCL's default selector; a device with a negative rating is never a default.
    #[must_use]
    pub fn default_selector_score(&self) -> i32 {
        self.0.info.score
    }

    /// The device's name, as reported by its driver.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// The vendor's name.
    #[must_use]
    pub fn vendor(&self) -> &str {
        &self.0.info.vendor
    }

    /// The driver's version.
    #[must_use]
    pub fn driver_version(&self) -> &str {
        &self.0.info.driver_version
    }

    /// The backend of the device.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.0.backend
    }

    /// The properties of the backend that select a mechanism in usmq.
    pub(crate) fn capabilities(&self) -> &'static Capabilities {
        self.backend().capabilities()
    }

    /// The type of the device.
    #[must_use]
    pub fn device_type(&self) -> DeviceType {
        self.0.device_type
    }

    /// `backend:device_type:index`, which selects this root device; `None` for a sub-device, which no filter
    /// string can select.
    #[must_use]
    pub fn filter_string(&self) -> Option<&str> {
        match &self.0.origin {
            DeviceOrigin::Root { filter, .. } => Some(filter),
            DeviceOrigin::Part { .. } => None,
        }
    }

    /// The parent device; `None` for a root device.
    #[must_use]
    pub fn parent(&self) -> Option<&Self> {
        match &self.0.origin {
            DeviceOrigin::Root { .. } => None,
            DeviceOrigin::Part { parent, .. } => Some(parent),
        }
    }

    /// The root device: this device, or its outermost parent.
    #[must_use]
    pub fn root_device(&self) -> &Self {
        self.parent().map_or(self, Self::root_device)
    }

    /// Index of the root device among all visible root devices, as protocols with a device number count them.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        match &self.0.origin {
            DeviceOrigin::Root { ordinal, .. } => *ordinal,
            DeviceOrigin::Part { parent, .. } => parent.ordinal(),
        }
    }

    /// Number of compute units.
    #[must_use]
    pub fn max_compute_units(&self) -> u32 {
        self.0.info.max_compute_units
    }

    /// Maximum number of work-items in a work-group.
    #[must_use]
    pub fn max_work_group_size(&self) -> usize {
        self.0.info.max_work_group_size
    }

    /// Maximum number of sub-devices.
    #[must_use]
    pub fn max_sub_devices(&self) -> u32 {
        self.0.info.max_sub_devices
    }

    /// Global memory in bytes.
    #[must_use]
    pub fn global_mem_size(&self) -> u64 {
        self.0.info.global_mem_size
    }

    /// Local memory of a work-group in bytes.
    #[must_use]
    pub fn local_mem_size(&self) -> u64 {
        self.0.info.local_mem_size
    }

    /// Largest single allocation in bytes.
    #[must_use]
    pub fn max_alloc_size(&self) -> u64 {
        self.0.info.max_alloc_size
    }

    /// Whether memory of this USM kind can be allocated.
    #[must_use]
    pub fn has_usm(&self, kind: UsmKind) -> bool {
        match kind {
            UsmKind::Device => self.0.info.usm_device,
            UsmKind::Shared => self.0.info.usm_shared,
            UsmKind::Host => self.0.info.usm_host,
        }
    }

    /// Whether kernels use system memory (any memory of the host, as of `malloc`) in place. Such memory belongs to no
    /// context. It is the aspect `usm_system_allocations`; CPU devices have it, most GPUs do not.
    ///
    /// Source: SYCL 2020, section 4.8.2 (system USM).
    #[must_use]
    pub fn has_system_usm(&self) -> bool {
        self.0.info.usm_system
    }

    /// Whether the host may access all memory of the device, of any USM kind: their memory is one.
    pub(crate) fn host_reads_device_memory(&self) -> bool {
        self.device_type() == DeviceType::Cpu
    }

    /// Whether threads that wait in the driver compute commands of the device, as on the host's own cores.
    pub(crate) fn computes_in_waiting_threads(&self) -> bool {
        self.device_type() == DeviceType::Cpu
    }

    /// The device's SYCL aspects.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime cannot answer.
    pub fn aspects(&self) -> Result<Vec<Aspect>> {
        Ok(self.aspect_names()?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// The names of all aspects, those of extensions included; queried at the first call.
    pub(crate) fn aspect_names(&self) -> Result<&[String]> {
        let query = || ffi::device_aspects(self.raw()?).during("querying the aspects of a device");
        self.0.aspects.get_or_try_init(query).map(Vec::as_slice)
    }

    /// More properties of the device, queried at the first call: vector widths, sub-groups, caches, images,
    /// partitions.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime cannot answer.
    pub fn properties(&self) -> Result<&DeviceProperties> {
        self.0.properties.get_or_try_init(|| {
            Ok(ffi::device_properties(self.raw()?).during("querying the properties of a device")?.into())
        })
    }

    /// Numbers that devices of Intel report, by name, such as `free_memory` in bytes and
    /// `memory_clock_rate` in MHz. Queried at each call.
    ///
    /// Source: the SYCL extension `sycl_ext_intel_device_info`.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime cannot answer.
    pub fn intel_device_info(&self) -> Result<Vec<(String, u64)>> {
        let found =
            ffi::device_intel_info(self.raw()?).during("querying the Intel properties of a device")?;
        Ok(found.into_iter().map(|number| (number.name, number.value)).collect())
    }

    /// Partitions the device. Equal requests return equal sub-devices. Each has the context of its root on Level Zero, and
    /// a [context of its own](Device::default_context) elsewhere.
    ///
    /// # Errors
    /// [`Error::Value`] for a zero, [`Error::Sycl`] if the device does not support the partition.
    pub fn sub_devices(&self, partition: &Partition) -> Result<Vec<Self>> {
        if let Some(parts) = self.find_parts(partition)? {
            return Ok(parts);
        }
        self.check_partition(partition)?;
        let raw = self.raw()?;
        let list = match partition {
            Partition::Equally(units) => ffi::device_split_equally(raw, *units),
            Partition::ByCounts(counts) => ffi::device_split_by_counts(raw, counts),
            Partition::Numa => ffi::device_split_by_numa(raw),
        }
        .during(&format!("partitioning {self} by {partition:?}"))?;
        let parts = list
            .iter()
            .enumerate()
            .map(|(index, part)| {
                let raw = Handle::new(ffi::device_copy(part).during("copying a sub-device")?);
                let info = ffi::device_info(raw.get()?).during("querying the description of a device")?;
                Self::new(raw, info, DeviceOrigin::Part { parent: self.clone(), index: Some(index) })
            })
            .collect::<Result<Vec<_>>>()?;
        let mut known = self.0.parts.lock()?;
        match known.iter().find(|(how, _)| how == partition) {
            // Another thread was first; both must return the same devices.
            Some((_, first)) => Ok(first.clone()),
            None => {
                known.push((partition.clone(), parts.clone()));
                Ok(parts)
            }
        }
    }

    fn check_partition(&self, partition: &Partition) -> Result<()> {
        if let Some(why) = partition.fault() {
            return Err(Error::value(why));
        }
        let properties = self.properties()?;
        let known = Partitions {
            units: self.max_compute_units() as usize,
            max_parts: self.max_sub_devices() as usize,
            properties: &properties.partition_properties,
            domains: &properties.partition_affinity_domains,
        };
        match partition.obstacle(&known) {
            None => Ok(()),
            Some((code, message)) => Err(Error::Sycl {
                operation: format!("partitioning {self} by {partition:?}"),
                code: code.to_owned(),
                message,
            }),
        }
    }

    fn find_parts(&self, partition: &Partition) -> Result<Option<Vec<Self>>> {
        let known = self.0.parts.lock()?;
        Ok(known.iter().find(|(how, _)| how == partition).map(|(_, parts)| parts.clone()))
    }

    fn known_parts(&self) -> Result<Vec<Self>> {
        Ok(self.0.parts.lock()?.iter().flat_map(|(_, parts)| parts.clone()).collect())
    }

    /// The default context for queues on this device: for a root device the platform's default context, which
    /// other SYCL libraries use too, so that USM can be shared. For a sub-device it is that of its root on Level Zero,
    /// elsewhere a context of its own. It lives as long as the process, unless another library created the sub-device.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime cannot create one.
    pub fn default_context(&self) -> Result<Context> {
        self.0
            .context
            .get_or_try_init(|| match self.0.origin {
                DeviceOrigin::Root { .. } => Context::keep(
                    ffi::context_default(self.raw()?).during("querying the default context of a platform")?,
                ),
                DeviceOrigin::Part { .. } if self.capabilities().parts_share_context => {
                    self.root_device().default_context()
                }
                // Sub-devices made here live as long as the process, too.
                DeviceOrigin::Part { index: Some(_), .. } => {
                    Context::keep(Context::raw_new(std::slice::from_ref(self))?)
                }
                DeviceOrigin::Part { index: None, .. } => Context::new(std::slice::from_ref(self)),
            })
            .cloned()
    }

    /// The device whose kernels run on this one in the context: this device, or its root if the context has only that.
    pub(super) fn for_builds_in(&self, context: &Context) -> Result<Self> {
        let has_root_alone = self.parent().is_some()
            && self.capabilities().parts_share_context
            && !context.devices()?.contains(self);
        Ok(if has_root_alone { self.root_device() } else { self }.clone())
    }

    /// Whether commands on this device may use device and shared memory of `owner`, a device of the same
    /// context: its own memory, and memory of a peer with peer access. The first query enables peer access.
    ///
    /// Source: SYCL 2020, section 4.8.3 (table of USM kinds), and `sycl_ext_oneapi_peer_access`.
    pub(crate) fn reaches_memory_of(&self, owner: &Self) -> Result<bool> {
        if self == owner {
            return Ok(true);
        }
        if !self.capabilities().peer_access || self.backend() != owner.backend() {
            return Ok(false);
        }
        let known = self.0.peers.lock()?.iter().find(|(peer, _)| *peer == owner.0.id).copied();
        if let Some((_, enabled)) = known {
            return Ok(enabled);
        }
        // Without the lock, which a launch takes while it holds the GIL. Two threads may both query: the
        // answer is the same.
        let enabled =
            ffi::device_enable_peer_access(self.raw()?, owner.raw()?).during("enabling peer access")?;
        self.0.peers.lock()?.push((owner.0.id, enabled));
        Ok(enabled)
    }

    fn list(devices: &[Self]) -> Result<UniquePtr<CxxVector<ffi::Device>>> {
        let mut list = ffi::device_list().during("listing devices")?;
        for device in devices {
            ffi::device_list_push(list.pin_mut(), device.raw()?).during("listing devices")?;
        }
        Ok(list)
    }
}

impl Context {
    /// A new context for these devices. USM of one context is not valid in another, so prefer
    /// [`Device::default_context`]; sub-devices that share memory need a context made here.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the devices cannot share a context.
    pub fn new(devices: &[Device]) -> Result<Self> {
        Self::adopt(Self::raw_new(devices)?)
    }

    fn raw_new(devices: &[Device]) -> Result<UniquePtr<ffi::Context>> {
        ffi::context_new(&*Device::list(devices)?).during("creating a context")
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Device {}

impl std::hash::Hash for Device {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl TracedDevice for Inner {
    fn id(&self) -> usize {
        self.id
    }

    fn name(&self) -> &str {
        &self.info.name
    }

    fn filter_and_parent(&self) -> (&str, Option<usize>) {
        match &self.origin {
            DeviceOrigin::Root { filter, .. } => (filter, None),
            DeviceOrigin::Part { parent, .. } => {
                (parent.filter_string().unwrap_or_default(), Some(parent.id()))
            }
        }
    }
}

impl From<&Device> for DeviceHandle {
    fn from(device: &Device) -> Self {
        device.0.clone()
    }
}

/// `opencl:cpu:0 AMD EPYC`, or `sub-device 1 of opencl:cpu:0 AMD EPYC`.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.origin {
            DeviceOrigin::Root { filter, .. } => write!(f, "{filter} {}", self.name().trim()),
            DeviceOrigin::Part { parent, index: Some(index) } => write!(f, "sub-device {index} of {parent}"),
            DeviceOrigin::Part { parent, index: None } => write!(f, "a sub-device of {parent}"),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}
