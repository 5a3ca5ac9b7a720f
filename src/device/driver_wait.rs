//! Permission to wait inside the OpenCL CPU driver.
//!
//! The driver executes commands in its workers and in the threads that wait, at most one of them per core. A thread that
//! waits when all places are taken leaves its wait to one of the others. If that thread has begun a command of the same
//! out-of-order queue and waits for its parts, it now waits for itself: the process hangs. So a thread may wait for an
//! out-of-order queue only while no other thread waits. A thread without permission polls its event instead, which takes
//! no place (docs/upstream.md, "Out-of-order waits").
//!
//! An OpenCL layer (layers/waits.cc) extends the rule to the waits of other libraries. Without it, no thread of usmq waits
//! inside the driver once an out-of-order queue was exchanged with another library. `usmq::layers` reports whether it is
//! active.
//!
//! This file and that layer are for one driver: delete them once `tests/upstream/out_of_order_waits.cpp` and
//! `out_of_order_release.cpp` report "fixed" for the oldest supported runtime.

use super::Device;
use crate::runtime::waits_are_ordered;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The number of waits for in-order queues, or `OUT_OF_ORDER`.
static WAITS: AtomicU32 = AtomicU32::new(0);

/// One wait for an out-of-order queue.
const OUT_OF_ORDER: u32 = u32::MAX;

/// Whether another library may wait for an out-of-order queue.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Permission for one wait, returned when it is dropped.
#[derive(Debug)]
#[must_use = "the wait is permitted while the permission lives"]
pub(super) struct DriverWait(Of);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    OtherDriver,
    InOrderQueue,
    OutOfOrderQueue,
}

impl DriverWait {
    /// Permits a wait for a queue of the device or one of its events, if it cannot hang now. Never blocks.
    pub(super) fn permit(device: &Device, in_order: bool) -> Option<Self> {
        if !device.computes_in_waiting_threads() {
            return Some(Self(Of::OtherDriver));
        }
        if SHARED.load(Ordering::Acquire) && !waits_are_ordered() {
            return None;
        }
        let (of, enter): (_, fn(u32) -> Option<u32>) = if in_order {
            (Of::InOrderQueue, |waits| (waits < OUT_OF_ORDER - 1).then(|| waits + 1))
        } else {
            (Of::OutOfOrderQueue, |waits| (waits == 0).then_some(OUT_OF_ORDER))
        };
        let entered = WAITS.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter);
        entered.ok().map(|_| Self(of))
    }
}

impl Drop for DriverWait {
    fn drop(&mut self) {
        match self.0 {
            Of::OtherDriver => {}
            Of::InOrderQueue => {
                WAITS.fetch_sub(1, Ordering::Release);
            }
            Of::OutOfOrderQueue => WAITS.store(0, Ordering::Release),
        }
    }
}

/// Call when another library gets to know a queue: it may wait for it from now on.
pub(super) fn share(device: &Device, in_order: bool) {
    if !in_order && device.computes_in_waiting_threads() {
        SHARED.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::discovery;

    #[test]
    fn a_wait_for_an_out_of_order_queue_is_the_only_one_in_the_driver() {
        const NAME: &str =
            "device::driver_wait::tests::a_wait_for_an_out_of_order_queue_is_the_only_one_in_the_driver";
        if !crate::runtime::is_own_process(NAME) {
            return;
        }
        let device = &discovery::devices().unwrap()[0];
        let permit = |in_order| DriverWait::permit(device, in_order);
        let permitted = || [true, false].map(|in_order| permit(in_order).is_some());
        let (first, second) = (permit(true), permit(true));
        assert!(first.is_some() && second.is_some());
        assert_eq!(permitted(), [true, false]);
        drop(first);
        assert_eq!(permitted(), [true, false]);
        drop(second);
        let alone = permit(false);
        assert!(alone.is_some());
        assert_eq!(permitted(), [false, false]);
        drop(alone);
        share(device, true);
        assert_eq!(permitted(), [true, true]);
        share(device, false);
        assert_eq!(permitted(), [waits_are_ordered(); 2]);
    }
}
