//! Usage and limit shared by all pools of one device and USM kind, across contexts.

use super::account::Account;
use super::unused::UnusedBlocks;
use crate::completion::release;
use crate::device::{Device, UsmKind};
use crate::error::Result;
use crate::runtime::ForkMutex;
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The account of a device and USM kind. Lives as long as the process, unlike pools.
pub(super) struct Budget {
    /// Bytes of the runtime, in use or kept.
    reserved: Account,
    /// The number of allocations at the runtime.
    requests: AtomicU64,
    pub(super) unused: UnusedBlocks,
    /// Bytes of arrays, as requested.
    used: AtomicU64,
    peak: AtomicU64,
    allocations: AtomicU64,
    releases: AtomicU64,
    /// Whether a free on the release thread is pending.
    frees: AtomicBool,
}

/// The value for "no limit".
pub(super) const NONE: u64 = Account::NO_LIMIT;

static BUDGETS: Lazy<ForkMutex<Budgets>> = Lazy::new(ForkMutex::default);

#[derive(Default)]
struct Budgets {
    /// The limits as set: for one device, or for each device.
    limits: HashMap<(Option<Device>, UsmKind), u64>,
    /// The budgets of pools, created with the first pool of a device.
    made: HashMap<(Device, UsmKind), &'static Budget>,
}

impl Budgets {
    fn limit(&self, device: Option<&Device>, kind: UsmKind) -> Option<u64> {
        let own = device.and_then(|device| self.limits.get(&(Some(device.clone()), kind)));
        own.or_else(|| self.limits.get(&(None, kind))).copied().filter(|limit| *limit != NONE)
    }

    /// A limit for each device replaces limits of single devices.
    fn set_limit(&mut self, bytes: Option<u64>, device: Option<&Device>, kind: UsmKind) {
        if device.is_none() {
            self.limits.retain(|(_, of), _| *of != kind);
        }
        // Stores "no limit" too, since each of the other devices may have one.
        self.limits.insert((device.cloned(), kind), bytes.unwrap_or(NONE));
    }

    fn apply(&self, device: &Device, kind: UsmKind, budget: &Budget) {
        let limit = self.limit(Some(device), kind).unwrap_or(NONE);
        budget.reserved.set_limit(limit);
    }
}

impl Budget {
    /// Frees memory that pools have released. May wait for commands that use other memory.
    pub(super) fn free(&self) {
        self.unused.free(|bytes| self.give_back(bytes));
    }

    /// Schedules [`free`](Self::free) on the release thread.
    pub(super) fn free_soon(&'static self) {
        if self.unused.exist() && !self.frees.swap(true, Ordering::AcqRel) {
            release(|| {
                self.frees.store(false, Ordering::Release);
                self.free();
            });
        }
    }

    /// Counts bytes that a pool is about to take from the runtime, if the limit permits. Zero bytes always fit.
    pub(super) fn take(&self, bytes: usize) -> bool {
        self.reserved.take(bytes as u64).is_ok()
    }

    /// Ends the count of bytes that the runtime has again.
    pub(super) fn give_back(&self, bytes: usize) {
        self.reserved.give_back(bytes as u64);
    }

    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds `bytes` of a new array.
    pub(super) fn add(&self, bytes: u64) {
        let now = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes `bytes` of a dropped array.
    pub(super) fn remove(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        // After its allocation was counted.
        self.releases.fetch_add(1, Ordering::Release);
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The largest `used` so far.
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(super) fn live(&self) -> u64 {
        let releases = self.releases.load(Ordering::Acquire);
        self.allocations() - releases
    }

    pub(super) fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// Bytes allocated from the runtime.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved.used()
    }

    /// The number of allocations at the runtime.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&self) -> u64 {
        self.reserved.limit()
    }
}

/// The budget for pools of this device and kind.
pub(super) fn for_device(device: &Device, kind: UsmKind) -> Result<&'static Budget> {
    let zero = || AtomicU64::new(0);
    let budget = Budget {
        reserved: Account::new(NONE),
        requests: zero(),
        unused: UnusedBlocks::default(),
        used: zero(),
        peak: zero(),
        allocations: zero(),
        releases: zero(),
        frees: AtomicBool::new(false),
    };
    let mut budgets = BUDGETS.lock()?;
    let made = budgets.made.entry((device.clone(), kind)).or_insert_with(|| Box::leak(Box::new(budget)));
    let made: &'static Budget = made;
    budgets.apply(device, kind, made);
    Ok(made)
}

/// Every budget.
pub(super) fn all() -> Result<Vec<(Device, UsmKind, &'static Budget)>> {
    let budgets = BUDGETS.lock()?;
    Ok(budgets.made.iter().map(|((device, kind), budget)| (device.clone(), *kind, *budget)).collect())
}

/// Sets or lifts a limit, for existing and future pools.
pub(super) fn set_limit(bytes: Option<u64>, device: Option<&Device>, kind: UsmKind) -> Result<()> {
    let mut budgets = BUDGETS.lock()?;
    budgets.set_limit(bytes, device, kind);
    for ((device, also), budget) in &budgets.made {
        if *also == kind {
            budgets.apply(device, kind, budget);
        }
    }
    Ok(())
}

/// The limit in force on a device, or the one for each device.
pub(crate) fn limit(device: Option<&Device>, kind: UsmKind) -> Result<Option<u64>> {
    Ok(BUDGETS.lock()?.limit(device, kind))
}
