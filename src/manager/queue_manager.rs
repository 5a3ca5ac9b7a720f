//! Queue managers: the process-wide one, and managers of packages, which fall back to it.

use super::scope::{self, Entered, GLOBAL, ManagerId};
use super::{Scope, Target};
use crate::device::{Queue, QueueProperties};
use crate::error::{Error, Result};
use once_cell::sync::OnceCell;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

static NEXT: AtomicUsize = AtomicUsize::new(GLOBAL + 1);

/// The process-wide default, visible to all threads: a worker's plugin sets it on one thread, tasks run on
/// others.
static DEFAULT: RwLock<Option<Queue>> = RwLock::new(None);

/// The last rule of the precedence; the runtime's default device does not change.
static SYCL_DEFAULT: OnceCell<Queue> = OnceCell::new();

/// The queue for work without an explicit queue or data on one: that of the innermost [`with_queue`] on this
/// thread, else the process default, else one on SYCL's default device.
///
/// ```
/// use usmq::{current_queue, with_queue};
///
/// let queue = with_queue("cpu", current_queue)?;
/// assert_eq!(with_queue(&queue, current_queue)?, queue);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::RuntimeNotFound`] if no device is visible; [`Error::Value`] in a destructor of thread-local data
/// that runs after the thread has dropped its scopes.
pub fn current_queue() -> Result<Queue> {
    match scope::innermost(GLOBAL)? {
        Some(queue) => Ok(queue),
        None => default_queue(),
    }
}

/// A separate function, so that the path of an open scope stays a few instructions.
#[inline(never)]
fn default_queue() -> Result<Queue> {
    if let Some(queue) = DEFAULT.read().clone() {
        return Ok(queue);
    }
    crate::runtime::ensure_usable()?;
    SYCL_DEFAULT.get_or_try_init(|| Queue::new(Target::Unset, None, QueueProperties::default())).cloned()
}

/// Whether [`current_queue`] can answer without a call of the runtime.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn current_queue_is_known() -> bool {
    SYCL_DEFAULT.get().is_some()
}

/// Sets the default of the whole process: a filter string, a device or a queue. [`Target::Unset`] returns to
/// SYCL's default device.
///
/// ```
/// usmq::set_default_queue("cpu")?;
/// assert_eq!(usmq::current_queue()?, usmq::Queue::get("cpu")?);
/// usmq::set_default_queue(usmq::Target::Unset)?;
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// As [`Queue::new`]; the default then does not change.
pub fn set_default_queue(target: impl Into<Target>) -> Result<()> {
    let queue = target.into().queue()?;
    let _before = std::mem::replace(&mut *DEFAULT.write(), queue);
    Ok(())
}

/// Runs `f` with `target` as this thread's current queue, and restores the previous one afterwards, also if
/// `f` fails or panics. [`Target::Unset`] changes nothing.
///
/// ```
/// usmq::with_queue("cpu", || -> usmq::Result<()> {
///     let x = usmq::Array::from_slice(&[1f32, 2.0, 3.0])?;
///     assert_eq!(x.queue(), &usmq::current_queue()?);
///     Ok(())
/// })?;
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// `f` returns a `Result`, since the queue may fail; its error type takes usmq's [`Error`]. For a body that returns
/// any other type, get the queue first and call [`Queue::with`]:
///
/// ```
/// let sum: f32 = usmq::Queue::get("cpu")?.with(|| [1f32, 2.0].iter().sum());
/// assert_eq!(sum, 3.0);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// The error of `f`, or the reason why the queue cannot be created; then `f` does not run.
pub fn with_queue<T, E: From<Error>>(
    target: impl Into<Target>,
    f: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    run(GLOBAL, target.into(), f)
}

fn run<T, E: From<Error>>(
    manager: ManagerId,
    target: Target,
    f: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let _entered = target.queue()?.map(|queue| scope::enter(manager, queue)).transpose()?;
    f()
}

/// As [`with_queue`] for callers without a closure: the guard ends the scope.
pub(crate) fn enter(queue: Queue) -> Result<Entered> {
    scope::enter(GLOBAL, queue)
}

impl Queue {
    /// A scope in which this queue is current; it can be entered on any thread.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::from_queue(self.clone())
    }

    /// Runs `f` with this queue as the current one, and restores the previous one afterwards, also on panic: as
    /// [`with_queue`], for a body that returns any type.
    ///
    /// ```
    /// use usmq::{Queue, current_queue};
    ///
    /// let queue = Queue::get("cpu")?;
    /// let seen = queue.with(|| current_queue().ok());
    /// assert_eq!(seen, Some(queue));
    /// # Ok::<(), usmq::Error>(())
    /// ```
    pub fn with<T>(&self, f: impl FnOnce() -> T) -> T {
        self.scope().enter_within(f)
    }
}

/// A package's own current queue. Its scopes and its default affect only callers of this manager; without
/// either it follows the process-wide [`current_queue`].
///
/// Clones are the same manager.
///
/// ```
/// use usmq::{Queue, QueueManager, current_queue};
///
/// let manager = QueueManager::new("my_package");
/// assert_eq!(manager.current_queue()?, current_queue()?);
/// let own = Queue::builder("cpu").out_of_order().build()?;
/// manager.with_queue(&own, || {
///     assert_eq!(manager.current_queue()?, own);
///     assert_ne!(current_queue()?, own);
///     Ok::<_, usmq::Error>(())
/// })?;
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct QueueManager(Arc<Manager>);

#[derive(Debug)]
struct Manager {
    name: String,
    id: ManagerId,
    default: RwLock<Option<Queue>>,
}

impl QueueManager {
    /// A manager without scopes and default. The name appears in debug output.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(Manager { name: name.to_owned(), id, default: RwLock::new(None) }))
    }

    /// The name given to [`QueueManager::new`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The innermost of this manager's scopes, else its default, else the process-wide current queue.
    ///
    /// # Errors
    /// As [`current_queue`].
    pub fn current_queue(&self) -> Result<Queue> {
        self.scoped_or_default_queue()?.map_or_else(current_queue, Ok)
    }

    /// The queue of this manager's own scopes or default, without the fallback to the process-wide one.
    pub(crate) fn scoped_or_default_queue(&self) -> Result<Option<Queue>> {
        Ok(scope::innermost(self.0.id)?.or_else(|| self.default_queue()))
    }

    /// The default, if one was set.
    #[must_use]
    pub fn default_queue(&self) -> Option<Queue> {
        self.0.default.read().clone()
    }

    /// As [`set_default_queue`], for this manager; [`Target::Unset`] returns to the process-wide one.
    ///
    /// # Errors
    /// As [`set_default_queue`].
    pub fn set_default_queue(&self, target: impl Into<Target>) -> Result<()> {
        let queue = target.into().queue()?;
        let _before = std::mem::replace(&mut *self.0.default.write(), queue);
        Ok(())
    }

    /// As [`with_queue`], for this manager.
    ///
    /// # Errors
    /// As [`with_queue`].
    pub fn with_queue<T, E: From<Error>>(
        &self,
        target: impl Into<Target>,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        run(self.0.id, target.into(), f)
    }
}
