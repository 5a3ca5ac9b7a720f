//! The memory of a task: counts the task's use of memory, and ends with the task.

use crate::array::{Array, DType, Element, IntoShape, Layout};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::memory::Allocation;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The memory resource of one task. Arrays and blocks are USM of the task's queue, from the pools that usmq
/// shares. This type counts them and enforces the task's limit.
///
/// An array counts while it, or a view of it, is alive and not [released](Self::release). When the task ends,
/// live arrays keep their memory; blocks are freed.
///
/// ```
/// use usmq::Task;
///
/// Task::new("scratch").memory_limit(1 << 20).run(|task| -> usmq::Result<()> {
///     let memory = task.memory();
///     let scratch = memory.zeros::<f32>(100)?;
///     assert!(memory.used() >= scratch.nbytes() as u64 && memory.limit() == Some(1 << 20));
///     assert!(memory.zeros::<f32>(1 << 20).is_err(), "more than the limit");
///     Ok(())
/// })?;
/// # Ok::<(), usmq::Error>(())
/// ```
pub struct TaskMemory {
    task: String,
    queue: Queue,
    limit: Option<u64>,
    account: Mutex<Account>,
}

#[derive(Default)]
struct Account {
    /// The memory of arrays; the next allocation removes dropped ones.
    arrays: Vec<Weak<Allocation>>,
    /// Blocks by address. The task owns them until it frees or releases them, or ends.
    blocks: HashMap<usize, Arc<Allocation>>,
    /// Bytes reserved for running allocations.
    claimed: u64,
    peak: u64,
    closed: bool,
}

impl Account {
    fn used(&mut self) -> u64 {
        self.arrays.retain(|array| array.strong_count() > 0);
        let arrays = self.arrays.iter().filter_map(Weak::upgrade).map(|array| array.bytes() as u64);
        let blocks = self.blocks.values().map(|block| block.bytes() as u64);
        (arrays.sum::<u64>() + blocks.sum::<u64>()).saturating_add(self.claimed)
    }
}

/// A reservation of bytes for a running allocation.
struct Claim<'a> {
    account: &'a Mutex<Account>,
    bytes: u64,
}

impl Claim<'_> {
    /// Ends the reservation after the bytes were added to the account.
    fn keep(self, account: &mut Account) {
        account.claimed = account.claimed.saturating_sub(self.bytes);
        std::mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut account = self.account.lock();
        account.claimed = account.claimed.saturating_sub(self.bytes);
    }
}

impl TaskMemory {
    pub(super) fn new(task: &str, queue: &Queue, limit: Option<u64>) -> Self {
        Self { task: task.to_owned(), queue: queue.clone(), limit, account: Mutex::default() }
    }

    /// An uninitialised array of any dtype and USM kind.
    ///
    /// # Errors
    /// [`Error::Value`] for a shape beyond the address space or after the end of the task,
    /// [`Error::Allocation`] beyond the task's limit or if memory is short.
    pub fn uninit(&self, shape: impl IntoShape, dtype: DType, kind: UsmKind) -> Result<Array> {
        let shape = shape.into_shape();
        let shape = shape.as_ref();
        let elements = shape.iter().try_fold(dtype.itemsize(), |bytes, extent| bytes.checked_mul(*extent));
        // The array refuses a shape beyond the address space.
        self.counted(elements.unwrap_or(0), kind, || {
            let array = Array::uninit(shape, dtype, kind, &self.queue)?;
            let allocation = Arc::downgrade(&array.shared_allocation());
            Ok((array, move |account: &mut Account| account.arrays.push(allocation)))
        })
    }

    /// An uninitialised array in device memory.
    ///
    /// # Errors
    /// As [`uninit`](Self::uninit).
    pub fn empty<T: Element>(&self, shape: impl IntoShape) -> Result<Array> {
        self.uninit(shape, T::DTYPE, UsmKind::Device)
    }

    /// Zeros in device memory.
    ///
    /// # Errors
    /// As [`uninit`](Self::uninit).
    pub fn zeros<T: Element>(&self, shape: impl IntoShape) -> Result<Array> {
        let array = self.empty::<T>(shape)?;
        array.fill_bytes(&[0])?;
        Ok(array)
    }

    /// One value everywhere, in device memory.
    ///
    /// # Errors
    /// As [`uninit`](Self::uninit).
    pub fn full<T: Element>(&self, shape: impl IntoShape, value: T) -> Result<Array> {
        let array = self.empty::<T>(shape)?;
        array.fill(value)?;
        Ok(array)
    }

    /// A copy of host values, one axis, in device memory.
    ///
    /// # Errors
    /// As [`uninit`](Self::uninit).
    pub fn from_slice<T: Element>(&self, values: &[T]) -> Result<Array> {
        let array = self.empty::<T>([values.len()])?;
        array.copy_from_slice(values)?;
        Ok(array)
    }

