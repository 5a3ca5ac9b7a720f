//! Memory that other libraries may pass to usmq again: each allocation has one access log, however often and
//! by any protocol it is imported.
//!
//! Memory of usmq is registered from its first export until it is freed, and is imported as the same
//! allocation. Foreign memory is registered by the runtime allocation that contains it, while an import of it
//! lives.

use super::allocation::{Allocation, Log};
use crate::device::{Context, ContextKey};
use crate::error::Result;
use crate::runtime::ForkMutex;
use once_cell::sync::Lazy;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// By first address. Ranges do not overlap: an entry is removed before its memory is freed.
static KNOWN: Lazy<ForkMutex<BTreeMap<usize, Entry>>> = Lazy::new(ForkMutex::default);

struct Entry {
    end: usize,
    context: ContextKey,
    memory: Memory,
}

enum Memory {
    Ours(Weak<Allocation>),
    Foreign(Weak<SharedLog>),
}

/// The registered memory at an address.
pub(super) enum Found {
    Ours(Arc<Allocation>),
    Foreign(Arc<SharedLog>),
}

/// The log shared by all imports of one foreign allocation.
pub(super) struct SharedLog {
    base: usize,
    log: ForkMutex<Log>,
}

impl SharedLog {
    pub(super) fn log(&self) -> &ForkMutex<Log> {
        &self.log
    }
}

impl Drop for SharedLog {
    fn drop(&mut self) {
        let Ok(mut known) = KNOWN.lock() else { return };
        let gone = |entry: &Entry| matches!(&entry.memory, Memory::Foreign(log) if log.strong_count() == 0);
        if known.get(&self.base).is_some_and(gone) {
            known.remove(&self.base);
        }
    }
}

fn find_in(known: &BTreeMap<usize, Entry>, pointer: usize, context: ContextKey) -> Option<Found> {
    let (_, entry) = known.range(..=pointer).next_back()?;
    if pointer >= entry.end || entry.context != context {
        return None;
    }
    match &entry.memory {
        Memory::Ours(allocation) => allocation.upgrade().map(Found::Ours),
        Memory::Foreign(log) => log.upgrade().map(Found::Foreign),
    }
}

/// Finds the registered memory at `pointer` in this context.
pub(super) fn find(pointer: usize, context: &Context) -> Result<Option<Found>> {
    Ok(find_in(&*KNOWN.lock()?, pointer, context.key()))
}

/// Registers memory of usmq before it is exported.
pub(super) fn add_ours(allocation: &Arc<Allocation>) -> Result<()> {
    let memory = Memory::Ours(Arc::downgrade(allocation));
    let (start, bytes) = (allocation.pointer(), allocation.bytes().max(1));
    let entry = Entry { end: start + bytes, context: allocation.context().key(), memory };
    KNOWN.lock()?.insert(start, entry);
    Ok(())
}

/// Removes memory of usmq before it is freed.
pub(super) fn remove_ours(pointer: usize) {
    // In a forked child the entry is not used any more.
    if let Ok(mut known) = KNOWN.lock() {
        known.remove(&pointer);
    }
}

/// The log of the foreign allocation from `base` to `end`, and whether it is new.
pub(super) fn log_of(base: usize, end: usize, context: &Context) -> Result<(Arc<SharedLog>, bool)> {
    let fresh = Arc::new(SharedLog { base, log: ForkMutex::default() });
    let mut known = KNOWN.lock()?;
    let found = find_in(&known, base, context.key());
    if let Some(Found::Foreign(log)) = found {
        drop(known);
        return Ok((log, false));
    }
    let entry = Entry { end, context: context.key(), memory: Memory::Foreign(Arc::downgrade(&fresh)) };
    known.insert(base, entry);
    // Drops the found values outside the lock.
    drop(known);
    drop(found);
    Ok((fresh, true))
}
