//! Stream-ordered memory reuse: one pool per context, device and USM kind.
//!
//! The free list allocates and frees blocks in tens of nanoseconds and does not track work in flight. A block
//! whose last use is pending therefore waits here until that is complete. The same in-order queue may reuse
//! it immediately: its next command follows the last use anyway.

use super::budget;
use super::free_list::{Block, FreeList};
use super::history;
use super::ordered_submit::Log;
use super::relief;
use super::source::Source;
use crate::completion::{Progress, Watched, release, watch};
use crate::device::recording::suspend;
use crate::device::{ContextKey, Device, Event, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::runtime::{AnyInterned, ForkMutex, Interned, Interner, not_forked};
use crate::trace::{Kind, Reason, recorder, with_reason};
use once_cell::sync::Lazy;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Pools of default contexts live as long as the process, so their blocks need not count references; others
/// are freed with their last queue and block.
static POOLS: Lazy<Interner<(ContextKey, Device, UsmKind), Pool>> = Lazy::new(Interner::default);

/// The number of waiting blocks that one call checks, so that no call pays for all of them.
const AT_ONCE: usize = 4;

/// How often an allocation that fits the limit retries while other threads are about to return memory.
const ROUNDS: usize = 100;

/// How many recent blocks one allocation checks for one of its own queue.
const RECENT: usize = 16;

/// After this time without an allocation, blocks that wait for their last use are freed when that is complete.
const QUIET: Duration = Duration::from_millis(50);

/// The blocks that may serve an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Blocks that no command uses.
    Idle,
    /// Also a block that the last commands of the same in-order queue still use.
    InOrder,
}

pub(super) struct Pool {
    pub(super) source: Source,
    blocks: FreeList,
    waiting: WaitingList,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A forked child returns no memory.
        let _ = self.blocks.trim(&self.source);
        let budget = self.source.budget;
        release(move || budget.free());
    }
}

/// Blocks whose last use is pending, oldest first. The count avoids the lock for an empty list.
#[derive(Default)]
struct WaitingList {
    blocks: ForkMutex<VecDeque<Waiting>>,
    count: AtomicUsize,
    /// The number of threads that have taken blocks from the list to free them.
    freeing: AtomicUsize,
    /// Whether the completion service polls the list.
    watched: AtomicBool,
}

impl WaitingList {
    fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// In a forked child the block is leaked, as all memory of the parent's devices is.
    fn push(&self, block: Waiting) {
        let Ok(mut blocks) = self.blocks.lock() else { return };
        let pool = (!self.watched.swap(true, Ordering::AcqRel)).then(|| block.pool.clone());
        blocks.push_back(block);
        self.count.store(blocks.len(), Ordering::Relaxed);
        drop(blocks);
        if let Some(pool) = pool {
            watch(Box::new(Reaper::new(pool)));
        }
    }

    fn pop_oldest(&self) -> Option<Waiting> {
        let mut blocks = self.blocks.lock().ok()?;
        let block = blocks.pop_front();
        self.count.store(blocks.len(), Ordering::Relaxed);
        block
    }

    /// A recent block of this size whose last uses are on this in-order queue only.
    fn take_of(&self, bytes: usize, queue: &Queue) -> Option<Waiting> {
        let mut blocks = self.blocks.lock().ok()?;
        let recent = blocks.len().saturating_sub(RECENT);
        let found = blocks.range(recent..).rposition(|block| {
            block.bytes == bytes
                && block.pending.iter().all(|event| event.in_order_queue() == Some(queue))
                && block.unseen.iter().all(|other| other == queue)
        })?;
        let block = blocks.remove(recent + found);
        self.count.store(blocks.len(), Ordering::Relaxed);
        block
    }

    /// Whether one of the oldest blocks was used by another library, or may be free if `also_own`. Makes no call of the
    /// runtime under the lock.
    fn any_is_due(&self, also_own: bool) -> bool {
        let Ok(blocks) = self.blocks.lock() else { return false };
        let oldest: SmallVec<[(SmallVec<[Event; 4]>, bool); AT_ONCE]> = blocks
            .iter()
            .take(AT_ONCE)
            .map(|block| (block.pending.clone(), block.unseen.is_empty()))
            .collect();
        drop(blocks);
        oldest.iter().any(|(pending, seen)| !seen || (also_own && pending.iter().all(Event::is_complete)))
    }
}