    /// Allocates a block for a library that takes addresses, as oneMKL for scratch space, for use on the
    /// task's queue only. Zero bytes also have a unique address.
    ///
    /// # Errors
    /// As [`uninit`](Self::uninit).
    pub fn allocate(&self, bytes: usize, kind: UsmKind) -> Result<usize> {
        self.counted(bytes, kind, || {
            let block = Allocation::new(bytes, kind, &self.queue)?;
            // The log does not see commands that use the address; later commands wait for the queue.
            block.share_on(&self.queue)?;
            let address = block.pointer();
            Ok((address, move |account: &mut Account| {
                account.blocks.insert(address, block);
            }))
        })
    }

    /// Frees a block; its memory is reused after the commands already submitted to the queue are complete.
    ///
    /// # Errors
    /// [`Error::Value`] if the task has no block at this address, because it never had, freed or released it.
    /// Nothing is freed then.
    pub fn deallocate(&self, address: usize) -> Result<()> {
        self.take(address).map(drop)
    }

    /// Transfers a block to the caller, as an array of its bytes with the usual lifetime.
    ///
    /// # Errors
    /// As [`deallocate`](Self::deallocate).
    pub fn release_block(&self, address: usize) -> Result<Array> {
        let block = self.take(address)?;
        let layout = Layout::contiguous(&[block.bytes()], 1)?;
        Ok(Array::from_parts(block, layout, DType::U8, self.queue.clone(), false))
    }

    /// Stops counting an array, because it is an output: later allocations of the task may use its share of
    /// the limit. An array of other memory is returned unchanged.
    pub fn release(&self, array: Array) -> Array {
        let own = Arc::downgrade(&array.shared_allocation());
        self.account.lock().arrays.retain(|other| !other.ptr_eq(&own));
        array
    }

    /// Bytes in use by arrays and blocks of the task.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.account.lock().used()
    }

    /// The largest [`used`](Self::used) so far, updated by allocations.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.account.lock().peak
    }

    /// The limit in bytes, if any.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Allocates `bytes` with `make` and counts them, if the limit permits.
    fn counted<T, N: FnOnce(&mut Account)>(
        &self,
        bytes: usize,
        kind: UsmKind,
        make: impl FnOnce() -> Result<(T, N)>,
    ) -> Result<T> {
        let claim = self.claim(bytes, kind)?;
        // Call it without the lock: it may wait, and run code of other libraries.
        let (made, note) = make()?;
        let mut account = self.open_account()?;
        note(&mut account);
        claim.keep(&mut account);
        account.peak = account.used().max(account.peak);
        Ok(made)
    }

    fn open_account(&self) -> Result<MutexGuard<'_, Account>> {
        let account = self.account.lock();
        if account.closed {
            return Err(Error::value(format!(
                "task {:?} has ended and its memory is released; allocate arrays that outlive a task outside \
                 it",
                self.task
            )));
        }
        Ok(account)
    }

    /// Reserves bytes of the limit against other threads of the task, until the claim is dropped.
    fn claim(&self, bytes: usize, kind: UsmKind) -> Result<Claim<'_>> {
        let mut account = self.open_account()?;
        let used = account.used();
        if self.limit.is_some_and(|limit| used.saturating_add(bytes as u64) > limit) {
            return Err(self.beyond_limit(bytes, kind, used));
        }
        account.claimed = account.claimed.saturating_add(bytes as u64);
        Ok(Claim { account: &self.account, bytes: bytes as u64 })
    }

    fn beyond_limit(&self, bytes: usize, kind: UsmKind, used: u64) -> Error {
        let device = self.queue.device();
        Error::Allocation {
            asked: bytes as u64,
            kind: kind.name(),
            device: device.to_string(),
            used,
            reserved: used,
            limit: self.limit,
            total: device.global_mem_size(),
            note: format!("; usage and limit are those of task {:?}", self.task),
        }
    }

    fn take(&self, address: usize) -> Result<Arc<Allocation>> {
        self.account.lock().blocks.remove(&address).ok_or_else(|| {
            Error::value(format!(
                "task {:?} has no block at {address:#x}: it was not allocated by this task, or is already \
                 freed",
                self.task
            ))
        })
    }

    /// Refuses further allocations and frees the blocks.
    pub(super) fn close(&self) {
        let blocks = {
            let mut account = self.account.lock();
            account.closed = true;
            std::mem::take(&mut account.blocks)
        };
        drop(blocks);
    }
}

impl std::fmt::Debug for TaskMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskMemory")
            .field("task", &self.task)
            .field("queue", &self.queue)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
