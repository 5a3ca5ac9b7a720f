//! A card: its streams, the thread that feeds them, and the pinned buffers of its transfers.

use super::driver::{Driver, Handle, Recorded};
use super::latch::{Gate, Opener};
use super::transfer::{CHUNK, Job};
use crate::device::{Context, Device, Queue, QueueProperties, UsmKind};
use crate::error::{Error, Result};
use crate::memory::{Allocation, Keep};
use crate::runtime::{ForkMutex, Pending, exit};
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// One CUDA device, as usmq uses it.
pub(super) struct Card {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) ordinal: usize,
    name: String,
    context: Handle,
    /// Where transfers run. Nothing of others comes between them, so they never stand at a gate.
    pub(super) work: Handle,
    /// What other libraries are told to wait for: it stands at a gate while a transfer of our arrays runs.
    pub(super) shown: Handle,
    /// What other libraries make wait for their work before they hand memory over.
    pub(super) arrivals: Handle,
    line: ForkMutex<Line>,
    lanes: ForkMutex<HashMap<(Context, Device), Arc<Lane>>>,
    /// What copies may still use that nothing could wait for.
    undrained: ForkMutex<Vec<Keep>>,
}

/// Jobs, and what their order asks of streams.
struct Line {
    jobs: Sender<Job>,
    /// The newest gate, and an event after it. The driver may call one host function after another, so a gate that is
    /// reached before one of an earlier job could keep that from being passed: each stream first waits for the gates
    /// before its own.
    newest: Option<(Arc<Gate>, Recorded)>,
    /// The newest gate on `shown`.
    on_shown: Option<Arc<Gate>>,
    /// Memory to be freed once that is open, and what the driver would not take back before.
    unfreed: Vec<usize>,
}

static CARDS: Lazy<ForkMutex<HashMap<usize, Arc<Card>>>> = Lazy::new(ForkMutex::default);

impl Card {
    /// The card with this number.
    pub(super) fn get(ordinal: usize) -> Result<Arc<Self>> {
        // Its thread does not live on in a forked child.
        crate::runtime::ensure_usable()?;
        let (driver, count) = super::cuda_driver::open()?;
        if ordinal >= count {
            return Err(Error::DeviceNotFound {
                asked: format!("cuda:{ordinal}"),
                visible: (0..count).map(|found| format!("cuda:{found}")).collect::<Vec<_>>().join(", "),
            });
        }
        if let Some(card) = CARDS.lock()?.get(&ordinal) {
            return Ok(card.clone());
        }
        let made = Self::new(driver, ordinal)?;
        Ok(CARDS.lock()?.entry(ordinal).or_insert(made).clone())
    }

    pub(super) fn new(driver: Arc<dyn Driver>, ordinal: usize) -> Result<Arc<Self>> {
        let context = driver.primary_context(ordinal)?;
        let (jobs, receiver) = channel();
        std::thread::Builder::new()
            .name(format!("usmq-cuda-{ordinal}"))
            .spawn(move || serve(&receiver))
            .map_err(|error| Error::Interop(format!("no thread for CUDA transfers: {error}")))?;
        Ok(Arc::new(Self {
            ordinal,
            name: driver.name(ordinal)?,
            context,
            work: driver.new_stream(context)?,
            shown: driver.new_stream(context)?,
            arrivals: driver.new_stream(context)?,
            line: ForkMutex::new(Line { jobs, newest: None, on_shown: None, unfreed: Vec::new() }),
            lanes: ForkMutex::default(),
            undrained: ForkMutex::default(),
            driver,
        }))
    }

    pub(super) fn context(&self) -> Handle {
        self.context
    }

    /// Gives a job to the card's thread, and lets the stream of another library wait for its end. After an error the
    /// job is over, too.
    pub(super) fn start(&self, job: Job, stream: Option<(Handle, Handle)>) -> Result<()> {
        let gate: Arc<Gate> = job.gate();
        let mut line = self.line.lock()?;
        if let Err(refused) = line.jobs.send(job) {
            // What the job keeps may be memory of this card, whose end takes the lock.
            drop(line);
            drop(refused);
            return Err(Error::Interop("the thread for CUDA transfers is gone".to_owned()));
        }
        // Only now: a gate before its job's place in the line could hold up an earlier job.
        let held = stream.map_or(Ok(()), |stream| self.hold(&mut line, stream, &gate));
        drop(line);
        held.inspect_err(|_| gate.pass())
    }

