//! The scopes and captures of a language whose threads call C functions.

use crate::device::Queue;
use crate::device::recording::Entered;
use crate::error::Result;
use once_cell::sync::OnceCell;
use std::sync::Arc;

/// Closes a scope of the host language; an error if it is not the innermost one here.
pub(crate) type Leave = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// A language with its own scopes on its threads.
pub(crate) trait HostScopes: Sync {
    /// The innermost of its scopes; `None` without one, and on threads that are not its own.
    fn innermost(&self) -> Result<Option<Queue>>;

    /// Opens one of its scopes; `None` on threads that are not its own.
    fn enter(&self, queue: &Queue) -> Result<Option<Leave>>;

    /// Makes this thread record into the capture of its scope while the guard lives; `None` if nothing changes.
    fn capture(&self) -> Option<Entered>;
}

static HOST: OnceCell<&'static dyn HostScopes> = OnceCell::new();

pub(super) fn get() -> Option<&'static dyn HostScopes> {
    HOST.get().copied()
}

/// Registers the scopes of a language.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn scopes_of(host: &'static dyn HostScopes) {
    // A process has only one Python.
    let _ = HOST.set(host);
}
