//! A CUDA device: its streams, the thread that submits to them, and the pinned buffers of its transfers.

use super::driver::{Driver, Handle, Recorded};
use super::latch::{Latch, OpenOnDrop};
use crate::device::{Context, Device, Queue, QueueProperties, UsmKind};
use crate::error::{Error, Result};
use crate::memory::{Allocation, ForeignOwner};
use crate::runtime::{CountedWait, ForkMutex, exit};
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Bytes of one buffer.
pub(super) const CHUNK: usize = 8 << 20;

/// Work of the device's thread.
struct Job {
    device: Arc<CudaDevice>,
    /// Opened at its end.
    latch: Arc<Latch>,
    run: Box<dyn FnOnce() + Send>,
}

/// One CUDA device for transfers.
pub(super) struct CudaDevice {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) ordinal: usize,
    name: String,
    context: Handle,
    /// The stream of transfers. Other libraries do not use it, so it never waits at a latch.
    pub(super) work: Handle,
    /// The stream for other libraries to wait for: it waits at a latch while a transfer of usmq's arrays
    /// runs.
    pub(super) shown: Handle,
    /// The stream that other libraries order after their work before they export memory.
    pub(super) arrivals: Handle,
    submit_state: ForkMutex<SubmitState>,
    channels: ForkMutex<HashMap<(Context, Device), Arc<StagingChannel>>>,
    /// Owners of memory that failed copies may still use.
    undrained: ForkMutex<Vec<ForeignOwner>>,
}

/// The submitted jobs, and the state that orders streams after them.
struct SubmitState {
    jobs: Sender<Job>,
    /// The newest latch, and an event after it. The driver may run host functions one at a time, so a latch
    /// that is reached before that of an earlier job could block it: each stream first waits for all earlier
    /// latches.
    newest: Option<(Arc<Latch>, Recorded)>,
    /// The newest latch on `shown`.
    on_shown: Option<Arc<Latch>>,
    /// Memory to free after that latch opens, and memory whose earlier release failed.
    unfreed: Vec<usize>,
}

static DEVICES: Lazy<ForkMutex<HashMap<usize, Arc<CudaDevice>>>> = Lazy::new(ForkMutex::default);

impl CudaDevice {
    /// Returns the device with this number.
    pub(super) fn get(ordinal: usize) -> Result<Arc<Self>> {
        // Its thread does not exist in a forked child.
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
        let (jobs, receiver) = channel();
        std::thread::Builder::new()
            .name(format!("usmq-cuda-{ordinal}"))
            .spawn(move || serve(&receiver))
            .map_err(|error| {
                Error::interop(format!("could not start the thread for CUDA transfers: {error}"))
            })?;
        Ok(Arc::new(Self {
            ordinal,
            name: driver.name(ordinal)?,
            context,
            work: driver.new_stream(context)?,
            shown: driver.new_stream(context)?,
            arrivals: driver.new_stream(context)?,
            submit_state: ForkMutex::new(SubmitState {
                jobs,
                newest: None,
                on_shown: None,
                unfreed: Vec::new(),
            }),
            channels: ForkMutex::default(),
            undrained: ForkMutex::default(),
            driver,
        }))
    }

    pub(super) fn context(&self) -> Handle {
        self.context
    }

    /// Runs a job on the device's thread, which opens the latch at its end, and lets the stream of another library wait
    /// for that. After an error the job has also ended.
    pub(super) fn start(
        self: &Arc<Self>,
        run: impl FnOnce() + Send + 'static,
        latch: Arc<Latch>,
        stream: Option<(Handle, Handle)>,
    ) -> Result<()> {
        let job = Job { device: self.clone(), latch: latch.clone(), run: Box::new(run) };
        let mut submit_state = self.submit_state.lock()?;
        if let Err(refused) = submit_state.jobs.send(job) {
            // The job may own memory of this device, whose release takes the lock.
            drop(submit_state);
            drop(refused);
            return Err(Error::interop("the thread for CUDA transfers has stopped"));
        }
        // Do this only now: a latch placed before its job is queued could block an earlier job.
        let held = stream.map_or(Ok(()), |stream| self.hold(&mut submit_state, stream, &latch));
        drop(submit_state);
        held.inspect_err(|_| latch.wait())
    }

    fn hold(
        &self,
        submit_state: &mut SubmitState,
        (context, stream): (Handle, Handle),
        latch: &Arc<Latch>,
    ) -> Result<()> {
        if let Some((_, passed)) = &submit_state.newest {
            self.driver.stream_wait_event(context, stream, passed.raw())?;
        }
        self.driver.stream_wait_latch(context, stream, latch.clone())?;
        if stream == self.shown {
            submit_state.on_shown = Some(latch.clone());
        }
        submit_state.newest = Some((latch.clone(), Recorded::after(&self.driver, context, stream)?));
        Ok(())
    }

    /// After a job, releases what only closed latches need.
    fn tidy(&self) {
        // Skip this if the process is exiting.
        if let (Some(_counted), Ok(mut submit_state)) =
            (CountedWait::unless_leaving(), self.submit_state.lock())
        {
            submit_state.newest.take_if(|(latch, _)| latch.is_open());
            self.free_unfreed(&mut submit_state);
        }
    }

