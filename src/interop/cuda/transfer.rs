//! Copies between a CUDA device and USM: one copy of the CUDA driver, from or to memory that is registered with it.
//!
//! Both runtimes see the transfer as one command: SYCL as a user event, CUDA as work of a stream. All calls of CUDA are
//! made before `start` returns.

use super::device::{CudaDevice, Undrained};
use super::driver::{Driver, Handle, Recorded};
use super::in_flight::InFlight;
use super::transfer_stream::TransferStream;
use crate::completion::watch;
use crate::device::{DeviceType, Event, Queue, UserEvent, UsmKind};
use crate::error::{Error, Result};
use crate::memory::{Access, Allocation, Attached, ForeignOwner, OWN_RANGE, attach, ordered_across, refuse};
use crate::runtime::interrupt::uninterruptible;
use std::sync::Arc;
use std::time::Instant;

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
    bytes >= OWN_RANGE && (kind == UsmKind::Host || queue.device().device_type() == DeviceType::Cpu)
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
/// it in the log of `memory` and on the stream of `remote`. Returns immediately if `queue` has events for it
/// ([`UserEvent`]), else at its end. After an error nothing uses the memory any more.
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
    let mut unused = Some((stream, remote));
    let started = ordered_across(queue, &[(memory, access)], |after, sent| {
        let user_event = UserEvent::new(queue)?;
        let waits = after.iter().any(|event| !event.is_complete());
        if waits && user_event.is_none() {
            wait_for(after);
        }
        let Some((stream, remote)) = unused.take() else { return Err(Error::interop("started twice")) };
        let transfer = Transfer { device: &device, stream: &stream, remote: &remote, usm, bytes };
        let waits = waits && user_event.is_some();
        let last = match transfer.submit(direction, waits) {
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
            last.wait()?;
            device.return_stream(stream);
            return queue.barrier(&[]);
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
            unknown_since: None,
            user_event: Some(user_event),
            queue: queue.clone(),
            poison: (direction == Direction::ToUsm).then(|| memory.poison()),
            keep: remote.keep,
        }));
        sent.push(event.clone());
        // A wait for the queue also waits for the transfer.
        queue.barrier(&[event])
    });
    if let Some((stream, _)) = unused {
        device.return_stream(stream);
    }
    started.map(drop)
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
