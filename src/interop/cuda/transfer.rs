//! Copies between a card and USM, in chunks through two pinned buffers: while one is filled, the other is emptied.
//!
//! No event of one runtime can wait for one of the other, so a thread of the card stands between them. Both runtimes
//! see the whole transfer as one command: SYCL as an event that the thread completes, CUDA as a gate that it opens.

use super::card::{Card, Lane};
use super::driver::{Handle, Recorded};
use super::gate::Gate;
use crate::device::{Event, Promise, Queue};
use crate::error::{Error, Result};
use crate::memory::{Access, Allocation, Keep, ordered_across};
use crate::runtime::interrupt::shielded;
use once_cell::sync::OnceCell;
use smallvec::SmallVec;
use std::sync::Arc;

/// Bytes of one buffer.
pub(super) const CHUNK: usize = 8 << 20;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    ToUsm,
    FromUsm,
}

/// The card's side of a transfer.
pub(super) struct Remote {
    pub(super) card: Arc<Card>,
    pub(super) pointer: usize,
    /// The stream, and its context, on which another library works with the memory.
    pub(super) stream: Option<(Handle, Handle)>,
    /// Where a failure to fill the memory is kept for whoever uses it next.
    pub(super) failure: Arc<OnceCell<Error>>,
    /// What keeps the memory alive; dropped by the card's thread at the end.
    pub(super) _keep: Keep,
}

/// A transfer that the card's thread runs.
pub(super) struct Job {
    way: Way,
    remote: Remote,
    lane: Arc<Lane>,
    /// The queue of those who wait for the transfer; errors go there.
    queue: Queue,
    /// USM, which the log of its allocation keeps until `promise` is kept.
    usm: usize,
    bytes: usize,
    after: SmallVec<[Event; 4]>,
    /// What the other library had submitted. The card's stream waits for it only when the job begins, or the copies
    /// of jobs before this one would wait, too.
    ready: Option<Recorded>,
    promise: Option<Promise>,
    gate: Arc<Gate>,
}

/// Starts a transfer of `bytes` between the card and `usm`, an address inside `memory`. Returns at once; the log of
/// `memory` and the stream of `remote` know of it.
pub(super) fn start(
    way: Way,
    remote: Remote,
    (memory, usm): (&Allocation, usize),
    bytes: usize,
    queue: &Queue,
) -> Result<()> {
    let card = remote.card.clone();
    let lane = card.lane(queue)?;
    let stream = remote.stream;
    let ready = stream.map(|(context, stream)| Recorded::after(&card.driver, context, stream)).transpose()?;
    let access = if way == Way::ToUsm { Access::Write } else { Access::Read };
    ordered_across(queue, &[(memory, access)], |after, _| {
        let gate = Arc::new(Gate::default());
        let (after, queue) = (after.into(), queue.clone());
        match Promise::new(&queue)? {
            Some((promise, event)) => {
                let promise = Some(promise);
                let job = Job { way, remote, lane, queue, usm, bytes, after, ready, promise, gate };
                card.start(job, stream)?;
                Ok(event)
            }
            None => {
                // No event can stand for the thread, so this one does its work, to the end: both sides use the memory.
                let job = Job { way, remote, lane, queue, usm, bytes, after, ready, promise: None, gate };
                shielded(|| job.copy())?;
                job.queue.barrier(&[])
            }
        }
    })?;
    Ok(())
}

impl Job {
    pub(super) fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }

    /// Runs the transfer. A failure goes to those who wait for the side that it was to fill.
    pub(super) fn run(mut self) {
        let result = self.copy();
        match (self.way, &result) {
            (_, Ok(())) => {}
            (Way::ToUsm, Err(error)) => self.queue.store_error(error),
            (Way::FromUsm, Err(error)) => {
                let _ = self.remote.failure.set(error.clone());
            }
        }
        let promise = self.promise.take();
        // Once the promise is kept the process may end, so everything else goes first.
        drop(self);
        if let Some(promise) = promise {
            promise.keep();
        }
    }

    fn copy(&self) -> Result<()> {
        let result = self.begin().and_then(|()| match self.way {
            Way::ToUsm => self.download(),
            Way::FromUsm => self.upload(),
        });
        if result.is_err() {
            // The buffers, and the memory of both sides, are free only when nothing runs any more.
            let _ = self.lane.queue.barrier(&[]).and_then(|last| last.wait_quietly());
            if let Ok(last) = self.recorded() {
                let _ = last.wait();
            }
        }
        result
    }

    fn begin(&self) -> Result<()> {
        let Some(ready) = &self.ready else { return Ok(()) };
        let card = &self.remote.card;
        card.driver.hold_until(card.context(), card.work, ready.raw())
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
            let event = self.recorded()?;
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
        // SAFETY: the log of the target keeps it until the promise is kept; the buffer is filled again only after
        // this event.
        let event = unsafe {
            self.lane.queue.memcpy(self.usm + start, self.buffer(buffer), length, self.first_after(start))
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
            // SAFETY: the log of the source keeps it until the promise is kept; the buffer's last chunk is sent.
            let filled =
                unsafe { self.lane.queue.memcpy(pinned, self.usm + start, length, self.first_after(start)) }?;
            filled.wait_quietly()?;
            // SAFETY: the target is kept by `remote`; the buffer is registered and filled again only after the event.
            unsafe { self.card_copies(self.remote.pointer + start, pinned, length) }?;
            sent[buffer] = Some(self.recorded()?);
        }
        sent.into_iter().flatten().try_for_each(|event| event.wait())
    }

    fn buffer(&self, number: usize) -> usize {
        self.lane.buffers[number].pointer()
    }

    /// Only the first of the SYCL copies, which are in order, waits for what came before.
    fn first_after(&self, start: usize) -> &[Event] {
        if start == 0 { &self.after } else { &[] }
    }

    /// # Safety
    /// As for [`Driver::copy`](super::driver::Driver::copy).
    unsafe fn card_copies(&self, target: usize, source: usize, bytes: usize) -> Result<()> {
        let card = &self.remote.card;
        // SAFETY: the caller's promise.
        unsafe { card.driver.copy(card.context(), card.work, target, source, bytes) }
    }

    fn recorded(&self) -> Result<Recorded> {
        let card = &self.remote.card;
        Recorded::after(&card.driver, card.context(), card.work)
    }
}
