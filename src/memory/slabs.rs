//! Small blocks of one size out of slabs, so that most small arrays need no allocation of the runtime.

use crate::error::Result;
use crate::runtime::ForkMutex;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a slab.
pub(super) const SLAB: usize = 64 << 10;

/// The largest block of a slab.
pub(super) const SMALL: usize = SLAB / 2;

/// The number of slabs without a block in use that a size keeps until a trim.
const SPARE: usize = 4;

/// The slabs of one size of blocks. Makes no call of the runtime: the caller provides the slabs and gets them back.
pub(super) struct Slabs {
    /// Bytes of a block, at most [`SMALL`].
    size: usize,
    state: ForkMutex<State>,
}

#[derive(Default)]
struct State {
    /// The numbers of the free blocks of each slab, by its address.
    free: BTreeMap<usize, Vec<u16>>,
    /// The slabs with a free block.
    with_room: BTreeSet<usize>,
    /// The number of slabs without a block in use.
    spare: usize,
}

impl Slabs {
    pub(super) fn new(size: usize) -> Self {
        Self { size, state: ForkMutex::default() }
    }

    fn blocks(&self) -> usize {
        SLAB / self.size
    }

    /// A free block; `None` if there is none until [`add`](Self::add).
    pub(super) fn take(&self) -> Result<Option<usize>> {
        let mut state = self.state.lock()?;
        let State { free, with_room, spare } = &mut *state;
        // The lowest address, so that the slabs above become free.
        let Some(slab) = with_room.first().copied() else { return Ok(None) };
        let Some(free) = free.get_mut(&slab) else { return Ok(None) };
        *spare -= usize::from(free.len() == self.blocks());
        let block = free.pop().map(|number| slab + usize::from(number) * self.size);
        if free.is_empty() {
            with_room.remove(&slab);
        }
        Ok(block)
    }

    /// Adds a slab and returns its first block, which the caller owns.
    pub(super) fn add(&self, slab: usize) -> Result<usize> {
        let mut state = self.state.lock()?;
        state.free.insert(slab, (1..self.blocks()).rev().map(|number| number as u16).collect());
        state.with_room.insert(slab);
        Ok(slab)
    }

    /// Frees a block that [`take`](Self::take) or [`add`](Self::add) returned. Returns a slab that is not needed any more.
    pub(super) fn put(&self, block: usize) -> Result<Option<usize>> {
        let mut state = self.state.lock()?;
        let State { free: slabs, with_room, spare } = &mut *state;
        let Some((&slab, free)) = slabs.range_mut(..=block).next_back() else { return Ok(None) };
        free.push(((block - slab) / self.size) as u16);
        with_room.insert(slab);
        if free.len() < self.blocks() {
            return Ok(None);
        }
        if *spare < SPARE {
            *spare += 1;
            return Ok(None);
        }
        slabs.remove(&slab);
        with_room.remove(&slab);
        Ok(Some(slab))
    }

    /// Removes the slabs without a block in use, which the caller frees.
    pub(super) fn trim(&self) -> Result<Vec<usize>> {
        let mut state = self.state.lock()?;
        let State { free, with_room, spare } = &mut *state;
        *spare = 0;
        let all = self.blocks();
        let unused: Vec<usize> =
            free.iter().filter(|(_, free)| free.len() == all).map(|(slab, _)| *slab).collect();
        for slab in &unused {
            free.remove(slab);
            with_room.remove(slab);
        }
        Ok(unused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Slabs at addresses of no memory: the code never touches it.
    struct Model {
        slabs: Slabs,
        next: usize,
        owned: Vec<usize>,
        provided: HashSet<usize>,
    }

    impl Model {
        fn new(size: usize) -> Self {
            Self { slabs: Slabs::new(size), next: SLAB, owned: Vec::new(), provided: HashSet::new() }
        }

        fn take(&mut self) {
            let block = self.slabs.take().unwrap().unwrap_or_else(|| {
                self.next += 3 * SLAB / 2;
                self.provided.insert(self.next);
                self.slabs.add(self.next).unwrap()
            });
            let size = self.slabs.size;
            assert!(self.owned.iter().all(|other| block.abs_diff(*other) >= size), "{block} has two owners");
            assert!(self.provided.iter().any(|slab| (*slab..=slab + SLAB - size).contains(&block)));
            self.owned.push(block);
        }

        fn put(&mut self, at: usize) {
            let block = self.owned.swap_remove(at % self.owned.len());
            let returned = self.slabs.put(block).unwrap();
            returned.into_iter().for_each(|slab| self.returned(slab));
        }

        fn returned(&mut self, slab: usize) {
            assert!(self.provided.remove(&slab));
            assert!(!self.owned.iter().any(|block| (slab..slab + SLAB).contains(block)));
        }

        fn trim(&mut self) {
            self.slabs.trim().unwrap().into_iter().for_each(|slab| self.returned(slab));
        }
    }

    proptest! {
        #[test]
        fn each_block_has_one_owner_and_a_trim_returns_all_other_slabs(
            size in prop::sample::select(vec![64usize, 80, 20 << 10, 28 << 10, 32 << 10]),
            steps in prop::collection::vec((0..7u8, any::<usize>()), 1..400),
        ) {
            let mut model = Model::new(size);
            for (step, at) in steps {
                match step {
                    0..4 => model.take(),
                    4..6 if !model.owned.is_empty() => model.put(at),
                    6 => model.trim(),
                    _ => {}
                }
            }
            model.trim();
            let holds = |slab: &usize| model.owned.iter().any(|block| (*slab..slab + SLAB).contains(block));
            prop_assert!(model.provided.iter().all(holds));
        }
    }

    #[test]
    fn a_few_slabs_stay_for_the_next_blocks() {
        let mut model = Model::new(32 << 10);
        (0..20).for_each(|_| model.take());
        assert_eq!(model.provided.len(), 10);
        (0..20).for_each(|_| model.put(0));
        assert_eq!(model.provided.len(), SPARE);
        model.trim();
        assert!(model.provided.is_empty());
    }
}
