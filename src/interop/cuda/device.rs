//! A CUDA device: its streams, its memory, and what failed transfers have left.

use super::driver::{Driver, Handle, Recorded};
use super::transfer_stream::TransferStream;
use crate::completion::collect;
use crate::error::{Error, Result};
use crate::memory::{ForeignOwner, drop_after};
use crate::runtime::ForkMutex;
use crate::runtime::interrupt::poll_until;
use once_cell::sync::{Lazy, OnceCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The most transfers in flight. A further one waits until one of them ends.
const MOST: usize = 64;

/// How long an allocation without memory waits for the release thread.
const PATIENCE: Duration = Duration::from_secs(1);

/// The error of work in flight, once it has failed.
pub(super) type Failure = Arc<OnceCell<Error>>;

/// One CUDA device for transfers.
pub(super) struct CudaDevice {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) ordinal: usize,
    name: String,
    context: Handle,
    /// Memory is allocated in the order of this stream, which does nothing else.
    allocations: Handle,
    /// The stream for other libraries to wait for: it follows all transfers of usmq's arrays.
    pub(super) shown: Handle,
    /// The stream that other libraries order after their work before they export memory.
    pub(super) arrivals: Handle,
    streams: ForkMutex<Streams>,
    /// Memory whose release failed, for the next attempt.
    unfreed: ForkMutex<Vec<usize>>,
    undrained: ForkMutex<Vec<Undrained>>,
    checks: Sender<(Recorded, Failure)>,
}

/// The streams of transfers.
#[derive(Default)]
struct Streams {
    idle: Vec<TransferStream>,
    made: usize,
}

/// The stream and the memory that a failed transfer may still use: the driver did not report its end.
pub(super) struct Undrained {
    pub(super) stream: TransferStream,
    pub(super) owners: Vec<ForeignOwner>,
}

static DEVICES: Lazy<ForkMutex<HashMap<usize, Arc<CudaDevice>>>> = Lazy::new(ForkMutex::default);

impl CudaDevice {
    /// Returns the device with this number.
    pub(super) fn get(ordinal: usize) -> Result<Arc<Self>> {
        crate::runtime::ensure_usable()?;
        let (driver, count) = super::cuda_driver::open()?;
        if ordinal >= count {
            return Err(Error::DeviceNotFound {
                asked: format!("cuda:{ordinal}"),
                visible: (0..count).map(|found| format!("cuda:{found}")).collect::<Vec<_>>().join(", "),
            });
        }
        if let Some(device) = DEVICES.lock()?.get(&ordinal) {
            return Ok(device.clone());
        }
        let made = Self::new(driver, ordinal)?;
        Ok(DEVICES.lock()?.entry(ordinal).or_insert(made).clone())
    }

