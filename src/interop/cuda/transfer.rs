//! Copies between a card and USM, in chunks through two pinned buffers: while one is filled, the other is emptied.
//!
//! No event of one runtime can wait for one of the other, so a thread of the card stands between them. Both runtimes
//! see the whole transfer as one command: SYCL as an event that the thread completes, CUDA as a latch that it opens.

use super::device::{CudaDevice, StagingChannel};
use super::driver::{Handle, Recorded};
use super::latch::Latch;
use crate::device::{Event, Queue, UserEvent};
use crate::error::Result;
use crate::memory::{Access, Allocation, ForeignOwner, PoisonCell, ordered_across};
use crate::runtime::retry;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Bytes of one buffer.
pub(super) const CHUNK: usize = 8 << 20;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToUsm,
    FromUsm,
}

/// The card's side of a transfer.
pub(super) struct Remote {
    pub(super) device: Arc<CudaDevice>,
    pub(super) pointer: usize,
    /// The stream, and its context, on which another library works with the memory.
    pub(super) stream: Option<(Handle, Handle)>,
    /// Where a failure to fill the memory is kept for whoever uses it next.
    pub(super) poison: PoisonCell,
    /// What keeps the memory alive; dropped by the card's thread at the end.
    pub(super) keep: Option<ForeignOwner>,
}

/// A transfer that the card's thread runs.
pub(super) struct Job {
    direction: Direction,
    remote: Remote,
    channel: Arc<StagingChannel>,
    /// The queue of those who wait for the transfer; errors go there.
    queue: Queue,
    /// Why the USM does not have what it was to be filled with.
    poison: PoisonCell,
    /// USM, which the log of its allocation keeps until `user_event` is signalled.
    usm: usize,
    bytes: usize,
    after: SmallVec<[Event; 4]>,
    /// What the other library had submitted. The card's stream waits for it only when the job begins, or the copies
    /// of jobs before this one would wait, too.
    ready: Option<Recorded>,
    user_event: Option<UserEvent>,
    latch: Arc<Latch>,
}

/// Starts a transfer of `bytes` between the card and `usm`, an address inside `memory`; the log of `memory` and the
/// stream of `remote` know of it. Returns at once where `queue` has events for it ([`UserEvent`]), else at its end. After
/// an error it is over, too.
pub(super) fn start(
    direction: Direction,
    remote: Remote,
    (memory, usm): (&Allocation, usize),
    bytes: usize,
    queue: &Queue,
) -> Result<()> {
    let device = remote.device.clone();
    let channel = device.channel(queue)?;
    let stream = remote.stream;
    let ready =
        stream.map(|(context, stream)| Recorded::after(&device.driver, context, stream)).transpose()?;
    let access = if direction == Direction::ToUsm { Access::Write } else { Access::Read };
    let poison = if direction == Direction::ToUsm { memory.poison() } else { remote.poison.clone() };
    ordered_across(queue, &[(memory, access)], |after, sent| {
        let latch = Arc::new(Latch::default());
        let (user_event, event) = UserEvent::new(queue)?.unzip();
        let after = after.into();
        sent.extend(event.clone());
        let (over, failed, on) = (latch.clone(), poison.clone(), queue.clone());
        let job = Job {
            direction,
            remote,
            channel,
            queue: on,
            poison,
            usm,
            bytes,
            after,
            ready,
            user_event,
            latch,
        };
        device.start(job, stream)?;
        match event {
            // A wait for the queue is one for the transfer, too.
            Some(event) => queue.barrier(&[event]).inspect_err(|_| over.wait()),
            None => {
                over.wait();
                failed.get().map_or(Ok(()), |error| Err(error.clone()))?;
                queue.barrier(&[])
            }
        }
    })?;
    Ok(())
}

impl Job {
    pub(super) fn device(&self) -> Arc<CudaDevice> {
        self.remote.device.clone()
    }

    pub(super) fn latch(&self) -> Arc<Latch> {
        self.latch.clone()
    }

    /// Runs the transfer. A failure goes to those who wait for the side that it was to fill.
    pub(super) fn run(mut self) {
        let result = self.copy();
        let user_event = self.user_event.take();
        if let Err(error) = result {
            if self.direction == Direction::ToUsm && user_event.is_some() {
                self.queue.store_error(&error);
            }
            let _ = self.poison.set(error);
        }
        // Once the user event is signalled the process may end, so everything else goes first. It may be anyone's, and a
        // destructor that panics must not end the card's thread.
        let _panic = catch_unwind(AssertUnwindSafe(|| drop(self))).map_err(std::mem::forget);
        if let Some(user_event) = user_event {
            user_event.signal();
        }
    }