/// Frees waiting blocks of a pool without another call of usmq: those of a process-lifetime pool once it has been
/// [`QUIET`], since until then its next allocations reuse them.
struct Reaper {
    pool: Interned<Pool>,
    /// The allocations of the device so far, and since when it has made no other.
    allocations: u64,
    since: Instant,
}

impl Reaper {
    fn new(pool: Interned<Pool>) -> Self {
        Self { allocations: pool.source.budget.allocations(), pool, since: Instant::now() }
    }

    fn is_quiet(&mut self) -> bool {
        let allocations = self.pool.source.budget.allocations();
        if allocations != self.allocations {
            (self.allocations, self.since) = (allocations, Instant::now());
        }
        self.since.elapsed() >= QUIET
    }
}

impl Watched for Reaper {
    fn poll(&mut self) -> Progress {
        let also_own = !self.pool.is_process_lifetime() || self.is_quiet();
        let waiting = &self.pool.waiting;
        Progress::complete_if(waiting.len() == 0 || waiting.any_is_due(also_own))
    }

    fn first_poll(&self) -> Duration {
        if self.pool.is_process_lifetime() { QUIET } else { Duration::ZERO }
    }

    fn finish(self: Box<Self>) {
        let pool = self.pool;
        pool.reap(usize::MAX);
        pool.waiting.watched.store(false, Ordering::Release);
        // A block that was put meanwhile may have found this reaper still active.
        if pool.waiting.len() > 0 && !pool.waiting.watched.swap(true, Ordering::AcqRel) {
            watch(Box::new(Self::new(pool)));
        }
    }
}

struct Waiting {
    /// Kept alive for its blocks: their events may hold the last reference to it.
    pool: Interned<Pool>,
    block: Block,
    /// The requested size.
    bytes: usize,
    pending: SmallVec<[Event; 4]>,
    /// Queues of other libraries whose last work on the block has no event yet: a destructor cannot submit the
    /// barrier for it.
    unseen: SmallVec<[Queue; 1]>,
}

/// An event after all work on the queue so far. A capture does not record it, since
/// no command of the capture has used the memory.
fn end_of_work(queue: &Queue) -> Result<Event> {
    let _direct = suspend();
    let _why = with_reason(Reason::Order);
    queue.barrier_now(&[])
}

impl Waiting {
    /// Whether the runtime reports that no command uses the block any more.
    fn is_free(&mut self) -> bool {
        let pending = &mut self.pending;
        self.unseen.retain(|queue| end_of_work(queue).map(|event| pending.push(event)).is_err());
        self.pending.retain(|event| !event.is_complete());
        self.pending.is_empty() && self.unseen.is_empty()
    }
}

impl Pool {
    /// The pool for memory of this kind that `queue` uses. The bytes are for the error if it cannot be
    /// created.
    pub(super) fn for_request(queue: &Queue, kind: UsmKind, bytes: usize) -> Result<Interned<Self>> {
        // Another thread may have been initializing the slot at the fork.
        not_forked()?;
        let slot = queue.slot(kind as usize).get_or_try_init(|| {
            let (context, device) = (queue.context(), queue.device());
            if !device.has_usm(kind) {
                return Err(no_such_usm(device, kind, bytes));
            }
            let key = (context.key(), device.clone(), kind);
            let make = |_: &_| Ok(Interned::new(Self::new(queue, kind)?));
            POOLS.get_or_make(key, context.is_process_lifetime(), make).map(AnyInterned::from)
        })?;
        slot.downcast().ok_or_else(|| Error::interop("a queue's slot is not a memory pool"))
    }

    /// As [`Pool::for_request`], if an earlier request made the pool.
    pub(super) fn known(queue: &Queue, kind: UsmKind) -> Option<Interned<Self>> {
        not_forked().ok()?;
        queue.slot(kind as usize).get()?.downcast()
    }

    pub(super) fn all() -> Result<Vec<Interned<Self>>> {
        POOLS.all()
    }

    /// The pools that share this pool's budget, including this one.
    fn siblings(&self) -> impl Iterator<Item = Interned<Self>> {
        Self::all()
            .into_iter()
            .flatten()
            .filter(|pool| pool.source.device == self.source.device && pool.source.kind == self.source.kind)
    }

    fn new(queue: &Queue, kind: UsmKind) -> Result<Self> {
        let device = queue.device();
        let budget = budget::for_device(device, kind)?;
        let source = Source { context: queue.context().clone(), device: device.clone(), kind, budget };
        Ok(Self { source, blocks: FreeList::new(pooling_is_on()), waiting: WaitingList::default() })
    }

