//! The live allocations and the source lines that made them, recorded on request.

use crate::device::{Device, UsmKind};
use crate::error::{Result, size};
use crate::runtime::ForkMutex;
use crate::trace::recorder;
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// An allocation that an array still holds.
///
/// ```
/// use usmq::{Array, memory};
///
/// memory::record_allocations(true)?;
/// let x = Array::zeros::<u8>(1 << 20)?;
/// let largest = &memory::live_allocations()?[0];
/// assert!(largest.bytes >= 1 << 20 && largest.device == *x.device());
/// memory::record_allocations(false)?;
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveAllocation {
    /// The requested size.
    pub bytes: u64,
    /// The USM kind.
    pub kind: UsmKind,
    /// The device of the memory.
    pub device: Device,
    /// `file:line` of the caller; known in Python only.
    pub source: Option<String>,
    /// The time of the allocation.
    pub since: Instant,
}

/// Lines that an error lists.
const LINES: usize = 10;

static ON: AtomicBool = AtomicBool::new(false);

/// By address. The lock is a leaf.
static LIVE: Lazy<ForkMutex<HashMap<usize, LiveAllocation>>> = Lazy::new(ForkMutex::default);

/// Records each allocation of USM from now on, or ends that and forgets the recorded ones. While it is on, a failed
/// allocation lists the source lines whose arrays hold the most memory of its device. While it is off, an allocation
/// costs one load of a flag.
///
/// ```
/// use usmq::{Array, memory};
///
/// memory::record_allocations(true)?;
/// let x = Array::zeros::<f32>([1000])?;
/// assert!(memory::live_allocations()?.iter().any(|live| live.bytes == 4000));
/// memory::record_allocations(false)?;
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Fork`](crate::Error::Fork).
pub fn record_allocations(enabled: bool) -> Result<()> {
    let mut live = LIVE.lock()?;
    recorder::want_sites(enabled);
    ON.store(enabled, Ordering::Relaxed);
    if !enabled {
        *live = HashMap::new();
    }
    Ok(())
}

/// The live allocations since [`record_allocations`], the largest first.
///
/// ```
/// usmq::memory::record_allocations(true)?;
/// for allocation in usmq::memory::live_allocations()? {
///     println!("{} bytes for {:?}", allocation.bytes, allocation.since.elapsed());
/// }
/// usmq::memory::record_allocations(false)?;
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Fork`](crate::Error::Fork).
pub fn live_allocations() -> Result<Vec<LiveAllocation>> {
    let mut all: Vec<_> = LIVE.lock()?.values().cloned().collect();
    all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.since.cmp(&b.since)));
    Ok(all)
}

pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

pub(super) fn allocated(pointer: usize, bytes: usize, kind: UsmKind, device: &Device) {
    if !is_on() {
        return;
    }
    let source = recorder::site().map(|site| format!("{}:{}", site.file, site.line));
    let entry =
        LiveAllocation { bytes: bytes as u64, kind, device: device.clone(), source, since: Instant::now() };
    if let Ok(mut live) = LIVE.lock() {
        live.insert(pointer, entry);
    }
}

pub(super) fn freed(pointer: usize) {
    if !is_on() {
        return;
    }
    let freed = LIVE.lock().map(|mut live| live.remove(&pointer));
    // After the unlock: it may be the last handle of a device.
    drop(freed);
}

/// The part of an error that lists the lines whose arrays hold the most memory of a device; empty while nothing is
/// recorded.
pub(super) fn note(device: &Device) -> String {
    if !is_on() {
        return String::new();
    }
    let live = live_allocations().unwrap_or_default();
    describe(live.iter().filter(|live| live.device == *device))
}

/// One line of text per source line and kind, the largest first. Pure.
fn describe<'a>(live: impl Iterator<Item = &'a LiveAllocation>) -> String {
    let mut groups: Vec<(&str, UsmKind, u64, usize)> = Vec::new();
    let mut places: HashMap<(&str, UsmKind), usize> = HashMap::new();
    for one in live {
        let source = one.source.as_deref().unwrap_or("an unknown line");
        let place = *places.entry((source, one.kind)).or_insert(groups.len());
        if place == groups.len() {
            groups.push((source, one.kind, 0, 0));
        }
        let (_, _, bytes, count) = &mut groups[place];
        (*bytes, *count) = (*bytes + one.bytes, *count + 1);
    }
    if groups.is_empty() {
        return "; no allocation is alive since recording began".to_owned();
    }
    groups.sort_by_key(|(_, _, bytes, _)| std::cmp::Reverse(*bytes));
    let mut text = String::from("; memory held by allocations since recording began:");
    for (source, kind, bytes, count) in groups.iter().take(LINES) {
        let plural = if *count == 1 { "" } else { "s" };
        let _ = write!(text, "\n  {} of {kind} USM in {count} allocation{plural} at {source}", size(*bytes));
    }
    if let Some(more) = groups.len().checked_sub(LINES).filter(|more| *more > 0) {
        let _ = write!(text, "\n  and {more} more lines");
    }
    text
}
