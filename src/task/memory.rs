//! The memory of a task: counts the task's use of memory, and ends with the task.

use crate::array::{Array, DType, Element, IntoShape, Layout};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::memory::{Account, Allocation, Share};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The blocks of a task by address, locked.
type Blocks<'a> = MappedMutexGuard<'a, HashMap<usize, Arc<Allocation>>>;

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
    account: Arc<Account>,
    peak: AtomicU64,
    /// Blocks by address, which the task owns until it frees or releases them, or ends. `None` once it has ended.
    blocks: Mutex<Option<HashMap<usize, Arc<Allocation>>>>,
}

impl TaskMemory {
    pub(super) fn new(task: &str, queue: &Queue, limit: Option<u64>) -> Self {
        Self {
            task: task.to_owned(),
            queue: queue.clone(),
            account: Arc::new(Account::new(limit.unwrap_or(Account::NO_LIMIT))),
            peak: AtomicU64::new(0),
            blocks: Mutex::new(Some(HashMap::new())),
        }
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
        let share = self.share(elements.unwrap_or(0), kind)?;
        let array = Array::uninit(shape, dtype, kind, &self.queue)?;
        drop(self.count(&array.shared_allocation(), share)?);
        Ok(array)
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
        let share = self.share(bytes, kind)?;
        let block = Allocation::new(bytes, kind, &self.queue)?;
        // The log does not see commands that use the address; later commands wait for the queue.
        block.share_on(&self.queue)?;
        let address = block.pointer();
        self.count(&block, share)?.insert(address, block);
        Ok(address)
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
        self.stop_counting(&block);
        let layout = Layout::contiguous(&[block.bytes()], 1)?;
        Ok(Array::from_parts(block, layout, DType::U8, self.queue.clone(), false))
    }

    /// Stops counting an array, because it is an output: later allocations of the task may use its share of
    /// the limit. An array of other memory is returned unchanged.
    pub fn release(&self, array: Array) -> Array {
        self.stop_counting(&array.shared_allocation());
        array
    }

    /// Bytes in use by arrays and blocks of the task.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.account.used()
    }

    /// The largest [`used`](Self::used) so far, updated by allocations.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The limit in bytes, if any.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        Some(self.account.limit()).filter(|limit| *limit != Account::NO_LIMIT)
    }

    /// A share of the limit for an allocation that follows.
    fn share(&self, bytes: usize, kind: UsmKind) -> Result<Share> {
        drop(self.open()?);
        Share::of(&self.account, bytes as u64).map_err(|used| self.beyond_limit(bytes, kind, used))
    }

    /// Counts a new allocation, unless the task has ended meanwhile.
    fn count(&self, made: &Allocation, share: Share) -> Result<Blocks<'_>> {
        let blocks = self.open()?;
        if let Some(mut counted) = made.counted() {
            *counted = Some(share);
        }
        self.peak.fetch_max(self.account.used(), Ordering::Relaxed);
        Ok(blocks)
    }

    fn stop_counting(&self, made: &Allocation) {
        if let Some(mut counted) = made.counted() {
            counted.take_if(|share| share.is_of(&self.account));
        }
    }

    /// The blocks of a task that has not ended.
    fn open(&self) -> Result<Blocks<'_>> {
        MutexGuard::try_map(self.blocks.lock(), Option::as_mut).map_err(|_| {
            Error::value(format!(
                "task {:?} has ended and its memory is released; allocate arrays that outlive a task outside \
                 it",
                self.task
            ))
        })
    }

    fn beyond_limit(&self, bytes: usize, kind: UsmKind, used: u64) -> Error {
        let device = self.queue.device();
        Error::Allocation {
            asked: bytes as u64,
            kind: kind.name(),
            device: device.to_string(),
            used,
            reserved: used,
            limit: self.limit(),
            total: device.global_mem_size(),
            note: format!("; usage and limit are those of task {:?}", self.task),
        }
    }

    fn take(&self, address: usize) -> Result<Arc<Allocation>> {
        self.blocks.lock().as_mut().and_then(|blocks| blocks.remove(&address)).ok_or_else(|| {
            Error::value(format!(
                "task {:?} has no block at {address:#x}: it was not allocated by this task, or is already \
                 freed",
                self.task
            ))
        })
    }

    /// Refuses further allocations and frees the blocks.
    pub(super) fn close(&self) {
        let blocks = self.blocks.lock().take();
        drop(blocks);
    }
}

impl std::fmt::Debug for TaskMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskMemory")
            .field("task", &self.task)
            .field("queue", &self.queue)
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}
