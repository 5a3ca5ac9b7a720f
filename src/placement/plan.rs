//! The steps that move arrays to a queue, as a plan that can be read before it is executed. The decision is
//! pure.

use crate::device::{MemoryKind, Queue, UsmKind};
use crate::error::size;
use std::fmt;

/// The action for one array.
///
/// ```
/// use usmq::{Action, Array, explain};
///
/// let x = Array::zeros::<f32>(3)?;
/// assert_eq!(explain(&[&x], Some(x.queue()))?.steps[0].action, Action::Keep);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Nothing: it is on the target queue already.
    Keep,
    /// Uses the same memory with the target queue, ordered after its last use. Moves no data.
    Rebind,
    /// One copy by the target queue.
    CopyDirect,
    /// A copy in chunks through pinned host memory; both transfers overlap.
    CopyStaged,
    /// A copy of host memory.
    FromHost,
    /// A copy of CUDA memory.
    FromCuda,
    /// A copy to CUDA memory.
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

/// The inputs of the decision, for one array and one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub same_queue: bool,
    pub same_context: bool,
    /// The memory belongs to the target's device.
    pub same_device: bool,
    /// The target's device has access to memory of the array's device.
    pub peer_access: bool,
    /// One command can copy between the two devices.
    pub direct_copies: bool,
    /// The target's device reaches system memory.
    pub system: bool,
    /// The memory belongs to a CPU.
    pub cpu: bool,
    pub kind: MemoryKind,
}

/// The cheapest correct action, and the reason.
pub(super) fn decide(facts: Facts) -> (Action, &'static str) {
    let Facts { same_queue, same_context, same_device, peer_access, direct_copies, system, cpu, kind } =
        facts;
    let host = kind == MemoryKind::Usm(UsmKind::Host);
    match (same_queue, same_context) {
        (true, _) => (Action::Keep, "it is on the target queue"),
        _ if kind == MemoryKind::System && system => {
            (Action::Rebind, "system memory, which the target device reaches in any context")
        }
        _ if kind == MemoryKind::System => {
            (Action::FromHost, "system memory, which the target device does not reach")
        }
        (_, true) if host => (Action::Rebind, "same context, and every device of it can use host memory"),
        (_, true) if same_device => (Action::Rebind, "same context and device"),
        (_, true) if peer_access => (Action::Rebind, "same context, and the devices have peer access"),
        (_, true) if direct_copies => {
            (Action::CopyDirect, "memory of another device of the same context, without peer access")
        }
        (_, true) => {
            (Action::CopyStaged, "memory of another device of the same context, without peer access")
        }
        // In another context, USM host memory is like any host memory.
        (_, false) if host => (Action::CopyDirect, "the contexts differ; the source is host memory"),
        (_, false) if cpu => {
            (Action::CopyDirect, "the contexts differ; the source is memory of a CPU, which is host memory")
        }
        (_, false) => (Action::CopyStaged, "memory of a device in another context"),
    }
}

/// One array's part of a [`Plan`].
///
/// ```
/// let x = usmq::Array::zeros::<f32>(3)?;
/// for step in usmq::explain(&[&x], None)?.steps {
///     println!("{}: {}, {} bytes, {}", step.what, step.action.name(), step.bytes, step.reason);
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// Bytes that are moved.
    pub bytes: u64,
    /// Why no cheaper action is possible.
    pub reason: String,
    /// Description of the array.
    pub what: String,
}

/// The target of a plan.
///
/// ```
/// let x = usmq::Array::zeros::<f32>(3)?;
/// assert!(usmq::explain(&[&x], None)?.target == *x.queue());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanTarget {
    /// USM for the work of a queue.
    Queue(Queue),
    /// Memory of the CUDA device with this number.
    Cuda(usize),
}

impl From<Queue> for PlanTarget {
    fn from(queue: Queue) -> Self {
        Self::Queue(queue)
    }
}

impl PartialEq<Queue> for PlanTarget {
    fn eq(&self, queue: &Queue) -> bool {
        matches!(self, Self::Queue(own) if own == queue)
    }
}

impl fmt::Display for PlanTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => queue.fmt(f),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// The steps that bring arrays together, in the order of the arguments. Prints as a table.
///
/// ```
/// let x = usmq::Array::zeros::<f32>(3)?;
/// let plan = usmq::explain(&[&x], None)?;
/// assert_eq!((plan.target, plan.steps.len()), (x.queue().clone().into(), 1));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The target.
    pub target: PlanTarget,
    /// One per array.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The number of bytes that the whole plan moves.
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

    const HOST: MemoryKind = MemoryKind::Usm(UsmKind::Host);

    /// Every combination of facts.
    fn all() -> impl Iterator<Item = Facts> {
        (0..128u32).flat_map(|bits| {
            let kinds = UsmKind::ALL.into_iter().map(MemoryKind::Usm).chain([MemoryKind::System]);
            kinds.map(move |kind| Facts {
                same_queue: bits & 1 != 0,
                same_context: bits & 2 != 0,
                same_device: bits & 4 != 0,
                peer_access: bits & 8 != 0,
                direct_copies: bits & 16 != 0,
                system: bits & 32 != 0,
                cpu: bits & 64 != 0,
                kind,
            })
        })
    }

    #[test]
    fn an_array_is_kept_only_on_the_same_queue() {
        for facts in all() {
            assert_eq!(decide(facts).0 == Action::Keep, facts.same_queue, "{facts:?}");
        }
    }

    #[test]
    fn memory_is_used_in_place_exactly_if_the_target_can_access_it() {
        for facts in all().filter(|facts| !facts.same_queue) {
            let reachable = match facts.kind {
                MemoryKind::System => facts.system,
                kind => facts.same_context && (kind == HOST || facts.same_device || facts.peer_access),
            };
            assert_eq!(decide(facts).0 == Action::Rebind, reachable, "{facts:?}");
        }
    }

    #[test]
    fn device_memory_is_copied_directly_within_one_context_and_command_or_from_another_context_of_a_cpu() {
        for facts in all().filter(|facts| facts.kind != HOST) {
            let (action, _) = decide(facts);
            if action == Action::CopyDirect {
                assert!(if facts.same_context { facts.direct_copies } else { facts.cpu }, "{facts:?}");
            }
        }
    }

    #[test]
    fn host_memory_is_never_staged() {
        for facts in all().filter(|facts| facts.kind == HOST || facts.kind == MemoryKind::System) {
            assert_ne!(decide(facts).0, Action::CopyStaged, "{facts:?}");
        }
    }

    #[test]
    fn only_system_memory_is_copied_as_host_data() {
        for facts in all().filter(|facts| facts.kind != MemoryKind::System) {
            assert_ne!(decide(facts).0, Action::FromHost, "{facts:?}");
        }
    }
}
