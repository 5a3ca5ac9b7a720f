//! An event: a submitted command and its state.

use super::assist::assist_wait;
use super::brief::Launch;
use super::command::Command;
use super::host_event::HostEvent;
use super::in_flight::Submission;
use super::{Queue, driver_wait};
use crate::error::{During, Error, Result};
use crate::ffi::{self, EventStatus};
use crate::runtime::interrupt::{self, poll_until};
use crate::runtime::{CountedWait, checks};
use crate::trace::{Completion, QueueHandle, recorder};
use cxx::UniquePtr;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// A command submitted to a queue. Cheap to clone. Dropping it neither waits nor cancels.
///
/// ```
/// use usmq::{Array, Elementwise};
///
/// // SAFETY: work-item i touches element i of x only.
/// let add = unsafe { Elementwise::new("float *x", "x[i] += 1") }?;
/// let x = Array::zeros::<f32>(3)?;
/// let event = add.launch((&x,))?; // returns at once
/// event.wait()?;
/// assert!(event.done()? && event.queue() == x.queue());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// Source: SYCL 2020, section 4.6.6.
#[derive(Clone)]
pub struct Event {
    command: Arc<Command>,
    queue: Queue,
    /// Set if a host thread completes it: then it does not follow the order of its queue.
    host: Option<Arc<HostEvent>>,
}

/// Marks the number of a command that a capture has recorded; other numbers count commands.
const RECORDED: u64 = 1 << 63;

/// How long a wait polls a running command before it enters the driver, where waking up takes as long.
const ALMOST_DONE: Duration = Duration::from_micros(20);

/// The state of a polled event is queried again after this many failures less one: a host task may still hold it up.
const TRIES: u32 = 10;

/// If a command that is only polled takes longer, a thread waits for it in the driver.
const SHORT: Duration = Duration::from_micros(100);

/// Where a thread has waited for a command. In the runtime, a wait collects the errors of the queue; only host tasks of
/// other libraries report errors otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    InRuntime,
    Polled,
}

/// When a command was submitted, started and ended, in nanoseconds of the device's clock.
///
/// ```
/// use usmq::{Array, Elementwise, Queue};
///
/// // SAFETY: work-item i touches element i of x only.
/// let add = unsafe { Elementwise::new("float *x", "x[i] += 1") }?;
/// let queue = Queue::builder("cpu").profiling().build()?;
/// let x = Array::builder::<f32>(3).queue(&queue).zeroed().build()?;
/// let times = add.launch((&x,))?.timestamps()?;
/// assert!(times.submit <= times.start && times.start <= times.end);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamps {
    /// `command_submit` of SYCL.
    pub submit: u64,
    /// `command_start` of SYCL.
    pub start: u64,
    /// `command_end` of SYCL.
    pub end: u64,
}

impl Event {
    pub(super) fn new(
        raw: UniquePtr<ffi::Event>,
        queue: &Queue,
        submission: Option<&Submission<'_>>,
    ) -> Self {
        Self::ordered(raw, queue, None, submission)
    }

    pub(super) fn of_launch(
        raw: UniquePtr<ffi::Event>,
        queue: &Queue,
        launch: Option<Launch>,
        submission: &Submission<'_>,
    ) -> Self {
        Self::ordered(raw, queue, launch, Some(submission))
    }

    /// An event in the queue's context, but outside the queue's order.
    pub(super) fn of_host(raw: UniquePtr<ffi::Event>, queue: &Queue, host: Arc<HostEvent>) -> Self {
        let command = Arc::new(Command::new(raw, 0, None, queue.is_exposed()));
        Self { command, queue: queue.clone(), host: Some(host) }
    }

    /// The native event behind it, if a host thread completes it.
    pub(super) fn host(&self) -> Option<&Arc<HostEvent>> {
        self.host.as_ref()
    }

    /// The event of a command that was found among those in flight on `queue`.
    pub(super) fn in_flight(command: Arc<Command>, queue: &Queue) -> Self {
        Self { command, queue: queue.clone(), host: None }
    }

    /// Adds it to the commands in flight on another queue, which submitted a part of its work.
    pub(super) fn is_in_flight_on(&self, queue: &Queue) {
        if self.command.prints {
            queue.output().add(0);
        }
        queue.add_in_flight(&self.command, None);
    }

