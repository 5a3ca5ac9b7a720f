//! The commands of a queue that the OpenCL driver gets without libsycl (docs/architecture.md).

use crate::error::Result;
use crate::runtime::without_python_lock;
use once_cell::sync::OnceCell;
use parking_lot::{RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(super) struct DriverUse {
    /// Read while such a command is submitted.
    turns: RwLock<()>,
    /// Whether there was one that libsycl does not know.
    has_commands: AtomicBool,
}

/// Permission to submit such commands while it lives.
pub(super) type DriverTurn<'a> = RwLockReadGuard<'a, ()>;

impl DriverUse {
    /// `None` if the queue is exposed: libsycl could hold back its commands behind host tasks of other libraries.
    pub(super) fn turn(&self, is_exposed: impl Fn() -> bool) -> Option<DriverTurn<'_>> {
        // A list of commands takes the turns of several queues, so it must not wait behind a thread that waits for one.
        let turn = self.turns.read_recursive();
        if is_exposed() {
            return None;
        }
        self.has_commands.store(true, Ordering::Release);
        Some(turn)
    }

    /// Waits for the turns of other threads, after the queue was marked as exposed. One of them may need the GIL.
    pub(super) fn wait_for_turns(&self) {
        without_python_lock(|| drop(self.turns.write()));
    }

    /// Submits a barrier to an exposed queue if libsycl does not know its last command: libsycl answers from the last
    /// command that it knows whether the queue is empty.
    pub(super) fn end(&self, barrier: impl FnOnce() -> Result<()>) -> Result<()> {
        without_python_lock(|| {
            let _others = self.turns.write();
            if self.has_commands.load(Ordering::Acquire) {
                barrier()?;
                self.has_commands.store(false, Ordering::Release);
            }
            Ok(())
        })
    }
}

/// With `USMQ_DRIVER_COMMANDS=0` libsycl gets every command, so that its tracing tools know all of them.
pub(super) fn is_allowed() -> bool {
    static ALLOWED: OnceCell<bool> = OnceCell::new();
    *ALLOWED.get_or_init(|| std::env::var_os("USMQ_DRIVER_COMMANDS").is_none_or(|value| value != "0"))
}
