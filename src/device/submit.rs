//! The commands of a queue, over raw addresses, and waits for all of them. Higher layers handle ownership and order.

use super::brief::Launch;
use super::in_flight::Submission;
use super::recording::{self, Work};
use super::work_group::OpenLaunch;
use super::{Event, Program, Queue, cross_context, output};
use crate::error::{During, Error, Result};
use crate::ffi;
use crate::runtime::interrupt::{self, uninterruptible};
use crate::runtime::{CountedWait, checks, exit, not_forked, retry};
use crate::trace::{Kind, Label, recorder};
use cxx::UniquePtr;
use smallvec::SmallVec;
use std::cell::Cell;

pub(crate) use super::kernel_args::{KernelArg, KernelArgs};
pub(crate) use crate::ffi::Extents;

/// The events of a wait list, with proxies for those of other contexts.
pub(super) struct WaitList<'a> {
    pub(super) addresses: SmallVec<[usize; 8]>,
    _proxies: SmallVec<[Event; 1]>,
    /// Dropped after the command was added to those in flight.
    pub(super) submission: Submission<'a>,
    _flushes: SmallVec<[Flush; 1]>,
}

/// Flushes a queue of another device when it is dropped: for an event of it, adapter v1 of Level Zero adds a barrier to a batch
/// of that queue, which it does not submit.
struct Flush(Queue);

impl Drop for Flush {
    fn drop(&mut self) {
        self.0.flush();
    }
}

