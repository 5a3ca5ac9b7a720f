//! Moves arrays to one queue: makes a plan from the properties of the arrays, and executes it.

use super::plan::{Action, Facts, Plan, Step, decide};
use crate::array::{Array, DType};
use crate::device::{Event, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::memory::{Access, Allocation, Operand, by_host, ordered_across};
use crate::trace::{Reason, with_default_reason, with_reason};

/// Bytes of one staging buffer. Two of them are in use at once.
const CHUNK: usize = 2 << 20;

/// The array on the target queue: the array itself, a view of the same memory, or a copy, whichever moves
/// least. Never blocks; work on the result runs after the work that the source waits for.
///
/// ```
/// use usmq::{Array, Partition, collocate, follow, with_queue};
///
/// let a = Array::zeros::<f32>([3])?;
/// let half = a.device().sub_devices(&Partition::Equally(1))?[0].clone();
/// let b = with_queue(half, || Array::from_slice(&[1f32, 2.0, 3.0]))?;
/// assert!(follow(&[&a, &b]).is_err());
///
/// let b = collocate(&b, a.queue())?;
/// assert_eq!(&follow(&[&a, &b])?, a.queue());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Allocation`] if a copy is needed and memory is short.
pub fn collocate(array: &Array, target: &Queue) -> Result<Array> {
    let _span = tracing::debug_span!(target: "usmq", "collocate", %array, %target).entered();
    run(array, target, action_for(array, target)?.0)
}

/// Moves all arrays to one queue: `target`, or the one of their queues to which the fewest bytes move.
///
/// ```
/// use usmq::{Array, Queue, collocate_all};
///
/// let (x, y) = (Array::zeros::<f32>(3)?, Array::zeros::<i8>(2)?);
/// let queue = Queue::get("cpu")?;
/// let placed = collocate_all(&[&x, &y], Some(&queue))?;
/// assert!(placed.iter().all(|array| array.queue() == &queue));
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// As [`collocate`]; [`Error::Value`] without arrays and target.
pub fn collocate_all(arrays: &[&Array], target: Option<&Queue>) -> Result<Vec<Array>> {
    let items: Vec<_> = arrays.iter().map(|array| Item::Array(array)).collect();
    let target =
        target.map_or_else(|| best(&items, None).map(|(queue, _)| queue), |target| Ok(target.clone()))?;
    let _span = tracing::debug_span!(target: "usmq", "collocate", arrays = arrays.len(), %target).entered();
    arrays.iter().map(|array| run(array, &target, action_for(array, &target)?.0)).collect()
}

impl Array {
    /// This array with another element type, USM kind or queue, as far as given: the array itself if nothing
    /// differs, a view if the queue can access the memory, else a copy. Copies of system memory are device USM
    /// on another queue, else host USM.
    ///
    /// # Errors
    /// [`Error::Allocation`] when a copy is needed and memory is short.
    pub fn to(&self, dtype: Option<DType>, kind: Option<UsmKind>, queue: Option<&Queue>) -> Result<Self> {
        let placed = queue.map_or_else(|| Ok(self.clone()), |queue| collocate(self, queue))?;
        let dtype = dtype.unwrap_or(self.dtype());
        if dtype == self.dtype() && kind.is_none_or(|kind| placed.usm_kind() == Some(kind)) {
            return Ok(placed);
        }
        let kind = kind.unwrap_or(placed.kind_of_copies());
        // A change of the kind only may be part of a transfer to the host or an import.
        let _why = if dtype == self.dtype() {
            with_default_reason(Reason::Conversion)
        } else {
            with_reason(Reason::Conversion)
        };
        let converted = Self::uninit(placed.shape(), dtype, kind, placed.queue())?;
        converted.assign(&placed)?;
        Ok(converted)
    }
}

/// Returns the plan of [`collocate_all`], without executing it.
///
/// ```
/// use usmq::{Action, Array, Queue, explain};
///
/// let x = Array::zeros::<f32>(3)?;
/// let other = Queue::builder(x.queue()).out_of_order().build()?;
/// let plan = explain(&[&x], Some(&other))?; // moves nothing
/// assert_eq!((plan.steps[0].action, plan.bytes()), (Action::Rebind, 0));
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Value`] without arrays and target.
pub fn explain(arrays: &[&Array], target: Option<&Queue>) -> Result<Plan> {
    let items: Vec<_> = arrays.iter().map(|array| Item::Array(array)).collect();
    explain_items(&items, target)
}

/// An item of a plan: an array, or data that is not an array yet.
pub(crate) enum Item<'a> {
    Array(&'a Array),
    /// Data outside of USM, and the step that copies it to a queue.
    #[cfg_attr(not(feature = "python"), expect(dead_code))]
    Other(Step),
}

/// As [`explain`], with other data among the arrays.
pub(crate) fn explain_items(items: &[Item<'_>], target: Option<&Queue>) -> Result<Plan> {
    let (target, steps) = best(items, target)?;
    Ok(Plan { target: target.into(), steps })
}

/// Selects the target, or the one of the arrays' queues to which the fewest bytes move, and its steps.
fn best(items: &[Item<'_>], target: Option<&Queue>) -> Result<(Queue, Vec<Step>)> {
    if let Some(target) = target {
        return Ok((target.clone(), steps(items, target)?));
    }
    let mut best: Option<(u64, Queue, Vec<Step>)> = None;
    for item in items {
        let Item::Array(array) = item else { continue };
        let steps = steps(items, array.queue())?;
        let bytes = steps.iter().map(|step| step.bytes).sum();
        if best.as_ref().is_none_or(|(fewest, ..)| bytes < *fewest) {
            best = Some((bytes, array.queue().clone(), steps));
        }
    }
    let (_, target, steps) = best.ok_or_else(|| {
        Error::value("no array is in USM, so no queue can be the default target; pass a target")
    })?;
    Ok((target, steps))
}

fn steps(items: &[Item<'_>], target: &Queue) -> Result<Vec<Step>> {
    let step = |item: &Item<'_>| match item {
        Item::Array(array) => plan_one(array, target),
        Item::Other(step) => Ok(step.clone()),
    };
    items.iter().map(step).collect()
}

/// The action that brings an array to a queue, and its reason. The time of a view is that of these checks, so the texts of
/// a plan are made apart.
fn action_for(array: &Array, target: &Queue) -> Result<(Action, &'static str)> {
    let place = array.allocation().place();
    let owner = place.filter(|(context, _)| *context == target.context()).map(|(_, device)| device);
    let facts = Facts {
        same_queue: array.queue() == target,
        same_context: owner.is_some(),
        same_device: place.is_some_and(|(_, device)| device == target.device()),
        peer_access: owner.map_or(Ok(false), |device| target.device().reaches_memory_of(device))?,
        direct_copies: target.device().capabilities().direct_copies,
        system: target.device().has_system_usm(),
        cpu: place.is_some_and(|(_, device)| device.host_reads_device_memory()),
        kind: array.memory_kind(),
    };
    Ok(decide(facts))
}

fn plan_one(array: &Array, target: &Queue) -> Result<Step> {
    let (action, reason) = action_for(array, target)?;
    let moves = matches!(action, Action::CopyDirect | Action::CopyStaged | Action::FromHost);
    let strided = if moves && !array.is_contiguous() { "; made contiguous on the way" } else { "" };
    Ok(Step {
        action,
        bytes: if moves { array.nbytes() as u64 } else { 0 },
        reason: format!("{reason}{strided}"),
        what: format!(
            "{}{:?} {} on {}",
            array.dtype(),
            array.shape(),
            array.memory_kind().title(),
            array.queue()
        ),
    })
}

fn run(array: &Array, target: &Queue, action: Action) -> Result<Array> {
    match action {
        Action::Keep => Ok(array.clone()),
        Action::Rebind => array.on_queue(target),
        // A command of any device copies host memory.
        Action::CopyDirect | Action::FromHost => copy(array, target, direct),
        // The last two are for CUDA memory, so an array never has them.
        Action::CopyStaged | Action::FromCuda | Action::ToCuda => copy(array, target, staged),
    }
}

type Route = fn(&Array, &Array) -> Result<()>;

fn copy(array: &Array, target: &Queue, route: Route) -> Result<Array> {
    let same = array.context() == target.context();
    let _why = with_reason(if same { Reason::Collocate } else { Reason::ContextMismatch });
    let source = array.contiguous()?;
    // Host data becomes device USM, as in an import.
    let kind = array.usm_kind().unwrap_or(UsmKind::Device);
    let copy = Array::uninit(source.shape(), source.dtype(), kind, target)?;
    if copy.nbytes() > 0 {
        route(&source, &copy)?;
    }
    Ok(copy)
}

fn direct(source: &Array, target: &Array) -> Result<()> {
    let (queue, operands) = (target.queue(), operands(source, target));
    let (to, from, bytes) = (target.address(), source.address(), target.nbytes());
    // SAFETY: two ranges of the operands; the target is a new allocation.
    if unsafe { by_host::copy_at_once(queue, &operands, (to, from, bytes)) }? {
        return Ok(());
    }
    ordered_across(queue, &operands, |after, _| {
        // SAFETY: both ranges are inside allocations that their logs keep until the event is complete. The
        // source is USM of the queue's context or readable by the host, as the plan found.
        unsafe { queue.memcpy(to, from, bytes, after) }
    })?;
    Ok(())
}

fn operands<'a>(source: &'a Array, target: &'a Array) -> [Operand<'a>; 2] {
    [(source.allocation(), Access::Read), (target.allocation(), Access::Write)]
}

/// Copies in chunks: source to host memory on the source's queue, host memory to target on the target's.
/// Reads one buffer while it writes the other.
fn staged(source: &Array, target: &Array) -> Result<()> {
    let bytes = source.nbytes();
    let chunk = bytes.min(CHUNK);
    let (from, to) = (source.queue(), target.queue());
    let buffers = [
        Allocation::for_commands(chunk, UsmKind::Host, from)?,
        Allocation::for_commands(if bytes > chunk { chunk } else { 0 }, UsmKind::Host, from)?,
    ];
    let [(source_memory, read), (target_memory, write)] = operands(source, target);
    let operands = [
        (source_memory, read),
        (target_memory, write),
        (&buffers[0], Access::Write),
        (&buffers[1], Access::Write),
    ];
    ordered_across(to, &operands, |after, sent| {
        let mut emptied: [Option<Event>; 2] = [None, None];
        for (number, start) in (0..bytes).step_by(chunk).enumerate() {
            let length = chunk.min(bytes - start);
            let buffer = &buffers[number % 2];
            let free = emptied[number % 2].take();
            let first = if number < 2 { after } else { free.as_slice() };
            // SAFETY: both ranges are inside allocations whose logs keep them until the last event is
            // complete, which comes after this one; `first` says that nothing else uses the buffer.
            let filled = unsafe { from.memcpy(buffer.pointer(), source.address() + start, length, first) }?;
            sent.push(filled.clone());
            // SAFETY: as above; the buffer is host memory, which the target's queue may read in
            // any context.
            let event = unsafe { to.memcpy(target.address() + start, buffer.pointer(), length, &[filled]) }?;
            sent.push(event.clone());
            emptied[number % 2] = Some(event);
        }
        // On an out-of-order queue the last two copies may complete in either order.
        match emptied {
            [Some(a), Some(b)] => to.barrier_now(&[a, b]),
            [Some(only), None] | [None, Some(only)] => Ok(only),
            [None, None] => to.barrier_now(&[]),
        }
    })?;
    Ok(())
}
