//! Commands of one context that are submitted together, each time with other pointers: as a prepared list, or as an
//! executable SYCL graph.

use super::brief::Launch;
use super::in_flight::Submission;
use super::recording::Work;
use super::work_group::OpenLaunch;
use super::{Context, Device, Event, Queue};
use crate::error::{During, Error, Result};
use crate::ffi::{self, CommandKind, KernelArgKind, ListPlace, PlainCommand};
use crate::runtime::Handle;
use crate::trace::{Kind, Label, recorder};
use smallvec::SmallVec;
use std::sync::Arc;

/// A command of a list. Its pointers are numbers.
pub(crate) struct Listed<'a> {
    pub queue: &'a Queue,
    pub work: &'a Work,
    /// The commands before it that its queue does not order, by number.
    pub after: &'a [u32],
    /// Whether it comes after no other command of the list.
    pub is_first: bool,
}

/// The prepared list.
pub(crate) struct CommandList {
    raw: Handle<ffi::CommandList>,
    /// The queue of the event that ends a submission.
    queue: Queue,
    /// All queues.
    queues: Vec<Queue>,
    /// The number of commands.
    commands: usize,
    /// Whether a kernel of it may print.
    prints: bool,
    name: Arc<str>,
}

impl CommandList {
    /// `ends`: the commands, besides the last one, that no other follows. The last command is one of those, too.
    pub(crate) fn new(commands: &[Listed<'_>], ends: &[u32], queue: &Queue) -> Result<Self> {
        const DURING: &str = "preparing the commands of a capture";
        let mut list = ffi::list_new().during(DURING)?;
        for Listed { queue: on, work, after, is_first } in commands {
            let queue = on.raw()?;
            let place = ListPlace { after, is_first: *is_first };
            let plain = |kind, target: &usize, source: &usize, bytes: &usize, value| PlainCommand {
                kind,
                target: *target,
                source: *source,
                bytes: *bytes,
                value,
            };
            let command = match work {
                Work::Launch { program, extents, args } => {
                    let kernel = program.raw()?;
                    let capabilities = on.device().capabilities();
                    let sized = OpenLaunch { capabilities, kernel, queue, extents, args }.sized_now();
                    ffi::list_add_launch(list.pin_mut(), queue, kernel, &sized, args, args.more(), place)
                        .during(DURING)?;
                    continue;
                }
                Work::Barrier => plain(CommandKind::Barrier, &0, &0, &0, 0),
                Work::Copy { target, source, bytes } => plain(CommandKind::Copy, target, source, bytes, 0),
                Work::Fill { target, value, bytes } => {
                    plain(CommandKind::Fill, target, &0, bytes, i32::from(*value))
                }
                Work::Prefetch { pointer, bytes } => plain(CommandKind::Prefetch, pointer, &0, bytes, 0),
                Work::Advise { pointer, bytes, advice } => {
                    plain(CommandKind::Advise, pointer, &0, bytes, *advice)
                }
            };
            ffi::list_add(list.pin_mut(), queue, &command, place).during(DURING)?;
        }
        ffi::list_end(list.pin_mut(), ends).during(DURING)?;
        let mut queues: Vec<Queue> = Vec::new();
        for command in commands {
            if !queues.contains(command.queue) {
                queues.push(command.queue.clone());
            }
        }
        let prints = commands
            .iter()
            .any(|command| matches!(command.work, Work::Launch { program, .. } if program.prints()));
        let (raw, queue, name) = (Handle::new(list), queue.clone(), Arc::from("replay"));
        Ok(Self { raw, queue, queues, commands: commands.len(), prints, name })
    }

    /// Submits the commands after the events. One thread at a time may call this. If a command fails, `sent` gets an event
    /// that completes after the commands that were submitted.
    ///
    /// # Safety
    /// The memory at the addresses is as each command needs it until the event completes, and the arguments match the
    /// kernels.
    pub(crate) unsafe fn submit(
        &self,
        addresses: &[usize],
        after: &[Event],
        sent: impl FnOnce(Event),
    ) -> Result<Event> {
        let begun = recorder::begin();
        let mut list = self.queue.wait_list(after)?;
        list.submission.prints = self.prints;
        list.submission.commands = self.commands;
        if self.queues.iter().any(Queue::is_exposed) {
            // The commands follow each other, so a host task that delays one queue delays the others.
            for queue in &self.queues {
                queue.expose();
            }
        }
        let mut failure = String::new();
        let others = Others::begin(&self.queues, &self.queue);
        // SAFETY: the caller's promise for the memory; `list` and `after` keep the events alive during the call.
        let raw = unsafe { ffi::list_submit(self.raw.get()?, addresses, &list.addresses, &mut failure) };
        let raw = raw.during("replaying the commands of a capture")?;
        let event = Event::of_launch(raw, &self.queue, replay(self, after), &list.submission);
        others.add(&event);
        recorder::command(begun, self.label(), &event, after);
        if failure.is_empty() {
            return Ok(event);
        }
        sent(event);
        Err(Error::from_text("replaying the commands of a capture", &failure))
    }

    fn label(&self) -> Label<'_> {
        Label { kind: Kind::Kernel, name: Some(&self.name), bytes: 0 }
    }
}

