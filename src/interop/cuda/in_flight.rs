//! A submitted transfer, which the signal thread connects with SYCL by its two words.

use super::device::{CudaDevice, Failure};
use super::driver::Recorded;
use super::transfer_stream::TransferStream;
use crate::completion::{Progress, Watched};
use crate::device::{Event, Queue, UserEvent};
use crate::error::Error;
use crate::memory::{ForeignOwner, PoisonCell, drop_after};
use crate::runtime::Patience;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a transfer may take before another thread looks for a failure.
const CHECK_AFTER: Duration = Duration::from_millis(100);

pub(super) struct InFlight {
    pub(super) device: Arc<CudaDevice>,
    /// Taken at the end.
    pub(super) stream: Option<TransferStream>,
    /// SYCL's commands that the stream waits for by its word, and how many of them are complete.
    pub(super) after: SmallVec<[Event; 4]>,
    pub(super) complete: usize,
    /// The time since which the stream need not wait for SYCL.
    pub(super) begun: Option<Instant>,
    /// Taken by a check for failures.
    pub(super) last: Option<Recorded>,
    pub(super) failure: Failure,
    /// The error of a command before the transfer.
    pub(super) error: Option<Error>,
    /// Bounds the retries of failed queries for the state of a command.
    pub(super) patience: Patience,
    /// Signalled at the end. Until then the log of the USM keeps it.
    pub(super) user_event: Option<UserEvent>,
    /// The queue whose work waits for the transfer, and which receives its errors.
    pub(super) queue: Queue,
    /// The error of a failed fill of the USM.
    pub(super) poison: Option<PoisonCell>,
    /// The owner of the memory on the device.
    pub(super) keep: Option<ForeignOwner>,
}

impl InFlight {
    /// Lets the stream pass its first word if SYCL's commands are complete.
    fn begin(&mut self) -> bool {
        while let Some(event) = self.after.get(self.complete) {
            match event.result() {
                Ok(None) => {
                    self.patience.renew();
                    return false;
                }
                Ok(Some(())) => {}
                Err(_) if !self.patience.is_over() => return false,
                Err(error) => self.error = Some(error),
            }
            self.complete += 1;
            self.patience.renew();
        }
        self.stream.iter().for_each(|stream| stream.begin.set());
        self.begun = Some(Instant::now());
        true
    }
}

impl Watched for InFlight {
    /// Makes no call of CUDA: it could block until the transfer is complete.
    fn poll(&mut self) -> Progress {
        let Some(begun) = self.begun else {
            return if self.begin() { Progress::Some } else { Progress::None };
        };
        let has_ended = self.stream.as_ref().is_none_or(|stream| stream.end.is_set());
        if !has_ended && self.failure.get().is_none() {
            if begun.elapsed() > CHECK_AFTER
                && let Some(last) = self.last.take()
            {
                self.device.check(last, self.failure.clone());
            }
            return Progress::None;
        }
        match self.stream.take() {
            Some(stream) if has_ended => self.device.return_stream(stream),
            _ => self.device.forget_stream(),
        }
        if let Some(error) = self.failure.get().or(self.error.as_ref()) {
            self.queue.store_error(error);
            self.poison.iter().for_each(|poison| _ = poison.set(error.clone()));
        }
        self.user_event.take().into_iter().for_each(UserEvent::signal);
        Progress::Complete
    }

    fn finish(self: Box<Self>) {
        self.keep.into_iter().for_each(|keep| drop_after(keep, Default::default()));
    }

    fn needed_at_exit(&self) -> bool {
        true
    }
}