    fn copy(&mut self) -> Result<()> {
        let result = self.begin().and_then(|()| match self.direction {
            Direction::ToUsm => self.download(),
            Direction::FromUsm => self.upload(),
        });
        if result.is_err() {
            // The buffers, and the memory of both sides, are free only when nothing runs any more.
            retry(|| self.channel.queue.barrier(&self.after).and_then(|last| last.wait_quietly()).is_ok());
            self.remote.device.drain_or_keep(self.remote.keep.take());
        }
        result
    }

    fn begin(&self) -> Result<()> {
        // What was to fill the memory ran before this on the same thread, and may have failed.
        if let (Direction::ToUsm, Some(error)) = (self.direction, self.remote.poison.get()) {
            return Err(error.clone());
        }
        let device = &self.remote.device;
        device.drain_failed()?;
        let Some(ready) = &self.ready else { return Ok(()) };
        device.driver.stream_wait_event(device.context(), device.work, ready.raw())
    }

    /// Starts, lengths and buffers of the chunks.
    fn chunks(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let bytes = self.bytes;
        (0..bytes)
            .step_by(CHUNK)
            .enumerate()
            .map(move |(number, start)| (start, CHUNK.min(bytes - start), number % 2))
    }

    fn download(&self) -> Result<()> {
        let mut emptied: [Option<Event>; 2] = [None, None];
        let mut filled: Option<(Recorded, usize, usize, usize)> = None;
        for (start, length, buffer) in self.chunks() {
            if let Some(event) = emptied[buffer].take() {
                event.wait_quietly()?;
            }
            let pinned = self.buffer(buffer);
            // SAFETY: the source is kept by `remote`; the buffer is as long as a chunk, registered, and emptied.
            unsafe { self.card_copies(pinned, self.remote.pointer + start, length) }?;
            let event = self.remote.device.recorded()?;
            if let Some(before) = filled.replace((event, start, length, buffer)) {
                self.empty(before, &mut emptied)?;
            }
        }
        if let Some(last) = filled {
            self.empty(last, &mut emptied)?;
        }
        emptied.into_iter().flatten().try_for_each(|event| event.wait_quietly())
    }

    /// Copies a filled buffer on to USM.
    fn empty(
        &self,
        (filled, start, length, buffer): (Recorded, usize, usize, usize),
        emptied: &mut [Option<Event>; 2],
    ) -> Result<()> {
        filled.wait()?;
        // SAFETY: the log of the target keeps it until the user event is signalled; the buffer is filled again only after
        // this event.
        let event = unsafe {
            self.channel.queue.memcpy(self.usm + start, self.buffer(buffer), length, self.first_after(start))
        }?;
        emptied[buffer] = Some(event);
        Ok(())
    }

    fn upload(&self) -> Result<()> {
        let mut sent: [Option<Recorded>; 2] = [None, None];
        for (start, length, buffer) in self.chunks() {
            if let Some(event) = sent[buffer].take() {
                event.wait()?;
            }
            let pinned = self.buffer(buffer);
            // SAFETY: the log of the source keeps it until the user event is signalled; the buffer's last chunk is sent.
            let filled = unsafe {
                self.channel.queue.memcpy(pinned, self.usm + start, length, self.first_after(start))
            }?;
            filled.wait_quietly()?;
            // SAFETY: the target is kept by `remote`; the buffer is registered and filled again only after the event.
            unsafe { self.card_copies(self.remote.pointer + start, pinned, length) }?;
            sent[buffer] = Some(self.remote.device.recorded()?);
        }
        sent.into_iter().flatten().try_for_each(|event| event.wait())
    }

    fn buffer(&self, number: usize) -> usize {
        self.channel.buffers[number].pointer()
    }

    /// Only the first of the SYCL copies, which are in order, waits for what came before.
    fn first_after(&self, start: usize) -> &[Event] {
        if start == 0 { &self.after } else { &[] }
    }

    /// # Safety
    /// As for [`Driver::copy`](super::driver::Driver::copy).
    unsafe fn card_copies(&self, target: usize, source: usize, bytes: usize) -> Result<()> {
        let device = &self.remote.device;
        // SAFETY: the caller's promise.
        unsafe { device.driver.copy(device.context(), device.work, target, source, bytes) }
    }
}
