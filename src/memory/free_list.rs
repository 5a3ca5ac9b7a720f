//! The free memory of one pool: UMF allocates blocks up to 32 KiB from slabs; larger ones are kept here by
//! size class.
//!
//! UMF's disjoint pool could keep large blocks too, but it continues to count blocks that a trim has
//! returned, and then keeps fewer of their class (UMF 1.1 and 1.2, `chunked_slabs_in_pool`). usmq still uses it
//! for small blocks, and recreates the pool as soon as no small block is in use after a trim.

use crate::error::{During, Result};
use crate::ffi;
use crate::runtime::{ForkMutex, Handle};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The largest block that UMF allocates from a slab: half a slab.
const SMALL: usize = 32 << 10;

/// Larger blocks are allocated from the runtime and freed directly.
const LARGE: usize = 1 << 30;

/// Size classes between two powers of two, so that rounding up adds less than a quarter.
const STEPS: usize = 4;

const CLASSES: usize = (LARGE / SMALL).ilog2() as usize * STEPS;

/// The maximum number of free blocks of a size class.
const MOST: usize = 4;

pub(super) struct FreeList {
    raw: Handle<ffi::UsmPool>,
    /// By size class, the most recent last.
    kept: ForkMutex<[SmallVec<[usize; MOST]>; CLASSES]>,
    /// Whether blocks are kept.
    keeps: bool,
    umf: Umf,
}

/// Guards UMF's pool, which cannot be replaced during a call or while a block of it is in use.
#[derive(Default)]
struct Umf {
    /// The number of blocks in use and of active calls.
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
    Slab,
    /// The size class.
    Kept(usize),
    Runtime,
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

    /// Moves the block to its last owner and leaves an empty one.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { pointer: 0, bytes: 0, source: BlockSource::Runtime })
    }
}

impl BlockSource {
    fn for_size(bytes: usize) -> Self {
        if bytes <= SMALL {
            return Self::Slab;
        }
        if bytes > LARGE {
            return Self::Runtime;
        }
        let doublings = (bytes - 1).ilog2();
        let (below, step) = (1 << doublings, (1 << doublings) / STEPS);
        let steps = (bytes - below).div_ceil(step);
        Self::Kept((doublings - SMALL.ilog2()) as usize * STEPS + steps - 1)
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
        let kept = ForkMutex::new(std::array::from_fn(|_| SmallVec::new()));
        Self { raw: Handle::new(raw), kept, keeps, umf: Umf::default() }
    }

    fn source(&self, bytes: usize) -> BlockSource {
        if self.keeps { BlockSource::for_size(bytes) } else { BlockSource::Runtime }
    }

    /// A free block; `None` if the runtime or the limit cannot provide one, even for exactly these bytes.
    pub(super) fn take(&self, bytes: usize) -> Result<Option<Block>> {
        let raw = self.raw.get()?;
        let mut source = self.source(bytes);
        let mut pointer = match source {
            BlockSource::Slab => self.take_small(raw, bytes)?,
            BlockSource::Kept(class) => {
                let kept = self.kept.lock()?[class].pop();
                kept.unwrap_or_else(|| ffi::block_alloc(raw, size_of_class(class)))
            }
            BlockSource::Runtime => 0,
        };
        if pointer == 0 {
            source = BlockSource::Runtime;
            pointer = ffi::block_alloc(raw, bytes);
        }
        Ok((pointer != 0).then_some(Block { pointer, bytes, source }))
    }

    fn take_small(&self, raw: &ffi::UsmPool, bytes: usize) -> Result<usize> {
        if self.umf.stale.load(Ordering::Relaxed) && self.umf.is_idle() {
            // If no new pool can be created, the old one stays in use.
            self.umf.trim(raw).ok();
        }
        self.umf.enter();
        let taken = ffi::pool_alloc(raw, bytes);
        if taken == 0 {
            self.umf.leave();
        }
        Ok(taken)
    }

    /// Returns a block. After an error the caller still owns it.
    ///
    /// # Safety
    /// [`take`](Self::take) of this list returned it, no command uses it, and it is put once.
    pub(super) unsafe fn put(&self, block: &Block) -> Result<()> {
        let raw = self.raw.get()?;
        let size = match block.source {
            BlockSource::Slab => {
                // SAFETY: the caller's promise; its source records that it came from this pool.
                unsafe { ffi::pool_free(raw, block.pointer) }.during("freeing USM")?;
                self.umf.leave();
                return Ok(());
            }
            BlockSource::Kept(class) => {
                let kept = &mut self.kept.lock()?[class];
                if kept.len() < MOST {
                    kept.push(block.pointer);
                    return Ok(());
                }
                size_of_class(class)
            }
            BlockSource::Runtime => block.bytes,
        };
        // SAFETY: the caller's promise; it came from the runtime with this size.
        unsafe { ffi::block_free(raw, block.pointer, size) };
        Ok(())
    }

    /// Frees kept blocks. Slabs with a block in use stay.
    pub(super) fn trim(&self) -> Result<()> {
        self.umf.trim(self.empty()?)
    }

    /// Frees large blocks.
    pub(super) fn empty(&self) -> Result<&ffi::UsmPool> {
        let raw = self.raw.get()?;
        for class in 0..CLASSES {
            let kept = std::mem::take(&mut self.kept.lock()?[class]);
            for pointer in kept {
                // SAFETY: it was put, and kept blocks have the size of their class.
                unsafe { ffi::block_free(raw, pointer, size_of_class(class)) };
            }
        }
        Ok(raw)
    }
}

fn size_of_class(class: usize) -> usize {
    let below = SMALL << (class / STEPS);
    below + (class % STEPS + 1) * (below / STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_and_largest_size_class() {
        assert_eq!(BlockSource::for_size(0), BlockSource::Slab);
        assert_eq!(BlockSource::for_size(SMALL), BlockSource::Slab);
        assert_eq!(BlockSource::for_size(SMALL + 1), BlockSource::Kept(0));
        assert_eq!(BlockSource::for_size(2 * SMALL), BlockSource::Kept(STEPS - 1));
        assert_eq!(BlockSource::for_size(LARGE), BlockSource::Kept(CLASSES - 1));
        assert_eq!(size_of_class(CLASSES - 1), LARGE);
        assert_eq!(BlockSource::for_size(LARGE + 1), BlockSource::Runtime);
    }

    proptest! {
        #[test]
        fn a_size_class_exceeds_the_request_by_less_than_a_quarter(bytes in SMALL + 1..=LARGE) {
            let BlockSource::Kept(class) = BlockSource::for_size(bytes) else { panic!("{bytes} bytes have no class") };
            let size = size_of_class(class);
            prop_assert!(size >= bytes && size - bytes < bytes / 4, "{size}");
            prop_assert_eq!(BlockSource::for_size(size), BlockSource::Kept(class));
        }
    }
}
