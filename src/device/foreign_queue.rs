//! Queues of other libraries: found again at each import, and kept for a moment between two imports.

use super::queue::Described;
use super::{Context, Priority, Queue, QueueProperties, discovery};
use crate::completion::{Progress, Watched, watch};
use crate::error::{During, Result};
use crate::{ffi, runtime};
use std::time::{Duration, Instant};

impl Queue {
    /// A handle to a queue of another library, not a new queue: commands of both sides share its order.
    ///
    /// # Safety
    /// `address` is that of a live `sycl::queue` made by the libsycl of this process. It is copied, not kept.
    ///
    /// # Errors
    /// [`Error::Interop`](crate::Error::Interop) if its device is not visible to usmq.
    pub(crate) unsafe fn adopt(address: usize) -> Result<Self> {
        runtime::ensure_usable()?;
        // SAFETY: the caller's promise.
        let id = unsafe { ffi::queue_id_at(address) }.during("identifying a queue")?;
        // SAFETY: the caller's promise.
        let (queue, is_new) = Self::interned(id, || unsafe { describe(address) })?;
        queue.expose();
        if is_new {
            watch(Box::new(Kept { _queue: queue.clone(), since: Instant::now() }));
        }
        Ok(queue)
    }
}

/// # Safety
/// As [`Queue::adopt`].
unsafe fn describe(address: usize) -> Result<Described> {
    discovery::devices()?;
    // SAFETY: the caller's promise.
    let raw = unsafe { ffi::queue_copy_from(address) }.during("copying a queue")?;
    let device = discovery::adopt(ffi::queue_device(&raw).during("querying the device of a queue")?)?;
    if device.parent().is_none() {
        // The default context is usually the queue's context. Once created here, it is kept for the process. If it cannot
        // be created, the queue has another context.
        let _ = device.default_context();
    }
    let context = Context::adopt(ffi::queue_context(&raw).during("querying the context of a queue")?)?;
    let priority = ffi::queue_priority(&raw).during("querying the priority of a queue")?;
    let properties = QueueProperties {
        in_order: ffi::queue_in_order(&raw).during("querying the order of a queue")?,
        profiling: ffi::queue_profiling(&raw).during("querying the properties of a queue")?,
        priority: Priority::from_code(priority),
    };
    Ok(Described { raw, device, context, properties })
}

/// A handle for the imports that follow: a new one costs several queries of the runtime, and its drop wakes a thread.
struct Kept {
    _queue: Queue,
    since: Instant,
}

const KEPT: Duration = Duration::from_millis(10);

impl Watched for Kept {
    fn poll(&mut self) -> Progress {
        Progress::complete_if(self.since.elapsed() >= KEPT)
    }

    fn first_poll(&self) -> Duration {
        KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another library's queue, as far as usmq can tell: no handle of usmq exists.
    fn of_another_library() -> Result<std::ptr::NonNull<std::ffi::c_void>> {
        let devices = discovery::devices()?;
        let own = Queue::create(&devices[0].default_context()?, &devices[0], QueueProperties::default())?;
        own.to_raw()
    }

    #[test]
    fn repeated_imports_share_a_handle_that_is_freed_soon_after_the_last() {
        const NAME: &str =
            "device::foreign_queue::tests::repeated_imports_share_a_handle_that_is_freed_soon_after_the_last";
        if !runtime::is_own_process(NAME) {
            return;
        }
        let raw = of_another_library().unwrap();
        // SAFETY: the heap object of `to_raw`, which lives to the end of the test.
        let import = || unsafe { Queue::adopt(raw.as_ptr() as usize) }.unwrap();
        let first = import();
        // A slot belongs to one handle: a new handle has an empty one.
        let mark = || crate::runtime::Interned::new(1u32).into();
        first.slot(3).get_or_init(mark);
        drop(first);
        let second = import();
        assert!(second.slot(3).get().is_some(), "the second import made a new handle");
        drop(second);
        let begun = Instant::now();
        let is_freed = || {
            std::thread::sleep(5 * KEPT);
            import().slot(3).get().is_none()
        };
        while !is_freed() {
            assert!(begun.elapsed() < Duration::from_secs(10), "the handle is kept for ever");
        }
        // SAFETY: it came from `to_raw` and is freed once.
        unsafe { Queue::free_raw(raw) };
    }
}
