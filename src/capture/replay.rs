//! Runs the commands of a graph, as one command for the access logs of their memory.

use super::graph::{Bound, Graph, Inner, Prepared};
use super::inputs::{check_replacement, log_ids, share_log};
use crate::array::Array;
use crate::device::{Event, Queue};
use crate::error::{Error, Result};
use crate::memory::{Access, Allocation, ordered_as_one, refuse};
use crate::trace::tell::hold_back;
use smallvec::SmallVec;
use std::sync::Arc;

impl Graph {
    /// Runs the commands, and returns an event that completes after all of them. Returns immediately. The replay follows
    /// all earlier work on its arrays, also other replays, and later work on them follows it, from any thread.
    ///
    /// # Errors
    /// [`Error::Sycl`] if the runtime refuses a command; [`Error::HostView`] beside a view of an array that the commands
    /// use; [`Error::Capture`] inside a capture.
    pub fn replay(&self) -> Result<Event> {
        self.replay_with(&[])
    }

    /// The queue of the event of a replay.
    #[cfg_attr(not(feature = "python"), expect(dead_code))]
    pub(crate) fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// As [`Graph::replay`], with other arrays as inputs: of the same shape, strides and dtype, in USM of the same kind,
    /// context and device; host USM may be of any device of the context. Inputs without an array keep that of the capture.
    ///
    /// # Errors
    /// As [`Graph::replay`]; [`Error::Value`] for an unknown name, another layout, a read-only array that the commands
    /// write, or memory that the commands also use otherwise; [`Error::Type`] for another dtype; [`Error::Placement`] for
    /// other memory.
    pub fn replay_with(&self, inputs: &[(&str, &Array)]) -> Result<Event> {
        crate::runtime::not_forked()?;
        refuse(|| "replay()".to_owned())?;
        let inner = &*self.0;
        if inputs.is_empty() {
            let operands: SmallVec<[(&Arc<Allocation>, Access); 8]> =
                inner.memory.iter().map(|memory| (&memory.allocation, memory.access)).collect();
            return inner.submit(&operands, &inner.addresses);
        }
        let replaced = inner.replacements(inputs)?;
        inner.check_overlaps(&replaced)?;
        let mut addresses = inner.addresses.clone();
        for (address, owner) in addresses.iter_mut().zip(&inner.owners) {
            if let Some((bound, array)) = &replaced[*owner] {
                let first = bound.input.array.address();
                *address = array.address().wrapping_add(address.wrapping_sub(first));
            }
        }
        let memory = inner.memory.iter().zip(&replaced);
        let operands: SmallVec<[(&Arc<Allocation>, Access); 8]> = memory
            .map(|(memory, replaced)| {
                let allocation = replaced.map_or(&memory.allocation, |(_, array)| array.allocation());
                (allocation, memory.access)
            })
            .collect();
        inner.submit(&operands, &addresses)
    }
}

/// For each memory of a graph, the input that names it, and its array in a replay, if that is another one.
type Replaced<'a> = Vec<Option<(&'a Bound, &'a Array)>>;

