//! The USM kinds, and the numbers that stand for them on the bridge. Pure.

use crate::error::{Error, Result};
use crate::ffi::UsmCode;
use std::fmt;

/// Where unified shared memory lives and who can reach it. Source: SYCL 2020, section 4.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UsmKind {
    /// In the device's memory; the host cannot read it.
    Device,
    /// Moves between host and device by itself.
    Shared,
    /// In the host's memory; every device of the context can reach it.
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

    /// `None` for memory that is not USM of the context that was asked.
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
            Error::Value(format!("unknown USM kind {text:?}; expected \"device\", \"shared\" or \"host\""))
        })
    }
}

impl fmt::Display for UsmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
