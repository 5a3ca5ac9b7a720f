//! Copies between a CUDA device and USM: one copy of the CUDA driver, from or to memory that is registered with it.
//!
//! Both runtimes see the transfer as one command: CUDA as work of a stream, SYCL as a user event unless it is complete on
//! return. All calls of CUDA are made before `start` returns.

use super::device::{CudaDevice, Undrained};
use super::driver::{Driver, Handle, Recorded};
use super::in_flight::InFlight;
use super::transfer_stream::TransferStream;
use crate::completion::watch;
use crate::device::{Event, Queue, UserEvent, UsmKind};
use crate::error::{Error, Result};
use crate::memory::{
    Access, Allocation, Attached, ForeignOwner, OWN_RANGE, attach, ordered_or_complete, refuse,
};
use crate::runtime::interrupt::uninterruptible;
use crate::runtime::{CountedWait, Patience};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A transfer of at most this many bytes, and the command before it, are usually complete within [`BRIEF`]. Waiting
/// for them takes less time than submitting a barrier and waking the signal thread.
const SMALL: usize = 1 << 20;
const BRIEF: Duration = Duration::from_micros(50);

/// How long to poll for a transfer that the caller must wait for anyway.
const POLLED: Duration = Duration::from_millis(2);

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToUsm,
    FromUsm,
}

/// The CUDA side of a transfer.
pub(super) struct Remote {
    pub(super) device: Arc<CudaDevice>,
    pub(super) pointer: usize,
    /// Complete when the transfer may use the memory.
    pub(super) ready: Option<Recorded>,
    /// The stream, and its context, whose later work comes after the transfer.
    pub(super) stream: Option<(Handle, Handle)>,
    /// The owner of the memory, which is dropped at the end.
    pub(super) keep: Option<ForeignOwner>,
}

/// Whether a transfer of this many bytes can use USM of this kind directly: the driver registers whole allocations of
/// memory that is the host's.
pub(super) fn is_direct(kind: UsmKind, queue: &Queue, bytes: usize) -> bool {
    bytes >= OWN_RANGE && (kind == UsmKind::Host || queue.device().host_reads_device_memory())
}

/// Registers USM with the driver until the runtime frees it. False if usmq does not free it, or it is a part of an
/// allocation.
pub(super) fn register(device: &CudaDevice, memory: &Arc<Allocation>) -> Result<bool> {
    let Some((start, bytes)) = memory.own_range() else { return Ok(false) };
    attach(start, || {
        // SAFETY: dropped before the memory is freed.
        let is_new = unsafe { device.driver.register(device.context(), start, bytes) }?;
        let registered = || -> Attached {
            let (driver, context) = (device.driver.clone(), device.context());
            Box::new(Registered { driver, context, start })
        };
        Ok(is_new.then(registered))
    })?;
    Ok(true)
}

/// Memory that is registered with the driver.
struct Registered {
    driver: Arc<dyn Driver>,
    context: Handle,
    start: usize,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.driver.unregister(self.context, self.start);
    }
}

