//! What a capture records: the commands of a scope, the memory that they use, and the order between them.
//!
//! A capture has an access log of its own for each allocation, by the rule of `access_log.rs`, so the logs of direct
//! work, which other threads use at the same time, do not change before a replay.

use super::access_log::{Access, AccessLog};
use crate::device::recording::{self, Recorder, Work};
use crate::device::{Event, Queue};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A recorded command.
pub(crate) struct Node {
    pub queue: Queue,
    pub work: Work,
    pub name: Option<Arc<str>>,
    /// The commands that it follows, by number, in ascending order.
    pub after: Vec<u32>,
    /// The memory that it uses, by number.
    pub uses: SmallVec<[usize; 6]>,
}

/// An allocation that the commands use.
pub(crate) struct Used {
    /// The allocation, kept alive.
    pub memory: Arc<dyn Any + Send + Sync>,
    /// Its addresses.
    pub range: Range<usize>,
    /// The union of all accesses.
    pub access: Access,
    /// The addresses that commands use, as far as known.
    pub touched: Range<usize>,
}

/// An operand of a command, as the capture sees it.
pub(super) struct Operand {
    pub memory: Arc<dyn Any + Send + Sync>,
    pub range: Range<usize>,
    pub access: Access,
}

#[derive(Default)]
struct State {
    nodes: Vec<Node>,
    used: Vec<Used>,
    /// The number of each allocation, by its address.
    numbers: HashMap<usize, usize>,
    /// The addresses that commands use of each allocation, by its address.
    touched: HashMap<usize, Range<usize>>,
    logs: HashMap<usize, AccessLog<Event>>,
    /// The last command of each in-order queue; of other queues, the commands since their last barrier, and it.
    last: HashMap<usize, Vec<u32>>,
    /// The operands of the command that is being recorded.
    operands: SmallVec<[usize; 6]>,
    is_closed: bool,
}

/// The commands of one capture.
pub(crate) struct Recording {
    id: u32,
    /// Held for a command with its logs: two threads may share a scope, as a copied context in Python.
    turn: Mutex<()>,
    state: Mutex<State>,
}

impl Recording {
    pub(crate) fn new() -> Arc<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1);
        Arc::new(Self { id, turn: Mutex::default(), state: Mutex::default() })
    }

    /// Ends the capture, and returns its commands and their memory. Later commands are errors.
    pub(crate) fn close(&self) -> (Vec<Node>, Vec<Used>) {
        let _turn = self.turn.lock();
        let mut state = self.state.lock();
        let (nodes, mut used) = (std::mem::take(&mut state.nodes), std::mem::take(&mut state.used));
        for used in &mut used {
            if let Some(range) = state.touched.remove(&Arc::as_ptr(&used.memory).addr()) {
                used.touched = range;
            }
        }
        *state = State { is_closed: true, ..State::default() };
        (nodes, used)
    }

    /// Records the commands of `submit`, which gets the commands that it follows, as [`super::ordered`] does.
    pub(super) fn ordered(
        &self,
        own: Option<usize>,
        operands: Vec<Operand>,
        logs: &[(usize, Access)],
        submit: impl FnOnce(&[Event], &mut Vec<Event>) -> Result<Event>,
    ) -> Result<Event> {
        let _turn = self.turn.lock();
        let mut wait_for = SmallVec::new();
        {
            let mut state = self.state.lock();
            for (log, access) in logs {
                state.logs.entry(*log).or_default().dependencies(*access, own, &mut wait_for);
            }
            state.operands = operands.into_iter().map(|operand| state.number_of(operand)).collect();
        }
        let mut sent = Vec::new();
        let event = submit(&wait_for, &mut sent);
        let mut state = self.state.lock();
        state.operands.clear();
        let event = event?;
        for (log, access) in logs {
            state.logs.entry(*log).or_default().record(*access, event.clone());
        }
        Ok(event)
    }

    /// Whether a command of the capture uses the memory at this address, and whether one writes it.
    fn access_to(&self, memory: usize) -> Option<Access> {
        let state = self.state.lock();
        state.numbers.get(&memory).map(|number| state.used[*number].access)
    }

    fn touch(&self, memory: usize, range: Range<usize>) {
        self.state.lock().touch(memory, range);
    }
}

impl State {
    fn number_of(&mut self, operand: Operand) -> usize {
        let Operand { memory, range, access } = operand;
        let address = Arc::as_ptr(&memory).addr();
        if let Some(number) = self.numbers.get(&address) {
            let used = &mut self.used[*number];
            used.access = used.access.and(access);
            return *number;
        }
        self.used.push(Used { memory, range, access, touched: 0..0 });
        self.numbers.insert(address, self.used.len() - 1);
        self.used.len() - 1
    }

