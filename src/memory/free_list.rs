//! The free memory of one pool: a few blocks of each size class. Blocks up to 32 KiB come from slabs, larger ones from the
//! runtime.

use super::slabs::{SLAB, SMALL, Slabs};
use super::source::Source;
use crate::error::Result;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The smallest block, and the alignment of all.
const SMALLEST: usize = 64;

/// Larger blocks are allocated from the runtime and freed directly.
const LARGE: usize = 1 << 30;

/// Size classes between two powers of two, so that rounding up adds less than a quarter, or less than [`SMALLEST`].
const STEPS: usize = 4;

/// The first class has the smallest size only.
const CLASSES: usize = 1 + (LARGE / SMALLEST).ilog2() as usize * STEPS;

/// The number of classes up to [`SMALL`].
const SMALL_CLASSES: usize = 1 + (SMALL / SMALLEST).ilog2() as usize * STEPS;

/// The maximum number of free blocks of a size class.
const MOST: usize = 4;

pub(super) struct FreeList {
    /// By size class.
    kept: [Kept; CLASSES],
    /// By size class.
    slabs: [Slabs; SMALL_CLASSES],
    /// Whether blocks are kept.
    keeps: bool,
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

/// The origin of a block, to which it is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A slab, by size class.
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
    origin: Origin,
}

impl Block {
    pub(super) fn pointer(&self) -> usize {
        self.pointer
    }

    /// Start and length of the runtime's allocation, unless the block is a part of one.
    pub(super) fn own_range(&self) -> Option<(usize, usize)> {
        let bytes = match self.origin {
            Origin::Slab(_) => return None,
            Origin::Class(class) => size_of_class(class),
            Origin::Exact => self.bytes.max(1),
        };
        Some((self.pointer, bytes))
    }

    /// Moves the block to its last owner and leaves an empty one.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { pointer: 0, bytes: 0, origin: Origin::Exact })
    }
}

impl Origin {
    fn for_size(bytes: usize) -> Self {
        if bytes <= SMALLEST {
            return Self::Slab(0);
        }
        if bytes > LARGE {
            return Self::Exact;
        }
        // The blocks of a slab follow each other, so all sizes are multiples of the alignment.
        let bytes = bytes.next_multiple_of(SMALLEST);
        let doublings = (bytes - 1).ilog2();
        let (below, step) = (1 << doublings, (1 << doublings) / STEPS);
        let steps = (bytes - below).div_ceil(step);
        let class = (doublings - SMALLEST.ilog2()) as usize * STEPS + steps;
        if bytes <= SMALL { Self::Slab(class) } else { Self::Class(class) }
    }
}

impl FreeList {
    pub(super) fn new(keeps: bool) -> Self {
        Self {
            kept: std::array::from_fn(|_| Kept::default()),
            slabs: std::array::from_fn(|class| Slabs::new(size_of_class(class))),
            keeps,
        }
    }

    fn origin(&self, bytes: usize) -> Origin {
        if self.keeps { Origin::for_size(bytes) } else { Origin::Exact }
    }

    /// A kept block, without a lock or a call of the runtime.
    pub(super) fn take_kept(&self, bytes: usize) -> Option<Block> {
        let origin = self.origin(bytes);
        let (Origin::Slab(class) | Origin::Class(class)) = origin else { return None };
        Some(Block { pointer: self.kept[class].pop()?, bytes, origin })
    }

    /// A free block; `None` if the runtime or the limit cannot provide one, even for exactly these bytes.
    pub(super) fn take(&self, source: &Source, bytes: usize) -> Result<Option<Block>> {
        if let Some(kept) = self.take_kept(bytes) {
            return Ok(Some(kept));
        }
        let origin = self.origin(bytes);
        let pointer = match origin {
            Origin::Slab(class) => self.take_small(source, class)?,
            Origin::Class(class) => source.reuse_or_allocate(size_of_class(class))?,
            Origin::Exact => None,
        };
        if let Some(pointer) = pointer {
            return Ok(Some(Block { pointer, bytes, origin }));
        }
        let exact = source.allocate(bytes)?;
        Ok(exact.map(|pointer| Block { pointer, bytes, origin: Origin::Exact }))
    }

