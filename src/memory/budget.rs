//! Limits: the most bytes that all pools of a device and USM kind, whatever their contexts, take from the runtime.

use crate::device::{Device, UsmKind};
use crate::error::{During, Result};
use crate::ffi;
use crate::runtime::{Handle, Lock};
use once_cell::sync::Lazy;
use std::collections::HashMap;

/// Kept for good, as pools are.
pub(super) type Budget = &'static Handle<ffi::UsmBudget>;

/// A limit that is none.
pub(super) const NONE: u64 = u64::MAX;

static BUDGETS: Lazy<Lock<Budgets>> = Lazy::new(Lock::default);

#[derive(Default)]
struct Budgets {
    /// What was asked for: for a device, or for each of them.
    limits: HashMap<(Option<Device>, UsmKind), u64>,
    /// What pools count against, made with the first pool of a device.
    made: HashMap<(Device, UsmKind), Budget>,
}

impl Budgets {
    fn limit(&self, device: Option<&Device>, kind: UsmKind) -> Option<u64> {
        let own = device.and_then(|device| self.limits.get(&(Some(device.clone()), kind)));
        own.or_else(|| self.limits.get(&(None, kind))).copied().filter(|limit| *limit != NONE)
    }

    /// A limit for each device replaces those of single ones.
    fn set_limit(&mut self, bytes: Option<u64>, device: Option<&Device>, kind: UsmKind) {
        if device.is_none() {
            self.limits.retain(|(_, of), _| *of != kind);
        }
        // That a device has no limit is kept, too: each of the others may have one.
        self.limits.insert((device.cloned(), kind), bytes.unwrap_or(NONE));
    }

    fn apply(&self, device: &Device, kind: UsmKind, budget: Budget) -> Result<()> {
        ffi::budget_set_limit(budget.get()?, self.limit(Some(device), kind).unwrap_or(NONE));
        Ok(())
    }
}

/// The budget for pools of this device and kind.
pub(super) fn of(device: &Device, kind: UsmKind) -> Result<Budget> {
    let budget = Handle::new(ffi::budget_new().during("making a memory budget")?);
    let mut budgets = BUDGETS.lock()?;
    let made = budgets.made.entry((device.clone(), kind)).or_insert_with(|| Box::leak(Box::new(budget)));
    let made: Budget = made;
    budgets.apply(device, kind, made)?;
    Ok(made)
}

/// Sets a limit, or lifts it, for the pools there are and those to come.
pub(super) fn set_limit(bytes: Option<u64>, device: Option<&Device>, kind: UsmKind) -> Result<()> {
    let mut budgets = BUDGETS.lock()?;
    budgets.set_limit(bytes, device, kind);
    for ((device, also), budget) in &budgets.made {
        if *also == kind {
            budgets.apply(device, kind, budget)?;
        }
    }
    Ok(())
}

/// The limit in force on a device, or the one for each device.
pub(crate) fn limit(device: Option<&Device>, kind: UsmKind) -> Result<Option<u64>> {
    Ok(BUDGETS.lock()?.limit(device, kind))
}