    fn touch(&mut self, memory: usize, range: Range<usize>) {
        let all = self.touched.entry(memory).or_insert_with(|| range.clone());
        *all = all.start.min(range.start)..all.end.max(range.end);
    }

    /// Records the addresses that a copy or fill uses; the arrays of launches are recorded by [`touch`].
    fn touch_by(&mut self, work: &Work) {
        let ranges: SmallVec<[(usize, usize); 2]> = match work {
            Work::Copy { target, source, bytes } => {
                [(*target, *bytes), (*source, *bytes)].into_iter().collect()
            }
            Work::Fill { target, bytes, .. } => [(*target, *bytes)].into_iter().collect(),
            Work::Prefetch { pointer, bytes } | Work::Advise { pointer, bytes, .. } => {
                [(*pointer, *bytes)].into_iter().collect()
            }
            Work::Barrier | Work::Launch { .. } => SmallVec::new(),
        };
        for (start, bytes) in ranges {
            for number in self.operands.clone() {
                if self.used[number].range.contains(&start) {
                    self.touch(Arc::as_ptr(&self.used[number].memory).addr(), start..start + bytes);
                }
            }
        }
    }
}

impl Recorder for Recording {
    fn command(&self, queue: &Queue, work: Work, name: Option<&Arc<str>>, after: &[Event]) -> Result<Event> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(refusal(
                "a command",
                "its capture has ended, or was discarded",
                "submit it inside the capture, or after it on a thread that has left the capture",
            ));
        }
        let mut follows = Vec::with_capacity(after.len() + 1);
        for event in after {
            match event.recorded_as() {
                Some((id, node)) if id == self.id => follows.push(node),
                _ => {
                    return Err(refusal(
                        "a command after an event from outside the capture",
                        "a replay cannot wait for that event again",
                        "wait for the event before the capture",
                    ));
                }
            }
        }
        let number = state.nodes.len() as u32;
        let is_barrier = matches!(work, Work::Barrier);
        let last = state.last.entry(queue.id()).or_default();
        if queue.in_order() || is_barrier {
            follows.append(last);
        } else {
            // Later commands of the queue follow its last barrier, which is the first entry.
            follows.extend(last.first());
        }
        if !queue.in_order() && !is_barrier && last.is_empty() {
            // No barrier yet: an entry that names no command would be wrong, so the list begins with this one.
            last.push(NO_BARRIER);
        }
        last.push(number);
        follows.retain(|node| *node != NO_BARRIER);
        follows.sort_unstable();
        follows.dedup();
        state.touch_by(&work);
        let uses = state.operands.clone();
        state.nodes.push(Node { queue: queue.clone(), work, name: name.cloned(), after: follows, uses });
        Ok(Event::recorded(queue, self.id, number))
    }

    fn check_wait(&self, queue: &Queue) -> Result<()> {
        if self.state.lock().last.contains_key(&queue.id()) {
            return Err(refusal(
                &format!("a wait for {queue}"),
                "the capture has recorded commands of this queue, which run at replay",
                "wait before the capture, or for the event of a replay",
            ));
        }
        Ok(())
    }
}

/// Stands for the last barrier of an out-of-order queue without one.
const NO_BARRIER: u32 = u32::MAX;

/// The capture that this thread records into.
pub(super) fn current() -> Option<Arc<Recording>> {
    let recorder: Arc<dyn Any + Send + Sync> = recording::current()?;
    recorder.downcast().ok()
}

/// Whether this thread captures.
#[inline]
pub(crate) fn is_capturing() -> bool {
    recording::current().is_some()
}

#[cold]
fn refusal(call: &str, found: &str, fix: &str) -> Error {
    Error::Capture { call: call.to_owned(), found: found.to_owned(), fix: fix.to_owned() }
}

/// An error inside a capture, for a call that needs results of commands at once.
pub(crate) fn refuse(call: impl FnOnce() -> String) -> Result<()> {
    if !is_capturing() {
        return Ok(());
    }
    Err(refusal(
        &call(),
        "this is inside a capture, whose commands run at replay",
        "move it before or after the capture",
    ))
}

/// An error inside a capture that writes the memory, for its use outside of the recorded commands.
pub(super) fn refuse_if_written(memory: usize, call: impl FnOnce() -> String) -> Result<()> {
    let Some(recording) = current() else { return Ok(()) };
    if !recording.access_to(memory).is_some_and(Access::writes) {
        return Ok(());
    }
    Err(refusal(
        &call(),
        "the capture has recorded commands that write this array, which run at replay",
        "move it before the capture or after a replay",
    ))
}

/// Records the addresses that a launch may use.
pub(super) fn touch(memory: usize, range: Range<usize>) {
    if let Some(recording) = current() {
        recording.touch(memory, range);
    }
}
