//! The free memory of one pool: a few blocks of each size class. Blocks up to 32 KiB come from UMF's slabs, larger ones
//! from the runtime.
//!
//! UMF's disjoint pool could keep large blocks too, but it continues to count blocks that a trim has
//! returned, and then keeps fewer of their class (UMF 1.1 and 1.2, `chunked_slabs_in_pool`). usmq uses it
//! for small blocks, and recreates the pool as soon as none is in use or kept after a trim.

use crate::error::{During, Result};
use crate::ffi;
use crate::runtime::{ForkMutex, Handle};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The largest block that UMF allocates from a slab: half a slab.
pub(super) const SMALL: usize = 32 << 10;

/// The smallest block: the alignment of all.
const SMALLEST: usize = 64;

/// Larger blocks are allocated from the runtime and freed directly.
const LARGE: usize = 1 << 30;

/// Size classes between two powers of two, so that rounding up adds less than a quarter.
const STEPS: usize = 4;

/// The first class has the smallest size only.
const CLASSES: usize = 1 + (LARGE / SMALLEST).ilog2() as usize * STEPS;

/// The maximum number of free blocks of a size class.
const MOST: usize = 4;

pub(super) struct FreeList {
    raw: Handle<ffi::UsmPool>,
    /// By size class.
    kept: [Kept; CLASSES],
    /// Whether blocks are kept.
    keeps: bool,
    umf: Umf,
}

/// The addresses of the free blocks of one size class; an empty slot is 0. A thread owns a block once it has taken the
/// address from its slot.
#[derive(Default)]
struct Kept([AtomicUsize; MOST]);

impl Kept {
    fn pop(&self) -> Option<usize> {
        // The block that was freed last is the likeliest to be in a cache.
        let full = self.0.iter().rev().filter(|slot| slot.load(Ordering::Relaxed) != 0);
        full.map(|slot| slot.swap(0, Ordering::Acquire)).find(|pointer| *pointer != 0)
    }

    /// False if it finds no empty slot.
    fn push(&self, pointer: usize) -> bool {
        let mut empty = self.0.iter().filter(|slot| slot.load(Ordering::Relaxed) == 0);
        empty.any(|slot| slot.compare_exchange(0, pointer, Ordering::Release, Ordering::Relaxed).is_ok())
    }
}

/// Guards UMF's pool, which cannot be replaced during a call or while a block of it is in use.
#[derive(Default)]
struct Umf {
    /// The number of blocks in use or kept, and of active calls.
    users: AtomicUsize,
    /// While this is set, no call may begin. The thread that set it holds the lock.
    changing: AtomicBool,
    change: ForkMutex<()>,
    /// Whether its counts are wrong since a trim.
    stale: AtomicBool,
}

/// The source of a block, to which it is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockSource {
    /// UMF, by size class.
    Slab(usize),
    /// The runtime, by size class.
    Class(usize),
    /// The runtime, of this size only.
    Exact,
}

/// Memory that was allocated and is returned once.
#[derive(Debug)]
pub(super) struct Block {
    pointer: usize,
    bytes: usize,
    source: BlockSource,
}

impl Block {
    pub(super) fn pointer(&self) -> usize {
        self.pointer
    }

    /// Start and length of the runtime's allocation, unless the block is a part of one.
    pub(super) fn own_range(&self) -> Option<(usize, usize)> {
        let bytes = match self.source {
            BlockSource::Slab(_) => return None,
            BlockSource::Class(class) => size_of_class(class),
            BlockSource::Exact => self.bytes.max(1),
        };
        Some((self.pointer, bytes))
    }

    /// Moves the block to its last owner and leaves an empty one.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { pointer: 0, bytes: 0, source: BlockSource::Exact })
    }
}

impl BlockSource {
    fn for_size(bytes: usize) -> Self {
        if bytes <= SMALLEST {
            return Self::Slab(0);
        }
        if bytes > LARGE {
            return Self::Exact;
        }
        let doublings = (bytes - 1).ilog2();
        let (below, step) = (1 << doublings, (1 << doublings) / STEPS);
        let steps = (bytes - below).div_ceil(step);
        let class = (doublings - SMALLEST.ilog2()) as usize * STEPS + steps;
        if bytes <= SMALL { Self::Slab(class) } else { Self::Class(class) }
    }
}

