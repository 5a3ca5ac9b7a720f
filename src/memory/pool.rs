//! Stream-ordered reuse of memory: one pool per context, device and USM kind.
//!
//! What hands out and takes back blocks in tens of nanoseconds knows nothing of work in flight. A block whose last use
//! is pending therefore waits here until that is complete. The same in-order queue may have it back at once: its next
//! command comes after the last use anyway.

use super::budget::{self, Budget};
use super::free_list::{Block, FreeList};
use crate::completion::{Progress, Watched, release, watch};
use crate::device::trace::recorder::{self, with_reason};
use crate::device::{Context, ContextKey, Device, Event, Kind, Queue, Reason, UsmKind};
use crate::error::{During, Error, Result};
use crate::ffi;
use crate::runtime::{AnyInterned, ForkMutex, Interned, Interner, not_forked};
use once_cell::sync::Lazy;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Pools of default contexts are kept for good, so their blocks need not count them; others go with their last queue and
/// block.
static POOLS: Lazy<Interner<(ContextKey, Device, UsmKind), Pool>> = Lazy::new(Interner::default);

/// How many waiting blocks one call looks at, so that no call pays for all of them.
const AT_ONCE: usize = 4;

/// How often an allocation that fits the limit tries again while other threads are about to return memory.
const ROUNDS: usize = 100;

/// How far back one allocation looks for a block of its own queue.
const RECENT: usize = 16;

/// Which blocks serve an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Those that no command uses.
    Idle,
    /// Also one that the last commands of the same in-order queue still use.
    InOrder,
}

pub(super) struct Pool {
    blocks: ManuallyDrop<FreeList>,
    budget: &'static Budget,
    pub(super) context: Context,
    pub(super) device: Device,
    pub(super) kind: UsmKind,
    waiting: WaitingList,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: it is taken once, here, and nothing uses it after.
        let blocks = unsafe { ManuallyDrop::take(&mut self.blocks) };
        // In a forked child nothing is returned.
        let _ = blocks.empty();
        let budget = self.budget;
        release(move || {
            drop(blocks);
            budget.free();
        });
    }
}

/// Blocks whose last use is pending, oldest first. The count is there so that an empty list costs no lock.
#[derive(Default)]
struct WaitingList {
    blocks: ForkMutex<VecDeque<Waiting>>,
    count: AtomicUsize,
    /// Whether the completion service looks after the list.
    watched: AtomicBool,
}

impl WaitingList {
    fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// In a forked child the block is lost, as all memory of the parent's devices is.
    fn push(&self, block: Waiting) {
        let Ok(mut blocks) = self.blocks.lock() else { return };
        // Whatever else a pool keeps waits for its next allocation.
        let watched = (!block.pool.is_process_lifetime() || !block.unseen.is_empty())
            && !self.watched.swap(true, Ordering::AcqRel);
        let pool = watched.then(|| block.pool.clone());
        blocks.push_back(block);
        self.count.store(blocks.len(), Ordering::Relaxed);
        drop(blocks);
        if let Some(pool) = pool {
            watch(Box::new(Reaper(pool)));
        }
    }

    fn pop_oldest(&self) -> Option<Waiting> {
        let mut blocks = self.blocks.lock().ok()?;
        let block = blocks.pop_front();
        self.count.store(blocks.len(), Ordering::Relaxed);
        block
    }

    /// One of the newest blocks, of this size and with its last uses on this in-order queue only.
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

    /// Whether one of the oldest blocks may be free. Asks the runtime nothing under the lock.
    fn any_is_due(&self) -> bool {
        let Ok(blocks) = self.blocks.lock() else { return false };
        let oldest: SmallVec<[(SmallVec<[Event; 4]>, bool); AT_ONCE]> = blocks
            .iter()
            .take(AT_ONCE)
            .map(|block| (block.pending.clone(), block.unseen.is_empty()))
            .collect();
        drop(blocks);
        oldest.iter().any(|(pending, seen)| !seen || pending.iter().all(Event::is_complete))
    }
}

