//! The CUDA driver functions that usmq needs, as a small trait, so that order and transfers are tested
//! without a CUDA device.

use crate::error::Result;
use std::sync::Arc;

/// A `CUcontext`, `CUstream` or `CUevent`, opaque except to the driver.
pub(super) type Handle = usize;

/// The location of an address, as the driver reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) device: usize,
    /// 0 for memory without a context, such as that of CUDA's pools.
    pub(super) context: Handle,
}

/// The calls of the CUDA driver API that usmq makes. Any of them may block while another thread waits inside the driver, as in
/// a copy to memory that is not registered.
pub(super) trait Driver: Send + Sync {
    /// The display name: `NVIDIA H200`.
    fn name(&self, device: usize) -> Result<String>;

    /// The primary context, which the CUDA runtime and all libraries on top of it use. Never released.
    fn primary_context(&self, device: usize) -> Result<Handle>;

    /// `None` for an address that the driver does not know.
    fn locate(&self, pointer: usize) -> Result<Option<Location>>;

    /// Creates a stream that does not synchronize with the legacy default stream. Never destroyed.
    fn new_stream(&self, context: Handle) -> Result<Handle>;

    /// Allocates device memory, usable after the work submitted to the stream is complete.
    fn allocate(&self, context: Handle, stream: Handle, bytes: usize) -> Result<usize>;

    /// Frees such memory after the work submitted to the stream.
    fn free(&self, context: Handle, stream: Handle, pointer: usize) -> Result<()>;

    /// Records a new event that completes after the work submitted to the stream.
    fn record(&self, context: Handle, stream: Handle) -> Result<Handle>;

    /// Destroys an event; its work continues.
    fn forget(&self, event: Handle);

    /// Makes later work of the stream wait for the event.
    fn stream_wait_event(&self, context: Handle, stream: Handle, event: Handle) -> Result<()>;

    /// Allocates zeroed words of host memory, of 4 bytes, that streams can wait for and write. Never freed.
    fn allocate_words(&self, context: Handle, bytes: usize) -> Result<usize>;

    /// Makes later work of the stream wait until the word at this address is 1.
    fn stream_wait_word(&self, context: Handle, stream: Handle, address: usize) -> Result<()>;

    /// Sets the word to 1 after the work submitted to the stream.
    fn stream_set_word(&self, context: Handle, stream: Handle, address: usize) -> Result<()>;

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

    /// Pins host memory, so that copies to and from it are asynchronous. False if another library has registered it.
    ///
    /// # Safety
    /// The range stays valid until it is unregistered.
    unsafe fn register(&self, context: Handle, pointer: usize, bytes: usize) -> Result<bool>;

    /// Reverts [`Driver::register`]. May block until the device is idle.
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
