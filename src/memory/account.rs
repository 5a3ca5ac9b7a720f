//! Bytes in use, and their limit: of the pools of a device, or of a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Account {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Account {
    pub(crate) const NO_LIMIT: u64 = u64::MAX;

    pub(crate) fn new(limit: u64) -> Self {
        Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts bytes if the limit permits; zero bytes always fit. Otherwise returns the bytes in use.
    pub(super) fn take(&self, bytes: u64) -> Result<(), u64> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| bytes == 0 || *sum <= self.limit());
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).map(drop)
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// Bytes that an account counts until this is dropped.
pub(crate) struct Share {
    account: Arc<Account>,
    bytes: u64,
}

impl Share {
    /// Counts bytes if the limit permits. Otherwise returns the bytes in use.
    pub(crate) fn of(account: &Arc<Account>, bytes: u64) -> Result<Self, u64> {
        account.take(bytes)?;
        Ok(Self { account: account.clone(), bytes })
    }

    pub(crate) fn is_of(&self, account: &Arc<Account>) -> bool {
        Arc::ptr_eq(&self.account, account)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}
