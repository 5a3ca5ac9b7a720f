//! Sessions: record all activity of the process between two calls.

use super::Profile;
use super::timeline;
use crate::error::{Error, Result};
use crate::memory;
use crate::runtime::interrupt::poll_until;
use crate::trace::log::{self, Window};

/// Nanoseconds for commands of other libraries to end: one that its library has not flushed may never begin.
const PATIENCE: u64 = 10_000_000_000;

/// Records a profile: from [`start`](Self::start) to [`finish`](Self::finish) it records all activity of usmq
/// in this process, on all threads.
///
/// Sessions may nest and overlap: each independently records the commands submitted while it is open. At most
/// 262,144 records are kept at a time; later ones are only counted ([`Profile::dropped`]). A fork ends open
/// sessions in the child.
///
/// ```
/// use usmq::{Array, profile::Session};
///
/// let session = Session::start();
/// Array::zeros::<f32>(3)?.to_vec::<f32>()?;
/// let profile = session.finish()?;
/// println!("{profile}");
/// assert!(profile.events().len() >= 2);
/// # Ok::<(), usmq::Error>(())
/// ```
#[must_use = "a session records until it is finished or dropped"]
pub struct Session {
    window: Option<Window>,
    /// The memory that arrays held at the start of the session.
    held: Vec<(crate::device::Device, &'static str, u64)>,
}

impl Session {
    /// Opens a session. Needs no device and queries none.
    pub fn start() -> Self {
        let held = memory::held();
        Self { window: Some(log::open()), held }
    }

    /// Closes the session, waits for its commands, and returns the profile.
    ///
    /// # Errors
    /// [`Error::Value`] in a child that was forked while the session was open; [`Error::Interrupted`], without a
    /// profile, inside [`with_interrupt`](crate::with_interrupt) only.
    pub fn finish(mut self) -> Result<Profile> {
        let Some(window) = self.window.take().filter(|window| !window.is_forked()) else {
            return Err(Error::value(
                "the profile was started before this process was forked; start one in the child",
            ));
        };
        let (to, closed) = (log::next(), log::now());
        // A forked child may not begin a wait, and has no command to wait for.
        let is_over = || if log::now() < closed + PATIENCE { !log::poll(to) } else { !log::poll_own(to) };
        if !is_over()
            && let Err(interrupted) = poll_until(is_over, || ())
        {
            log::close(&window, 0);
            return Err(interrupted);
        }
        let (records, dropped) = log::close(&window, to);
        Ok(timeline::profile(&records, dropped, (window.opened, closed), &self.held))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(window) = self.window.take().filter(|window| !window.is_forked()) {
            log::close(&window, 0);
        }
    }
}

/// Also records the work of other libraries, as the SYCL runtime reports it: their kernels, copies, fills and barriers with
/// their queues and devices, their memory, builds and waits. May be called more than once, before the first use of a device.
///
/// Tracing must be enabled in the runtime when the process starts, with the variables `XPTI_TRACE_ENABLE=1`,
/// `XPTI_FRAMEWORK_DISPATCHER` and `XPTI_SUBSCRIBERS` (paths of libxptifw.so and
/// libsycl_ur_trace_collector.so in the folder of libsycl) and `UR_ENABLE_LAYERS=UR_LAYER_TRACING`. In
/// Python, `python -m usmq trace` sets them.
///
/// # Errors
/// [`Error::RuntimeNotFound`] if tracing is not enabled.
pub fn watch_calls() -> Result<()> {
    crate::trace::xpti::watch()
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("open", &self.window.is_some()).finish_non_exhaustive()
    }
}
