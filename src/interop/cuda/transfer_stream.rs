//! A stream for one transfer at a time, and two words of host memory that connect it with SYCL.
//!
//! Neither runtime can wait for an event of the other. The stream waits for one word, which usmq sets when SYCL's work is
//! complete, and sets the other at the end of the transfer, which usmq polls. After the transfer has been submitted no call
//! of CUDA is needed: such a call could block until the stream is idle.

use super::driver::{Driver, Handle};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A word that is 0 until it is set to 1.
#[derive(Clone, Copy)]
pub(super) struct Word(&'static AtomicU32);

/// Bytes between the two words, so that each has a cache line.
const LINE: usize = 64;

/// Bytes of both words.
const BYTES: usize = 2 * LINE;

impl Word {
    /// # Safety
    /// The address is aligned, and the memory is never freed.
    unsafe fn at(address: usize) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { AtomicU32::from_ptr(address as *mut u32) })
    }

    pub(super) fn address(self) -> usize {
        self.0.as_ptr().addr()
    }

    pub(super) fn set(self) {
        self.0.store(1, Ordering::Release);
    }

    pub(super) fn is_set(self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    fn clear(self) {
        self.0.store(0, Ordering::Release);
    }
}

/// A stream that other libraries do not use. Never destroyed.
pub(super) struct TransferStream {
    pub(super) raw: Handle,
    /// Set when SYCL's earlier work is complete.
    pub(super) begin: Word,
    /// Set by the stream at the end.
    pub(super) end: Word,
}

impl TransferStream {
    pub(super) fn new(driver: &Arc<dyn Driver>, context: Handle) -> Result<Self> {
        let raw = driver.new_stream(context)?;
        let words = driver.allocate_words(context, BYTES)?;
        // SAFETY: the driver's promise: aligned memory of this size, zeroed, which is never freed.
        let begin = unsafe { Word::at(words) };
        // SAFETY: as above.
        let end = unsafe { Word::at(words + LINE) };
        Ok(Self { raw, begin, end })
    }

    /// Prepares an idle stream for the next transfer.
    pub(super) fn clear(&self) {
        self.begin.clear();
        self.end.clear();
    }
}