/// Makes the waiting blocks of a pool free that may go, or that another library has used.
struct Reaper(Interned<Pool>);

impl Watched for Reaper {
    fn poll(&mut self) -> Progress {
        Progress::complete_if(self.0.waiting.len() == 0 || self.0.waiting.any_is_due())
    }

    fn finish(self: Box<Self>) {
        self.0.reap(usize::MAX);
        self.0.waiting.watched.store(false, Ordering::Release);
        // A block that was put meanwhile may have seen this reaper still there.
        if self.0.waiting.len() > 0 && !self.0.waiting.watched.swap(true, Ordering::AcqRel) {
            watch(self);
        }
    }
}

struct Waiting {
    /// Stays for its blocks: events among them may be the last that knew of it.
    pool: Interned<Pool>,
    block: Block,
    /// As asked for.
    bytes: usize,
    pending: SmallVec<[Event; 4]>,
    /// Queues of other libraries whose last work on it has no event yet: destructors submit nothing.
    unseen: SmallVec<[Queue; 1]>,
}

impl Waiting {
    /// Whether nothing uses the block any more, as far as the runtime says.
    fn is_free(&mut self) -> bool {
        let pending = &mut self.pending;
        self.unseen.retain(|queue| {
            let _why = with_reason(Reason::Order);
            queue.barrier(&[]).map(|event| pending.push(event)).is_err()
        });
        self.pending.retain(|event| !event.is_complete());
        self.pending.is_empty() && self.unseen.is_empty()
    }
}

impl Pool {
    /// The pool for memory of this kind that `queue` uses. The bytes are for the error when there can be none.
    pub(super) fn for_request(queue: &Queue, kind: UsmKind, bytes: usize) -> Result<Interned<Self>> {
        // Another thread may have been filling the slot at the fork.
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
        slot.downcast().ok_or_else(|| Error::Interop("a queue's slot is not a memory pool".to_owned()))
    }

    pub(super) fn all() -> Result<Vec<Interned<Self>>> {
        POOLS.all()
    }

    /// The pools that share this one's budget, this one included.
    fn siblings(&self) -> impl Iterator<Item = Interned<Self>> {
        Self::all().into_iter().flatten().filter(|pool| pool.device == self.device && pool.kind == self.kind)
    }

    fn new(queue: &Queue, kind: UsmKind) -> Result<Self> {
        let device = queue.device();
        let budget = budget::for_device(device, kind)?;
        // SAFETY: a budget is kept for good.
        let raw = unsafe { ffi::pool_new(kind.code(), device.raw()?, queue.context().raw()?, budget.raw()?) };
        Ok(Self {
            blocks: ManuallyDrop::new(FreeList::new(raw.during("creating a memory pool")?, pooling_is_on())),
            budget,
            context: queue.context().clone(),
            device: device.clone(),
            kind,
            waiting: WaitingList::default(),
        })
    }

    /// A block of `bytes` for use on `queue`, and the event after which another queue may use it.
    pub(super) fn allocate(
        &self,
        bytes: usize,
        queue: &Queue,
        reuse: Reuse,
    ) -> Result<(Block, Option<Event>)> {
        let begun = recorder::begin();
        // Whether the runtime is asked, only the shim knows.
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
        recorder::memory(begun, Kind::Allocate, bytes, hit, (&self.device, self.kind));
        self.budget.add(bytes as u64);
        Ok((block, last_use))
    }

    /// Takes memory of a pool back, for use by others once `pending` is complete and the queues of other libraries are
    /// done with it. Submits, frees and waits for nothing.
    pub(super) fn retire(
        pool: &Interned<Self>,
        block: Block,
        bytes: usize,
        pending: SmallVec<[Event; 4]>,
        unseen: SmallVec<[Queue; 1]>,
    ) {
        if not_forked().is_err() {
            return;
        }
        recorder::memory(recorder::begin(), Kind::Free, bytes, true, (&pool.device, pool.kind));
        pool.budget.remove(bytes as u64);
        let block = Waiting { pool: pool.clone(), block, bytes, pending, unseen };
        if block.pending.is_empty() && block.unseen.is_empty() {
            pool.put(block);
        } else {
            pool.waiting.push(block);
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
            None => {
                let _why = with_reason(Reason::Order);
                queue.barrier(&[])
            }
        };
        match last {
            Ok(last) => Some((block.block, last)),
            Err(_) => {
                self.waiting.push(block);
                None
            }
        }
    }

