//! Statistics, limits and trimming of all memory pools.

use super::budget;
use super::pool::Pool;
use crate::completion;
use crate::device::{Device, UsmKind};
use crate::error::Result;
use std::time::Duration;

/// The maximum time that [`trim`] waits for pending deleters.
const AT_MOST: Duration = Duration::from_secs(10);

/// Usage of the pools of one USM kind. Values are bytes unless stated otherwise.
///
/// ```
/// use usmq::{Array, UsmKind, memory};
///
/// let x = Array::zeros::<f32>(1000)?;
/// let [(kind, device), ..] = memory::stats(Some(x.device()))?;
/// assert!(kind == UsmKind::Device && device.used >= 4000 && device.peak >= device.used);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindStats {
    /// Held by live arrays.
    pub used: u64,
    /// Allocated from the runtime, in use or kept for reuse.
    pub reserved: u64,
    /// The largest `used` so far. For several devices the sum of their peaks.
    pub peak: u64,
    /// The limit of `reserved` for each device, if one was set.
    pub limit: Option<u64>,
    /// Number of live allocations.
    pub live: u64,
    /// Number of allocations served without a call of the runtime.
    pub hits: u64,
    /// Number of requests to the runtime.
    pub misses: u64,
}

/// Statistics of every USM kind, of one device or of all.
///
/// ```
/// let x = usmq::Array::zeros::<u8>(1000)?;
/// let (kind, found) = usmq::memory::stats(Some(x.device()))?[0];
/// assert!(kind == usmq::UsmKind::Device && found.used >= 1000);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Fork`](crate::Error::Fork).
pub fn stats(device: Option<&Device>) -> Result<[(UsmKind, KindStats); 3]> {
    let mut all = UsmKind::ALL.map(|kind| (kind, KindStats::default()));
    for (on, of, budget) in budget::all()? {
        if device.is_some_and(|device| *device != on) {
            continue;
        }
        let Some((_, sum)) = all.iter_mut().find(|(kind, _)| *kind == of) else { continue };
        sum.used += budget.used();
        sum.peak += budget.peak();
        sum.live += budget.live();
        sum.reserved += budget.reserved();
        sum.misses += budget.requests();
        sum.hits += budget.allocations().saturating_sub(budget.requests());
    }
    for (kind, sum) in &mut all {
        sum.limit = budget::limit(device, *kind)?;
    }
    Ok(all)
}

/// Bytes that live arrays hold, by device. Makes no call of the runtime.
pub(crate) fn held() -> Vec<(Device, &'static str, u64)> {
    let all = budget::all().into_iter().flatten();
    all.map(|(device, kind, budget)| (device, kind.name(), budget.used())).collect()
}

/// Sets the maximum number of bytes that pools of `kind` (all kinds if `None`) take from the runtime, for
/// `device` or for each device, across contexts. `None` lifts the limit; with a `device`, also a limit that
/// was set for each device. A sub-device counts separately. Memory kept for reuse is returned to the runtime;
/// arrays keep memory beyond the limit, and allocations fail until arrays hold less.
///
/// ```
/// use usmq::{Array, Error, memory};
///
/// memory::set_limit(Some(memory::parse_size("64 MiB")?), None, None)?;
/// assert!(matches!(Array::zeros::<u8>(100 << 20), Err(Error::Allocation { .. })));
/// memory::set_limit(None, None, None)?;
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// As [`trim`], after the limit was set.
pub fn set_limit(limit: Option<u64>, device: Option<&Device>, kind: Option<UsmKind>) -> Result<()> {
    let kinds = kind.map_or(UsmKind::ALL.to_vec(), |kind| vec![kind]);
    kinds.into_iter().try_for_each(|kind| budget::set_limit(limit, device, kind))?;
    if limit.is_some() { trim(device) } else { Ok(()) }
}

/// Returns memory kept for reuse to the runtime, and releases the owners of foreign memory. Memory whose last
/// use is in flight stays.
///
/// ```
/// drop(usmq::Array::zeros::<u8>(1 << 20)?);
/// usmq::memory::trim(None)?; // the memory is free for other processes
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Sycl`](crate::Error::Sycl) if the runtime refuses to free a block.
pub fn trim(device: Option<&Device>) -> Result<()> {
    for pool in Pool::all()? {
        if device.is_none_or(|device| *device == pool.source.device) {
            pool.give_back()?;
        }
    }
    completion::collect(AT_MOST);
    for (on, _, budget) in budget::all()? {
        if device.is_none_or(|device| *device == on) {
            budget.free();
        }
    }
    Ok(())
}
