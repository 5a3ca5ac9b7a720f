//! What went wrong with memory that usmq was to fill, found by address: other libraries hand the memory back to usmq
//! as their own.

use crate::memory::Failure;
use crate::runtime::ForkMutex;
use once_cell::sync::Lazy;
use std::collections::BTreeMap;

/// Length and failure of live memory, by start.
static FILLED: Lazy<ForkMutex<BTreeMap<usize, (usize, Failure)>>> = Lazy::new(ForkMutex::default);

/// For new memory, until [`forget`].
pub(super) fn of_new(start: usize, bytes: usize) -> Failure {
    let failure = Failure::default();
    if let Ok(mut filled) = FILLED.lock() {
        filled.insert(start, (bytes, failure.clone()));
    }
    failure
}

/// Of the memory that an address lies in; one of its own, which nothing sets, where usmq filled nothing.
pub(super) fn at(address: usize) -> Failure {
    let Ok(filled) = FILLED.lock() else { return Failure::default() };
    let found = filled.range(..=address).next_back();
    found
        .filter(|(start, (bytes, _))| address - **start < *bytes)
        .map(|(_, (_, failure))| failure.clone())
        .unwrap_or_default()
}

/// The memory goes.
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
    fn it_is_found_inside_the_memory_and_nowhere_else() {
        let (start, next) = (0x7fff_0000, 0x7fff_0100);
        let (failure, other) = (of_new(start, 0x80), of_new(next, 0x10));
        let is = |address, failure| Arc::ptr_eq(&at(address), failure);
        assert!(is(start, &failure) && is(start + 0x7f, &failure) && is(next + 1, &other));
        assert!(!is(start - 1, &failure) && !is(start + 0x80, &failure) && !is(next - 1, &other));
        forget(start);
        forget(next);
        assert!(!is(start, &failure));
    }
}
