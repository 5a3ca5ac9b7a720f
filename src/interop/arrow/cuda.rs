//! CUDA memory as a source of buffers, which are copied to USM through pinned host memory.

use super::buffer_source::{Buffer, BufferSource};
use crate::array::{Array, DType};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::interop::cuda::{CudaArray, Described, arrivals_after};
use std::any::Any;
use std::cell::RefCell;
use std::slice;
use std::sync::Arc;

/// Buffers of an Arrow array in CUDA memory.
pub(super) struct CudaSource {
    queue: Queue,
    kind: UsmKind,
    stream: usize,
    owner: Arc<dyn Any + Send + Sync>,
    /// Data copied for the host. Entries are never removed, so references to them stay valid.
    seen: RefCell<Vec<Box<[u64]>>>,
}

impl CudaSource {
    /// Creates a source of memory on the CUDA device with this number, usable after `event` is complete.
    /// `owner` is dropped after the last transfer.
    ///
    /// # Safety
    /// `event` is 0 or the address of a live `cudaEvent_t`.
    pub(super) unsafe fn new(
        queue: Queue,
        kind: UsmKind,
        device_id: i64,
        event: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        // Pinned memory belongs to no device; producers give -1 or any number.
        let ordinal = usize::try_from(device_id).unwrap_or(0);
        // SAFETY: the caller's promise: a pointer to a handle.
        let event = if event == 0 { 0 } else { unsafe { *(event as *const usize) } };
        // SAFETY: as above.
        let stream = unsafe { arrivals_after(ordinal, event) }?;
        Ok(Self { queue, kind, stream, owner, seen: RefCell::default() })
    }

    fn array(&self, pointer: usize, bytes: usize, kind: UsmKind) -> Result<Array> {
        let described = Described {
            pointer,
            shape: &[bytes],
            strides: None,
            dtype: DType::U8,
            readonly: true,
            stream: Some(self.stream),
        };
        // SAFETY: the producer guarantees the memory, which the owner keeps alive, and the stream belongs to
        // usmq.
        let array = unsafe { CudaArray::foreign(&described, Box::new(self.owner.clone())) }?;
        array.to_queue(&self.queue, kind)
    }

    /// Copies the first `bytes` at `pointer` to host words. Blocks.
    fn fetch(&self, pointer: usize, bytes: usize) -> Result<*const u64> {
        let found = self.array(pointer, bytes, UsmKind::Host)?.to_bytes()?;
        let words: Box<[u64]> = found
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            })
            .collect();
        let address = words.as_ptr();
        self.seen.borrow_mut().push(words);
        Ok(address)
    }
}

impl BufferSource for CudaSource {
    const COPIES: bool = true;

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn kind(&self) -> UsmKind {
        self.kind
    }

    fn buffer(&mut self, pointer: usize, bytes: usize) -> Result<Buffer> {
        Ok(Buffer::Held(self.array(pointer, bytes, self.kind)?.as_readonly()))
    }

    fn later(&mut self, pointer: usize) -> Result<Buffer> {
        Err(Error::interop(format!("the size of the buffer at {pointer:#x} in CUDA memory cannot be read")))
    }

    unsafe fn look<T>(&self, pointer: usize, count: usize) -> Result<Option<&[T]>> {
        const { assert!(align_of::<T>() <= align_of::<u64>()) };
        if count == 0 || pointer == 0 {
            return Ok(None);
        }
        let words = self.fetch(pointer, count * size_of::<T>())?;
        // SAFETY: `seen` keeps this many bytes, aligned for u64, until `self` is dropped; any bits are a T,
        // as the caller promises.
        Ok(Some(unsafe { slice::from_raw_parts(words.cast::<T>(), count) }))
    }
}
