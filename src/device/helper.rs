//! A thread that waits in the driver while the one that wants the result stays free to be interrupted.
//!
//! The OpenCL driver for CPUs computes in the threads that wait, too: where nobody waits, one core is idle. What the
//! helper waits for matters to nobody else, so it may go on with that after the other thread has given up.

use super::Event;
use crate::ffi;
use crate::runtime::Pending;
use once_cell::sync::Lazy;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

static HELPER: Lazy<Sender<Event>> = Lazy::new(|| {
    let (sender, events) = channel();
    // Without a thread the receiver is dropped, and sending fails.
    let _ = std::thread::Builder::new().name("usmq-wait".to_owned()).spawn(move || serve(&events));
    sender
});

static BUSY: AtomicBool = AtomicBool::new(false);

/// Has the helper wait for the event, where that speeds it up. There is one helper: two threads that wait at once for
/// out-of-order queues can lock up the driver.
pub(super) fn lend_a_hand(event: &Event) {
    if event.queue().device().device_type() != "cpu" || BUSY.swap(true, Ordering::AcqRel) {
        return;
    }
    // Work that nobody lends a hand to takes longer, no more.
    let _ = HELPER.send(event.clone());
}

fn serve(events: &Receiver<Event>) {
    while let Ok(event) = events.recv() {
        // Nobody needs it when the process ends.
        if let (Some(_pending), Ok(raw)) = (Pending::unless_leaving(), event.raw()) {
            // The one who wants the result hears of errors.
            let _ = ffi::event_join(raw);
        }
        drop(event);
        BUSY.store(false, Ordering::Release);
    }
}