impl Inner {
    fn replacements<'a>(&'a self, inputs: &[(&str, &'a Array)]) -> Result<Replaced<'a>> {
        let mut replaced: Replaced<'a> = vec![None; self.memory.len()];
        for (number, (name, array)) in inputs.iter().enumerate() {
            let Some(bound) = self.inputs.iter().find(|bound| *bound.input.name == **name) else {
                let names: Vec<_> = self.inputs.iter().map(|bound| &*bound.input.name).collect();
                return Err(Error::value(format!(
                    "the graph has no input {name:?}; its inputs are {names:?}, as given to capture"
                )));
            };
            if inputs[..number].iter().any(|(earlier, _)| earlier == name) {
                return Err(Error::value(format!("input {name:?} is given twice; give each input once")));
            }
            check_replacement(&bound.input, array, bound.access, &bound.queues)?;
            for memory in &bound.memory {
                replaced[*memory] = Some((bound, array));
            }
        }
        Ok(replaced)
    }

    /// The order inside of the graph is that of the capture, so an exchanged input must not bring memory together that
    /// was separate there.
    fn check_overlaps(&self, replaced: &Replaced<'_>) -> Result<()> {
        let all: Vec<_> = self
            .memory
            .iter()
            .zip(replaced)
            .map(|(memory, replaced)| {
                replaced.map_or_else(|| memory.logs.clone(), |(_, array)| log_ids(array.allocation()))
            })
            .collect();
        for (number, replacement) in replaced.iter().enumerate() {
            let Some((bound, array)) = replacement else { continue };
            for (other, logs) in all.iter().enumerate() {
                let writes = self.memory[number].access.writes() || self.memory[other].access.writes();
                if !bound.memory.contains(&other) && writes && share_log(logs, &all[number]) {
                    return Err(Error::value(format!(
                        "input {:?} cannot be {array}: other commands of the graph use the same allocation, and one of them \
                         writes, so the replay would need another order; pass a copy(), or capture again with these arrays",
                        bound.input.name
                    )));
                }
            }
        }
        Ok(())
    }

    /// Submits all parts.
    fn submit(&self, operands: &[(&Arc<Allocation>, Access)], addresses: &[usize]) -> Result<Event> {
        self.queue.make_room()?;
        let _held = hold_back();
        let _turn = self.turn.lock();
        let mut events = SmallVec::new();
        let result = ordered_as_one(&self.queue, self.is_alone, operands, |after, sent| {
            let result = self.submit_parts(addresses, after, &mut events);
            result.inspect_err(|_| sent.extend(events.iter().cloned()))
        });
        let mut replays = self.replays.lock();
        replays.retain(|earlier| !earlier.is_complete());
        match &result {
            Ok(event) => replays.push(event.clone()),
            // The commands before the failed one run, and use the objects of the graph.
            Err(_) => replays.extend(events),
        }
        result
    }

    /// Submits the parts, and returns an event that completes after all. `events` gets one for each part, and that of the
    /// submitted commands of a part that fails.
    fn submit_parts(
        &self,
        addresses: &[usize],
        after: &[Event],
        events: &mut SmallVec<[Event; 2]>,
    ) -> Result<Event> {
        let are_recorded = addresses == &self.addresses[..];
        for part in &self.parts {
            let before: SmallVec<[Event; 4]> =
                part.part.before.iter().map(|number| events[*number].clone()).collect();
            let before = if before.is_empty() { after } else { &before[..] };
            // SAFETY: the launches of the capture promised that their kernels use the arrays as declared. The memory at
            // the addresses has the layout of that in the capture, and its logs keep it until the event completes.
            let event = unsafe { part.submit(addresses, are_recorded, before, events) }?;
            events.push(event);
        }
        match self.ends[..] {
            [end] => Ok(events[end].clone()),
            _ => {
                let ends: Vec<Event> = self.ends.iter().map(|end| events[*end].clone()).collect();
                self.queue.barrier_now(&ends)
            }
        }
    }
}

impl Prepared {
    /// Whether a host task of another library may delay the part. libsycl might wait for it inside the submission of a
    /// graph, and a list is submitted without such a wait.
    fn may_be_delayed(&self, after: &[Event]) -> bool {
        self.queue.is_exposed() || after.iter().any(Event::may_be_delayed)
    }

    /// # Safety
    /// As [`crate::device::command_list::CommandList::submit`].
    unsafe fn submit(
        &self,
        addresses: &[usize],
        are_recorded: bool,
        after: &[Event],
        events: &mut SmallVec<[Event; 2]>,
    ) -> Result<Event> {
        match &self.graph {
            // SAFETY: the caller's promise; `Inner::turn` is held.
            Some(graph) if are_recorded && !self.may_be_delayed(after) => unsafe { graph.submit(after) },
            // SAFETY: the caller's promise; `Inner::turn` is held.
            _ => unsafe { self.list.submit(addresses, after, |event| events.push(event)) },
        }
    }
}
