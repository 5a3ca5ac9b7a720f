//! What usmq asks of a CUDA driver: one small trait, so that order and transfers are tested without a card.

use super::latch::Latch;
use crate::error::Result;
use std::sync::Arc;

/// A `CUcontext`, `CUstream` or `CUevent`; only the driver looks inside.
pub(super) type Handle = usize;

/// Where an address is, as the driver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) device: usize,
    /// 0 for memory without a context of its own, such as that of CUDA's pools.
    pub(super) context: Handle,
}

/// The calls of the CUDA driver API that usmq makes. None blocks, except [`Driver::wait`].
pub(super) trait Driver: Send + Sync {
    /// For people: `NVIDIA H200`.
    fn name(&self, device: usize) -> Result<String>;

    /// The primary context, which the CUDA runtime and every library over it use. Kept for good.
    fn primary_context(&self, device: usize) -> Result<Handle>;

    /// `None` for an address that the driver does not know.
    fn locate(&self, pointer: usize) -> Result<Option<Location>>;

    /// A stream without ties to the legacy default stream. Kept for good.
    fn new_stream(&self, context: Handle) -> Result<Handle>;

    /// Device memory, usable once what was submitted to the stream is complete.
    fn allocate(&self, context: Handle, stream: Handle, bytes: usize) -> Result<usize>;

    /// Frees such memory after what was submitted to the stream.
    fn free(&self, context: Handle, stream: Handle, pointer: usize) -> Result<()>;

    /// A new event that completes after what was submitted to the stream.
    fn record(&self, context: Handle, stream: Handle) -> Result<Handle>;

    /// Gives an event back; its work goes on.
    fn forget(&self, event: Handle);

    /// Later work of the stream waits for the event.
    fn stream_wait_event(&self, context: Handle, stream: Handle, event: Handle) -> Result<()>;

    /// Later work of the stream waits until the latch is open.
    fn stream_wait_latch(&self, context: Handle, stream: Handle, latch: Arc<Latch>) -> Result<()>;

    /// Blocks until the event is complete.
    fn wait(&self, event: Handle) -> Result<()>;

    /// Starts a copy between any two addresses that the driver knows.
    ///
    /// # Safety
    /// Both ranges stay valid until the copy is complete; host memory among them is registered.
    unsafe fn copy(
        &self,
        context: Handle,
        stream: Handle,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> Result<()>;

    /// Pins host memory, so that copies to and from it run by themselves.
    ///
    /// # Safety
    /// The range stays valid until it is unregistered.
    unsafe fn register(&self, context: Handle, pointer: usize, bytes: usize) -> Result<()>;

    /// Ends what [`Driver::register`] began.
    fn unregister(&self, context: Handle, pointer: usize);
}

/// An event of a stream. Dropping it does not wait.
pub(super) struct Recorded {
    driver: Arc<dyn Driver>,
    raw: Handle,
}

impl Recorded {
    pub(super) fn after(driver: &Arc<dyn Driver>, context: Handle, stream: Handle) -> Result<Self> {
        Ok(Self { raw: driver.record(context, stream)?, driver: driver.clone() })
    }

    pub(super) fn raw(&self) -> Handle {
        self.raw
    }

    pub(super) fn wait(&self) -> Result<()> {
        self.driver.wait(self.raw)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.driver.forget(self.raw);
    }
}
