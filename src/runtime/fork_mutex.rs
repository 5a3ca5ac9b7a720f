//! Locks for state of the runtime.

use crate::error::Result;
use parking_lot::{Mutex, MutexGuard};

/// A mutex that a forked child does not wait for: the thread that held it at the fork does not exist in the
/// child.
#[derive(Default)]
pub(crate) struct ForkMutex<T>(Mutex<T>);

impl<T> ForkMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// # Errors
    /// [`Error::Fork`](crate::Error::Fork).
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>> {
        super::not_forked()?;
        Ok(self.0.lock())
    }

    /// `None` if another thread holds it, and in a forked child.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        super::not_forked().ok()?;
        self.0.try_lock()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}
