//! A queue: submits commands to one device in one context.

use super::command::Command;
use super::driver_wait;
use super::in_flight::{Added, InFlight, Submission};
use super::output::Output;
use super::{Context, Device, Priority, QueueProperties};
use crate::completion::{self, Progress, Watched, watch};
use crate::error::{During, Error, Result};
use crate::ffi;
use crate::runtime::checks::InDestructor;
use crate::runtime::exit::help_to_the_end;
use crate::runtime::{
    self, AnyInterned, ForkMutex, Interned, Interner, not_forked, retry, without_python_lock,
};
use crate::trace::{DeviceHandle, QueueHandle, TracedQueue};
use cxx::UniquePtr;
use once_cell::sync::{Lazy, OnceCell};
use smallvec::SmallVec;
use std::ffi::c_void;
use std::fmt;
use std::hash::Hash;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A SYCL queue. Cheap to clone; equal handles are the same queue of the runtime.
///
/// ```
/// use usmq::{Array, Queue};
///
/// let queue = Queue::get("cpu")?; // the same queue for each call
/// let x = queue.with(|| Array::full(3, 1f32))?;
/// assert_eq!(x.queue(), &queue);
/// queue.wait()?;
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// Source: SYCL 2020, section 4.6.5.
#[derive(Clone)]
pub struct Queue(Interned<Inner>);

/// A value that a higher layer stores with a queue, made at first use.
pub(crate) type Slot = OnceCell<AnyInterned>;

type Raw = Arc<RawQueue>;

struct RawQueue {
    handle: runtime::Handle<ffi::Queue>,
    /// Whether another library may use the queue, or a host task of another library may delay its commands.
    exposed: AtomicBool,
    /// The number of proxy events for which commands of this queue still wait.
    waits_for_proxies: AtomicUsize,
    /// Whether a thread of usmq waits in the driver for a command of this queue.
    assisted: AtomicBool,
    /// The number of commands that usmq has submitted to an in-order queue, and the number up to which all
    /// are complete.
    submitted: AtomicU64,
    completed: AtomicU64,
    in_flight: InFlight,
    output: Output,
}

impl RawQueue {
    fn new(queue: UniquePtr<ffi::Queue>, exposed: bool) -> Raw {
        Arc::new(Self {
            handle: runtime::Handle::new(queue),
            exposed: AtomicBool::new(exposed),
            waits_for_proxies: AtomicUsize::new(0),
            assisted: AtomicBool::new(false),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            in_flight: InFlight::default(),
            output: Output::default(),
        })
    }

    fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Acquire)
    }

    /// Adds commands of other libraries to the commands in flight.
    fn add_barrier(&self) {
        let Ok(queue) = self.handle.get() else { return };
        // SAFETY: the list of events is empty.
        if let Ok(raw) = unsafe { ffi::queue_barrier(queue, &[]) } {
            let _added = self.in_flight.add(&Arc::new(Command::new(raw, 0, None, self.is_exposed())), None);
        }
    }
}

struct Inner {
    raw: Raw,
    id: usize,
    device: Device,
    context: Context,
    properties: QueueProperties,
    /// Whether the runtime's queue records timestamps, requested or not.
    timestamps: bool,
    slots: [Slot; 4],
}

/// A copy of another library's queue, and what the runtime reports about it.
pub(super) struct Described {
    pub(super) raw: UniquePtr<ffi::Queue>,
    pub(super) device: Device,
    pub(super) context: Context,
    pub(super) properties: QueueProperties,
}

impl Queue {
    /// Creates a queue of the runtime. Users get queues from the manager's cache.
    pub(crate) fn create(context: &Context, device: &Device, properties: QueueProperties) -> Result<Self> {
        let QueueProperties { in_order, profiling, priority } = properties;
        let timestamps = profiling || always_timestamps();
        let raw = ffi::queue_new(context.raw()?, device.raw()?, in_order, timestamps, priority.code())
            .during(&format!("creating a queue on {device}"))?;
        let raw = RawQueue::new(raw, false);
        let id = ffi::queue_id(raw.handle.get()?).during("identifying a queue")?;
        let (device, context) = (device.clone(), context.clone());
        let slots = Default::default();
        let inner = Inner { raw, id, device, context, properties, timestamps, slots };
        KNOWN.get_or_make(id, false, |_| Ok(Interned::new(inner))).map(Self)
    }

