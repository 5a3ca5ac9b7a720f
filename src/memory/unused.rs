//! Memory that pools have returned, and that is freed later: a free of the runtime may block, and destructors return memory.

use super::attached::detach;
use crate::device::Context;
use crate::ffi;
use crate::runtime::{ForkMutex, checks};
use crate::trace::recorder;
use std::sync::atomic::{AtomicBool, Ordering};

/// A block that waits to be freed. Its pool may no longer exist.
struct Unused {
    pointer: usize,
    bytes: usize,
    context: Context,
}

/// The blocks that the pools of a budget have returned.
#[derive(Default)]
pub(super) struct UnusedBlocks {
    blocks: ForkMutex<Vec<Unused>>,
    /// Whether there are any.
    exist: AtomicBool,
    /// Held while blocks are freed, so that a thread that needs their memory waits for it.
    freeing: ForkMutex<()>,
}

impl UnusedBlocks {
    pub(super) fn exist(&self) -> bool {
        self.exist.load(Ordering::Acquire)
    }

    /// Adds a block.
    ///
    /// # Safety
    /// It came from the runtime for this context, no command uses it, and it is put once.
    pub(super) unsafe fn put(&self, pointer: usize, bytes: usize, context: Context) {
        self.push(std::iter::once(Unused { pointer, bytes, context }));
    }

    fn push(&self, more: impl Iterator<Item = Unused>) {
        // In a forked child, and without memory for the list, the blocks are leaked.
        let Ok(mut blocks) = self.blocks.lock() else { return };
        for block in more {
            if blocks.try_reserve(1).is_ok() {
                blocks.push(block);
            } else {
                std::mem::forget(block);
            }
        }
        self.exist.store(!blocks.is_empty(), Ordering::Release);
    }

    fn take_all(&self) -> Vec<Unused> {
        let Ok(mut blocks) = self.blocks.lock() else { return Vec::new() };
        self.exist.store(false, Ordering::Release);
        std::mem::take(&mut blocks)
    }

    /// A block of this size that is not freed yet, which the caller owns.
    pub(super) fn take(&self, bytes: usize, context: &Context) -> Option<usize> {
        if !self.exist() {
            return None;
        }
        let mut blocks = self.blocks.lock().ok()?;
        let at = blocks.iter().position(|block| block.bytes == bytes && block.context == *context)?;
        Some(blocks.swap_remove(at).pointer)
    }

    /// Frees the blocks, and calls `freed` with the bytes of each. May wait for commands that use other memory.
    pub(super) fn free(&self, freed: impl Fn(usize)) {
        checks::frees();
        let Ok(_alone) = self.freeing.lock() else { return };
        let _own = recorder::begin();
        let mut blocks = self.take_all();
        blocks.retain(|block| {
            // Once the process ends, no driver is called.
            let Ok(context) = block.context.raw() else { return true };
            detach(block.pointer);
            // SAFETY: the block came from the runtime, no command uses it, and it is freed once: it left the list, and
            // returns there only if this fails.
            let done = unsafe { ffi::usm_free(context, block.pointer) };
            if done {
                freed(block.bytes);
            }
            !done
        });
        // The runtime refused to free these; the next call retries.
        if !blocks.is_empty() {
            self.push(blocks.into_iter());
        }
    }
}
