//! The scopes of this thread: a stack of (manager, queue), entered by guards and movable to other threads.

use crate::device::Queue;
use crate::error::{Error, Result};
use crate::runtime::exit;
use std::cell::RefCell;
use std::marker::PhantomData;

/// Distinguishes managers.
pub(super) type ManagerId = usize;

/// The process-wide manager.
pub(super) const GLOBAL: ManagerId = 0;

/// A stack of handles, generic so that it is tested without a device.
#[derive(Debug, Clone)]
struct Stack<H>(Vec<(ManagerId, H)>);

impl<H> Stack<H> {
    fn innermost(&self, manager: ManagerId) -> Option<&H> {
        self.0.iter().rev().find(|(id, _)| *id == manager).map(|(_, handle)| handle)
    }
}

thread_local! {
    static SCOPES: RefCell<Stack<Queue>> = const { RefCell::new(Stack(Vec::new())) };
}

/// The stack of this thread; `None` after the thread has dropped it, as in destructors of other thread-local
/// data.
fn with_scopes<T>(f: impl FnOnce(&mut Stack<Queue>) -> T) -> Option<T> {
    SCOPES.try_with(|scopes| f(&mut scopes.borrow_mut())).ok()
}

/// The error for work in a destructor of thread-local data that runs after those of usmq, and in the exit handlers of a
/// process, whose main thread has dropped its data before them.
#[cold]
pub(crate) fn thread_ends() -> Error {
    exit::not_forked().err().unwrap_or_else(|| {
        Error::value(
            "this thread or the process is ending, and the thread has dropped its scopes, so it has no current queue: a \
             destructor of thread-local data or an exit handler asked for one. Pass a queue there, or drop the value before",
        )
    })
}

/// The innermost queue of this manager's scopes on this thread.
pub(super) fn innermost(manager: ManagerId) -> Result<Option<Queue>> {
    let found = SCOPES.try_with(|scopes| scopes.borrow().innermost(manager).cloned());
    found.map_err(|_| thread_ends())
}

/// Makes `queue` current until the guard is dropped.
pub(super) fn enter(manager: ManagerId, queue: Queue) -> Result<Entered> {
    let entered = with_scopes(|scopes| {
        let before = Stack(Vec::new());
        let depth = scopes.0.len();
        scopes.0.push((manager, queue));
        Entered { before, depth, not_send: PhantomData }
    });
    entered.ok_or_else(thread_ends)
}

/// State to restore when a scope ends, also on panic.
#[must_use = "the queue is current only while the guard lives"]
pub(crate) struct Entered {
    /// The stack that a captured scope replaced; empty for a single queue.
    before: Stack<Queue>,
    depth: usize,
    /// It restores state of this thread, so it must not move to another.
    not_send: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Drops the queues after the borrow, since a drop may run code that queries the current queue.
        let left = with_scopes(|scopes| {
            let left = scopes.0.split_off(self.depth.min(scopes.0.len()));
            if !self.before.0.is_empty() {
                scopes.0.append(&mut self.before.0);
            }
            left
        });
        drop(left);
    }
}

/// The scopes of one thread, to be entered on another: a worker of a thread pool, a spawned thread.
///
/// ```
/// use usmq::{Scope, current_queue, with_queue};
///
/// with_queue("cpu", || -> usmq::Result<()> {
///     let scope = Scope::capture();
///     let there = std::thread::spawn(move || scope.enter(current_queue));
///     assert_eq!(there.join().expect("no panic")?, current_queue()?);
///     Ok(())
/// })?;
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Scope(Stack<Queue>);

impl Scope {
    /// Captures the open scopes of this thread, of every manager. Empty in a destructor of thread-local data
    /// that runs after the thread has dropped its scopes.
    #[must_use]
    pub fn capture() -> Self {
        Self(with_scopes(|scopes| scopes.clone()).unwrap_or(Stack(Vec::new())))
    }

    /// Runs `f` inside these scopes only, and restores the thread's own afterwards, also on panic. On a
    /// thread that has dropped its scopes `f` runs without scopes, and
    /// [`current_queue`](crate::current_queue) is an error.
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        let _entered = with_scopes(|scopes| {
            let before = std::mem::replace(scopes, self.0.clone());
            Entered { before, depth: 0, not_send: PhantomData }
        });
        f()
    }

    /// A scope with this queue only, for the process-wide manager.
    pub(super) fn from_queue(queue: Queue) -> Self {
        Self(Stack(vec![(GLOBAL, queue)]))
    }

    /// Enters this scope inside the thread's own scopes.
    pub(super) fn enter_within<T>(&self, f: impl FnOnce() -> T) -> T {
        let _entered = with_scopes(|scopes| {
            let depth = scopes.0.len();
            scopes.0.extend(self.0.0.iter().cloned());
            Entered { before: Stack(Vec::new()), depth, not_send: PhantomData }
        });
        f()
    }
}

#[cfg(test)]
mod tests {
    use super::Stack;

    #[test]
    fn each_manager_sees_its_own_innermost_handle() {
        let stack = Stack(vec![(0, 'a'), (1, 'b'), (0, 'c'), (2, 'd')]);
        assert_eq!(stack.innermost(0), Some(&'c'));
        assert_eq!(stack.innermost(1), Some(&'b'));
        assert_eq!(stack.innermost(3), None);
    }
}
