//! Whether a thread may wait inside the OpenCL CPU driver.
//!
//! A thread that waits there executes commands. With one out-of-order queue it can find its own wait among them, and the
//! process hangs (docs/upstream.md, "Out-of-order waits"). The OpenCL layer (layers/queues.cc) makes all queues of that
//! driver in-order, so then a thread may always wait. Without the layer, usmq polls the events of out-of-order queues, and
//! all events once another library knows such a queue and may wait for it. `usmq::layers` reports whether it is active.
//!
//! This file and that part of the layer are for one driver: delete them once `tests/upstream/out_of_order_waits.cpp`
//! and `out_of_order_release.cpp` report "fixed" for the oldest supported runtime.

use super::Device;
use crate::runtime::cpu_queues_are_in_order;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether another library may wait for an out-of-order queue.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Whether a wait for a queue of the device, or for one of its events, cannot hang.
pub(super) fn is_permitted(device: &Device, in_order: bool) -> bool {
    let is_safe = in_order && !SHARED.load(Ordering::Acquire);
    is_safe || !device.computes_in_waiting_threads() || cpu_queues_are_in_order()
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
    fn without_the_layer_only_queues_in_order_are_waited_for_and_none_after_an_exchange() {
        const NAME: &str = "device::driver_wait::tests::without_the_layer_only_queues_in_order_are_waited_for_and_none_after_an_exchange";
        if !crate::runtime::is_own_process(NAME) {
            return;
        }
        let device = &discovery::devices().unwrap()[0];
        let permitted = || [true, false].map(|in_order| is_permitted(device, in_order));
        let always = !device.computes_in_waiting_threads() || cpu_queues_are_in_order();
        assert_eq!(permitted(), [true, always]);
        share(device, true);
        assert_eq!(permitted(), [true, always]);
        share(device, false);
        assert_eq!(permitted(), [always; 2]);
    }
}
