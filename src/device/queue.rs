//! A queue: the place where commands run, on one device in one context.

use super::insist::insist;
use super::{Context, Device, Event, record};
use crate::error::{During, Error, Result};
use crate::ffi;
use crate::runtime::interrupt::{self, shielded};
use crate::runtime::{self, Held, Lock, Opaque, Pending, Shared};
use once_cell::sync::{Lazy, OnceCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};

/// A SYCL queue. Cheap to clone; equal means the same queue of the runtime.
///
/// Source: SYCL 2020, section 4.6.5.
#[derive(Clone)]
pub struct Queue(Held<Inner>);

/// What a floor above keeps with a queue, made at first use.
pub(crate) type Slot = OnceCell<Opaque>;

type Raw = Arc<runtime::Handle<ffi::Queue>>;

struct Inner {
    raw: Raw,
    id: usize,
    device: Device,
    context: Context,
    properties: QueueProperties,
    /// Whether the runtime's queue keeps timestamps, asked for or not.
    timestamps: bool,
    slots: [Slot; 3],
}

/// What is asked of a queue by name; in-order without profiling unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueProperties {
    /// Commands run in the order of their submission.
    pub in_order: bool,
    /// Events carry device timestamps.
    pub profiling: bool,
}

impl Default for QueueProperties {
    fn default() -> Self {
        Self { in_order: true, profiling: false }
    }
}

impl Queue {
    /// A new queue of the runtime. Users get theirs from the manager's cache.
    pub(crate) fn create(context: &Context, device: &Device, properties: QueueProperties) -> Result<Self> {
        release_idle();
        let QueueProperties { in_order, profiling } = properties;
        let timestamps = profiling || always_timestamps();
        let raw = ffi::queue_new(context.raw()?, device.raw()?, in_order, timestamps)
            .during(&format!("making a queue on {device}"))?;
        let raw = Arc::new(runtime::Handle::new(raw));
        let id = ffi::queue_id(raw.get()?).during("identifying a queue")?;
        let (device, context) = (device.clone(), context.clone());
        let slots = Default::default();
        let inner = Inner { raw, id, device, context, properties, timestamps, slots };
        Ok(Self(Held::new(inner)).registered())
    }

    /// A handle to a queue of another library. It stays that queue: commands of both sides share its order.
    ///
    /// # Safety
    /// `address` is that of a live `sycl::queue` made by the libsycl of this process. It is copied, not kept.
    ///
    /// # Errors
    /// [`Error::Interop`] when its device is not visible to usmq.
    pub(crate) unsafe fn adopt(address: usize) -> Result<Self> {
        super::devices()?;
        release_idle();
        // SAFETY: the caller's promise.
        let raw = unsafe { ffi::queue_copy_from(address) }.during("copying a queue")?;
        let raw = Arc::new(runtime::Handle::new(raw));
        let queue = raw.get()?;
        let profiling = ffi::queue_profiling(queue).during("asking a queue for its properties")?;
        let device = Device::adopt(ffi::queue_device(queue).during("asking a queue for its device")?)?;
        if device.parent().is_none() {
            // Mostly it is the queue's, too, and then one to be kept. Where there is none, the queue has its own.
            let _ = device.default_context();
        }
        let inner = Inner {
            id: ffi::queue_id(queue).during("identifying a queue")?,
            device,
            context: Context::adopt(ffi::queue_context(queue).during("asking a queue for its context")?)?,
            properties: QueueProperties {
                in_order: ffi::queue_in_order(queue).during("asking a queue for its order")?,
                profiling,
            },
            timestamps: profiling,
            slots: Default::default(),
            raw,
        };
        Ok(Self(Held::new(inner)))
    }

    /// A new `sycl::queue` on the C++ heap, a second handle to this queue, for another library.
    /// [`Queue::free_raw`] deletes it.
    ///
    /// # Errors
    /// [`Error::Sycl`] when memory is short.
    pub fn to_raw(&self) -> Result<usize> {
        ffi::queue_copy_to_heap(self.raw()?).during("copying a queue")
    }

    /// Deletes what [`Queue::to_raw`] made.
    ///
    /// # Safety
    /// `address` came from [`Queue::to_raw`] and is freed once.
    pub unsafe fn free_raw(address: usize) {
        if crate::runtime::alive().is_ok() {
            // SAFETY: the caller's promise. A destructor of the runtime that throws has no one to tell here.
            let _ = unsafe { ffi::queue_free_heap(address) };
        }
    }

