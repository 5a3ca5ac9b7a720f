//! Buffers, and the sources of those of an imported array: host memory, which is copied or used in place, or device
//! memory, which is used in place.

use crate::array::{Array, DType, HostMemory, Layout, rounded};
use crate::device::{Context, Event, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::interop::device_ordinal::queue_for;
use crate::manager::current_queue;
use crate::memory::try_reserve::try_with_capacity;
use crate::memory::{Access, Allocation, ForeignOwner, Import, by_host, drop_after, ordered_all, refuse};
use crate::runtime::interrupt::uninterruptible;
use crate::trace::{Kind, Reason, with_default_reason};
use once_cell::sync::OnceCell;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ptr;
use std::slice;
use std::sync::Arc;

/// One buffer, as bytes.
#[derive(Clone)]
pub(super) enum Buffer {
    /// Without bytes, or the validity bitmap of a column without nulls.
    Absent,
    Held(Array),
    /// Foreign device memory whose size is stored in other device memory.
    Later(Arc<Later>),
}

impl Buffer {
    pub(super) fn held(&self) -> Option<&Array> {
        match self {
            Self::Held(array) => Some(array),
            _ => None,
        }
    }

    pub(super) fn address(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Held(array) => array.address(),
            Self::Later(later) => later.pointer,
        }
    }
}

/// Creates the buffers of an import.
pub(super) trait BufferSource {
    /// The queue of the created columns.
    fn queue(&self) -> &Queue;

    /// The USM kind of buffers that the producer may omit.
    fn kind(&self) -> UsmKind;

    /// Whether buffers are copied, so that values outside a slice can be skipped.
    const COPIES: bool;

    /// Whether no safe handle can write to the buffers made so far, if the producer promises that nothing else does.
    fn is_frozen(&self, promised: bool) -> bool {
        Self::COPIES || promised
    }

    /// Creates a buffer of `bytes` at `pointer`; both are not 0.
    fn buffer(&mut self, pointer: usize, bytes: usize) -> Result<Buffer>;

    /// Creates a buffer whose size is stored in the data; its pointer may be null if that size is 0.
    fn later(&mut self, pointer: usize) -> Result<Buffer>;

    /// Returns the host's view of such memory, or `None` without one, which skips validation. A failure is an
    /// error, not `None`.
    ///
    /// # Safety
    /// The producer has `count` values of `T` at `pointer`.
    unsafe fn look<T>(&self, pointer: usize, count: usize) -> Result<Option<&[T]>>;
}

/// Host memory, copied to USM without waiting. The owner is kept until the copies are complete.
pub(super) struct HostSource {
    queue: Queue,
    kind: UsmKind,
    pending: SmallVec<[Event; 4]>,
    /// Copies of numbers that are unaligned in the producer's memory, as after network transfer. Entries are
    /// never removed.
    aligned: RefCell<Vec<Vec<u64>>>,
}

impl HostSource {
    pub(super) fn new(queue: Queue, kind: UsmKind) -> Self {
        Self { queue, kind, pending: SmallVec::new(), aligned: RefCell::default() }
    }

    pub(super) fn target(&self) -> &Queue {
        &self.queue
    }

    /// Copies several ranges, each with its address and bytes, one after the other into one buffer.
    pub(super) fn joined(&mut self, parts: &[(usize, usize)]) -> Result<Buffer> {
        let bytes = parts.iter().map(|(_, bytes)| bytes).sum::<usize>();
        if bytes == 0 {
            return Ok(Buffer::Absent);
        }
        refuse(|| "an import of Arrow data from host memory".to_owned())?;
        let array = Array::uninit([bytes], DType::U8, self.kind, &self.queue)?;
        let _why = with_default_reason(Reason::Import);
        let operand = (array.allocation(), Access::Write);
        let is_done = by_host::at_once(&self.queue, &[operand], (Kind::Copy, bytes), || {
            let mut target = array.address();
            for (pointer, bytes) in parts.iter().filter(|(_, bytes)| *bytes > 0) {
                // SAFETY: the producer vouches for the source; the targets are parts of a new allocation, which is the
                // host's.
                unsafe { ptr::copy_nonoverlapping(*pointer as *const u8, target as *mut u8, *bytes) };
                target += bytes;
            }
        })?;
        if is_done {
            return Ok(Buffer::Held(array.as_readonly()));
        }
        let parts = self.merged(parts)?;
        let mut started: SmallVec<[Event; 4]> = SmallVec::new();
        let event = ordered_all(&self.queue, &[(array.allocation(), Access::Write)], |after, sent| {
            let mut target = array.address();
            for (pointer, bytes) in parts.into_iter().flat_map(pieces) {
                // SAFETY: the producer vouches for the source, which `finish` or `abandon` keeps; the targets
                // are parts of a new allocation.
                let event = unsafe { self.queue.memcpy(target, pointer, bytes, after) }?;
                started.push(event.clone());
                sent.push(event);
                target += bytes;
            }
            match sent.pop() {
                Some(last) if self.queue.in_order() || sent.is_empty() => Ok(last),
                last => {
                    sent.extend(last);
                    self.queue.barrier_now(sent)
                }
            }
        });
        // Also the copies before one that failed.
        let event = event.inspect_err(|_| self.pending.extend(started))?;
        self.keep(event);
        Ok(Buffer::Held(array.as_readonly()))
    }

