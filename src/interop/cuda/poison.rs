//! Errors of transfers that fill memory, by address, since other libraries may pass the memory back to usmq
//! as their own.

use crate::memory::PoisonCell;
use crate::runtime::ForkMutex;
use once_cell::sync::Lazy;
use std::collections::BTreeMap;

/// Length and failure of live memory, by start.
static FILLED: Lazy<ForkMutex<BTreeMap<usize, (usize, PoisonCell)>>> = Lazy::new(ForkMutex::default);

/// Registers new memory, until [`forget`].
pub(super) fn track(start: usize, bytes: usize) -> PoisonCell {
    let poison = PoisonCell::default();
    if let Ok(mut filled) = FILLED.lock() {
        filled.insert(start, (bytes, poison.clone()));
    }
    poison
}

/// Returns the cell of the memory that contains an address; a new, unset cell for other memory.
pub(super) fn find(address: usize) -> PoisonCell {
    let Ok(filled) = FILLED.lock() else { return PoisonCell::default() };
    let found = filled.range(..=address).next_back();
    found
        .filter(|(start, (bytes, _))| address - **start < *bytes)
        .map(|(_, (_, poison))| poison.clone())
        .unwrap_or_default()
}

/// Removes freed memory.
pub(super) fn forget(start: usize) {
    if let Ok(mut filled) = FILLED.lock() {
        filled.remove(&start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn poison_is_found_only_inside_its_memory() {
        let (start, next) = (0x7fff_0000, 0x7fff_0100);
        let (poison, other) = (track(start, 0x80), track(next, 0x10));
        let is = |address, poison| Arc::ptr_eq(&find(address), poison);
        assert!(is(start, &poison) && is(start + 0x7f, &poison) && is(next + 1, &other));
        assert!(!is(start - 1, &poison) && !is(start + 0x80, &poison) && !is(next - 1, &other));
        forget(start);
        forget(next);
        assert!(!is(start, &poison));
    }
}