    /// Records an event after the copies so far.
    pub(super) fn recorded(&self) -> Result<Recorded> {
        Recorded::after(&self.driver, self.context, self.work)
    }

    fn drain(&self) -> Result<()> {
        self.recorded()?.wait()
    }

    /// Called before the first copy of a transfer: copies of earlier failed transfers may still use the
    /// buffers.
    pub(super) fn drain_failed(&self) -> Result<()> {
        let undrained = std::mem::take(&mut *self.undrained.lock()?);
        if undrained.is_empty() {
            return Ok(());
        }
        let drained = self.drain();
        if drained.is_err() {
            self.undrained.lock()?.extend(undrained);
        }
        drained
    }

    /// Called after a failed copy: waits for earlier copies or, if the driver refuses, keeps their memory.
    pub(super) fn drain_or_keep(&self, keep: Option<ForeignOwner>) {
        if self.drain().is_err()
            && let Ok(mut undrained) = self.undrained.lock()
        {
            undrained.extend(keep);
        }
    }

    /// Allocates memory that the device's copies can use immediately. Waits only if memory is short.
    pub(super) fn allocate(&self, bytes: usize) -> Result<usize> {
        self.free_unfreed(&mut *self.submit_state.lock()?);
        self.driver.allocate(self.context, self.work, bytes).or_else(|short| {
            let submit_state = self.submit_state.lock()?;
            let latch =
                submit_state.on_shown.clone().filter(|_| !submit_state.unfreed.is_empty()).ok_or(short)?;
            drop(submit_state);
            latch.wait();
            self.free_unfreed(&mut *self.submit_state.lock()?);
            self.driver.allocate(self.context, self.work, bytes)
        })
    }

    /// Frees memory in the order of the stream for other libraries. Memory that cannot be freed yet is
    /// retried at the next call.
    pub(super) fn free(&self, pointer: usize) {
        // A forked child has nothing to free.
        if let Ok(mut submit_state) = self.submit_state.lock() {
            submit_state.unfreed.push(pointer);
            self.free_unfreed(&mut submit_state);
        }
    }

    /// Never frees behind a closed latch: the driver may reuse the memory for the next allocation
    /// immediately, and make copies into it wait for the latch, whose job may come after theirs.
    fn free_unfreed(&self, submit_state: &mut SubmitState) {
        if submit_state.on_shown.as_ref().is_none_or(|latch| latch.is_open()) {
            submit_state
                .unfreed
                .retain(|pointer| self.driver.free(self.context, self.shown, *pointer).is_err());
        }
    }

    /// The staging channel between this device and a SYCL queue's device and context.
    pub(super) fn channel(&self, queue: &Queue) -> Result<Arc<StagingChannel>> {
        let key = (queue.context().clone(), queue.device().clone());
        if let Some(channel) = self.channels.lock()?.get(&key) {
            return Ok(channel.clone());
        }
        let made = Arc::new(StagingChannel::new(&self.driver, self.context, queue)?);
        Ok(self.channels.lock()?.entry(key).or_insert(made).clone())
    }
}

/// `cuda:0 NVIDIA H200`.
impl std::fmt::Display for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{} {}", self.ordinal, self.name)
    }
}

/// A SYCL queue only for transfers, and two pinned buffers for asynchronous copies of both runtimes.
pub(super) struct StagingChannel {
    pub(super) queue: Queue,
    pub(super) buffers: [Pinned; 2],
}

impl StagingChannel {
    /// Creates its own queue, because its copies must not queue behind work that waits for them.
    fn new(driver: &Arc<dyn Driver>, context: Handle, queue: &Queue) -> Result<Self> {
        let properties = QueueProperties::default();
        let queue = Queue::create(queue.context(), queue.device(), properties)?;
        let buffer = || Pinned::new(driver, context, Allocation::new(CHUNK, UsmKind::Host, &queue)?);
        let buffers = [buffer()?, buffer()?];
        Ok(Self { queue: queue.make_process_lifetime(), buffers })
    }
}

/// Host USM that the CUDA driver pins during its lifetime.
pub(super) struct Pinned {
    driver: Arc<dyn Driver>,
    context: Handle,
    memory: Arc<Allocation>,
}

impl Pinned {
    fn new(driver: &Arc<dyn Driver>, context: Handle, memory: Arc<Allocation>) -> Result<Self> {
        // SAFETY: `drop` unregisters it before the memory is freed.
        unsafe { driver.register(context, memory.pointer(), memory.bytes()) }?;
        Ok(Self { driver: driver.clone(), context, memory })
    }

    pub(super) fn pointer(&self) -> usize {
        self.memory.pointer()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.driver.unregister(self.context, self.memory.pointer());
    }
}

fn serve(jobs: &Receiver<Job>) {
    exit::help_to_the_end();
    while let Ok(Job { device, latch, run }) = jobs.recv() {
        let opener = OpenOnDrop(latch);
        run();
        drop(opener);
        device.tidy();
    }
}
