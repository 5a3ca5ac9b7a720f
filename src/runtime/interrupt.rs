//! Waits that end early because someone asks for that, as Python does after Ctrl-C.
//!
//! A wait inside a driver cannot be left. Where there is someone to ask, a wait therefore asks the runtime with growing
//! pauses instead, and leaves nothing behind when it is given up: no thread that goes on waiting.

use super::exit::Pending;
use crate::error::{Error, Result};
use std::cell::Cell;
use std::time::{Duration, Instant};

type Check<'a> = dyn Fn() -> bool + 'a;

thread_local! {
    /// Whom the waits of this thread ask; it outlives the call of [`with_interrupt`] that put it here.
    static CHECK: Cell<Option<*const Check<'static>>> = const { Cell::new(None) };
}

/// For so long a wait asks all the time: most of the short ones are over by then, and the shortest pause of Linux is as
/// long.
const AT_ONCE: Duration = Duration::from_micros(50);

/// A pause is this part of the time waited so far, so that no wait lasts much longer than its command.
const PART: u32 = 32;

const LONGEST: Duration = Duration::from_millis(1);

/// A signal ends a pause, and is asked for then. One that came between two pauses, or went to another thread, is found
/// by asking this often.
const EVERY: Duration = Duration::from_millis(50);

/// Puts back whom this thread asked before.
struct Before(Option<*const Check<'static>>);

impl Before {
    fn replaced_by(check: Option<*const Check<'static>>) -> Self {
        // A thread that is ending asks nobody.
        Self(CHECK.try_with(|place| place.replace(check)).unwrap_or(None))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        let _ = CHECK.try_with(|place| place.set(self.0));
    }
}

/// Runs `body`, whose waits for a device end with [`Error::Interrupted`] soon after `check` says true.
///
/// `check` is asked by this thread: at a signal, and about 20 times a second. What was submitted goes on, and what it
/// uses stays alive; to give up a wait only means not to wait. Waits that must not be given up, because the device still
/// uses memory that the caller has lent, last until that is no longer so.
///
/// A launch that repeats, argument by argument, one that took less than a millisecond is waited for without asking.
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
    // SAFETY: only the lifetime is left out. The pointer is read while `_before` lives, and `check` outlives that.
    let check = unsafe { std::mem::transmute::<*const Check<'_>, *const Check<'static>>(check) };
    let _before = Before::replaced_by(Some(check));
    body()
}

/// Runs `body`, whose waits nobody interrupts: the device uses what the caller is about to take back.
pub(crate) fn uninterruptible<T>(body: impl FnOnce() -> T) -> T {
    let _before = Before::replaced_by(None);
    body()
}

/// Whether waits of this thread may end early.
pub(crate) fn is_possible() -> bool {
    CHECK.try_with(Cell::get).is_ok_and(|check| check.is_some())
}

/// Polls until `over` returns true. The caller goes on to the runtime's own wait with the returned guard, which counts
/// as a wait at the exit of the process. `pausing` is called before each pause: the wait is longer than most.
///
/// # Errors
/// [`Error::Interrupted`] inside [`with_interrupt`] only.
pub(crate) fn poll_until(mut over: impl FnMut() -> bool, mut pausing: impl FnMut()) -> Result<Pending> {
    let mut pending = Pending::for_wait();
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
            // Whoever answers may have to wait for a thread that ends the process, which waits for `pending`.
            drop(pending);
            if asks() {
                return Err(Error::Interrupted);
            }
            // What answered may have forked, and this be the child.
            super::not_forked()?;
            pending = Pending::for_wait();
        }
    }
    Ok(pending)
}

/// Sleeps; true when a signal has ended it.
fn pause(time: Duration) -> bool {
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: a time to read, and no place for what is left of it.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) != 0 }
}

/// Whether the wait is to end. While the question is answered, waits of this thread are not interrupted: the answer may
/// be that of code which itself uses a device.
fn asks() -> bool {
    let before = Before::replaced_by(None);
    // SAFETY: `with_interrupt` has put it there, and has not returned.
    before.0.is_some_and(|check| unsafe { (*check)() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_nobody_can_interrupt_ends_with_its_command() {
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
    fn the_one_asked_before_is_back_after_a_panic() {
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
    fn who_is_asked_is_not_interrupted() {
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