impl Queue {
    /// Prepares a submission. Every command of usmq calls this.
    pub(super) fn wait_list(&self, after: &[Event]) -> Result<WaitList<'_>> {
        checks::submits();
        let (mut addresses, mut proxies) = (SmallVec::new(), SmallVec::<[Event; 1]>::new());
        let mut flushes = SmallVec::new();
        let follows_output = after.iter().any(|event| event.queue() != self && event.expects_output());
        for event in after {
            if event.queue().is_exposed() && !event.is_complete() {
                // A host task that delays the event delays this queue, too.
                self.expose();
            }
            if event.queue().context() == self.context() {
                if event.queue() != self {
                    // libsycl does so for its own events only.
                    event.queue().flush();
                    if event.queue().device() != self.device()
                        && !self.device().capabilities().holds_waiting_commands
                    {
                        flushes.push(Flush(event.queue().clone()));
                    }
                }
                addresses.push(ffi::event_address(event.raw()?));
            } else {
                let event = cross_context::proxy_event(event, self)?;
                addresses.push(ffi::event_address(event.raw()?));
                proxies.push(event);
            }
        }
        let mut submission = self.begin_submission();
        submission.follows_output = follows_output;
        submission.host_events = after.iter().chain(&proxies).filter_map(Event::host).cloned().collect();
        Ok(WaitList { addresses, _proxies: proxies, submission, _flushes: flushes })
    }

    /// Waits while thousands of commands are in flight, so that a program that waits for none has a bounded number of
    /// them. Call it before locks are taken that the work in flight may need. Threads of usmq do not wait: the commands may
    /// need them.
    ///
    /// # Errors
    /// [`Error::Interrupted`] inside [`with_interrupt`](crate::with_interrupt) only.
    pub(crate) fn make_room(&self) -> Result<()> {
        if self.is_full() && !exit::is_helper() { self.wait_for_room() } else { Ok(()) }
    }

    /// Whether [`Queue::make_room`] may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight().is_full()
    }

    #[cold]
    fn wait_for_room(&self) -> Result<()> {
        let Some(first) = self.in_flight().milestone() else { return Ok(()) };
        let first = Event::in_flight(first, self);
        let begun = recorder::begin();
        checks::waits(|| false);
        self.flush();
        let assisted = Cell::new(false);
        let waited = interrupt::poll_until(
            || self.in_flight().milestone().is_none(),
            || {
                if !assisted.get() && !self.is_exposed() {
                    assisted.set(first.assist());
                }
            },
        );
        recorder::waited(begun, self, None);
        waited.map(drop)
    }

    /// Submits a barrier: its event completes after `after`, events of any queues, and after all commands submitted to
    /// this queue so far. Later commands of this queue run after it.
    ///
    /// ```
    /// use usmq::{Queue, QueueProperties, current_queue};
    ///
    /// let queue = current_queue()?;
    /// let loose = queue.with_properties(QueueProperties { in_order: false, ..Default::default() })?;
    /// let first = queue.barrier(&[])?;
    /// loose.barrier(&[first.clone()])?.wait()?;
    /// assert!(first.done()?);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime refuses the command.
    pub fn barrier(&self, after: &[Event]) -> Result<Event> {
        if recording::current().is_none() {
            self.make_room()?;
        }
        self.barrier_now(after)
    }

    /// As [`Queue::barrier`], for callers that hold locks or follow a command of theirs: it does not wait.
    pub(crate) fn barrier_now(&self, after: &[Event]) -> Result<Event> {
        if let Some(event) = recording::offer(self, after, None, || Work::Barrier)? {
            return Ok(event);
        }
        let begun = recorder::begin();
        let list = self.wait_list(after)?;
        // SAFETY: the addresses are those of events that `list` and `after` keep alive during the call.
        let raw =
            unsafe { ffi::queue_barrier(self.raw()?, &list.addresses) }.during("submitting a barrier")?;
        Ok(self.submitted(raw, Some(&list.submission), begun, Label::new(Kind::Barrier, 0), after))
    }

    /// As [`Queue::barrier`], after an event of another library.
    ///
    /// # Safety
    /// `event` is the address of a live `sycl::event` of this process's libsycl. It is copied, not kept.
    pub(crate) unsafe fn barrier_after_foreign(&self, event: usize) -> Result<Event> {
        let begun = recorder::begin();
        checks::submits();
        // The other library may delay its event by a host task.
        self.expose();
        let submission = self.begin_submission();
        // SAFETY: the caller's promise.
        let raw = unsafe { ffi::queue_barrier_after_foreign(self.raw()?, event) };
        let raw = raw.during("submitting a barrier after another library's event")?;
        Ok(self.submitted(raw, Some(&submission), begun, Label::new(Kind::Barrier, 0), &[]))
    }

    /// # Safety
    /// Both ranges of `bytes` stay valid until the event completes, and this queue's device may access them.
    pub(crate) unsafe fn memcpy(
        &self,
        target: usize,
        source: usize,
        bytes: usize,
        after: &[Event],
    ) -> Result<Event> {
        if let Some(event) = recording::offer(self, after, None, || Work::Copy { target, source, bytes })? {
            return Ok(event);
        }
        let begun = recorder::begin();
        let list = self.wait_list(after)?;
        // SAFETY: the caller's promise for the ranges; `list` and `after` keep the events alive during the call.
        let raw = unsafe { ffi::queue_memcpy(self.raw()?, target, source, bytes, &list.addresses) };
        let raw = raw.during("submitting a copy")?;
        Ok(self.submitted(raw, Some(&list.submission), begun, Label::new(Kind::Copy, bytes), after))
    }

    /// # Safety
    /// The range of `bytes` stays valid until the event completes, and this queue's device may access it.
    pub(crate) unsafe fn memset(
        &self,
        target: usize,
        value: u8,
        bytes: usize,
        after: &[Event],
    ) -> Result<Event> {
        if let Some(event) = recording::offer(self, after, None, || Work::Fill { target, value, bytes })? {
            return Ok(event);
        }
        let begun = recorder::begin();
        let list = self.wait_list(after)?;
        // SAFETY: the caller's promise for the range; `list` and `after` keep the events alive during the call.
        let raw = unsafe { ffi::queue_memset(self.raw()?, target, value, bytes, &list.addresses) };
        let raw = raw.during("submitting a fill")?;
        Ok(self.submitted(raw, Some(&list.submission), begun, Label::new(Kind::Fill, bytes), after))
    }

    /// # Safety
    /// The range of `bytes` stays valid until the event completes, and this queue's device may access it.
    pub(crate) unsafe fn prefetch(&self, pointer: usize, bytes: usize, after: &[Event]) -> Result<Event> {
        if let Some(event) = recording::offer(self, after, None, || Work::Prefetch { pointer, bytes })? {
            return Ok(event);
        }
        let begun = recorder::begin();
        let list = self.wait_list(after)?;
        // SAFETY: the caller's promise for the range; `list` and `after` keep the events alive during the
        // call.
        let raw = unsafe { ffi::queue_prefetch(self.raw()?, pointer, bytes, &list.addresses) };
        let raw = raw.during("submitting a prefetch")?;
        Ok(self.submitted(raw, Some(&list.submission), begun, Label::new(Kind::Copy, bytes), after))
    }

    /// # Safety
    /// The range of `bytes` stays valid until the event completes, and this queue's device may access it.
    pub(crate) unsafe fn mem_advise(
        &self,
        pointer: usize,
        bytes: usize,
        advice: i32,
        after: &[Event],
    ) -> Result<Event> {
        if let Some(event) = recording::offer(self, after, None, || Work::Advise { pointer, bytes, advice })?
        {
            return Ok(event);
        }
        let begun = recorder::begin();
        let list = self.wait_list(after)?;
        // SAFETY: the caller's promise for the range; `list` and `after` keep the events alive during the
        // call.
        let raw = unsafe { ffi::queue_mem_advise(self.raw()?, pointer, bytes, advice, &list.addresses) };
        let raw = raw.during("submitting an advice about memory")?;
        Ok(self.submitted(raw, Some(&list.submission), begun, Label::new(Kind::Barrier, 0), after))
    }

    /// # Safety
    /// The arguments match the kernel's parameters, and memory that it accesses stays valid until the event
    /// completes.
    pub(crate) unsafe fn submit(
        &self,
        program: &Program,
        extents: Extents,
        args: &KernelArgs,
        label: Label<'_>,
        after: &[Event],
    ) -> Result<Event> {
        if let Some(event) = recording::offer(self, after, label.name, || Work::Launch {
            program: program.clone(),
            extents,
            args: Box::new(args.clone()),
        })? {
            return Ok(event);
        }
        let begun = recorder::begin();
        let mut list = self.wait_list(after)?;
        list.submission.prints = program.prints();
        let kernel = program.raw()?;
        let (queue, capabilities) = (self.raw()?, self.device().capabilities());
        let open = OpenLaunch { capabilities, kernel, queue, extents: &extents, args };
        let sized = open.sized(program.work_group_sizes());
        // SAFETY: the caller's promise for kernel and arguments; `list` and `after` keep the events alive during the call.
        let raw = unsafe { ffi::queue_launch(queue, kernel, &sized, args, args.more(), &list.addresses) };
        // A launch with dependencies may take any time.
        let launch = after.is_empty().then(|| Launch::new(program, &extents, args)).flatten();
        let raw = raw.during("launching a kernel")?;
        let event = Event::of_launch(raw, self, launch, &list.submission);
        recorder::command(begun, label, &event, after);
        Ok(event)
    }

    /// Writes the output of complete commands, after a wait; see `Output::write`.
    pub(crate) fn write_output(&self, may_block: bool) {
        if output::is_expected_anywhere() {
            self.output().write(self.completed(), may_block);
        }
    }

    /// Blocks until every command submitted so far, by any library, is complete.
    ///
    /// # Errors
    /// [`Error::Sycl`] with the first error that a command or a clean-up reported since the last wait;
    /// [`Error::Interrupted`] inside [`with_interrupt`](crate::with_interrupt) only; [`Error::Capture`] inside a capture
    /// that has recorded commands of this queue.
    pub fn wait(&self) -> Result<()> {
        if let Some(recorder) = recording::current() {
            recorder.check_wait(self)?;
        }
        let begun = recorder::begin();
        let submitted = self.submitted_so_far();
        let waited = self.wait_for_all();
        recorder::waited(begun, self, None);
        if waited.is_ok() {
            self.is_past(submitted);
            self.write_output(true);
        }
        // If the wait fails, the error stored in the queue is the cause.
        waited.or_else(|error| match error {
            Error::Interrupted => Err(error),
            error => self.raise_stored_errors().and(Err(error)),
        })
    }

    fn wait_for_all(&self) -> Result<()> {
        let raw = self.raw()?;
        if !interrupt::is_possible() && !self.is_exposed() && self.permits_wait() {
            let counted = CountedWait::begin()?;
            checks::waits(|| false);
            let waited = ffi::queue_wait(raw).during("waiting for a queue");
            drop(counted);
            self.tidy();
            return waited;
        }
        self.wait_by_events()?;
        self.raise_errors()
    }

    /// Whether a command that usmq has submitted may be in flight.
    #[cfg_attr(not(feature = "python"), expect(dead_code))]
    pub(crate) fn has_commands_in_flight(&self) -> bool {
        !matches!(self.in_flight().is_empty(), Ok(true))
    }

    /// Waits for the commands of usmq in flight, not for those of other libraries. Errors of the commands stay for the next
    /// wait.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    #[cfg_attr(not(feature = "python"), expect(dead_code))]
    pub(crate) fn finish_commands(&self) -> Result<()> {
        // The last one first: when it is over, most of the others are.
        for command in self.in_flight().commands().into_iter().rev() {
            if let Err(Error::Interrupted) = Event::in_flight(command, self).wait_quietly() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    /// As [`Queue::wait`], after an error, before memory is freed that a command may still use. If the
    /// runtime can neither wait nor report an idle queue, it is retried for a while.
    ///
    /// Returns whether the memory may be freed.
    pub(crate) fn drain(&self) -> bool {
        if not_forked().is_err() {
            return false;
        }
        // The caller already has an error to report.
        uninterruptible(|| retry(|| self.wait().is_ok() || self.is_idle().unwrap_or(false)))
    }

    /// If the thread is interruptible, waits until an in-order queue is idle, so that a following wait that
    /// must not be interrupted is short.
    pub(crate) fn wait_interruptible(&self) -> Result<()> {
        if self.in_order() && interrupt::is_possible() { self.wait_by_events() } else { Ok(()) }
    }

    /// Waits for all commands so far by events, which can be queried on every backend and, unlike the queue, without a lock
    /// of libsycl.
    fn wait_by_events(&self) -> Result<()> {
        if matches!(self.is_idle(), Ok(true)) {
            return Ok(());
        }
        self.barrier_unrecorded()?.wait_quietly()
    }

    /// As [`Queue::barrier`], also inside a capture.
    pub(super) fn barrier_unrecorded(&self) -> Result<Event> {
        checks::submits();
        let _own = recorder::begin();
        let submission = self.begin_submission();
        // SAFETY: the list of events is empty.
        let raw = unsafe { ffi::queue_barrier(self.raw()?, &[]) };
        Ok(Event::new(raw.during("submitting a barrier")?, self, Some(&submission)))
    }

    fn submitted(
        &self,
        raw: UniquePtr<ffi::Event>,
        submission: Option<&Submission<'_>>,
        begun: Option<recorder::Begun>,
        label: Label<'_>,
        after: &[Event],
    ) -> Event {
        let event = Event::new(raw, self, submission);
        recorder::command(begun, label, &event, after);
        event
    }
}