    /// The queue with this id, made if it has no handle yet, and whether it was made.
    pub(super) fn interned(id: usize, make: impl FnOnce() -> Result<Described>) -> Result<(Self, bool)> {
        let mut is_new = false;
        let found = KNOWN.get_or_make(id, false, |_| {
            is_new = true;
            let Described { raw, device, context, properties } = make()?;
            let (raw, slots) = (RawQueue::new(raw, true), Default::default());
            let timestamps = properties.profiling;
            Ok(Interned::new(Inner { raw, id, device, context, properties, timestamps, slots }))
        })?;
        Ok((Self(found), is_new))
    }

    /// The queue with this id, if it has a handle.
    #[cfg_attr(not(feature = "python"), expect(dead_code))]
    pub(crate) fn with_id(id: usize) -> Result<Option<Self>> {
        Ok(KNOWN.find(&id)?.map(Self))
    }

    /// A new `sycl::queue` on the C++ heap, a second handle to this queue, for another library.
    /// [`Queue::free_raw`] deletes it.
    ///
    /// # Errors
    /// [`Error::Sycl`] if memory is short, or the runtime refuses a barrier.
    pub fn to_raw(&self) -> Result<NonNull<c_void>> {
        let raw = self.raw()?;
        if self.expose() {
            // libsycl answers from the last command that it knows whether the queue is empty.
            without_python_lock(|| self.barrier_unrecorded())?;
        }
        let address = ffi::queue_copy_to_heap(raw).during("copying a queue")?;
        NonNull::new(address as *mut c_void).ok_or_else(|| Error::interop("the SYCL runtime gave no object"))
    }

    /// Deletes the object that [`Queue::to_raw`] made.
    ///
    /// # Safety
    /// `handle` came from [`Queue::to_raw`] and is freed once.
    pub unsafe fn free_raw(handle: NonNull<c_void>) {
        let address = handle.as_ptr() as usize;
        // The last handle to a queue must not be dropped inside one of its own commands, so the release
        // thread drops it.
        completion::release(move || {
            // SAFETY: the caller's promise. An exception of the runtime's destructor cannot be reported.
            let _ = unsafe { ffi::queue_free_heap(address) };
        });
    }

    /// Marks the queue: from now on another library may submit to it, including host tasks. True the first time.
    pub(super) fn expose(&self) -> bool {
        driver_wait::share(self.device(), self.in_order());
        !self.0.raw.exposed.swap(true, Ordering::AcqRel)
    }

    /// Whether a host task of another library may delay commands of this queue.
    pub(crate) fn is_exposed(&self) -> bool {
        self.0.raw.is_exposed()
    }

    /// The same queue, kept for the life of the process, so that clones cost nothing.
    pub(crate) fn make_process_lifetime(self) -> Self {
        Self(self.0.make_process_lifetime())
    }

    /// Call before polling an event of this queue: in OpenCL a command may not start until a thread waits for
    /// it or flushes the queue (OpenCL 3.0, section 5.15).
    pub(crate) fn flush(&self) {
        if self.context().capabilities().needs_flush {
            // The next wait reports a failed flush.
            let _ = self.raw().map(ffi::queue_flush);
        }
    }

    /// The number of proxy events for which commands of this queue still wait.
    pub(super) fn waits_for_proxies(&self) -> &AtomicUsize {
        &self.0.raw.waits_for_proxies
    }

    /// Whether a thread may wait inside the driver for this queue or one of its events: not while commands wait for another
    /// context, whose command may need the thread's place.
    pub(super) fn permits_wait(&self) -> bool {
        let alone = self.waits_for_proxies().load(Ordering::Acquire) == 0;
        alone && driver_wait::is_permitted(self.device(), self.in_order())
    }

    /// Whether a thread of usmq waits in the driver for a command of this queue.
    pub(super) fn assisted(&self) -> &AtomicBool {
        &self.0.raw.assisted
    }

    /// The number of a command that was just submitted.
    pub(super) fn number(&self) -> u64 {
        self.0.raw.submitted.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records that an in-order command is complete, and therefore all commands before it.
    pub(super) fn is_past(&self, number: u64) {
        self.0.raw.completed.fetch_max(number, Ordering::Relaxed);
    }

    /// The number up to which all commands of an in-order queue are known to be complete.
    pub(super) fn completed(&self) -> u64 {
        self.0.raw.completed.load(Ordering::Relaxed)
    }

    /// The number of commands that usmq has submitted to an in-order queue.
    pub(super) fn submitted_so_far(&self) -> u64 {
        self.0.raw.submitted.load(Ordering::Relaxed)
    }

    pub(super) fn output(&self) -> &Output {
        &self.0.raw.output
    }

    /// Whether all commands before this one are known to be complete.
    pub(super) fn has_come_to(&self, number: u64) -> bool {
        self.in_order() && self.completed() + 1 >= number
    }

    /// Call before a submission.
    pub(super) fn begin_submission(&self) -> Submission<'_> {
        self.0.raw.in_flight.begin()
    }

