//! Interruptible waits, such as Python's after Ctrl-C.
//!
//! A wait inside a driver cannot be interrupted. Where a check is installed, a wait therefore polls the
//! runtime with growing pauses, and an interrupted wait leaves no thread waiting.

use super::exit::CountedWait;
use crate::error::{Error, Result};
use std::cell::Cell;
use std::time::{Duration, Instant};

type Check<'a> = dyn Fn() -> bool + 'a;

thread_local! {
    /// The check of this thread's waits; it outlives the call of [`with_interrupt`] that stored it here.
    static CHECK: Cell<Option<*const Check<'static>>> = const { Cell::new(None) };
}

/// How long a wait polls without pauses: most short waits are over by then, and the shortest pause of Linux
/// is as long.
const AT_ONCE: Duration = Duration::from_micros(50);

/// A pause as a fraction of the time waited so far, so that no wait lasts much longer than its command.
const PART: u32 = 32;

const LONGEST: Duration = Duration::from_millis(1);

/// A signal ends a pause and triggers the check. Calls at this interval detect a signal that came between two
/// pauses, or went to another thread.
const EVERY: Duration = Duration::from_millis(50);

/// Restores the previous check of this thread.
struct Before(Option<*const Check<'static>>);

impl Before {
    fn replaced_by(check: Option<*const Check<'static>>) -> Self {
        // A thread that is ending has no check.
        Self(CHECK.try_with(|place| place.replace(check)).unwrap_or(None))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        let _ = CHECK.try_with(|place| place.set(self.0));
    }
}

/// Runs `body`; its waits for a device end with [`Error::Interrupted`] soon after `check` returns true.
///
/// This thread calls `check` at a signal, and about 20 times a second. Submitted work continues, and its
/// memory stays alive; an interrupt only ends the wait. Waits that cannot be interrupted, because the device
/// still uses memory of the caller, last until the device has finished with it.
///
/// A launch that repeats, argument by argument, one that took less than a millisecond is waited for without
/// calls of `check`.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use usmq::{Array, with_interrupt};
///
/// static STOP: AtomicBool = AtomicBool::new(false); // set by a handler of SIGINT
/// let x = Array::zeros::<f32>([3])?;
/// with_interrupt(|| STOP.load(Ordering::Relaxed), || x.wait())?;
/// # Ok::<(), usmq::Error>(())
/// ```
pub fn with_interrupt<T>(check: impl Fn() -> bool, body: impl FnOnce() -> T) -> T {
    let check: *const Check<'_> = &raw const check;
    // SAFETY: changes only the lifetime. The pointer is read while `_before` lives, and `check` outlives
    // that.
    let check = unsafe { std::mem::transmute::<*const Check<'_>, *const Check<'static>>(check) };
    let _before = Before::replaced_by(Some(check));
    body()
}

/// Runs `body` without interrupts: the device uses memory that the caller is about to reclaim.
pub(crate) fn uninterruptible<T>(body: impl FnOnce() -> T) -> T {
    let _before = Before::replaced_by(None);
    body()
}

/// Whether waits of this thread may end early.
pub(crate) fn is_possible() -> bool {
    CHECK.try_with(Cell::get).is_ok_and(|check| check.is_some())
}

/// Polls until `over` returns true. The caller then enters the runtime's own wait with the returned guard,
/// which counts as a wait at process exit. `pausing` is called before each pause, which only longer waits
/// reach.
///
/// # Errors
/// [`Error::Interrupted`] inside [`with_interrupt`] only.
pub(crate) fn poll_until(mut over: impl FnMut() -> bool, mut pausing: impl FnMut()) -> Result<CountedWait> {
    let mut counted = CountedWait::begin()?;
    let (begun, mut asked) = (Instant::now(), Duration::ZERO);
    while !over() {
        let waited = begun.elapsed();
        if waited < AT_ONCE {
            // The device may need this core.
            std::thread::yield_now();
            continue;
        }
        pausing();
        let signalled = pause((waited / PART).min(LONGEST));
        if is_possible() && (signalled || waited - asked > EVERY) {
            asked = waited;
            // The check may wait for a thread that is ending the process, which waits for counted ones.
            drop(counted);
            if asks() {
                return Err(Error::Interrupted);
            }
            // The check may have forked, and this may be the child.
            counted = CountedWait::begin()?;
        }
    }
    Ok(counted)
}

/// Sleeps; true if a signal ended the sleep.
fn pause(time: Duration) -> bool {
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: the time is readable, and null is valid for the remaining time.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) != 0 }
}

/// Whether the wait is to end. During the check, waits of this thread are not interruptible: the check may
/// run code that uses a device.
fn asks() -> bool {
    let before = Before::replaced_by(None);
    // SAFETY: `with_interrupt` stored it, and has not returned.
    before.0.is_some_and(|check| unsafe { (*check)() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uninterruptible_wait_ends_with_its_command() {
        let end = Instant::now() + Duration::from_millis(100);
        let over = || Instant::now() >= end;
        assert!(with_interrupt(|| true, || uninterruptible(|| poll_until(over, || ()).is_ok())));
        assert!(over());
    }

    #[test]
    fn a_wait_ends_with_its_command_or_with_the_interrupt() {
        let end = Instant::now() + Duration::from_millis(20);
        assert!(with_interrupt(|| false, || poll_until(|| Instant::now() >= end, || ())).is_ok());
        let begun = Instant::now();
        let ended =
            with_interrupt(|| true, || poll_until(|| begun.elapsed() > Duration::from_secs(5), || ()));
        assert!(matches!(ended, Err(Error::Interrupted)));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[test]
    fn the_previous_interrupt_check_is_restored_after_a_panic() {
        let inside = || with_interrupt(|| true, || panic!("inside"));
        with_interrupt(
            || false,
            || {
                assert!(std::panic::catch_unwind(inside).is_err());
                assert!(is_possible() && !asks());
            },
        );
        assert!(!is_possible());
    }

    #[test]
    fn an_interrupt_check_is_not_interrupted_itself() {
        let begun = Instant::now();
        let asked = || {
            assert!(!is_possible());
            true
        };
        assert!(
            with_interrupt(asked, || poll_until(|| begun.elapsed() > Duration::from_secs(5), || ())).is_err()
        );
    }
}