    /// The name of a command that a capture has recorded: nothing runs behind it, and every wait for it is an error.
    /// `capture` fits in 31 bits.
    pub(crate) fn recorded(queue: &Queue, capture: u32, node: u32) -> Self {
        let number = RECORDED | u64::from(capture) << 32 | u64::from(node);
        let command = Arc::new(Command::new(UniquePtr::null(), number, None, false));
        Self { command, queue: queue.clone(), host: None }
    }

    /// The capture that recorded the command, and its number there.
    pub(crate) fn recorded_as(&self) -> Option<(u32, u32)> {
        let number = self.command.number;
        (number & RECORDED != 0).then_some((((number & !RECORDED) >> 32) as u32, number as u32))
    }

    /// The error of a command that only a capture knows.
    #[cold]
    fn without_object(&self, error: Error) -> Error {
        if self.recorded_as().is_none() {
            return error;
        }
        Error::Capture {
            call: "a wait for this event, or a query of its state,".to_owned(),
            found: "its command was recorded by a capture, which has not run it".to_owned(),
            fix: "use the event that replay() returns".to_owned(),
        }
    }

    fn ordered(
        raw: UniquePtr<ffi::Event>,
        queue: &Queue,
        launch: Option<Launch>,
        submission: Option<&Submission<'_>>,
    ) -> Self {
        let number = if queue.in_order() { queue.number() } else { 0 };
        let mut command = Command::new(raw, number, launch, queue.is_exposed());
        command.prints = submission.is_some_and(|submission| submission.prints);
        if command.prints || submission.is_some_and(|submission| submission.follows_output) {
            queue.output().add(number);
        }
        let command = Arc::new(command);
        if let Some(submission) = submission {
            submission.has_submitted(&command);
        }
        queue.add_in_flight(&command, submission);
        Self { command, queue: queue.clone(), host: None }
    }

    /// The in-order queue whose order it follows, if any.
    pub(crate) fn in_order_queue(&self) -> Option<&Queue> {
        (self.host.is_none() && self.queue.in_order()).then_some(&self.queue)
    }

    pub(crate) fn raw(&self) -> Result<&ffi::Event> {
        self.command.raw.get().map_err(|error| self.without_object(error))
    }

    /// The address of the `sycl::event`, for another library; valid while this event or a clone of it lives.
    pub(crate) fn address(&self) -> Result<*mut std::ffi::c_void> {
        driver_wait::share(self.queue.device(), self.queue.in_order());
        if let Some(host) = &self.host {
            host.is_waited_for_by_others();
        }
        // A queue that waits for it does not.
        self.queue.flush();
        Ok(ffi::event_address(self.raw()?) as *mut std::ffi::c_void)
    }

    /// The queue on which the command runs.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether the command is complete or has failed, so that [`Event::wait`] returns at once; never blocks.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime cannot answer.
    pub fn done(&self) -> Result<bool> {
        let is_over = !matches!(self.status()?, EventStatus::Submitted | EventStatus::Running);
        if !is_over && self.command.is_first_query() {
            // A caller that only asks would ask forever.
            self.queue.flush();
        }
        Ok(is_over)
    }