impl Umf {
    /// Counts one more block or call, unless the pool is being replaced.
    fn enter(&self) {
        loop {
            // Sequentially consistent on both sides: either the replacement sees this user, or this user sees
            // the replacement.
            self.users.fetch_add(1, Ordering::SeqCst);
            if !self.changing.load(Ordering::SeqCst) {
                return;
            }
            self.leave();
            let _changed = self.change.lock();
        }
    }

    fn leave(&self) {
        self.users.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_idle(&self) -> bool {
        self.users.load(Ordering::SeqCst) == 0
    }

    fn trim(&self, raw: &ffi::UsmPool) -> Result<()> {
        let _only = self.change.lock()?;
        self.changing.store(true, Ordering::SeqCst);
        let idle = self.is_idle();
        // SAFETY: if it is idle, no block of this pool and no call exist, and none can begin.
        let done = if idle { unsafe { ffi::pool_renew(raw) } } else { ffi::pool_trim(raw) };
        self.stale.store(!idle || done.is_err(), Ordering::Relaxed);
        self.changing.store(false, Ordering::SeqCst);
        done.during("trimming a memory pool")
    }
}

impl FreeList {
    pub(super) fn new(raw: cxx::UniquePtr<ffi::UsmPool>, keeps: bool) -> Self {
        let kept = std::array::from_fn(|_| Kept::default());
        Self { raw: Handle::new(raw), kept, keeps, umf: Umf::default() }
    }

    fn source(&self, bytes: usize) -> BlockSource {
        if self.keeps { BlockSource::for_size(bytes) } else { BlockSource::Exact }
    }

    /// A kept block, without a call of the runtime.
    pub(super) fn take_kept(&self, bytes: usize) -> Option<Block> {
        let source = self.source(bytes);
        let (BlockSource::Slab(class) | BlockSource::Class(class)) = source else { return None };
        Some(Block { pointer: self.kept[class].pop()?, bytes, source })
    }

    /// A free block; `None` if the runtime or the limit cannot provide one, even for exactly these bytes.
    pub(super) fn take(&self, bytes: usize) -> Result<Option<Block>> {
        if let Some(kept) = self.take_kept(bytes) {
            return Ok(Some(kept));
        }
        let raw = self.raw.get()?;
        let mut source = self.source(bytes);
        let mut pointer = match source {
            BlockSource::Slab(class) | BlockSource::Class(class) => {
                self.take_new(raw, source, size_of_class(class))
            }
            BlockSource::Exact => 0,
        };
        if pointer == 0 {
            source = BlockSource::Exact;
            pointer = ffi::block_alloc(raw, bytes);
        }
        Ok((pointer != 0).then_some(Block { pointer, bytes, source }))
    }

    fn take_new(&self, raw: &ffi::UsmPool, source: BlockSource, bytes: usize) -> usize {
        if let BlockSource::Class(_) = source {
            return ffi::block_alloc(raw, bytes);
        }
        if self.umf.stale.load(Ordering::Relaxed) && self.umf.is_idle() {
            // If no new pool can be created, the old one stays in use.
            self.umf.trim(raw).ok();
        }
        self.umf.enter();
        let taken = ffi::pool_alloc(raw, bytes);
        if taken == 0 {
            self.umf.leave();
        }
        taken
    }

    /// Keeps a block for reuse, without a call of the runtime. If this returns false, the caller still owns it.
    ///
    /// # Safety
    /// [`take`](Self::take) of this list returned it, no command uses it, and it is returned once, here or by
    /// [`give_back`](Self::give_back).
    pub(super) unsafe fn keep(&self, block: &Block) -> bool {
        let (BlockSource::Slab(class) | BlockSource::Class(class)) = block.source else { return false };
        self.kept[class].push(block.pointer)
    }

    /// Returns a block to its source. After an error the caller still owns it.
    ///
    /// # Safety
    /// As [`keep`](Self::keep).
    pub(super) unsafe fn give_back(&self, block: &Block) -> Result<()> {
        // SAFETY: the caller's promise; its source records where it came from.
        unsafe { self.give_back_to(self.raw.get()?, block.pointer, block.source, block.bytes) }
    }

