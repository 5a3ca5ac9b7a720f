//! What all pools of a device and USM kind, whatever their contexts, hold together, and the most that may be.

use crate::completion::release;
use crate::device::trace::recorder;
use crate::device::{Device, UsmKind};
use crate::error::{During, Result};
use crate::ffi;
use crate::runtime::{ForkMutex, Handle, checks};
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The account of a device and USM kind. Kept for good, though pools may go.
pub(super) struct Budget {
    raw: Handle<ffi::UsmBudget>,
    /// Bytes of arrays, as asked for.
    used: AtomicU64,
    peak: AtomicU64,
    live: AtomicU64,
    allocations: AtomicU64,
    /// Whether the release thread is to free what pools have let go of.
    frees: AtomicBool,
}

/// A limit that is none.
pub(super) const NONE: u64 = u64::MAX;

static BUDGETS: Lazy<ForkMutex<Budgets>> = Lazy::new(ForkMutex::default);

#[derive(Default)]
struct Budgets {
    /// What was asked for: for a device, or for each of them.
    limits: HashMap<(Option<Device>, UsmKind), u64>,
    /// What pools count against, made with the first pool of a device.
    made: HashMap<(Device, UsmKind), &'static Budget>,
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

    fn apply(&self, device: &Device, kind: UsmKind, budget: &Budget) -> Result<()> {
        ffi::budget_set_limit(budget.raw()?, self.limit(Some(device), kind).unwrap_or(NONE));
        Ok(())
    }
}

impl Budget {
    /// Frees what pools have let go of. May wait for commands that use other memory.
    pub(super) fn free(&self) {
        checks::frees();
        if let Ok(raw) = self.raw() {
            let _own = recorder::begin();
            ffi::budget_free(raw);
        }
    }

    /// Has the release thread do that.
    pub(super) fn free_soon(&'static self) {
        let unused = self.raw().is_ok_and(ffi::budget_has_unused);
        if unused && !self.frees.swap(true, Ordering::AcqRel) {
            release(|| {
                self.frees.store(false, Ordering::Release);
                self.free();
            });
        }
    }

    pub(super) fn raw(&self) -> Result<&ffi::UsmBudget> {
        self.raw.get()
    }

    /// An array has got `bytes`.
    pub(super) fn add(&self, bytes: u64) {
        let now = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
        self.live.fetch_add(1, Ordering::Relaxed);
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    /// It has given them back.
    pub(super) fn remove(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The largest `used` so far.
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(super) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub(super) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// What the runtime was asked for, and what is taken from it.
    pub(super) fn stats(&self) -> Result<ffi::BudgetStats> {
        Ok(ffi::budget_stats(self.raw()?))
    }

    pub(super) fn limit(&self) -> u64 {
        self.raw().map_or(NONE, ffi::budget_limit)
    }
}

/// The budget for pools of this device and kind.
pub(super) fn for_device(device: &Device, kind: UsmKind) -> Result<&'static Budget> {
    let raw = Handle::new(ffi::budget_new().during("creating a memory budget")?);
    let zero = || AtomicU64::new(0);
    let frees = AtomicBool::new(false);
    let budget = Budget { raw, used: zero(), peak: zero(), live: zero(), allocations: zero(), frees };
    let mut budgets = BUDGETS.lock()?;
    let made = budgets.made.entry((device.clone(), kind)).or_insert_with(|| Box::leak(Box::new(budget)));
    let made: &'static Budget = made;
    budgets.apply(device, kind, made)?;
    Ok(made)
}

/// Every budget there is.
pub(super) fn all() -> Result<Vec<(Device, UsmKind, &'static Budget)>> {
    let budgets = BUDGETS.lock()?;
    Ok(budgets.made.iter().map(|((device, kind), budget)| (device.clone(), *kind, *budget)).collect())
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