    /// Allocates a block of `bytes` for use on `queue`, and returns the event after which another queue may
    /// use it.
    pub(super) fn allocate(
        &self,
        bytes: usize,
        queue: &Queue,
        reuse: Reuse,
    ) -> Result<(Block, Option<Event>)> {
        let begun = recorder::begin();
        // Only the shim knows whether the runtime was called.
        let before = if begun.is_some() { self.requests() } else { 0 };
        let own = if reuse == Reuse::InOrder { self.reuse_same_queue(bytes, queue) } else { None };
        let (block, last_use) = match own {
            Some((block, event)) => (block, Some(event)),
            None => {
                self.reap(AT_ONCE);
                (self.allocate_block(bytes)?, None)
            }
        };
        let hit = begun.is_none() || before == self.requests();
        recorder::memory(begun, Kind::Allocate, bytes, hit, (&self.source.device, self.source.kind.name()));
        self.source.budget.add(bytes as u64);
        history::allocated(block.pointer(), bytes, self.source.kind, &self.source.device);
        Ok((block, last_use))
    }

    /// A block that no command uses, without a lock or a call of the runtime; `None` if that is not possible.
    pub(super) fn allocate_kept(&self, bytes: usize) -> Option<Block> {
        if self.waiting.len() > 0 || !self.fits(bytes) || recorder::observes_memory() || history::is_on() {
            return None;
        }
        let block = self.blocks.take_kept(bytes)?;
        self.source.budget.add(bytes as u64);
        Some(block)
    }

    /// Takes back memory of a pool, for reuse once the commands of its log are complete and the queues of other
    /// libraries have finished their work on it. Does not submit, free or wait.
    pub(super) fn retire(pool: &Interned<Self>, block: Block, bytes: usize, log: &mut Log) {
        if not_forked().is_err() {
            return;
        }
        recorder::memory(
            recorder::begin(),
            Kind::Free,
            bytes,
            true,
            (&pool.source.device, pool.source.kind.name()),
        );
        pool.source.budget.remove(bytes as u64);
        history::freed(block.pointer());
        if log.access.is_pending() || !log.shared_on.is_empty() || !pool.put(&block) {
            let (pending, unseen) = (log.access.pending(), log.shared_on.take());
            pool.waiting.push(Waiting { pool: pool.clone(), block, bytes, pending, unseen });
        }
    }

    /// A block of this size whose last use is on the same in-order queue.
    fn reuse_same_queue(&self, bytes: usize, queue: &Queue) -> Option<(Block, Event)> {
        if !queue.in_order() || self.waiting.len() == 0 || !self.fits(bytes) {
            return None;
        }
        let mut block = self.waiting.take_of(bytes, queue)?;
        // The work of another library has no event yet.
        let last = match block.pending.pop().filter(|_| block.pending.is_empty() && block.unseen.is_empty()) {
            Some(last) => Ok(last),
            None => end_of_work(queue),
        };
        match last {
            Ok(last) => Some((block.block, last)),
            Err(_) => {
                self.waiting.push(block);
                None
            }
        }
    }

    /// A block, also if the application first has to make room.
    fn allocate_block(&self, bytes: usize) -> Result<Block> {
        loop {
            if let Some(block) = self.try_allocate_block(bytes)? {
                return Ok(block);
            }
            if !relief::make_room(&self.source.device, self.source.kind, bytes)? {
                return Err(self.out_of_memory(bytes));
            }
        }
    }

    fn try_allocate_block(&self, bytes: usize) -> Result<Option<Block>> {
        // Kept blocks may date from a higher limit.
        let take = || if self.fits(bytes) { self.blocks.take(&self.source, bytes) } else { Ok(None) };
        let mut block = take()?;
        // Under pressure: first return free blocks, then wait for blocks in use. While arrays hold
        // less than the limit, other threads hold the rest and are about to return it.
        for round in 0..ROUNDS {
            if block.is_some()
                || (round > 1 && (self.source.budget.limit() == budget::NONE || !self.fits(bytes)))
            {
                break;
            }
            for pool in self.siblings() {
                if round > 0 {
                    pool.wait_for_pending()?;
                }
                pool.give_back()?;
            }
            // Also frees memory that dropped pools have released.
            self.source.budget.free();
            block = take()?;
            if round > 1 {
                pause(round);
            }
        }
        Ok(block)
    }

