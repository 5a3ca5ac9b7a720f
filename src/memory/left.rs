//! Memory of pools that are gone, on its way back to the runtime.
//!
//! A runtime may wait for kernels before it frees (OpenCL's adapter does), which a destructor must not: a thread does it.
//! Whoever needs the memory at once waits for that.

use super::blocks::Blocks;
use crate::device::record;
use crate::runtime::{Lock, Pending, exit};
use once_cell::sync::Lazy;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

static LEFT: Lazy<Lock<Vec<Blocks>>> = Lazy::new(Lock::default);

/// Held while memory is freed, so that who comes for it then does not go without.
static FREEING: Lock<()> = Lock::new(());

static RUNS: AtomicBool = AtomicBool::new(false);

/// Frees the blocks soon, which nothing uses any more. In a forked child there is nothing to free.
pub(super) fn put(blocks: Blocks) {
    if let Ok(mut left) = LEFT.lock() {
        left.push(blocks);
        drop(left);
        start();
    }
}

/// Frees what is left now. May wait for kernels of the contexts that it is of.
pub(super) fn free() {
    let Ok(_freeing) = FREEING.lock() else { return };
    let _own = record::begin();
    while let Some(blocks) = LEFT.lock().ok().and_then(|mut left| left.pop()) {
        drop(blocks);
    }
}

/// Without a thread the memory stays until somebody needs it.
fn start() {
    if RUNS.swap(true, Ordering::AcqRel) {
        return;
    }
    let work = || {
        exit::help_to_the_end();
        loop {
            // The process takes its memory with it.
            let Some(_pending) = Pending::unless_leaving() else { break };
            free();
            RUNS.store(false, Ordering::Release);
            // What was put just now may have seen this thread still running.
            if LEFT.lock().is_ok_and(|left| left.is_empty()) || RUNS.swap(true, Ordering::AcqRel) {
                break;
            }
        }
    };
    if thread::Builder::new().name("usmq-free".to_owned()).spawn(work).is_err() {
        RUNS.store(false, Ordering::Release);
    }
}
