//! A card: its streams, the thread that feeds them, and the pinned buffers of its transfers.

use super::driver::{Driver, Handle};
use super::gate::{Gate, Opener};
use super::transfer::{CHUNK, Job};
use crate::device::{Context, Device, Queue, QueueProperties, UsmKind};
use crate::error::{Error, Result};
use crate::memory::Allocation;
use crate::runtime::exit;
use once_cell::sync::Lazy;
use parking_lot::Mutex;
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
    jobs: Mutex<Sender<Job>>,
    lanes: Mutex<HashMap<(Context, Device), Arc<Lane>>>,
}

static CARDS: Lazy<Mutex<HashMap<usize, Arc<Card>>>> = Lazy::new(Mutex::default);

impl Card {
    /// The card with this number.
    pub(super) fn get(ordinal: usize) -> Result<Arc<Self>> {
        // Its thread does not live on in a forked child.
        crate::runtime::alive()?;
        let (driver, count) = super::nvidia::open()?;
        if ordinal >= count {
            return Err(Error::DeviceNotFound {
                asked: format!("cuda:{ordinal}"),
                visible: (0..count).map(|found| format!("cuda:{found}")).collect::<Vec<_>>().join(", "),
            });
        }
        if let Some(card) = CARDS.lock().get(&ordinal) {
            return Ok(card.clone());
        }
        let made = Self::new(driver, ordinal)?;
        Ok(CARDS.lock().entry(ordinal).or_insert(made).clone())
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
            jobs: Mutex::new(jobs),
            lanes: Mutex::default(),
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
        self.jobs
            .lock()
            .send(job)
            .map_err(|_| Error::Interop("the thread for CUDA transfers is gone".to_owned()))?;
        // Only now: a gate before its job's place in the line could hold up an earlier job.
        match stream {
            Some((context, stream)) => {
                self.driver.hold_at(context, stream, gate.clone()).inspect_err(|_| gate.pass())
            }
            None => Ok(()),
        }
    }

    /// The way between this card and a SYCL queue's device and context.
    pub(super) fn lane(&self, queue: &Queue) -> Result<Arc<Lane>> {
        let key = (queue.context().clone(), queue.device().clone());
        if let Some(lane) = self.lanes.lock().get(&key) {
            return Ok(lane.clone());
        }
        let made = Arc::new(Lane::new(&self.driver, self.context, queue)?);
        Ok(self.lanes.lock().entry(key).or_insert(made).clone())
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
    driver: Arc<dyn Driver>,
    context: Handle,
    pub(super) queue: Queue,
    pub(super) buffers: [Allocation; 2],
}

impl Lane {
    /// A queue of its own, since its copies must not stand behind work that waits for them.
    fn new(driver: &Arc<dyn Driver>, context: Handle, queue: &Queue) -> Result<Self> {
        let properties = QueueProperties { in_order: true, profiling: false };
        let queue = Queue::create(queue.context(), queue.device(), properties)?.keep();
        let buffer = || Allocation::new(CHUNK, UsmKind::Host, &queue);
        let buffers = [buffer()?, buffer()?];
        for buffer in &buffers {
            // SAFETY: the lane owns the buffers, and unregisters them before they go.
            unsafe { driver.register(context, buffer.pointer(), buffer.bytes()) }?;
        }
        Ok(Self { driver: driver.clone(), context, queue, buffers })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for buffer in &self.buffers {
            self.driver.unregister(self.context, buffer.pointer());
        }
    }
}

fn serve(jobs: &Receiver<Job>) {
    exit::help_to_the_end();
    while let Ok(job) = jobs.recv() {
        let _opener = Opener(job.gate());
        job.run();
    }
}