    fn take_small(&self, source: &Source, class: usize) -> Result<Option<usize>> {
        let slabs = &self.slabs[class];
        if let Some(block) = slabs.take()? {
            return Ok(Some(block));
        }
        // Without a lock: the runtime is called.
        source.reuse_or_allocate(SLAB)?.map(|slab| slabs.add(slab)).transpose()
    }

    /// Keeps a block for reuse, without a call of the runtime. If this returns false, the caller still owns it.
    ///
    /// # Safety
    /// [`take`](Self::take) of this list returned it, no command uses it, and it is returned once, here or by
    /// [`give_back`](Self::give_back).
    pub(super) unsafe fn keep(&self, block: &Block) -> bool {
        let (Origin::Slab(class) | Origin::Class(class)) = block.origin else { return false };
        self.kept[class].push(block.pointer)
    }

    /// Returns a block to its origin. After an error the caller still owns it.
    ///
    /// # Safety
    /// As [`keep`](Self::keep); `source` is the one of [`take`](Self::take).
    pub(super) unsafe fn give_back(&self, source: &Source, block: &Block) -> Result<()> {
        let bytes = match block.origin {
            Origin::Slab(class) => {
                if let Some(slab) = self.slabs[class].put(block.pointer)? {
                    // SAFETY: the slab came from this source, and no block of it is in use.
                    unsafe { source.free(slab, SLAB) };
                }
                return Ok(());
            }
            Origin::Class(class) => size_of_class(class),
            Origin::Exact => block.bytes,
        };
        // SAFETY: the caller's promise; it came from the source with this size.
        unsafe { source.free(block.pointer, bytes) };
        Ok(())
    }

    /// Frees kept blocks. Slabs with a block in use stay.
    pub(super) fn trim(&self, source: &Source) -> Result<()> {
        for (class, kept) in self.kept.iter().enumerate() {
            let bytes = size_of_class(class);
            while let Some(pointer) = kept.pop() {
                let block = Block { pointer, bytes, origin: Origin::for_size(bytes) };
                // SAFETY: it was kept, and kept blocks have the origin and the size of their class.
                unsafe { self.give_back(source, &block) }?;
            }
        }
        for slabs in &self.slabs {
            for slab in slabs.trim()? {
                // SAFETY: the slab came from this source, and no block of it is in use.
                unsafe { source.free(slab, SLAB) };
            }
        }
        Ok(())
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
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_smallest_and_largest_size_class() {
        assert_eq!(Origin::for_size(0), Origin::Slab(0));
        assert_eq!(Origin::for_size(SMALLEST), Origin::Slab(0));
        assert_eq!(Origin::for_size(SMALLEST + 1), Origin::Slab(STEPS));
        assert_eq!(Origin::for_size(2 * SMALLEST), Origin::Slab(STEPS));
        assert_eq!(Origin::for_size(SMALL), Origin::Slab(9 * STEPS));
        assert_eq!(Origin::for_size(SMALL + 1), Origin::Class(9 * STEPS + 1));
        assert_eq!(Origin::for_size(LARGE), Origin::Class(CLASSES - 1));
        assert_eq!(size_of_class(CLASSES - 1), LARGE);
        assert_eq!(Origin::for_size(LARGE + 1), Origin::Exact);
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
        fn a_size_class_is_aligned_and_exceeds_the_request_by_less_than_a_quarter(bytes in SMALLEST + 1..=LARGE) {
            let origin = Origin::for_size(bytes);
            let (Origin::Slab(class) | Origin::Class(class)) = origin else {
                panic!("{bytes} bytes have no class")
            };
            let size = size_of_class(class);
            prop_assert!(size >= bytes && size - bytes < bytes.div_ceil(4).max(SMALLEST), "{size}");
            prop_assert_eq!(size % SMALLEST, 0);
            prop_assert_eq!(Origin::for_size(size), origin);
        }
    }
}