    /// # Safety
    /// As [`keep`](Self::keep); `bytes` is the size of a block without a class.
    unsafe fn give_back_to(
        &self,
        raw: &ffi::UsmPool,
        pointer: usize,
        source: BlockSource,
        bytes: usize,
    ) -> Result<()> {
        let bytes = match source {
            BlockSource::Slab(_) => {
                // SAFETY: the caller's promise.
                unsafe { ffi::pool_free(raw, pointer) }.during("freeing USM")?;
                self.umf.leave();
                return Ok(());
            }
            BlockSource::Class(class) => size_of_class(class),
            BlockSource::Exact => bytes,
        };
        // SAFETY: the caller's promise; it came from the runtime with this size.
        unsafe { ffi::block_free(raw, pointer, bytes) };
        Ok(())
    }

    /// Frees kept blocks. Slabs with a block in use stay.
    pub(super) fn trim(&self) -> Result<()> {
        self.umf.trim(self.empty()?)
    }

    /// Frees kept blocks, small ones to UMF.
    pub(super) fn empty(&self) -> Result<&ffi::UsmPool> {
        let raw = self.raw.get()?;
        for (class, kept) in self.kept.iter().enumerate() {
            let source = BlockSource::for_size(size_of_class(class));
            while let Some(pointer) = kept.pop() {
                // SAFETY: it was kept, and kept blocks have the source and the size of their class.
                unsafe { self.give_back_to(raw, pointer, source, 0) }.inspect_err(|_| {
                    // For another attempt. Without an empty slot, the block is leaked.
                    kept.push(pointer);
                })?;
            }
        }
        Ok(raw)
    }
}

fn size_of_class(class: usize) -> usize {
    let Some(class) = class.checked_sub(1) else { return SMALLEST };
    let below = SMALLEST << (class / STEPS);
    below + (class % STEPS + 1) * (below / STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_and_largest_size_class() {
        assert_eq!(BlockSource::for_size(0), BlockSource::Slab(0));
        assert_eq!(BlockSource::for_size(SMALLEST), BlockSource::Slab(0));
        assert_eq!(BlockSource::for_size(SMALLEST + 1), BlockSource::Slab(1));
        assert_eq!(BlockSource::for_size(2 * SMALLEST), BlockSource::Slab(STEPS));
        assert_eq!(BlockSource::for_size(SMALL), BlockSource::Slab(9 * STEPS));
        assert_eq!(BlockSource::for_size(SMALL + 1), BlockSource::Class(9 * STEPS + 1));
        assert_eq!(BlockSource::for_size(LARGE), BlockSource::Class(CLASSES - 1));
        assert_eq!(size_of_class(CLASSES - 1), LARGE);
        assert_eq!(BlockSource::for_size(LARGE + 1), BlockSource::Exact);
    }

    #[test]
    fn a_kept_block_has_one_owner_at_a_time() {
        let kept = Kept::default();
        assert_eq!(kept.pop(), None);
        let owned: [AtomicBool; MOST] = Default::default();
        for block in 1..=MOST {
            assert!(kept.push(block));
        }
        assert!(!kept.push(MOST + 1), "all slots are full");
        std::thread::scope(|scope| {
            for _ in 0..2 * MOST {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(block) = kept.pop() else { continue };
                        assert!(!owned[block - 1].swap(true, Ordering::AcqRel), "two owners of {block}");
                        owned[block - 1].store(false, Ordering::Release);
                        // Other threads may fill one slot and empty another meanwhile.
                        while !kept.push(block) {}
                    }
                });
            }
        });
        let mut left: Vec<usize> = std::iter::from_fn(|| kept.pop()).collect();
        left.sort_unstable();
        assert_eq!(left, Vec::from_iter(1..=MOST), "no block is lost");
    }

    proptest! {
        #[test]
        fn a_size_class_exceeds_the_request_by_less_than_a_quarter(bytes in SMALLEST + 1..=LARGE) {
            let source = BlockSource::for_size(bytes);
            let (BlockSource::Slab(class) | BlockSource::Class(class)) = source else {
                panic!("{bytes} bytes have no class")
            };
            let size = size_of_class(class);
            prop_assert!(size >= bytes && size - bytes < bytes.div_ceil(4), "{size}");
            prop_assert_eq!(BlockSource::for_size(size), source);
        }
    }
}