/// Starts a transfer of `bytes` between the CUDA device and `usm`, an address inside `memory`, which is registered. Records
/// it in the log of `memory` and on the stream of `remote`; without a stream, the caller must wait for its end. After an
/// error nothing uses the memory any more.
///
/// Waits at most twice [`BRIEF`], or [`BRIEF`] and [`POLLED`] without a stream, if `queue` has events for the transfer
/// ([`UserEvent`]), else to its end.
pub(super) fn start(
    direction: Direction,
    remote: Remote,
    (memory, usm): (&Arc<Allocation>, usize),
    bytes: usize,
    queue: &Queue,
) -> Result<()> {
    refuse(|| "a transfer from or to CUDA memory".to_owned())?;
    let device = remote.device.clone();
    device.drain_failed()?;
    let stream = device.take_stream()?;
    let access = if direction == Direction::ToUsm { Access::Write } else { Access::Read };
    let brief = match remote.stream {
        None => Some(POLLED),
        Some(_) => (bytes <= SMALL).then_some(BRIEF),
    };
    let mut unused = Some((stream, remote));
    let mut unneeded = None;
    // While this thread polls, the process must not end the runtimes.
    let _counted = CountedWait::begin()?;
    let started = ordered_or_complete(queue, &[(memory, access)], |after, _| {
        let waits = !are_complete(after, brief.is_some());
        let brief = brief.filter(|_| !waits);
        let mut user_event = if brief.is_some() { None } else { UserEvent::new(queue)? };
        if waits && (user_event.is_none() || after.iter().any(|event| event.is_held_back_for(queue))) {
            wait_for(after);
        }
        let Some((stream, remote)) = unused.take() else { return Err(Error::interop("started twice")) };
        let transfer = Transfer { device: &device, stream: &stream, remote: &remote, usm, bytes };
        let waits = waits && user_event.is_some();
        let submitted = transfer.submit(direction, waits).and_then(|last| {
            if brief.is_some_and(|time| !within(time, || stream.end.is_set())) {
                user_event = UserEvent::new(queue)?;
            }
            if user_event.is_none() && !stream.end.is_set() {
                last.wait()?;
            }
            Ok(last)
        });
        let last = match submitted {
            Ok(last) => last,
            Err(error) => {
                // The copy may have been submitted, and must not begin before its sources are complete.
                wait_for(after);
                stream.begin.set();
                let owners: Vec<ForeignOwner> = vec![Box::new(memory.clone()), Box::new(remote.keep)];
                device.drain_or_keep(Undrained { stream, owners });
                return Err(error);
            }
        };
        let Some((user_event, event)) = user_event else {
            device.return_stream(stream);
            unneeded = remote.keep;
            return Ok(None);
        };
        after.iter().for_each(|event| event.queue().flush());
        watch(Box::new(InFlight {
            device: device.clone(),
            stream: Some(stream),
            after: after.into(),
            complete: 0,
            begun: (!waits).then(Instant::now),
            last: Some(last),
            failure: Default::default(),
            error: None,
            patience: Patience::default(),
            user_event: Some(user_event),
            queue: queue.clone(),
            poison: (direction == Direction::ToUsm).then(|| memory.poison()),
            keep: remote.keep,
        }));
        // A wait for the queue also waits for the transfer.
        let barrier = queue.barrier_now(std::slice::from_ref(&event));
        // After an error nothing may use the memory.
        barrier.map(Some).inspect_err(|_| wait_for(&[event]))
    });
    if let Some((stream, _)) = unused {
        device.return_stream(stream);
    }
    started.map(drop)
}

/// Whether the commands are complete, or are within [`BRIEF`] if `may_poll`.
fn are_complete(events: &[Event], may_poll: bool) -> bool {
    let are_complete = || events.iter().all(Event::is_complete);
    if are_complete() {
        return true;
    }
    if !may_poll {
        return false;
    }
    events.iter().for_each(|event| event.queue().flush());
    within(BRIEF, are_complete)
}

/// Polls on the calling thread. False if it takes longer.
fn within(time: Duration, done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if done() {
            return true;
        }
        if begun.elapsed() > time {
            return false;
        }
        // A CPU device may need this core.
        std::thread::yield_now();
    }
}

/// Errors of the commands are for their own waiters.
fn wait_for(events: &[Event]) {
    uninterruptible(|| events.iter().for_each(|event| drop(event.wait_quietly())));
}

struct Transfer<'a> {
    device: &'a CudaDevice,
    stream: &'a TransferStream,
    remote: &'a Remote,
    usm: usize,
    bytes: usize,
}

impl Transfer<'_> {
    /// Makes all calls of CUDA, and returns an event at the end.
    fn submit(&self, direction: Direction, waits: bool) -> Result<Recorded> {
        let (driver, context) = (&self.device.driver, self.device.context());
        let Self { stream, remote, .. } = self;
        if let Some(ready) = &remote.ready {
            driver.stream_wait_event(context, stream.raw, ready.raw())?;
        }
        if waits {
            driver.stream_wait_word(context, stream.raw, stream.begin.address())?;
        }
        let (target, source) = match direction {
            Direction::ToUsm => (self.usm, remote.pointer),
            Direction::FromUsm => (remote.pointer, self.usm),
        };
        // SAFETY: `remote` keeps its memory until the end, the log that of USM; it is registered.
        unsafe { driver.copy(context, stream.raw, target, source, self.bytes) }?;
        driver.stream_set_word(context, stream.raw, stream.end.address())?;
        let last = self.device.recorded(stream.raw)?;
        if let Some((context, other)) = remote.stream {
            driver.stream_wait_event(context, other, last.raw())?;
        }
        Ok(last)
    }
}