    pub(super) fn new(driver: Arc<dyn Driver>, ordinal: usize) -> Result<Arc<Self>> {
        let context = driver.primary_context(ordinal)?;
        // The driver has registered its own end. The process waits for transfers before it.
        crate::runtime::exit::guard();
        let (checks, receiver) = channel();
        let name = format!("usmq-cuda-{ordinal}");
        std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || find_failures(&receiver))
            .map_err(|error| Error::no_thread(&name, &error))?;
        Ok(Arc::new(Self {
            ordinal,
            name: driver.name(ordinal)?,
            context,
            allocations: driver.new_stream(context)?,
            shown: driver.new_stream(context)?,
            arrivals: driver.new_stream(context)?,
            streams: ForkMutex::default(),
            unfreed: ForkMutex::default(),
            undrained: ForkMutex::default(),
            checks,
            driver,
        }))
    }

    pub(super) fn context(&self) -> Handle {
        self.context
    }

    /// An idle stream; waits for one if all are in use.
    pub(super) fn take_stream(&self) -> Result<TransferStream> {
        let mut taken = None;
        let mut take = || {
            let Ok(mut streams) = self.streams.lock() else { return true };
            taken = streams.idle.pop().map(Some).or_else(|| {
                let more = streams.made < MOST;
                streams.made += usize::from(more);
                more.then_some(None)
            });
            taken.is_some()
        };
        if !take() {
            poll_until(take, || ())?;
        }
        let Some(Some(stream)) = taken else {
            crate::runtime::not_forked()?;
            return TransferStream::new(&self.driver, self.context).inspect_err(|_| self.forget_stream());
        };
        Ok(stream)
    }

    /// Takes back a stream whose transfer has ended. Makes no call of CUDA.
    pub(super) fn return_stream(&self, stream: TransferStream) {
        stream.clear();
        if let Ok(mut streams) = self.streams.lock() {
            streams.idle.push(stream);
        }
    }

    /// Another stream may replace one that cannot be used any more.
    pub(super) fn forget_stream(&self) {
        if let Ok(mut streams) = self.streams.lock() {
            streams.made -= 1;
        }
    }

    /// Records an event after the work of a stream of this device.
    pub(super) fn recorded(&self, stream: Handle) -> Result<Recorded> {
        Recorded::after(&self.driver, self.context, stream)
    }

    /// Reports a failure of work that has not ended for a while. Makes no call of CUDA.
    pub(super) fn check(&self, last: Recorded, failure: Failure) {
        // The thread lives as long as the sender.
        let _ = self.checks.send((last, failure));
    }

    /// Called after a failed transfer: waits for what it has submitted. If the driver refuses, keeps what it may use until
    /// the next attempt.
    pub(super) fn drain_or_keep(&self, failed: Undrained) {
        if let Err(failed) = self.drained(failed)
            && let Ok(mut undrained) = self.undrained.lock()
        {
            undrained.push(failed);
        }
    }

    /// Called before a transfer, for what earlier ones have left.
    pub(super) fn drain_failed(&self) -> Result<()> {
        let undrained = std::mem::take(&mut *self.undrained.lock()?);
        undrained.into_iter().for_each(|failed| self.drain_or_keep(failed));
        Ok(())
    }

    fn drained(&self, failed: Undrained) -> std::result::Result<(), Undrained> {
        if self.recorded(failed.stream.raw).and_then(|last| last.wait()).is_err() {
            return Err(failed);
        }
        self.return_stream(failed.stream);
        failed.owners.into_iter().for_each(|owner| drop_after(owner, Default::default()));
        Ok(())
    }

    /// Allocates memory, and an event after which it may be used.
    pub(super) fn allocate(&self, bytes: usize) -> Result<(usize, Recorded)> {
        self.free_unfreed();
        let allocate = || self.driver.allocate(self.context, self.allocations, bytes);
        let pointer = allocate().or_else(|short| {
            // Memory that was dropped is free when the release thread has submitted its free, and the stream has come to it.
            collect(PATIENCE);
            self.recorded(self.shown).and_then(|last| last.wait()).map_err(|_| short)?;
            allocate()
        })?;
        let ready = self.recorded(self.allocations).inspect_err(|_| self.free_unused(pointer))?;
        Ok((pointer, ready))
    }

    /// Frees memory that no work was submitted for.
    pub(super) fn free_unused(&self, pointer: usize) {
        self.free_on(self.allocations, pointer);
    }

    /// Frees memory in the order of the stream for other libraries.
    pub(super) fn free(&self, pointer: usize) {
        self.free_on(self.shown, pointer);
    }

    fn free_on(&self, stream: Handle, pointer: usize) {
        // A forked child has nothing to free.
        if crate::runtime::not_forked().is_err() {
            return;
        }
        self.free_unfreed();
        self.free_or_keep(stream, pointer);
    }

    fn free_unfreed(&self) {
        let Ok(mut unfreed) = self.unfreed.lock() else { return };
        let again = std::mem::take(&mut *unfreed);
        drop(unfreed);
        again.into_iter().for_each(|pointer| self.free_or_keep(self.shown, pointer));
    }

    fn free_or_keep(&self, stream: Handle, pointer: usize) {
        if self.driver.free(self.context, stream, pointer).is_err()
            && let Ok(mut unfreed) = self.unfreed.lock()
        {
            unfreed.push(pointer);
        }
    }
}

/// `cuda:0 NVIDIA H200`.
impl std::fmt::Display for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{} {}", self.ordinal, self.name)
    }
}

/// Waits for work that has not ended for a while, in order to see whether it fails: the streams of a failed context never
/// set their words. May block for as long as the driver does; nothing else waits for this thread.
fn find_failures(checks: &Receiver<(Recorded, Failure)>) {
    while let Ok((last, failure)) = checks.recv() {
        if let Err(error) = last.wait() {
            // Only this thread sets it.
            let _ = failure.set(error);
        }
    }
}