    /// The same queue for the rest of the process, whose clones cost nothing.
    pub(crate) fn keep(self) -> Self {
        Self(self.registered().0.keep())
    }

    /// The end of the process waits for its work, if it lives then.
    fn registered(self) -> Self {
        // In a forked child nobody waits at the end.
        if let Ok(mut ours) = OURS.lock() {
            let new = Arc::downgrade(&self.0.raw);
            ours.retain(|queue| queue.strong_count() > 0 && !queue.ptr_eq(&new));
            ours.push(new);
        }
        self
    }

    /// One of three places for what belongs to a queue.
    pub(crate) fn slot(&self, number: usize) -> &Slot {
        &self.0.slots[number]
    }

    pub(crate) fn raw(&self) -> Result<&ffi::Queue> {
        self.0.raw.get()
    }

    /// Distinguishes queues while they live.
    pub(crate) fn id(&self) -> usize {
        self.0.id
    }

    /// The device on which commands run.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The context whose USM the queue's kernels may use.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Whether commands run in the order of their submission.
    #[must_use]
    pub fn in_order(&self) -> bool {
        self.0.properties.in_order
    }

    /// Whether events carry device timestamps.
    #[must_use]
    pub fn profiling(&self) -> bool {
        self.0.properties.profiling
    }

    /// Whether events have timestamps, be it for profiles only.
    pub(super) fn keeps_timestamps(&self) -> bool {
        self.0.timestamps
    }

    /// What was asked for when the queue was made.
    pub(crate) fn properties(&self) -> QueueProperties {
        self.0.properties
    }

    /// Blocks until every command submitted so far, by whichever library, is complete.
    ///
    /// # Errors
    /// [`Error::Sycl`] with the first error that a command or a clean-up reported since the last wait;
    /// [`Error::Interrupted`] inside [`with_interrupt`](crate::with_interrupt) only.
    pub fn wait(&self) -> Result<()> {
        let begun = record::begin();
        let raw = self.raw()?;
        let waited =
            self.drained(raw).and_then(|_pending| ffi::queue_wait(raw).during("waiting for a queue"));
        record::waited(begun, self, None);
        // What the queue has stored is the cause of a wait that fails, and comes out now.
        waited.or_else(|error| match error {
            Error::Interrupted => Err(error),
            error => self.raise_stored_errors().and(Err(error)),
        })
    }

    /// As [`Queue::wait`], after an error, for memory that a command may still use and that is about to go away. A
    /// runtime that can neither wait nor say that there is nothing to wait for is asked again for a while.
    ///
    /// Whether the memory may go.
    pub(crate) fn settle(&self) -> bool {
        // There is an error to report already.
        shielded(|| insist(|| self.wait().is_ok() || is_idle(&self.0.raw)))
    }

    /// Where someone may interrupt, waits until an in-order queue has nothing to do: a wait that must not be given up,
    /// for a command that comes next, is short then.
    pub(crate) fn settled(&self) -> Result<()> {
        if self.in_order() && interrupt::is_possible() { self.drained(self.raw()?).map(drop) } else { Ok(()) }
    }

    /// As [`Event::settled`]. A queue cannot be asked for its state on every backend, an event can.
    fn drained(&self, raw: &ffi::Queue) -> Result<Pending> {
        if !interrupt::is_possible() || ffi::queue_idle(raw).unwrap_or(false) {
            return Ok(Pending::for_wait());
        }
        // SAFETY: no events are named.
        let Ok(end) = (unsafe { ffi::queue_barrier(raw, &[]) }) else { return Ok(Pending::for_wait()) };
        let end = Event::new(end, self);
        end.settled(end.raw()?)
    }

    /// Reports what commands or clean-ups stored, without waiting.
    pub(crate) fn raise_errors(&self) -> Result<()> {
        ffi::queue_raise_errors(self.raw()?).during("work on a queue")
    }

    /// As [`Queue::raise_errors`], after a wait that has collected them.
    pub(crate) fn raise_stored_errors(&self) -> Result<()> {
        ffi::queue_raise_stored(self.raw()?).during("work on a queue")
    }

