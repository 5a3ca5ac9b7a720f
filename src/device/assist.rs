//! Threads that wait inside the driver for commands that other threads poll.
//!
//! The OpenCL CPU driver executes commands in its worker threads, one fewer than the machine has cores, and in
//! the threads that wait. If all threads poll, a command may wait until a worker has finished another one.

use super::Queue;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The maximum number of these threads.
const MOST: usize = 8;

/// Lifetime of an idle thread.
const IDLE: Duration = Duration::from_secs(1);

/// A wait for an event of a queue.
struct Wait {
    queue: Queue,
    wait: Box<dyn FnOnce() + Send>,
}

/// The idle threads, by number, and the number of all threads.
struct Threads {
    idle: Vec<(u64, Sender<Wait>)>,
    count: usize,
    last: u64,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { idle: Vec::new(), count: 0, last: 0 });

/// Starts a wait inside the driver for an event of a queue on another thread, if that speeds the event up. Never blocks.
/// False if no thread is available now. The event must not depend on a host task.
pub(super) fn assist_wait(queue: &Queue, wait: impl FnOnce() + Send + 'static) -> bool {
    if !queue.device().computes_in_waiting_threads() {
        return true;
    }
    if queue.assisted().swap(true, Ordering::AcqRel) {
        return false;
    }
    let sent = queue.permits_wait() && send(Wait { queue: queue.clone(), wait: Box::new(wait) });
    if !sent {
        queue.assisted().store(false, Ordering::Release);
    }
    sent
}

fn send(wait: Wait) -> bool {
    let mut threads = THREADS.lock();
    if let Some((_, thread)) = threads.idle.pop() {
        return thread.send(wait).is_ok();
    }
    if threads.count == MOST {
        return false;
    }
    threads.last += 1;
    let (number, (sender, waits)) = (threads.last, channel());
    let serve = move || {
        wait.run();
        serve(number, &sender, &waits);
    };
    // If no thread can be started, the command only takes longer.
    let spawned = std::thread::Builder::new().name("usmq-assist".to_owned()).spawn(serve).is_ok();
    threads.count += usize::from(spawned);
    spawned
}

fn serve(number: u64, sender: &Sender<Wait>, waits: &Receiver<Wait>) {
    loop {
        THREADS.lock().idle.push((number, sender.clone()));
        let Ok(wait) = waits.recv_timeout(IDLE).or_else(|_| {
            let mut threads = THREADS.lock();
            let before = threads.idle.len();
            threads.idle.retain(|(other, _)| *other != number);
            let was_idle = threads.idle.len() < before;
            threads.count -= usize::from(was_idle);
            drop(threads);
            // A thread that was just removed from the list is about to receive a wait.
            if was_idle { Err(()) } else { waits.recv().map_err(drop) }
        }) else {
            return;
        };
        wait.run();
    }
}

impl Wait {
    fn run(self) {
        (self.wait)();
        self.queue.assisted().store(false, Ordering::Release);
    }
}
