//! The output of kernels that print. The C library keeps it in a buffer unless stdout is a terminal, so a wait writes it.

use crate::runtime::write_stdout;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a kernel has printed, on any queue: processes without one pay for one load.
static ANYWHERE: AtomicBool = AtomicBool::new(false);

/// Whether a command of the process has printed.
pub(super) fn is_expected_anywhere() -> bool {
    ANYWHERE.load(Ordering::Acquire)
}

/// The commands of a queue whose output is not yet written.
#[derive(Default)]
pub(super) struct Output {
    /// Whether there was any.
    any: AtomicBool,
    /// The numbers of the first and the last of them; 0 for a command that no number of the queue tells to be complete: of an
    /// out-of-order queue, or of a replay that ends on another queue.
    commands: Mutex<Option<(u64, u64)>>,
}

impl Output {
    /// Whether a command of the queue has printed, or may have followed one that has.
    pub(super) fn is_expected(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(super) fn add(&self, number: u64) {
        let mut commands = self.commands.lock();
        let (first, last) = commands.unwrap_or((number, number));
        *commands = Some((first.min(number), last.max(number)));
        self.any.store(true, Ordering::Release);
        ANYWHERE.store(true, Ordering::Release);
    }

    /// Whether output is due, when all commands up to this one are complete. It then counts as written.
    fn take(&self, completed: u64) -> bool {
        let mut commands = self.commands.lock();
        let Some((first, last)) = *commands else { return false };
        if first > completed {
            return false;
        }
        *commands = match (first, last) {
            (0, _) => Some((0, if last > completed { last } else { 0 })),
            _ => (last > completed).then_some((completed + 1, last)),
        };
        true
    }

    /// Writes the output of commands up to this one, which are complete, and that of other queues, which the work of this
    /// one may follow. Blocks while the reader of stdout does not read only if `may_block` and there is output of this
    /// queue. Call it without a lock.
    pub(super) fn write(&self, completed: u64, may_block: bool) {
        let is_due = self.take(completed);
        if !write_stdout(is_due && may_block) && is_due {
            self.add(completed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_due_once_after_its_command() {
        let output = Output::default();
        assert!(!output.is_expected() && !output.take(9));
        output.add(3);
        output.add(7);
        assert!(output.is_expected() && !output.take(2));
        assert!(output.take(3));
        assert!(!output.take(3), "written");
        assert!(output.take(8));
        assert!(!output.take(100));
        output.add(101);
        assert!(output.take(101));
    }

    #[test]
    fn each_wait_writes_after_a_command_without_a_number() {
        let output = Output::default();
        output.add(0);
        assert!(output.take(0) && output.take(0));
        output.add(5);
        assert!(output.take(4) && output.take(5) && output.take(6));
    }
}