    /// Adds a command that was just submitted.
    pub(super) fn add_in_flight(&self, command: &Arc<Command>, submission: Option<&Submission<'_>>) {
        match self.0.raw.in_flight.add(command, submission) {
            Added::Some => {}
            Added::First => remember(&self.0.raw),
            Added::Many => completion::watch(Box::new(Burst(self.0.raw.clone()))),
        }
    }

    /// Frees the events of complete commands, after a wait.
    pub(super) fn tidy(&self) {
        self.0.raw.in_flight.tidy();
    }

    pub(super) fn in_flight(&self) -> &InFlight {
        &self.0.raw.in_flight
    }

    /// One of four slots for values that belong to a queue: a memory pool for each USM kind, and the queues of timers.
    pub(crate) fn slot(&self, number: usize) -> &Slot {
        &self.0.slots[number]
    }

    pub(crate) fn raw(&self) -> Result<&ffi::Queue> {
        self.0.raw.handle.get()
    }

    /// Identifies the queue while it lives.
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

    /// The hint for the scheduler of the device.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.0.properties.priority
    }

    /// Whether events have timestamps, requested or for profiles only.
    pub(super) fn keeps_timestamps(&self) -> bool {
        self.0.timestamps
    }

    /// The properties requested when the queue was made.
    pub(crate) fn properties(&self) -> QueueProperties {
        self.0.properties
    }

    /// Whether all commands are known to be complete. Commands of other libraries are not known.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        // Before a lock that a thread of the parent may have held.
        not_forked()?;
        let submitted = self.submitted_so_far();
        let is_idle = !self.is_exposed() && self.0.raw.in_flight.is_empty()?;
        if is_idle {
            self.is_past(submitted);
        }
        Ok(is_idle)
    }

    /// Raises stored errors of commands or clean-ups, without waiting.
    pub(crate) fn raise_errors(&self) -> Result<()> {
        ffi::queue_raise_errors(self.raw()?).during("work on a queue")
    }

    /// As [`Queue::raise_errors`], after a wait that has collected them.
    pub(crate) fn raise_stored_errors(&self) -> Result<()> {
        ffi::queue_raise_stored(self.raw()?).during("work on a queue")
    }

    /// Stores an error of code that cannot fail, such as a destructor, for the next wait.
    pub(crate) fn store_error(&self, error: &Error) {
        let text = match error {
            Error::Sycl { code, message, .. } => format!("{code}\u{1f}{message}"),
            other => other.to_string(),
        };
        if let Ok(raw) = self.raw() {
            // Storing fails only if memory is short; then the error cannot be reported.
            retry(|| ffi::queue_store_error(raw, &text).is_ok());
        }
    }
}

/// With `USMQ_PROFILING=1` every queue that usmq creates records timestamps for profiles. Off by default,
/// since it makes each command slower on some backends.
fn always_timestamps() -> bool {
    static ALWAYS: OnceCell<bool> = OnceCell::new();
    *ALWAYS.get_or_init(|| std::env::var_os("USMQ_PROFILING").is_some_and(|value| value == "1"))
}

/// Queues by key, each created once. A queue of a context that may be freed is not kept alive.
pub(crate) struct Queues<K>(Interner<K, Inner>);

impl<K: Eq + Hash> Queues<K> {
    pub(crate) fn get_or_make(
        &self,
        key: K,
        context: &Context,
        make: impl FnOnce(&K) -> Result<Queue>,
    ) -> Result<Queue> {
        self.0.get_or_make(key, context.is_process_lifetime(), |key| Ok(make(key)?.0)).map(Queue)
    }
}

impl<K> Default for Queues<K> {
    fn default() -> Self {
        Self(Interner::default())
    }
}

/// Every queue with a handle, by its id: another library's queue is found again at its next import. A dropped queue keeps
/// its id from others until the runtime has released it.
static KNOWN: Lazy<Interner<usize, Inner>> = Lazy::new(Interner::default);

/// Queues with a command of usmq, while a handle exists, even one that is being dropped.
static OURS: Lazy<ForkMutex<Vec<Weak<RawQueue>>>> = Lazy::new(ForkMutex::default);