    /// The ranges in their order, those that follow each other in memory as one: slices of one array are. An in-order
    /// queue starts a copy after the one before, which costs 0.1 ms each on CPU devices. A command must not cross the
    /// end of an allocation in USM, whose neighbour another one may be.
    fn merged(&self, parts: &[(usize, usize)]) -> Result<SmallVec<[(usize, usize); 4]>> {
        let is_usm = |pointer| self.queue.context().kind_of(pointer).map(|kind| kind.is_some());
        let mut all: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (pointer, bytes) in parts.iter().copied().filter(|(_, bytes)| *bytes > 0) {
            match all.last_mut() {
                Some((start, length))
                    if *start + *length == pointer && !is_usm(*start)? && !is_usm(pointer)? =>
                {
                    *length += bytes;
                }
                _ => all.push((pointer, bytes)),
            }
        }
        Ok(all)
    }

    fn keep(&mut self, event: Event) {
        if self.queue.in_order() {
            self.pending.clear();
        }
        self.pending.push(event);
    }

    /// Drops the owner once the copies no longer read its memory.
    pub(super) fn finish(self, owner: ForeignOwner) {
        drop_after(owner, self.pending);
    }

    /// Waits for running copies, so that the owner is dropped before the error is returned.
    pub(super) fn abandon(mut self, owner: ForeignOwner) {
        uninterruptible(|| self.pending.retain(|event| event.wait_quietly().is_err()));
        if self.pending.is_empty() {
            return drop(owner);
        }
        self.queue.drain();
        drop_after(owner, self.pending);
    }
}

impl BufferSource for HostSource {
    const COPIES: bool = true;

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn kind(&self) -> UsmKind {
        self.kind
    }

    fn buffer(&mut self, pointer: usize, bytes: usize) -> Result<Buffer> {
        self.joined(&[(pointer, bytes)])
    }

    fn later(&mut self, _: usize) -> Result<Buffer> {
        Err(Error::interop("the size of a buffer in host memory is not known"))
    }

    unsafe fn look<T>(&self, pointer: usize, count: usize) -> Result<Option<&[T]>> {
        let bytes = count.saturating_mul(size_of::<T>());
        // Other code checks for invalid null pointers.
        if count == 0 || pointer == 0 || isize::try_from(bytes).is_err() {
            return Ok(None);
        }
        if pointer.is_multiple_of(align_of::<T>()) {
            // SAFETY: the caller's promise; it is aligned, and no longer than a slice may be.
            return Ok(Some(unsafe { slice::from_raw_parts(pointer as *const T, count) }));
        }
        let length = bytes.div_ceil(size_of::<u64>());
        let mut words = try_with_capacity(length, "numbers that are not aligned")?;
        words.resize(length, 0u64);
        // SAFETY: the caller's promise for the source; the words are new, and as many bytes.
        unsafe { ptr::copy_nonoverlapping(pointer as *const u8, words.as_mut_ptr().cast(), bytes) };
        let start = words.as_ptr().cast::<T>();
        debug_assert!(start.is_aligned());
        self.aligned.borrow_mut().push(words);
        // SAFETY: the words were just filled, do not move until `self` is dropped, and are not written to.
        Ok(Some(unsafe { slice::from_raw_parts(start, count) }))
    }
}