/// The commands of a list as an executable graph, with fixed pointers.
pub(crate) struct SyclGraph {
    raw: Handle<ffi::SyclGraph>,
    queue: Queue,
    queues: Vec<Queue>,
    commands: usize,
    prints: bool,
    name: Arc<str>,
}

impl SyclGraph {
    /// `edges`: pairs of commands, by number, of which the second follows the first.
    pub(crate) fn new(
        list: &CommandList,
        (context, device): (&Context, &Device),
        addresses: &[usize],
        edges: &[u32],
    ) -> Result<Self> {
        let raw = ffi::graph_new(list.raw.get()?, context.raw()?, device.raw()?, addresses, edges);
        let raw = raw.during("making a SYCL graph of a capture")?;
        Ok(Self {
            raw: Handle::new(raw),
            queue: list.queue.clone(),
            queues: list.queues.clone(),
            commands: list.commands,
            prints: list.prints,
            name: Arc::from("replay of a SYCL graph"),
        })
    }

    /// Submits the graph after the events. One thread at a time may call this.
    ///
    /// # Safety
    /// As [`CommandList::submit`].
    pub(crate) unsafe fn submit(&self, after: &[Event]) -> Result<Event> {
        let begun = recorder::begin();
        let mut list = self.queue.wait_list(after)?;
        list.submission.prints = self.prints;
        list.submission.commands = self.commands;
        // SAFETY: the caller's promise for the memory; `list` and `after` keep the events alive during the call.
        let raw = unsafe { ffi::graph_submit(self.raw.get()?, self.queue.raw()?, &list.addresses) };
        let raw = raw.during("replaying a SYCL graph")?;
        let event = Event::of_launch(raw, &self.queue, replay(self, after), &list.submission);
        for other in self.queues.iter().filter(|other| **other != self.queue) {
            // A wait for this queue covers the graph, as if its commands had been submitted there.
            if other.barrier_now(std::slice::from_ref(&event)).is_err() {
                event.is_in_flight_on(other);
            }
        }
        recorder::command(
            begun,
            Label { kind: Kind::Kernel, name: Some(&self.name), bytes: 0 },
            &event,
            after,
        );
        Ok(event)
    }
}

/// Submissions of a list to the queues besides that of its event: a wait for one of them covers its commands.
struct Others<'a>(SmallVec<[(&'a Queue, Submission<'a>); 2]>);

impl<'a> Others<'a> {
    fn begin(queues: &'a [Queue], queue: &Queue) -> Self {
        let others = queues.iter().filter(|other| *other != queue);
        Self(others.map(|other| (other, other.begin_submission())).collect())
    }

    fn add(self, event: &Event) {
        self.0.iter().for_each(|(queue, _)| event.is_in_flight_on(queue));
    }
}

/// Identifies a replay for waits. With dependencies it may take any time.
fn replay<T>(commands: &T, after: &[Event]) -> Option<Launch> {
    if after.is_empty() { Launch::of_replay(std::ptr::from_ref(commands).addr()) } else { None }
}

/// Calls `each` with every pointer of a command.
pub(crate) fn each_pointer(work: &mut Work, mut each: impl FnMut(&mut usize) -> Result<()>) -> Result<()> {
    match work {
        Work::Barrier => Ok(()),
        Work::Copy { target, source, .. } => each(target).and_then(|()| each(source)),
        Work::Fill { target, .. } => each(target),
        Work::Prefetch { pointer, .. } | Work::Advise { pointer, .. } => each(pointer),
        Work::Launch { args, .. } => args
            .iter_mut()
            .filter(|arg| arg.kind == KernelArgKind::Pointer)
            .try_for_each(|arg| each(&mut arg.value)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::user_event::UserEvent;
    use super::super::{QueueProperties, discovery};
    use super::*;

    #[test]
    fn an_exposed_queue_may_delay_a_list_that_ends_on_another_queue() {
        const NAME: &str =
            "device::command_list::tests::an_exposed_queue_may_delay_a_list_that_ends_on_another_queue";
        if !crate::runtime::is_own_process(NAME) {
            return;
        }
        let devices = discovery::devices().unwrap();
        let context = devices[0].default_context().unwrap();
        let create = |properties: QueueProperties| Queue::create(&context, &devices[0], properties).unwrap();
        let last = create(QueueProperties::default());
        let exposed = create(QueueProperties { in_order: false, ..QueueProperties::default() });
        let commands = [
            Listed { queue: &exposed, work: &Work::Barrier, after: &[], is_first: true },
            Listed { queue: &last, work: &Work::Barrier, after: &[0], is_first: false },
        ];
        let list = CommandList::new(&commands, &[], &last).unwrap();
        let Some((gate, event)) = UserEvent::new(&last).unwrap() else { return };
        let submit = || {
            // SAFETY: barriers use no memory.
            unsafe { list.submit(&[], std::slice::from_ref(&event), drop) }.unwrap()
        };
        let before = submit();
        // SAFETY: made by `to_raw`, and freed once.
        unsafe { Queue::free_raw(exposed.to_raw().unwrap()) };
        let after = submit();
        assert!(!before.may_be_delayed() && after.may_be_delayed());
        gate.signal();
        after.wait().unwrap();
    }
}