    fn hold(&self, line: &mut Line, (context, stream): (Handle, Handle), gate: &Arc<Gate>) -> Result<()> {
        if let Some((_, passed)) = &line.newest {
            self.driver.hold_until(context, stream, passed.raw())?;
        }
        self.driver.hold_at(context, stream, gate.clone())?;
        if stream == self.shown {
            line.on_shown = Some(gate.clone());
        }
        line.newest = Some((gate.clone(), Recorded::after(&self.driver, context, stream)?));
        Ok(())
    }

    /// After a job: lets go of what only closed gates need.
    fn tidy(&self) {
        // Unless the process has nothing left to do but to end.
        if let (Some(_pending), Ok(mut line)) = (Pending::unless_leaving(), self.line.lock()) {
            line.newest.take_if(|(gate, _)| gate.is_open());
            self.free_unfreed(&mut line);
        }
    }

    /// An event after the copies so far.
    pub(super) fn recorded(&self) -> Result<Recorded> {
        Recorded::after(&self.driver, self.context, self.work)
    }

    fn drain(&self) -> Result<()> {
        self.recorded()?.wait()
    }

    /// Before the first copy of a transfer: those of earlier ones that failed may still use the buffers.
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

    /// After a copy that failed: waits for those before it, or where the driver refuses that, too, keeps what they use.
    pub(super) fn drain_or_keep(&self, keep: Option<Keep>) {
        if self.drain().is_err()
            && let Ok(mut undrained) = self.undrained.lock()
        {
            undrained.extend(keep);
        }
    }

    /// Memory that the card's own copies can use at once. Waits only when memory is short.
    pub(super) fn allocate(&self, bytes: usize) -> Result<usize> {
        self.free_unfreed(&mut *self.line.lock()?);
        self.driver.allocate(self.context, self.work, bytes).or_else(|short| {
            let line = self.line.lock()?;
            let gate = line.on_shown.clone().filter(|_| !line.unfreed.is_empty()).ok_or(short)?;
            drop(line);
            gate.pass();
            self.free_unfreed(&mut *self.line.lock()?);
            self.driver.allocate(self.context, self.work, bytes)
        })
    }

    /// Frees memory in the order of what other libraries were told to wait for. What cannot be taken back yet waits for
    /// the next call.
    pub(super) fn free(&self, pointer: usize) {
        // In a forked child there is nothing to free.
        if let Ok(mut line) = self.line.lock() {
            line.unfreed.push(pointer);
            self.free_unfreed(&mut line);
        }
    }

    /// Never behind a closed gate: the driver may give the memory to the next allocation at once, and have the copies
    /// into that wait for the gate, whose job may come after theirs.
    fn free_unfreed(&self, line: &mut Line) {
        if line.on_shown.as_ref().is_none_or(|gate| gate.is_open()) {
            line.unfreed.retain(|pointer| self.driver.free(self.context, self.shown, *pointer).is_err());
        }
    }

    /// The way between this card and a SYCL queue's device and context.
    pub(super) fn lane(&self, queue: &Queue) -> Result<Arc<Lane>> {
        let key = (queue.context().clone(), queue.device().clone());
        if let Some(lane) = self.lanes.lock()?.get(&key) {
            return Ok(lane.clone());
        }
        let made = Arc::new(Lane::new(&self.driver, self.context, queue)?);
        Ok(self.lanes.lock()?.entry(key).or_insert(made).clone())
    }
}

/// `cuda:0 NVIDIA H200`.
impl std::fmt::Display for Card {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{} {}", self.ordinal, self.name)
    }
}

/// A SYCL queue for transfers alone, and two buffers that both runtimes copy to and from by themselves.
pub(super) struct Lane {
    pub(super) queue: Queue,
    pub(super) buffers: [Pinned; 2],
}

impl Lane {
    /// A queue of its own, since its copies must not stand behind work that waits for them.
    fn new(driver: &Arc<dyn Driver>, context: Handle, queue: &Queue) -> Result<Self> {
        let properties = QueueProperties { in_order: true, profiling: false };
        let queue = Queue::create(queue.context(), queue.device(), properties)?;
        let buffer = || Pinned::new(driver, context, Allocation::new(CHUNK, UsmKind::Host, &queue)?);
        let buffers = [buffer()?, buffer()?];
        Ok(Self { queue: queue.make_process_lifetime(), buffers })
    }
}

/// Host USM that the CUDA driver has pinned while it lives.
pub(super) struct Pinned {
    driver: Arc<dyn Driver>,
    context: Handle,
    memory: Allocation,
}

impl Pinned {
    fn new(driver: &Arc<dyn Driver>, context: Handle, memory: Allocation) -> Result<Self> {
        // SAFETY: `drop` unregisters it before the memory goes.
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
    while let Ok(job) = jobs.recv() {
        let (opener, card) = (Opener(job.gate()), job.card());
        job.run();
        drop(opener);
        card.tidy();
    }
}