    /// Keeps an error of code that cannot fail (a destructor) for the next wait.
    pub(crate) fn store_error(&self, error: &Error) {
        let text = match error {
            Error::Sycl { code, message, .. } => format!("{code}\u{1f}{message}"),
            other => other.to_string(),
        };
        if let Ok(raw) = self.raw() {
            // Storing fails only for want of memory; there is no one left to tell.
            insist(|| ffi::queue_store_error(raw, &text).is_ok());
        }
    }
}

/// `USMQ_PROFILING=1` has every queue that usmq makes keep timestamps for profiles. On some backends that makes each
/// command dearer, so it is no default.
fn always_timestamps() -> bool {
    static ALWAYS: OnceCell<bool> = OnceCell::new();
    *ALWAYS.get_or_init(|| std::env::var_os("USMQ_PROFILING").is_some_and(|value| value == "1"))
}

/// Queues by key, each made once. One in a context that goes is not kept.
pub(crate) struct Queues<K>(Shared<K, Inner>);

impl<K: Eq + Hash> Queues<K> {
    pub(crate) fn get_or_make(
        &self,
        key: K,
        context: &Context,
        make: impl FnOnce(&K) -> Result<Queue>,
    ) -> Result<Queue> {
        self.0.get_or_make(key, context.is_kept(), |key| Ok(make(key)?.0)).map(Queue)
    }

    pub(crate) fn all(&self) -> Result<impl Iterator<Item = Queue>> {
        Ok(self.0.all()?.into_iter().map(Queue))
    }
}

impl<K> Default for Queues<K> {
    fn default() -> Self {
        Self(Shared::default())
    }
}

/// Queues that usmq made or keeps, as long as there is a handle, be it one that is just being dropped.
static OURS: Lazy<Lock<Vec<Weak<runtime::Handle<ffi::Queue>>>>> = Lazy::new(Lock::default);

/// Waits for all work that is in flight at the end of the process. Errors have no one left to go to.
pub(super) fn finish_work() {
    let ours = OURS.lock().map(|ours| ours.clone()).unwrap_or_default();
    for queue in ours.iter().filter_map(Weak::upgrade) {
        let _ = queue.get().map(ffi::queue_wait);
    }
    for queue in take_busy().into_values() {
        let _ = queue.get().map(ffi::queue_wait);
    }
}

/// Queues that were dropped with work in flight, one handle for each `id`.
static BUSY: Lazy<Lock<HashMap<usize, Raw>>> = Lazy::new(Lock::default);

impl Drop for Inner {
    /// The OpenCL driver for CPUs locks up when the last handle to an out-of-order queue goes inside one of the queue's
    /// own commands, as it does when the queue is released before the driver has let go of them.
    fn drop(&mut self) {
        if !is_idle(&self.raw) {
            keep_busy(self.id, self.raw.clone());
        }
    }
}

/// Another handle to a queue that is kept already is not its last, and may go.
fn keep_busy(id: usize, queue: Raw) {
    // In a forked child none is released.
    let Ok(mut busy) = BUSY.lock() else { return };
    let _other = match busy.entry(id) {
        Entry::Occupied(_) => Some(queue),
        Entry::Vacant(place) => {
            place.insert(queue);
            None
        }
    };
}

fn take_busy() -> HashMap<usize, Raw> {
    BUSY.lock().map(|mut busy| std::mem::take(&mut *busy)).unwrap_or_default()
}

fn is_idle(queue: &runtime::Handle<ffi::Queue>) -> bool {
    // In a forked child, or when the runtime cannot answer, the handle is better kept than released.
    queue.get().is_ok_and(|queue| ffi::queue_idle(queue).unwrap_or(false))
}

/// Releases queues whose work is complete by now. They are asked, and released, outside the lock.
fn release_idle() {
    for (id, queue) in take_busy() {
        if !is_idle(&queue) {
            keep_busy(id, queue);
        }
    }
}

impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Queue {}

impl Hash for Queue {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

/// `queue 0x55… on opencl:cpu:0 AMD EPYC`, with properties that differ from the usual.
impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {:#x} on {}", self.0.id, self.0.device)?;
        match (self.in_order(), self.profiling()) {
            (true, false) => Ok(()),
            (true, true) => f.write_str(" (profiling)"),
            (false, false) => f.write_str(" (out-of-order)"),
            (false, true) => f.write_str(" (out-of-order, profiling)"),
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({self})")
    }
}
