//! Threads that wait inside the driver for commands that others poll.
//!
//! The OpenCL CPU driver executes commands in its worker threads, one fewer than cores, and in the threads
//! that wait. A command that is only polled may wait for a worker that is busy with another one.

use super::Event;
use crate::ffi;
use crate::runtime::{Pending, checks};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The maximum number of these threads.
const MOST: usize = 8;

/// Lifetime of an idle thread.
const IDLE: Duration = Duration::from_secs(1);

/// The idle threads, by number, and the number of all threads.
struct Threads {
    idle: Vec<(u64, Sender<Event>)>,
    count: usize,
    last: u64,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { idle: Vec::new(), count: 0, last: 0 });

/// Two threads that wait for out-of-order queues at the same time can deadlock the driver.
static OUT_OF_ORDER: AtomicBool = AtomicBool::new(false);

/// Starts a wait for the event inside the driver on another thread, if that speeds it up. Never blocks. False
/// if no thread is available now. The event must not depend on a host task.
pub(super) fn assist_wait(event: &Event) -> bool {
    let queue = event.queue();
    if queue.device().device_type() != "cpu" {
        return true;
    }
    // A thread that waits for a command of another context executes nothing, and takes the place of one that
    // would.
    if queue.waits_for_proxies().load(Ordering::Acquire) > 0 || !enter(event) {
        return false;
    }
    let sent = send(event);
    if !sent {
        leave(event);
    }
    sent
}

/// At most one thread waits per queue, and one for all out-of-order queues.
fn enter(event: &Event) -> bool {
    let queue = event.queue();
    if queue.assisted().swap(true, Ordering::AcqRel) {
        return false;
    }
    if !queue.in_order() && OUT_OF_ORDER.swap(true, Ordering::AcqRel) {
        queue.assisted().store(false, Ordering::Release);
        return false;
    }
    true
}

fn leave(event: &Event) {
    let queue = event.queue();
    if !queue.in_order() {
        OUT_OF_ORDER.store(false, Ordering::Release);
    }
    queue.assisted().store(false, Ordering::Release);
}

fn send(event: &Event) -> bool {
    let mut threads = THREADS.lock();
    if let Some((_, thread)) = threads.idle.pop() {
        return thread.send(event.clone()).is_ok();
    }
    if threads.count == MOST {
        return false;
    }
    threads.last += 1;
    let (number, (sender, events)) = (threads.last, channel());
    let first = event.clone();
    let serve = move || {
        wait(first);
        serve(number, &sender, &events);
    };
    // Without a thread the command only takes longer.
    let spawned = std::thread::Builder::new().name("usmq-assist".to_owned()).spawn(serve).is_ok();
    threads.count += usize::from(spawned);
    spawned
}

fn serve(number: u64, sender: &Sender<Event>, events: &Receiver<Event>) {
    loop {
        THREADS.lock().idle.push((number, sender.clone()));
        let Ok(event) = events.recv_timeout(IDLE).or_else(|_| {
            let mut threads = THREADS.lock();
            let before = threads.idle.len();
            threads.idle.retain(|(other, _)| *other != number);
            let was_idle = threads.idle.len() < before;
            threads.count -= usize::from(was_idle);
            drop(threads);
            // A thread that was just removed from the list is about to receive an event.
            if was_idle { Err(()) } else { events.recv().map_err(drop) }
        }) else {
            return;
        };
        wait(event);
    }
}

fn wait(event: Event) {
    // The process is ending: no wait is needed.
    if let (Some(_pending), Ok(raw)) = (Pending::unless_leaving(), event.raw()) {
        checks::waits(|| event.may_be_held_up());
        // The thread that needs the result reports errors.
        let _ = ffi::event_join(raw);
    }
    leave(&event);
}
