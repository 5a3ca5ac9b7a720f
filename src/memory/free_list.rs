//! The free memory of one pool: up to 32 KiB UMF cuts blocks from slabs, larger ones are kept here by size class.
//!
//! UMF's disjoint pool would keep large blocks too, but it goes on counting those that a trim has returned, and then
//! keeps no more of their class (UMF 1.1 and 1.2, `chunked_slabs_in_pool`). What it does for small ones is worth having
//! in spite of that: the pool is made anew as soon as no small block is left after a trim.

use crate::error::{During, Result};
use crate::ffi;
use crate::runtime::{ForkMutex, Handle};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The largest block that UMF cuts from a slab: half a slab.
const SMALL: usize = 32 << 10;

/// Beyond this a block goes to and from the runtime.
const LARGE: usize = 1 << 30;

/// Size classes between a power of two and the next, so that rounding up takes less than a quarter.
const STEPS: usize = 4;

const CLASSES: usize = (LARGE / SMALL).ilog2() as usize * STEPS;

/// Free blocks that a size class keeps.
const MOST: usize = 4;

pub(super) struct FreeList {
    raw: Handle<ffi::UsmPool>,
    /// By size class, the latest last.
    kept: ForkMutex<[SmallVec<[usize; MOST]>; CLASSES]>,
    /// Whether anything is kept.
    keeps: bool,
    umf: Umf,
}

/// Who may call UMF's pool, which cannot be replaced while somebody does or a block of it is in use.
#[derive(Default)]
struct Umf {
    /// Blocks in use, and calls in progress.
    users: AtomicUsize,
    /// No call begins while this is set. Its thread holds the lock.
    changing: AtomicBool,
    change: ForkMutex<()>,
    /// Its counts are wrong since a trim.
    stale: AtomicBool,
}

/// Where a block comes from, and goes back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockSource {
    Slab,
    /// The size class.
    Kept(usize),
    Runtime,
}

/// Memory that was taken and is put back once.
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

    /// The block for its last owner, who leaves an empty one behind.
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
    /// Counts one more block or call, when the pool is not being replaced.
    fn enter(&self) {
        loop {
            // Sequentially consistent on both sides: either the change sees this user, or this user sees the change.
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
        // SAFETY: if it is idle, there is no block of this pool and no call, and none begins.
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

    /// A free block, `None` when the runtime or the limit has none left, also not for exactly these bytes.
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
            // When there is no new pool, the old one still serves.
            self.umf.trim(raw).ok();
        }
        self.umf.enter();
        let taken = ffi::pool_alloc(raw, bytes);
        if taken == 0 {
            self.umf.leave();
        }
        Ok(taken)
    }

    /// Takes back a block. After an error it is still the caller's.
    ///
    /// # Safety
    /// [`take`](Self::take) of these blocks gave it, nothing uses it, and it is put once.
    pub(super) unsafe fn put(&self, block: &Block) -> Result<()> {
        let raw = self.raw.get()?;
        let size = match block.source {
            BlockSource::Slab => {
                // SAFETY: by the caller, and its source says that it came from there.
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
        // SAFETY: by the caller; it came from the runtime with this size.
        unsafe { ffi::block_free(raw, block.pointer, size) };
        Ok(())
    }

    /// Lets go of what is kept. Slabs that have a block in use stay.
    pub(super) fn trim(&self) -> Result<()> {
        self.umf.trim(self.empty()?)
    }

    /// Lets go of large blocks.
    pub(super) fn empty(&self) -> Result<&ffi::UsmPool> {
        let raw = self.raw.get()?;
        for class in 0..CLASSES {
            let kept = std::mem::take(&mut self.kept.lock()?[class]);
            for pointer in kept {
                // SAFETY: it was put, and what is kept has the size of its class.
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
    fn the_ends_of_the_classes() {
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
        fn a_class_holds_what_is_asked_and_less_than_a_quarter_more(bytes in SMALL + 1..=LARGE) {
            let BlockSource::Kept(class) = BlockSource::for_size(bytes) else { panic!("{bytes} bytes have no class") };
            let size = size_of_class(class);
            prop_assert!(size >= bytes && size - bytes < bytes / 4, "{size}");
            prop_assert_eq!(BlockSource::for_size(size), BlockSource::Kept(class));
        }
    }
}