/// A copy in two pieces if it is large and not round.
fn pieces((pointer, bytes): (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
    let first = rounded(bytes);
    [(pointer, first), (pointer + first, bytes - first)].into_iter().filter(|(_, bytes)| *bytes > 0)
}

/// Host memory, used in place.
pub(super) struct SystemSource {
    /// Reads the memory on the host.
    host: HostSource,
    owner: Arc<dyn std::any::Any + Send + Sync>,
}

impl SystemSource {
    pub(super) fn new(queue: Queue, owner: Arc<dyn std::any::Any + Send + Sync>) -> Self {
        Self { host: HostSource::new(queue, UsmKind::Host), owner }
    }
}

impl BufferSource for SystemSource {
    const COPIES: bool = false;

    fn queue(&self) -> &Queue {
        self.host.queue()
    }

    fn kind(&self) -> UsmKind {
        self.host.kind()
    }

    fn buffer(&mut self, pointer: usize, bytes: usize) -> Result<Buffer> {
        let memory =
            HostMemory { pointer, shape: vec![bytes], strides: None, dtype: DType::U8, readonly: true };
        // SAFETY: the producer vouches for its memory, which the owner keeps. Arrow data does not change.
        let array = unsafe { Array::from_host(&memory, self.queue(), Box::new(self.owner.clone())) }?;
        Ok(Buffer::Held(array))
    }

    fn later(&mut self, pointer: usize) -> Result<Buffer> {
        self.host.later(pointer)
    }

    unsafe fn look<T>(&self, pointer: usize, count: usize) -> Result<Option<&[T]>> {
        // SAFETY: the caller's promise.
        unsafe { self.host.look(pointer, count) }
    }
}

/// Another library's USM, used in place.
#[derive(Clone)]
pub(super) struct UsmSource {
    queue: Queue,
    /// The event that must complete before other commands use the memory.
    ready: Option<Event>,
    owner: Arc<dyn std::any::Any + Send + Sync>,
    /// Whether usmq exported the array: its memory of usmq needs no other owner than its log.
    pub(super) is_own: bool,
    /// Whether another library passes memory of usmq, to which arrays may write: its promise does not cover those.
    has_ours: bool,
}

impl UsmSource {
    /// Finds the memory of `first`, with `ordinal` as the producer's device number. `sync_event` is 0 or the
    /// address of a live `sycl::event`.
    ///
    /// # Safety
    /// The promise for `sync_event`.
    pub(super) unsafe fn new(
        first: Option<usize>,
        ordinal: i64,
        sync_event: usize,
        owner: Arc<dyn std::any::Any + Send + Sync>,
    ) -> Result<Self> {
        let queue = match first {
            Some(pointer) => queue_for(pointer, ordinal)?,
            None => current_queue()?,
        };
        let ready = match sync_event {
            0 => None,
            // SAFETY: the caller's promise.
            event => Some(unsafe { queue.barrier_after_foreign(event) }?),
        };
        Ok(Self { queue, ready, owner, is_own: false, has_ours: false })
    }

    fn note_owner(&mut self, pointer: usize) -> Result<()> {
        if !self.is_own && !self.has_ours {
            let found = Allocation::find(self.queue.context(), pointer, 0)?;
            self.has_ours = found.is_some_and(|found| found.is_ours());
        }
        Ok(())
    }

    fn array(&self, pointer: usize, bytes: usize) -> Result<Array> {
        let context = self.queue.context();
        let found = Allocation::find(context, pointer, bytes)?.ok_or_else(|| not_usm(pointer, context))?;
        let owner = (!(self.is_own && found.is_ours())).then(|| Box::new(self.owner.clone()) as ForeignOwner);
        let import = Import {
            pointer,
            bytes,
            context,
            found,
            shared_on: None,
            ready: self.ready.clone(),
            queue: &self.queue,
        };
        let allocation = Allocation::import(import, owner)?;
        let layout = Layout::contiguous(&[bytes], 1)?;
        Ok(Array::from_parts(allocation, layout, DType::U8, self.queue.clone(), true))
    }
}

impl BufferSource for UsmSource {
    const COPIES: bool = false;

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn kind(&self) -> UsmKind {
        UsmKind::Device
    }

    fn is_frozen(&self, promised: bool) -> bool {
        promised && (self.is_own || !self.has_ours)
    }

    fn buffer(&mut self, pointer: usize, bytes: usize) -> Result<Buffer> {
        self.note_owner(pointer)?;
        self.array(pointer, bytes).map(Buffer::Held)
    }

    fn later(&mut self, pointer: usize) -> Result<Buffer> {
        self.note_owner(pointer)?;
        Ok(Buffer::Later(Arc::new(Later { source: self.clone(), pointer, array: OnceCell::new() })))
    }

    unsafe fn look<T>(&self, _: usize, _: usize) -> Result<Option<&[T]>> {
        Ok(None)
    }
}

/// A foreign buffer that becomes an array once its size is known.
pub(super) struct Later {
    source: UsmSource,
    pointer: usize,
    array: OnceCell<Option<Array>>,
}

impl Later {
    /// Returns `None` for a buffer without bytes, whose pointer may be null.
    pub(super) fn array(&self, bytes: impl FnOnce() -> Result<usize>) -> Result<Option<Array>> {
        let make = || match (self.pointer, bytes()?) {
            (0, 0) => Ok(None),
            (0, bytes) => Err(Error::interop(format!(
                "a buffer of an Arrow array is null, and its size is {bytes} bytes"
            ))),
            (pointer, bytes) => self.source.array(pointer, bytes).map(Some),
        };
        self.array.get_or_try_init(make).cloned()
    }
}

fn not_usm(pointer: usize, context: &Context) -> Error {
    Error::interop(format!("{pointer:#x} is not USM of {context}, unlike other buffers of the array"))
}