    /// Whether the command is known to be complete: not if it has failed.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.status(), Ok(EventStatus::Complete))
    }

    /// Takes no lock, not even one of libsycl.
    fn status(&self) -> Result<EventStatus> {
        let status = self.command.status().map_err(|error| self.without_object(error))?;
        if status == EventStatus::Complete {
            self.queue.is_past(self.command.number);
        }
        Ok(status)
    }

    fn note_done(&self) {
        self.command.note_done();
        self.queue.is_past(self.command.number);
    }

    /// `None` while the command is in flight, else its result. Never blocks.
    pub(crate) fn result(&self) -> Result<Option<()>> {
        match self.status()? {
            EventStatus::Submitted | EventStatus::Running => Ok(None),
            EventStatus::Complete => Ok(Some(())),
            // The runtime's own wait reports the reason.
            _ => ffi::event_wait(self.raw()?).during("waiting for an event").map(Some),
        }
    }

    /// Blocks until the command is complete.
    ///
    /// # Errors
    /// [`Error::Sycl`] with the error that the command, or an earlier one on its queue, reported;
    /// [`Error::Interrupted`] inside [`with_interrupt`](crate::with_interrupt) only.
    pub fn wait(&self) -> Result<()> {
        if self.command.is_done() {
            self.write_output();
            return self.queue.raise_errors();
        }
        let begun = recorder::begin();
        let waited = self.wait_until_over();
        recorder::waited(begun, &self.queue, Some(self.record()));
        self.write_output();
        match waited {
            Ok(Waited::InRuntime) if !self.queue.is_exposed() => self.queue.raise_stored_errors(),
            Ok(_) => self.queue.raise_errors(),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            // The error stored in the queue is the cause.
            Err(error) => self.queue.raise_stored_errors().and(Err(error)),
        }
    }

    /// Writes the output of the command and of those before it, once they are complete.
    pub(crate) fn write_output(&self) {
        self.queue.write_output(self.command.prints);
    }

    /// Whether a wait may write output of kernels, and block meanwhile.
    pub(crate) fn expects_output(&self) -> bool {
        self.queue.output().is_expected()
    }

    /// As [`Event::wait`], but leaves the errors stored in the queue for the next wait of a user.
    pub(crate) fn wait_quietly(&self) -> Result<()> {
        self.wait_until_over().map(drop)
    }

    fn wait_until_over(&self) -> Result<Waited> {
        if self.command.is_done() {
            return Ok(Waited::Polled);
        }
        let _own = recorder::begin();
        let raw = self.raw()?;
        // With earlier commands on the queue, the time does not describe the launch.
        let launch = self.command.launch.filter(|_| self.queue.has_come_to(self.command.number));
        let begun = launch.map(|_| Instant::now());
        let counted = self.before_libsycl(launch.is_some_and(Launch::was_brief))?;
        // If it was found complete, the driver may not know yet that it is, and would wait.
        let waited = if self.command.is_done() { Waited::Polled } else { Waited::InRuntime };
        if waited == Waited::InRuntime {
            checks::waits(|| self.may_be_held_up());
            ffi::event_wait(raw).during("waiting for an event")?;
            self.note_done();
        }
        drop(counted);
        self.queue.tidy();
        if let (Some(launch), Some(begun)) = (launch, begun) {
            launch.took(begun.elapsed());
        }
        Ok(waited)
    }

    /// Whether a host task of another library may delay the command.
    pub(crate) fn may_be_delayed(&self) -> bool {
        // If the runtime cannot answer, the command counts as delayed.
        self.command.exposed && matches!(self.status(), Ok(EventStatus::Submitted) | Err(_))
    }

    /// Whether a command of `queue` must not wait for this one by way of a thread of the host: the runtime holds this one
    /// back, behind a host task of another library, and that queue's engine stops at a command that waits, so that what the
    /// host task needs could come behind it.
    pub(crate) fn is_held_back_for(&self, queue: &Queue) -> bool {
        let is_with_driver = |raw| ffi::event_is_with_driver(raw).during("querying an event");
        self.command.exposed
            && !queue.device().capabilities().holds_waiting_commands
            && !self.is_complete()
            && !self.raw().and_then(is_with_driver).unwrap_or(false)
    }

    /// Blocks while the command is held back for `queue`. The host task that holds it back needs no thread that submits, and
    /// the caller does not hold Python's lock.
    pub(super) fn wait_while_held_back_for(&self, queue: &Queue) -> Result<()> {
        if !self.is_held_back_for(queue) {
            return Ok(());
        }
        checks::waits(|| false);
        interrupt::uninterruptible(|| poll_until(|| !self.is_held_back_for(queue), || ())).map(drop)
    }

    /// Whether the device executes the command, or has executed it.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.status(), Ok(EventStatus::Submitted))
    }

    /// Whether a host task of another library may precede this command. libsycl waits for host tasks under
    /// its graph lock. Submissions of other threads need that lock, and the host task may wait for those.
    fn may_be_held_up(&self) -> bool {
        self.command.exposed && matches!(self.status(), Ok(EventStatus::Submitted))
    }

    /// Returns when a wait inside libsycl blocks no other thread: when no host task can delay the command, or
    /// when the device executes it, and a wait inside the driver is permitted; or when the command is over. An
    /// interruptible wait returns only after the command, since waits inside libsycl cannot be interrupted. A wait for a
    /// brief launch is not interruptible.
    fn before_libsycl(&self, brief: bool) -> Result<CountedWait> {
        let interruptible = interrupt::is_possible() && !brief;
        let exposed = self.command.exposed;
        if !interruptible && !exposed {
            self.poll_while_running();
            if self.queue.permits_wait() {
                return CountedWait::begin();
            }
        }
        self.queue.flush();
        let mut status = EventStatus::Submitted;
        let mut tries = TRIES;
        let (running, assisted) = (Cell::new(false), Cell::new(false));
        poll_until(
            || {
                status = self.status().unwrap_or_else(|_| {
                    tries = tries.saturating_sub(1);
                    // A query that fails again is left to the runtime's own wait, which reports the error.
                    if tries == 0 { EventStatus::Unknown } else { EventStatus::Submitted }
                });
                running.set(status == EventStatus::Running);
                if !matches!(status, EventStatus::Submitted | EventStatus::Running) {
                    return true;
                }
                !interruptible && (running.get() || !exposed) && self.queue.permits_wait()
            },
            || {
                if interruptible && !assisted.get() && (!exposed || running.get()) {
                    assisted.set(self.assist());
                }
            },
        )
    }

    /// Starts a wait for the command inside the driver on another thread; see [`assist_wait`].
    pub(super) fn assist(&self) -> bool {
        let event = self.clone();
        assist_wait(&self.queue, move || event.join())
    }

    /// Waits inside the driver for a thread that polls.
    fn join(&self) {
        // The process is ending: no wait is needed.
        if let (Some(_counted), Ok(raw)) = (CountedWait::unless_leaving(), self.raw()) {
            checks::waits(|| self.may_be_held_up());
            // The thread that needs the result reports errors.
            let _ = ffi::event_join(raw);
        }
    }

    /// If no worker has begun the command, the waiting thread executes it, so entering the driver loses
    /// nothing. If a worker executes it, a thread that enters the driver for the last microseconds falls
    /// asleep there.
    fn poll_while_running(&self) {
        let is_running = || matches!(self.status(), Ok(EventStatus::Running));
        if !is_running() {
            return;
        }
        let begun = Instant::now();
        while begun.elapsed() < ALMOST_DONE && is_running() {
            std::hint::spin_loop();
        }
    }

    /// The times of submission, start and end. Waits for the end.
    ///
    /// # Errors
    /// [`Error::Value`] if the queue was made without `profiling`.
    pub fn timestamps(&self) -> Result<Timestamps> {
        if !self.queue.profiling() {
            return Err(Error::value(format!(
                "{} records no timestamps; create a queue with profiling",
                self.queue
            )));
        }
        self.wait()?;
        let [submit, start, end] =
            ffi::event_profiling(self.raw()?).during("querying the timestamps of an event")?;
        Ok(Timestamps { submit, start, end })
    }
}

/// Starts at most one wait in the driver for an event that the signal thread polls.
pub(super) struct Assistance {
    since: Instant,
    assisted: bool,
}

impl Assistance {
    /// For an event that is polled from now on.
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), assisted: false }
    }

    /// Call at each poll that finds the event in flight.
    pub(super) fn offer(&mut self, event: &Event) {
        // A thread that waits for a command that a worker executes takes the place of one that would execute
        // another. One that waits for a command behind a host task blocks other threads.
        let waits = !event.command.exposed && !event.has_begun();
        if !self.assisted && self.since.elapsed() > SHORT && waits {
            self.assisted = event.assist();
        }
    }
}

impl Completion for Event {
    fn queue_handle(&self) -> QueueHandle {
        (&self.queue).into()
    }

    fn record(&self) -> &AtomicU64 {
        &self.command.record
    }

    fn is_over(&self) -> bool {
        self.done().unwrap_or(true)
    }

    fn recorded_timestamps(&self) -> Option<[u64; 3]> {
        if !self.queue.keeps_timestamps() {
            return None;
        }
        ffi::event_profiling(self.raw().ok()?).ok()
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.command, &other.command)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_complete() { "complete" } else { "pending" };
        write!(f, "Event({state}, {})", self.queue)
    }
}
