//! The kinds of memory (USM, with its codes on the bridge, and system memory), and the priorities of queues. Pure.

use crate::error::{Error, Result};
use crate::ffi::{PriorityCode, UsmCode};
use std::fmt;

/// The kinds of unified shared memory. Source: SYCL 2020, section 4.8.
///
/// ```
/// use usmq::UsmKind;
///
/// assert!("shared".parse::<UsmKind>()?.is_host_accessible());
/// assert_eq!(UsmKind::Device.to_string(), "device");
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UsmKind {
    /// In device memory; the host cannot access it.
    Device,
    /// Migrates between host and device automatically.
    Shared,
    /// In host memory; every device of the context can access it.
    Host,
}

impl UsmKind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Device, Self::Shared, Self::Host];

    /// `device`, `shared` or `host`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Shared => "shared",
            Self::Host => "host",
        }
    }

    /// Whether host code may read and write the memory.
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        !matches!(self, Self::Device)
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Host => UsmCode::Host.repr,
            Self::Device => UsmCode::Device.repr,
            Self::Shared => UsmCode::Shared.repr,
        }
    }

    /// `None` for memory that is not USM of the queried context.
    pub(super) fn from_code(code: u8) -> Option<Self> {
        match (UsmCode { repr: code }) {
            UsmCode::Host => Some(Self::Host),
            UsmCode::Device => Some(Self::Device),
            UsmCode::Shared => Some(Self::Shared),
            _ => None,
        }
    }
}

impl std::str::FromStr for UsmKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            Error::value(format!("unknown USM kind {text:?}; expected \"device\", \"shared\" or \"host\""))
        })
    }
}

impl fmt::Display for UsmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of an array's memory: USM, which a runtime allocates for a context, or system memory, which belongs to the
/// host. Pools, limits and statistics know USM only.
///
/// ```
/// use usmq::{Array, MemoryKind, UsmKind};
///
/// let x = Array::zeros::<f32>(3)?;
/// assert_eq!(x.memory_kind(), MemoryKind::Usm(UsmKind::Device));
/// assert!(!x.memory_kind().is_host_accessible());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Unified shared memory of this kind.
    Usm(UsmKind),
    /// Memory of the host that another owner allocated, used in place by devices with
    /// [`has_system_usm`](crate::Device::has_system_usm).
    System,
}

impl MemoryKind {
    /// `device`, `shared`, `host` or `system`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usm(kind) => kind.name(),
            Self::System => "system",
        }
    }

    /// Whether host code may read and write the memory.
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        match self {
            Self::Usm(kind) => kind.is_host_accessible(),
            Self::System => true,
        }
    }

    /// The USM kind; `None` for system memory.
    #[must_use]
    pub const fn usm(self) -> Option<UsmKind> {
        match self {
            Self::Usm(kind) => Some(kind),
            Self::System => None,
        }
    }

    /// `device USM` or `system memory`.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Usm(UsmKind::Device) => "device USM",
            Self::Usm(UsmKind::Shared) => "shared USM",
            Self::Usm(UsmKind::Host) => "host USM",
            Self::System => "system memory",
        }
    }
}

impl std::str::FromStr for MemoryKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "system" => Ok(Self::System),
            _ => text.parse().map(Self::Usm).map_err(|_| {
                Error::value(format!(
                    "unknown memory kind {text:?}; expected \"device\", \"shared\", \"host\" or \"system\""
                ))
            }),
        }
    }
}

impl From<UsmKind> for MemoryKind {
    fn from(kind: UsmKind) -> Self {
        Self::Usm(kind)
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The priority of a queue: a hint for the scheduler of its device, which may ignore it.
///
/// Source: the SYCL extension `sycl_ext_oneapi_queue_priority`.
///
/// ```
/// use usmq::{Priority, Queue};
///
/// assert_eq!("high".parse::<Priority>()?, Priority::High);
/// assert_eq!(Priority::default(), Priority::Normal);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// The default.
    #[default]
    Normal,
    /// Commands are preferred to those of other queues.
    High,
    /// Commands of other queues are preferred.
    Low,
}

impl Priority {
    /// All priorities.
    pub const ALL: [Self; 3] = [Self::Normal, Self::High, Self::Low];

    /// `normal`, `high` or `low`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::High => "high",
            Self::Low => "low",
        }
    }

    pub(super) fn code(self) -> PriorityCode {
        match self {
            Self::Normal => PriorityCode::Normal,
            Self::High => PriorityCode::High,
            Self::Low => PriorityCode::Low,
        }
    }

    pub(super) fn from_code(code: PriorityCode) -> Self {
        match code {
            PriorityCode::High => Self::High,
            PriorityCode::Low => Self::Low,
            _ => Self::Normal,
        }
    }
}

impl std::str::FromStr for Priority {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|priority| priority.name() == text).ok_or_else(|| {
            Error::value(format!("unknown priority {text:?}; expected \"high\", \"normal\" or \"low\""))
        })
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The properties of a queue; in-order without profiling, of normal priority, by default.
///
/// ```
/// use usmq::{Queue, QueueProperties};
///
/// let properties = QueueProperties { profiling: true, ..QueueProperties::default() };
/// assert!(Queue::new("cpu", None, properties)?.profiling());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueProperties {
    /// Commands run in the order of their submission. On the OpenCL driver for CPUs they do so otherwise, too
    /// ([`Layers::waits`](crate::Layers::waits)).
    pub in_order: bool,
    /// Events carry device timestamps.
    pub profiling: bool,
    /// A hint for the scheduler of the device.
    pub priority: Priority,
}

impl Default for QueueProperties {
    fn default() -> Self {
        Self { in_order: true, profiling: false, priority: Priority::Normal }
    }
}
