//! Copies between a CUDA device and USM, in chunks through two pinned buffers: one is filled while the other
//! is emptied.
//!
//! Neither runtime can wait for an event of the other, so a thread of the device connects them. Both runtimes
//! see the transfer as one command: SYCL as an event that the thread completes, CUDA as a latch that it
//! opens.

use super::device::{CHUNK, CudaDevice, StagingChannel};
use super::driver::{Handle, Recorded};
use super::latch::Latch;
use crate::device::{Event, Queue, UserEvent};
use crate::error::Result;
use crate::memory::{Access, Allocation, ForeignOwner, PoisonCell, ordered_across, refuse};
use crate::runtime::retry;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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
    /// The stream, and its context, on which another library works with the memory.
    pub(super) stream: Option<(Handle, Handle)>,
    /// The error of a failed fill, for the next user of the memory.
    pub(super) poison: PoisonCell,
    /// The owner of the memory, which the device's thread drops at the end.
    pub(super) keep: Option<ForeignOwner>,
}

/// A transfer that the device's thread runs.
struct Job {
    direction: Direction,
    remote: Remote,
    channel: Arc<StagingChannel>,
    /// The queue whose work waits for the transfer, and which receives its errors.
    queue: Queue,
    /// The error of a failed fill of the USM.
    poison: PoisonCell,
    /// USM, which the log of its allocation keeps until `user_event` is signalled.
    usm: usize,
    bytes: usize,
    after: SmallVec<[Event; 4]>,
    /// An event after the other library's submitted work. The device's stream waits for it only when the job
    /// begins; otherwise the copies of earlier jobs would also wait.
    ready: Option<Recorded>,
    user_event: Option<UserEvent>,
}

/// Starts a transfer of `bytes` between the CUDA device and `usm`, an address inside `memory`, and records it
/// in the log of `memory` and on the stream of `remote`. Returns immediately if `queue` has events for it
/// ([`UserEvent`]), else at its end. After an error the transfer has also ended.
pub(super) fn start(
    direction: Direction,
    remote: Remote,
    (memory, usm): (&Arc<Allocation>, usize),
    bytes: usize,
    queue: &Queue,
) -> Result<()> {
    refuse(|| "a transfer from or to CUDA memory".to_owned())?;
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
        let (failed, queue_of_job) = (poison.clone(), queue.clone());
        let job = Job {
            direction,
            remote,
            channel,
            queue: queue_of_job,
            poison,
            usm,
            bytes,
            after,
            ready,
            user_event,
        };
        device.start(move || job.run(), latch.clone(), stream)?;
        match event {
            // A wait for the queue also waits for the transfer.
            Some(event) => queue.barrier(&[event]).inspect_err(|_| latch.wait()),
            None => {
                latch.wait();
                failed.get().map_or(Ok(()), |error| Err(error.clone()))?;
                queue.barrier(&[])
            }
        }
    })?;
    Ok(())
}

impl Job {
    /// Runs the transfer. Reports a failure to the users of the target memory.
    fn run(mut self) {
        let result = self.copy();
        let user_event = self.user_event.take();
        if let Err(error) = result {
            if self.direction == Direction::ToUsm && user_event.is_some() {
                self.queue.store_error(&error);
            }
            let _ = self.poison.set(error);
        }
        // The process may end after the user event is signalled, so drop everything else first. The owners
        // may be foreign code, and a panicking destructor must not end the device's thread.
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
            // The buffers and the memory of both sides are free only after all copies have ended.
            retry(|| self.channel.queue.barrier(&self.after).and_then(|last| last.wait_quietly()).is_ok());
            self.remote.device.drain_or_keep(self.remote.keep.take());
        }
        result
    }

    fn begin(&self) -> Result<()> {
        // The transfer that filled the memory ran earlier on the same thread, and may have failed.
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

    /// Copies a filled buffer to USM.
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

    /// Only the first SYCL copy waits for earlier work, because the copies are in order.
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
