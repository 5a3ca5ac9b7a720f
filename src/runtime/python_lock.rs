//! The GIL, for C callbacks that a library may call while it holds the GIL.

use once_cell::sync::OnceCell;
use std::any::Any;

/// Functions that query and release the GIL; set when usmq is loaded as a Python module.
pub(crate) struct PythonLock {
    /// Whether this thread holds it.
    pub(crate) is_held: fn() -> bool,
    /// Releases it; the result is passed to `restore`.
    pub(crate) release: fn() -> usize,
    pub(crate) restore: fn(usize),
    /// Drops the Python object of an owner at once, if this thread may and no code runs with it.
    pub(crate) drop_shared: fn(&mut (dyn Any + Send + Sync)) -> bool,
}

static LOCK: OnceCell<PythonLock> = OnceCell::new();

#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn set(lock: PythonLock) {
    // The module is initialized once.
    let _ = LOCK.set(lock);
}

/// Drops the Python object that `owner` keeps, if a destructor may: without its last reference, no code runs.
pub(crate) fn drop_shared(owner: &mut (dyn Any + Send + Sync)) -> bool {
    LOCK.get().is_some_and(|lock| (lock.drop_shared)(owner))
}

pub(crate) fn is_held() -> bool {
    LOCK.get().is_some_and(|lock| (lock.is_held)())
}

/// Takes the GIL again, also after a panic.
struct Restore(Option<(&'static PythonLock, usize)>);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some((lock, state)) = self.0.take() {
            (lock.restore)(state);
        }
    }
}

/// Runs `body` without the GIL, if this thread holds it. For C functions that libraries call while holding
/// the GIL: they submit and wait, which usmq does without it.
pub(crate) fn without_python_lock<T>(body: impl FnOnce() -> T) -> T {
    let _restore = Restore(LOCK.get().filter(|lock| (lock.is_held)()).map(|lock| (lock, (lock.release)())));
    body()
}
