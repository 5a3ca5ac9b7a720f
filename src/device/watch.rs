//! Sees when recorded commands end: after each wait of the host, and now and then from a thread of its own.
//!
//! The state of events is asked for, never waited for: two threads that wait at once for out-of-order queues can lock
//! up the OpenCL driver for CPUs.

use super::Event;
use super::journal::{self, Guard, lock};
use crate::runtime::{Pending, exit};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::Duration;

/// How long the thread sleeps between two looks: the error of times that the host observes.
const LOOK: Duration = Duration::from_micros(100);

/// From how many queues on those without work are forgotten.
const MANY: usize = 32;

/// Looks so far, by whomever.
static LOOKS: AtomicU64 = AtomicU64::new(0);

/// Commands that are not known to be complete, by queue, oldest first.
static IN_FLIGHT: Mutex<Vec<Lane>> = Mutex::new(Vec::new());

pub(super) struct Lane {
    queue: usize,
    in_order: bool,
    commands: Vec<(u64, Event)>,
}

/// Held by whoever looks.
static LOOKING: Mutex<()> = Mutex::new(());

pub(super) fn add(id: u64, event: &Event) {
    let queue = event.queue();
    let mut lanes = lock(&IN_FLIGHT);
    if !journal::on() {
        return;
    }
    match lanes.iter_mut().find(|lane| lane.queue == queue.id()) {
        Some(lane) => {
            if lane.commands.is_empty() {
                // It may be another queue, at the address of one that is gone.
                lane.in_order = queue.in_order();
            }
            lane.commands.push((id, event.clone()));
        }
        None => lanes.push(Lane {
            queue: queue.id(),
            in_order: queue.in_order(),
            commands: vec![(id, event.clone())],
        }),
    }
}

/// Notes the commands that have ended by now, and says whether one with a number below `to` has not.
pub(crate) fn look(to: u64) -> bool {
    // Whoever looks just now sees the same.
    let _alone = match LOOKING.try_lock() {
        Ok(alone) => alone,
        Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
        Err(TryLockError::WouldBlock) => return true,
    };
    LOOKS.fetch_add(1, Ordering::Relaxed);
    let mut lanes = std::mem::take(&mut *lock(&IN_FLIGHT));
    let mut ended = Vec::new();
    for lane in &mut lanes {
        if lane.in_order {
            let running = lane.commands.iter().position(|(_, event)| !is_over(event));
            let over = lane.commands.drain(..running.unwrap_or(lane.commands.len()));
            ended.extend(over.map(end_of));
        } else {
            let (over, running) = lane.commands.drain(..).partition(|(_, event)| is_over(event));
            lane.commands = running;
            let over: Vec<(u64, Event)> = over;
            ended.extend(over.into_iter().map(end_of));
        }
    }
    journal::ended(&ended);
    if lanes.len() > MANY {
        lanes.retain(|lane| !lane.commands.is_empty());
    }
    let waiting = lanes.iter().any(|lane| lane.commands.iter().any(|(id, _)| *id < to));
    put_back(lanes);
    waiting
}

/// Lets go of the commands that no session looks at any more.
pub(super) fn forget() {
    let mut lanes = lock(&IN_FLIGHT);
    // Another one may have begun meanwhile.
    if !journal::on() {
        let gone = std::mem::take(&mut *lanes);
        drop(lanes);
        drop(gone);
    }
}

/// What was submitted meanwhile comes after what was looked at.
fn put_back(lanes: Vec<Lane>) {
    let mut now = lock(&IN_FLIGHT);
    if !journal::on() {
        // Events may be the last to know of their queues, which go outside the lock.
        drop(now);
        return drop(lanes);
    }
    if now.is_empty() {
        *now = lanes;
        return;
    }
    for mut lane in lanes {
        match now.iter_mut().find(|other| other.queue == lane.queue) {
            Some(other) => {
                lane.commands.append(&mut other.commands);
                other.commands = lane.commands;
            }
            None => now.push(lane),
        }
    }
}

/// An event that cannot be asked has no end to wait for.
fn is_over(event: &Event) -> bool {
    event.done().unwrap_or(true)
}

fn end_of((id, event): (u64, Event)) -> (u64, u64, Option<[u64; 3]>) {
    (id, journal::now(), event.timestamps())
}

static RUNS: AtomicBool = AtomicBool::new(false);

/// Starts the thread, unless it runs. Without one, ends are seen at waits only.
pub(super) fn start() {
    if RUNS.swap(true, Ordering::AcqRel) {
        return;
    }
    let watch = || {
        exit::help_to_the_end();
        loop {
            while look_once() {}
            RUNS.store(false, Ordering::Release);
            // A session that was opened just now may have seen this thread still running.
            if !journal::on() || RUNS.swap(true, Ordering::AcqRel) {
                break;
            }
        }
    };
    if thread::Builder::new().name("usmq-profile".to_owned()).spawn(watch).is_err() {
        RUNS.store(false, Ordering::Release);
    }
}

/// Whether to go on.
fn look_once() -> bool {
    if !journal::on() {
        return false;
    }
    let busy = match Pending::unless_leaving() {
        Some(_pending) => look(u64::MAX),
        None => return false,
    };
    let looks = LOOKS.load(Ordering::Relaxed);
    thread::sleep(LOOK);
    // While nothing runs, or others look all the time, this thread would only be in their way.
    if !busy || LOOKS.load(Ordering::Relaxed) > looks {
        thread::sleep(LOOK * 4);
    }
    true
}

pub(super) type Frozen = (Guard<()>, Guard<Vec<Lane>>);

/// Holds what a forked child must find whole.
pub(super) fn freeze() -> Frozen {
    (lock(&LOOKING), lock(&IN_FLIGHT))
}

/// There is no thread in a child.
pub(super) fn in_child() {
    RUNS.store(false, Ordering::Release);
}
