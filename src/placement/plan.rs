//! What it takes to bring arrays to a queue: a plan that can be read before it is run. The decision is pure.

use crate::device::{Queue, UsmKind};
use crate::error::size;
use std::fmt;

/// What happens to one array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Nothing: it is on the target queue already.
    Keep,
    /// The same memory with the target queue; ordered after its last use. Moves nothing, whatever its size.
    Rebind,
    /// One copy by the target queue.
    CopyDirect,
    /// A copy in chunks through pinned host memory, both hops overlapped.
    CopyStaged,
    /// A copy of host memory.
    FromHost,
    /// A copy of CUDA memory, in chunks through pinned host memory, both hops overlapped.
    FromCuda,
    /// A copy to CUDA memory, the same way.
    ToCuda,
}

impl Action {
    /// `keep`, `rebind`, `copy_direct`, `copy_staged`, `from_host`, `from_cuda` or `to_cuda`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Rebind => "rebind",
            Self::CopyDirect => "copy_direct",
            Self::CopyStaged => "copy_staged",
            Self::FromHost => "from_host",
            Self::FromCuda => "from_cuda",
            Self::ToCuda => "to_cuda",
        }
    }
}

/// What the decision depends on, for one array and one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub same_queue: bool,
    pub same_context: bool,
    /// The memory belongs to the target's device.
    pub same_device: bool,
    /// The target's device may use device memory of the array's device.
    pub peer_access: bool,
    /// The memory's device or the target's is a part of another.
    pub sub_device: bool,
    pub kind: UsmKind,
}

/// The cheapest action that is right, and why it must be that one.
pub(super) fn decide(facts: Facts) -> (Action, &'static str) {
    let Facts { same_queue, same_context, same_device, peer_access, sub_device, kind } = facts;
    let on_device = kind == UsmKind::Device;
    match (same_queue, same_context) {
        (true, _) => (Action::Keep, "it is on the target queue"),
        (_, true) if !on_device => {
            (Action::Rebind, "same context, and the memory is reachable from every device of it")
        }
        (_, true) if same_device => (Action::Rebind, "same context and device"),
        (_, true) if peer_access => (Action::Rebind, "same context, and the devices have peer access"),
        // A direct copy between parts of one device hangs in the OpenCL adapter's completion callback.
        (_, true) if sub_device => (Action::CopyStaged, "device memory of another part of the device"),
        (_, true) => (Action::CopyDirect, "device memory of another device of the same context"),
        // To another context, memory that the host can read is plain host memory.
        (_, false) if !on_device => (Action::CopyDirect, "the contexts differ; the host can read the source"),
        (_, false) => (Action::CopyStaged, "device memory of another context"),
    }
}

/// One array's part of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What happens.
    pub action: Action,
    /// Bytes that are moved.
    pub bytes: u64,
    /// Why nothing cheaper will do.
    pub reason: String,
    /// The array, for people.
    pub what: String,
}

/// Where a plan brings arrays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// USM for the work of a queue.
    Queue(Queue),
    /// Memory of the CUDA device with this number.
    Cuda(usize),
}

impl From<Queue> for Place {
    fn from(queue: Queue) -> Self {
        Self::Queue(queue)
    }
}

impl PartialEq<Queue> for Place {
    fn eq(&self, queue: &Queue) -> bool {
        matches!(self, Self::Queue(own) if own == queue)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => queue.fmt(f),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// What it takes to bring arrays together, in the order of the arguments. Printed as a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Where they go.
    pub target: Place,
    /// One per array.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Bytes that the whole plan moves.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.bytes).sum()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 4]> = self
            .steps
            .iter()
            .enumerate()
            .map(|(position, step)| {
                [
                    format!("{position}  {}", step.what),
                    step.action.name().to_owned(),
                    size(step.bytes),
                    step.reason.clone(),
                ]
            })
            .collect();
        let title = ["   array", "action", "moves", "why"];
        let width = |column: usize| {
            rows.iter().map(|row| row[column].chars().count()).chain([title[column].len()]).max().unwrap_or(0)
        };
        let (a, b, c) = (width(0), width(1), width(2));
        writeln!(f, "to {}", self.target)?;
        writeln!(f, "{:a$}  {:b$}  {:>c$}  {}", title[0], title[1], title[2], title[3])?;
        for [what, action, bytes, reason] in &rows {
            writeln!(f, "{what:a$}  {action:b$}  {bytes:>c$}  {reason}")?;
        }
        write!(f, "{} moved in all", size(self.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of facts.
    fn all() -> impl Iterator<Item = Facts> {
        (0..32u32).flat_map(|bits| {
            UsmKind::ALL.into_iter().map(move |kind| Facts {
                same_queue: bits & 1 != 0,
                same_context: bits & 2 != 0,
                same_device: bits & 4 != 0,
                peer_access: bits & 8 != 0,
                sub_device: bits & 16 != 0,
                kind,
            })
        })
    }

    #[test]
    fn the_same_queue_keeps_and_nothing_else_does() {
        for facts in all() {
            assert_eq!(decide(facts).0 == Action::Keep, facts.same_queue, "{facts:?}");
        }
    }

    #[test]
    fn memory_is_used_in_place_exactly_where_the_target_can_reach_it() {
        for facts in all().filter(|facts| !facts.same_queue) {
            let reachable = facts.same_context
                && (facts.kind != UsmKind::Device || facts.same_device || facts.peer_access);
            assert_eq!(decide(facts).0 == Action::Rebind, reachable, "{facts:?}");
        }
    }

    #[test]
    fn device_memory_never_crosses_contexts_or_sub_devices_directly() {
        for facts in all().filter(|facts| facts.kind == UsmKind::Device) {
            let (action, _) = decide(facts);
            if action == Action::CopyDirect {
                assert!(facts.same_context && !facts.sub_device, "{facts:?}");
            }
        }
    }

    #[test]
    fn host_readable_memory_is_never_staged() {
        for facts in all().filter(|facts| facts.kind != UsmKind::Device) {
            assert_ne!(decide(facts).0, Action::CopyStaged, "{facts:?}");
        }
    }
}