    fn allocate_block(&self, bytes: usize) -> Result<Block> {
        // Blocks that are kept may be of a time when the limit was higher.
        let take = || if self.fits(bytes) { self.blocks.take(bytes) } else { Ok(None) };
        let mut block = take()?;
        // Pressure: give back what is free already, then what becomes free by waiting for it. While the limit has
        // room beside what arrays hold, the rest is in the hands of threads that are about to return it.
        for round in 0..ROUNDS {
            if block.is_some() || (round > 1 && (self.budget.limit() == budget::NONE || !self.fits(bytes))) {
                break;
            }
            for pool in self.siblings() {
                if round > 0 {
                    pool.wait_for_pending()?;
                }
                pool.give_back()?;
            }
            // Also what pools that are gone have let go of.
            self.budget.free();
            block = take()?;
            if round > 1 {
                std::thread::yield_now();
            }
        }
        block.ok_or_else(|| self.out_of_memory(bytes))
    }

    /// Whether the limit has room beside what arrays hold.
    fn fits(&self, bytes: usize) -> bool {
        let limit = self.budget.limit();
        limit == budget::NONE || self.budget.used().saturating_add(bytes as u64) <= limit
    }

    /// Returns what is complete and unused to the runtime.
    pub(super) fn give_back(&self) -> Result<()> {
        self.reap(usize::MAX);
        let trimmed = self.blocks.trim();
        self.budget.free();
        trimmed
    }

    fn wait_for_pending(&self) -> Result<()> {
        let events: Vec<Event> =
            self.waiting.blocks.lock()?.iter().flat_map(|block| block.pending.clone()).collect();
        for event in events {
            // What work reports is for those who wait for it. Its memory counts as in use while that fails.
            if let Err(Error::Interrupted) = event.wait_quietly() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    fn out_of_memory(&self, bytes: usize) -> Error {
        let largest = self.device.max_alloc_size();
        let note = if bytes as u64 > largest {
            format!("; its largest single allocation is {}", crate::error::size(largest))
        } else {
            String::new()
        };
        Error::Allocation {
            asked: bytes as u64,
            kind: self.kind.name(),
            device: self.device.to_string(),
            used: self.budget.used(),
            reserved: self.budget.stats().map_or(0, |stats| stats.reserved),
            limit: budget::limit(Some(&self.device), self.kind).ok().flatten(),
            total: self.device.global_mem_size(),
            note,
        }
    }

    fn requests(&self) -> u64 {
        self.budget.stats().map_or(0, |stats| stats.requests)
    }

    /// Returns up to `most` of the oldest waiting blocks whose last use is complete. The runtime is never asked
    /// under the lock.
    fn reap(&self, most: usize) {
        let most = most.min(self.waiting.len());
        for _ in 0..most {
            let Some(mut block) = self.waiting.pop_oldest() else { return };
            if block.is_free() {
                self.put(block);
            } else {
                self.waiting.push(block);
            }
        }
    }

    /// Makes a block that nothing uses free. A free has no error to return: should it fail, the block waits for
    /// another attempt.
    fn put(&self, block: Waiting) {
        // SAFETY: the block came from these blocks, nothing uses it any more, and it is put once: it left the allocation
        // or the waiting list that owned it, and goes back to that only when it was not taken.
        if unsafe { self.blocks.put(&block.block) }.is_err() {
            return self.waiting.push(block);
        }
        self.budget.free_soon();
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

/// Where such memory can be had.
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

/// `USMQ_POOL=0` gives every allocation to and from the runtime directly, for memory checkers.
fn pooling_is_on() -> bool {
    std::env::var_os("USMQ_POOL").is_none_or(|value| value != "0")
}
