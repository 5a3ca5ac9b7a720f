//! USM kinds as the numbers that cross the bridge.

use super::UsmKind;
use crate::ffi::UsmCode;

impl UsmKind {
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
