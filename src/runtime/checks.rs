//! Checks the rules for work beside other libraries, with `USMQ_CHECKS=1`: usmq's own tests set it. A violation aborts with
//! a stack trace.
//!
//! The rules: no submission, wait or free inside a destructor or while holding the GIL, and no wait inside
//! libsycl for an event that a host task may delay. libsycl waits for host tasks under its graph lock, a
//! submission needs that lock, and host tasks of other libraries take the GIL and run destructors: each
//! violation can deadlock.

use super::python_lock;
use once_cell::sync::Lazy;
use std::cell::Cell;

static ON: Lazy<bool> = Lazy::new(|| std::env::var_os("USMQ_CHECKS").is_some_and(|value| value != "0"));

thread_local! {
    /// The number of usmq destructors that this thread is in.
    static DESTRUCTORS: Cell<u32> = const { Cell::new(0) };
}

/// Marks a destructor, deleter or release callback while it lives.
#[must_use = "the destructor is marked while the guard lives"]
pub(crate) struct InDestructor(());

impl InDestructor {
    pub(crate) fn enter() -> Self {
        let _ = DESTRUCTORS.try_with(|depth| depth.set(depth.get() + 1));
        Self(())
    }
}

impl Drop for InDestructor {
    fn drop(&mut self) {
        let _ = DESTRUCTORS.try_with(|depth| depth.set(depth.get() - 1));
    }
}

/// Call before a command is submitted to a queue.
pub(crate) fn submits() {
    check("submits a command");
}

/// Call before runtime memory, or another object whose release may block, is freed.
pub(crate) fn frees() {
    check("frees memory or an object of the runtime");
}

/// Call before a wait; `may_be_held_up` returns whether libsycl would wait for a host task under its graph
/// lock.
pub(crate) fn waits(may_be_held_up: impl FnOnce() -> bool) {
    check("waits");
    if *ON && may_be_held_up() {
        stop("waits inside libsycl for an event that a host task may hold up");
    }
}

fn check(act: &str) {
    if !*ON {
        return;
    }
    if DESTRUCTORS.try_with(Cell::get).unwrap_or(0) > 0 {
        stop(&format!("{act} inside a destructor"));
    }
    if python_lock::is_held() {
        stop(&format!("{act} while it holds Python's lock"));
    }
}

#[cold]
fn stop(rule: &str) -> ! {
    let stack = std::backtrace::Backtrace::force_capture();
    eprintln!("usmq: broken rule (docs/architecture.md, \"Beside other libraries\"): usmq {rule}\n{stack}");
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const IN_CHILD: &str = "USMQ_TEST_BROKEN_RULE";

    /// Runs in its own process, which the check aborts.
    fn ends_with(test: &str, expected: &str, broken: impl FnOnce()) {
        if std::env::var_os(IN_CHILD).is_some() {
            return broken();
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = format!("runtime::checks::tests::{test}");
        let output = command
            .args(["--exact", &name, "--nocapture"])
            .env(IN_CHILD, "1")
            .env("USMQ_CHECKS", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expected), "{text}");
        assert!(text.contains(test), "the stack names the function:\n{text}");
    }

    #[test]
    fn a_submission_in_a_destructor_aborts_the_process() {
        ends_with(
            "a_submission_in_a_destructor_aborts_the_process",
            "submits a command inside a destructor",
            || {
                struct Submits;
                impl Drop for Submits {
                    fn drop(&mut self) {
                        let _mark = InDestructor::enter();
                        submits();
                    }
                }
                drop(Submits);
            },
        );
    }

    #[test]
    fn a_wait_that_a_host_task_may_block_aborts_the_process() {
        ends_with("a_wait_that_a_host_task_may_block_aborts_the_process", "may hold up", || waits(|| true));
    }

    #[test]
    fn permitted_calls_continue() {
        drop(InDestructor::enter());
        submits();
        frees();
        waits(|| false);
    }
}