/// Waits for all work in flight on usmq's queues when the process exits, including work of other libraries,
/// since the OpenCL CPU driver crashes if it is unloaded while commands run. Errors cannot be reported any
/// more.
fn finish_work() {
    let ours = OURS.lock().map(|ours| ours.clone()).unwrap_or_default();
    let ours: Vec<_> = ours.iter().filter_map(Weak::upgrade).collect();
    // On another thread: the thread-local objects of the exiting one are destroyed, and the adapter v2 of Level Zero keeps
    // its wait lists in one. If the system starts no thread, usmq does not wait for work of other libraries here.
    if ours.iter().any(|queue| queue.is_exposed()) {
        let exposed = ours.clone();
        let add = move || {
            help_to_the_end();
            exposed.iter().filter(|queue| queue.is_exposed()).for_each(|queue| queue.add_barrier());
        };
        let _ = std::thread::Builder::new()
            .name("usmq-exit".to_owned())
            .spawn(add)
            .map(std::thread::JoinHandle::join);
    }
    for queue in ours {
        let begun = Instant::now();
        let pause =
            |waited: Duration| (waited / 32).clamp(Duration::from_micros(20), Duration::from_millis(10));
        // A host task that needs a thread or interpreter that no longer exists never completes; libsycl
        // handles its exit.
        while begun.elapsed() < AT_EXIT {
            match queue.in_flight.is_empty() {
                Ok(false) => std::thread::sleep(pause(begun.elapsed())),
                Err(_) if !queue.is_exposed() => {
                    let _ = queue.handle.get().map(ffi::queue_join);
                    break;
                }
                _ => break,
            }
        }
    }
}

/// The maximum time that the process exit waits for a queue.
const AT_EXIT: Duration = Duration::from_secs(60);

/// A queue whose last usmq handle was dropped. It is released after its commands: a driver may release the last of them, and
/// with it the queue, in the thread that executes it.
struct Closing {
    queue: Raw,
    since: Instant,
}

impl Watched for Closing {
    fn poll(&mut self) -> Progress {
        let is_empty = self.queue.in_flight.is_empty();
        // If the runtime cannot answer, leaking the handle is safer than releasing it.
        Progress::complete_if(is_empty.unwrap_or_else(|_| self.since.elapsed() > AT_EXIT))
    }

    fn finish(self: Box<Self>) {
        if self.queue.in_flight.is_empty().is_err() {
            std::mem::forget(self);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _mark = InDestructor::enter();
        watch(Box::new(Closing { queue: self.raw.clone(), since: Instant::now() }));
    }
}

/// Frees the events of many commands after the last one, also without a wait and without another use of the queue.
struct Burst(Raw);

impl Watched for Burst {
    fn poll(&mut self) -> Progress {
        Progress::complete_if(self.0.in_flight.is_over())
    }

    fn finish(self: Box<Self>) {
        if self.0.in_flight.tidy_now() {
            completion::watch(self);
        }
    }
}

/// Registers the queue, so that the process exit waits for its work.
fn remember(queue: &Raw) {
    runtime::exit::finish_with(finish_work);
    // A forked child does not wait at exit.
    if let Ok(mut ours) = OURS.lock() {
        // When it is full only, so that the cost of a queue does not grow with their number.
        if ours.len() == ours.capacity() {
            ours.retain(|queue| queue.strong_count() > 0);
            let room = ours.len().max(8);
            ours.reserve(room);
        }
        ours.push(Arc::downgrade(queue));
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

impl TracedQueue for Inner {
    fn id(&self) -> usize {
        self.id
    }

    fn in_order(&self) -> bool {
        self.properties.in_order
    }

    fn device(&self) -> DeviceHandle {
        (&self.device).into()
    }

    fn keeps_timestamps(&self) -> bool {
        self.timestamps
    }
}

impl From<&Queue> for QueueHandle {
    fn from(queue: &Queue) -> Self {
        match queue.0.clone() {
            Interned::Process(queue) => Self::Process(queue),
            Interned::Counted(queue) => Self::Counted(queue),
        }
    }
}

/// `queue 0x55… on opencl:cpu:0 AMD EPYC`, with properties that differ from the default.
impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {:#x} on {}", self.id, self.device)?;
        let QueueProperties { in_order, profiling, priority } = self.properties;
        let mut special = SmallVec::<[&str; 3]>::new();
        special.extend((!in_order).then_some("out-of-order"));
        special.extend(profiling.then_some("profiling"));
        match priority {
            Priority::Normal => {}
            Priority::High => special.push("high priority"),
            Priority::Low => special.push("low priority"),
        }
        if special.is_empty() { Ok(()) } else { write!(f, " ({})", special.join(", ")) }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({self})")
    }
}
