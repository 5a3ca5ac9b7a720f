//! The arrays whose memory a replay may exchange.

use crate::array::Array;
use crate::device::{MemoryKind, Queue, UsmKind};
use crate::error::{Error, Result, spelled};
use crate::memory::{Access, Allocation, Logged};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// A named input.
#[derive(Clone)]
pub(super) struct Input {
    pub name: Arc<str>,
    pub array: Array,
}

/// The logs of an allocation, by address: two allocations that share one may be the same memory.
pub(super) type LogIds = SmallVec<[usize; 1]>;

pub(super) fn log_ids(allocation: &Allocation) -> LogIds {
    let mut ids = LogIds::new();
    allocation.each_log(&mut |log| ids.push(std::ptr::from_ref(log).addr()));
    ids
}

pub(super) fn share_log(one: &LogIds, other: &LogIds) -> bool {
    one.iter().any(|id| other.contains(id))
}

/// The addresses of the elements; empty without elements.
pub(super) fn elements(array: &Array) -> Range<usize> {
    array.addresses().unwrap_or(0..0)
}

/// Checks the inputs of a new capture.
pub(super) fn begin(inputs: &[(&str, &Array)]) -> Result<Vec<Input>> {
    let mut all: Vec<Input> = Vec::with_capacity(inputs.len());
    for (name, array) in inputs {
        for earlier in &all {
            if *earlier.name == **name {
                return Err(Error::value(format!("two inputs have the name {name:?}; give each its own")));
            }
            if share_log(&log_ids(earlier.array.allocation()), &log_ids(array.allocation())) {
                return Err(Error::value(format!(
                    "inputs {:?} and {name:?} share memory, so a replay could not exchange one of them; pass the whole \
                     array as one input, or a copy()",
                    earlier.name
                )));
            }
        }
        all.push(Input { name: (*name).into(), array: (*array).clone() });
    }
    Ok(all)
}

/// Checks that an array can take the place of an input, whose memory the commands access so, on these queues.
pub(super) fn check_replacement(
    input: &Input,
    array: &Array,
    access: Option<Access>,
    queues: &[Queue],
) -> Result<()> {
    let Input { name, array: recorded } = input;
    if array.dtype() != recorded.dtype() {
        let (expected, found) = (recorded.dtype(), array.dtype());
        let fix = spelled("astype()", "Array::cast");
        let message =
            format!("input {name:?} takes elements of {expected}, not {found}; convert the array with {fix}");
        return Err(Error::type_mismatch(expected, found, message));
    }
    let steps = |array: &Array| -> SmallVec<[isize; 4]> {
        let axes = array.shape().iter().zip(array.strides());
        axes.filter(|(extent, _)| **extent > 1).map(|(_, stride)| *stride).collect()
    };
    if array.shape() != recorded.shape() || (array.size() > 0 && steps(array) != steps(recorded)) {
        return Err(Error::value(format!(
            "input {name:?} takes shape {:?} with strides {:?}, not shape {:?} with strides {:?}; copy the elements into an \
             array of this layout, or capture again",
            recorded.shape(),
            recorded.strides(),
            array.shape(),
            array.strides()
        )));
    }
    let Some(access) = access else { return Ok(()) };
    if access.writes() && array.is_readonly() {
        return Err(Error::value(format!(
            "{array} is read-only, but the capture writes to input {name:?}; pass a copy()"
        )));
    }
    if let Some((takes, found)) = difference(recorded, array) {
        let fix = if array.memory_kind() == recorded.memory_kind() {
            "copy it there with collocate()".to_owned()
        } else {
            let to = spelled("to(queue, usm_type=...)", "Array::to");
            format!("copy it to such memory with {to}, or capture again")
        };
        let message = format!("input {name:?} takes {takes}, but {array} is {found}; {fix}");
        return Err(Error::placement(message, vec![array.queue().to_string()], None));
    }
    for queue in queues {
        // A command that copies memory of another context can also copy that of the replacement, of the same place.
        if recorded.unusable_from(queue)?.is_none()
            && let Some(why) = array.unusable_from(queue)?
        {
            let message = format!("input {name:?} cannot be {array} on {queue}: {why}");
            return Err(Error::placement(message, vec![queue.to_string()], None));
        }
    }
    Ok(())
}

/// The memory that the commands take and that of the array, if the commands cannot use it as the recorded one.
fn difference(recorded: &Array, array: &Array) -> Option<(String, String)> {
    let (takes, found) = (recorded.memory_kind(), array.memory_kind());
    if takes != found {
        return Some((takes.title().to_owned(), found.title().to_owned()));
    }
    // System memory has neither context nor device.
    let ((context, device), (other_context, other_device)) =
        (recorded.allocation().place()?, array.allocation().place()?);
    if context != other_context {
        return Some((format!("{} of {context}", takes.title()), format!("of {other_context}")));
    }
    // Host USM belongs to the context, not to the device that it was made for.
    let differs = takes != MemoryKind::Usm(UsmKind::Host) && device != other_device;
    differs.then(|| (format!("{} of {device}", takes.title()), format!("of {other_device}")))
}