    /// Whether the request fits the limit beside what arrays hold. Zero bytes always do.
    fn fits(&self, bytes: usize) -> bool {
        let limit = self.source.budget.limit();
        bytes == 0 || limit == budget::NONE || self.source.budget.used().saturating_add(bytes as u64) <= limit
    }

    /// Returns complete and unused blocks to the runtime.
    pub(super) fn give_back(&self) -> Result<()> {
        self.reap(usize::MAX);
        // Blocks in the hands of other threads, as after a wait the completion service, would be missed.
        let mut round = 0;
        while self.waiting.freeing.load(Ordering::Acquire) > 0 && round < ROUNDS {
            pause(round);
            round += 1;
        }
        let trimmed = self.blocks.trim(&self.source);
        self.source.budget.free();
        trimmed
    }

    fn wait_for_pending(&self) -> Result<()> {
        let events: Vec<Event> =
            self.waiting.blocks.lock()?.iter().flat_map(|block| block.pending.clone()).collect();
        for event in events {
            // Errors of the work are for its own waiters. Its memory counts as in use until the wait
            // succeeds.
            if let Err(Error::Interrupted) = event.wait_quietly() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    fn out_of_memory(&self, bytes: usize) -> Error {
        let largest = self.source.device.max_alloc_size();
        let mut note = if bytes as u64 > largest {
            format!("; its largest single allocation is {}", crate::error::size(largest))
        } else {
            String::new()
        };
        note += &history::note(&self.source.device);
        Error::Allocation {
            asked: bytes as u64,
            kind: self.source.kind.name(),
            device: self.source.device.to_string(),
            used: self.source.budget.used(),
            reserved: self.source.budget.reserved(),
            limit: budget::limit(Some(&self.source.device), self.source.kind).ok().flatten(),
            total: self.source.device.global_mem_size(),
            note,
        }
    }

    fn requests(&self) -> u64 {
        self.source.budget.requests()
    }

    /// Frees up to `most` of the oldest waiting blocks whose last use is complete. Makes no call of the
    /// runtime under the lock.
    fn reap(&self, most: usize) {
        let most = most.min(self.waiting.len());
        if most == 0 {
            return;
        }
        self.waiting.freeing.fetch_add(1, Ordering::AcqRel);
        for _ in 0..most {
            let Some(mut block) = self.waiting.pop_oldest() else { break };
            if !block.is_free() || !self.put(&block.block) {
                self.waiting.push(block);
            }
        }
        self.waiting.freeing.fetch_sub(1, Ordering::AcqRel);
    }

    /// Frees a block that no command uses. A free has no error to return: if this returns false, the block must wait for
    /// another attempt.
    fn put(&self, block: &Block) -> bool {
        // SAFETY: the block came from this free list, no command uses it any more, and it is returned once: it left the
        // allocation or the waiting list that owned it, and returns there only if both calls failed.
        if unsafe { self.blocks.keep(block) } {
            return true;
        }
        // SAFETY: as above.
        let done = unsafe { self.blocks.give_back(&self.source, block) }.is_ok();
        if done {
            self.source.budget.free_soon();
        }
        done
    }
}

/// Lets other threads run. The first rounds take microseconds; later ones last until a thread that other programs keep
/// from running has had its turn.
fn pause(round: usize) {
    if round < ROUNDS / 4 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn no_such_usm(device: &Device, kind: UsmKind, bytes: usize) -> Error {
    Error::Allocation {
        asked: bytes as u64,
        kind: kind.name(),
        device: device.to_string(),
        used: 0,
        reserved: 0,
        limit: None,
        total: device.global_mem_size(),
        note: format!("; the device does not support {kind} USM{}", others_with(kind)),
    }
}

/// The devices that support this kind of memory.
fn others_with(kind: UsmKind) -> String {
    let devices = crate::device::devices().unwrap_or_default();
    let names: Vec<_> =
        devices.iter().filter(|device| device.has_usm(kind)).map(ToString::to_string).collect();
    if names.is_empty() {
        "; no visible device does".to_owned()
    } else {
        format!("; supported by {}", names.join(", "))
    }
}

/// `USMQ_POOL=0` passes every allocation and free directly to the runtime, for memory checkers.
fn pooling_is_on() -> bool {
    std::env::var_os("USMQ_POOL").is_none_or(|value| value != "0")
}
