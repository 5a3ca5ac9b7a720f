//! The limits that were asked for, kept for pools that do not exist yet.

use crate::device::{Device, UsmKind};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::collections::HashMap;

/// What a limit is for: a device, or each of them.
type Scope = (Option<Device>, UsmKind);

static LIMITS: Lazy<Mutex<HashMap<Scope, u64>>> = Lazy::new(Mutex::default);

/// Notes a limit, or lifts it. One for each device replaces those of single ones.
pub(super) fn put(limit: Option<u64>, device: Option<&Device>, kind: UsmKind) {
    let mut limits = LIMITS.lock();
    if device.is_none() {
        limits.retain(|(_, of), _| *of != kind);
    }
    match limit {
        Some(bytes) => limits.insert((device.cloned(), kind), bytes),
        None => limits.remove(&(device.cloned(), kind)),
    };
}

/// The limit in force on a device, or the one for each device.
pub(super) fn of(device: Option<&Device>, kind: UsmKind) -> Option<u64> {
    let limits = LIMITS.lock();
    let own = device.and_then(|device| limits.get(&(Some(device.clone()), kind)));
    own.or_else(|| limits.get(&(None, kind))).copied()
}
