//! `follow`, `collocate`, `explain`.

use super::classes::{Array, Queue};
use super::gil::detach;
use super::host::HostInput;
use super::protocol::{self, Memory, Source, Wanted, no_array};
use super::{asarray, scope, target};
use crate::interop::cuda::CudaArray;
use crate::placement::{Item, explain_items};
use crate::trace::{Reason, with_reason};
use crate::{Action, PlanTarget, UsmKind};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use smallvec::SmallVec;

/// Return the queue that all arrays share.
///
/// Parameters
/// ----------
/// *arrays : Array or object with ``__sycl_usm_array_interface__``
///     Without arrays, the current queue is returned.
/// queue : str, Device, Queue, optional
///     A queue that overrides theirs, if it can use every array.
///
/// Raises
/// ------
/// PlacementError
///     The arrays do not share a queue; the text names the queue of each array and the call that fixes it.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> x = usmq.zeros(3)
/// >>> usmq.follow(x, x) == x.queue
/// True
#[pyfunction]
#[pyo3(signature = (*arrays, queue=None))]
pub(super) fn follow(
    py: Python<'_>,
    arrays: &Bound<'_, PyTuple>,
    queue: Option<&Bound<'_, PyAny>>,
) -> PyResult<Queue> {
    let objects: SmallVec<[_; 4]> = arrays.iter_borrowed().collect();
    let arrays = objects.iter().map(|object| InUsm::new(object)).collect::<PyResult<SmallVec<[_; 4]>>>()?;
    let refs: SmallVec<[&crate::Array; 4]> = arrays.iter().map(InUsm::array).collect();
    if let Some(queue) = target::queue(py, queue)? {
        detach(py, || crate::usable_from(&queue, &refs))?;
        return Ok(Queue(queue));
    }
    if refs.is_empty() {
        return Ok(Queue(scope::current(py)?));
    }
    Ok(Queue(crate::follow(&refs)?))
}

/// An argument in USM: an array of usmq, which is borrowed, or an import.
enum InUsm<'a> {
    Own(&'a crate::Array),
    Imported(crate::Array),
}

impl<'a> InUsm<'a> {
    fn new(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        match object.cast::<Array>() {
            Ok(own) => Ok(Self::Own(&own.get().array)),
            Err(_) => protocol::usm(object)?.map(Self::Imported).ok_or_else(|| no_array(object)),
        }
    }

    fn array(&self) -> &crate::Array {
        match self {
            Self::Own(array) => array,
            Self::Imported(array) => array,
        }
    }
}

/// Bring arrays to one queue, and copy only if needed.
///
/// Parameters
/// ----------
/// *arrays : Array, CudaArray, or object with one of the array interfaces
///     Host objects are copied to the target.
/// like : Array or CudaArray, optional
///     The array whose queue, or whose CUDA device, is the target.
/// queue : str, Device, Queue, optional
///     The target. Without ``like`` and ``queue``, the queue that needs the fewest bytes moved.
///
/// Returns
/// -------
/// Array, CudaArray or tuple of them
///     One result per argument: the same object for an array on the target; a view with the target's queue
///     for an array that the target can reach; else a copy, without a wait.
///
/// Raises
/// ------
/// AllocationError
///     A copy is needed and memory is short.
/// ValueError
///     Neither an array in USM nor a target is given.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> x = usmq.zeros(3)
/// >>> usmq.collocate(x, like=x) is x
/// True
#[pyfunction]
#[pyo3(signature = (*arrays, like=None, queue=None))]
pub(super) fn collocate(
    py: Python<'_>,
    arrays: &Bound<'_, PyTuple>,
    like: Option<&Bound<'_, PyAny>>,
    queue: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let objects: Vec<_> = arrays.iter().collect();
    let target = chosen(py, like, queue)?;
    let results = match target {
        Some(PlanTarget::Cuda(ordinal)) => objects
            .iter()
            .map(|object| Ok(asarray::on_cuda(py, object, None, ordinal, None)?.into_any()))
            .collect::<PyResult<Vec<_>>>()?,
        Some(PlanTarget::Queue(queue)) => on_queue(py, &objects, &queue)?,
        None => {
            let queue = cheapest(py, &objects)?;
            on_queue(py, &objects, &queue)?
        }
    };
    match <[_; 1]>::try_from(results) {
        Ok([only]) => Ok(only),
        Err(all) => Ok(PyTuple::new(py, all)?.into_any().unbind()),
    }
}

/// The queue that needs the fewest bytes of the arrays in USM moved; other data must move in any case.
fn cheapest(py: Python<'_>, objects: &[Bound<'_, PyAny>]) -> PyResult<crate::Queue> {
    let arrays = objects.iter().filter_map(|object| protocol::usm(object).transpose());
    let arrays = arrays.collect::<PyResult<Vec<_>>>()?;
    let arrays: Vec<_> = arrays.iter().collect();
    match detach(py, || crate::explain(&arrays, None))?.target {
        PlanTarget::Queue(queue) => Ok(queue),
        // The target of a plan for arrays in USM is USM.
        PlanTarget::Cuda(_) => Ok(scope::current(py)?),
    }
}

fn on_queue(py: Python<'_>, objects: &[Bound<'_, PyAny>], queue: &crate::Queue) -> PyResult<Vec<Py<PyAny>>> {
    let move_one = |object: &Bound<'_, PyAny>| {
        let result = match source(object)? {
            Source::Usm { array, .. } => detach(py, || crate::collocate(&array, queue))?,
            Source::Cuda(array) => detach(py, || array.to_queue(queue, UsmKind::Device))?,
            Source::Host(host) => {
                let _why = with_reason(Reason::Collocate);
                asarray::from_host(py, &host, UsmKind::Device, queue)?
            }
        };
        match object.cast::<Array>() {
            Ok(own) if own.get().array.queue() == result.queue() => Ok(own.clone().into_any().unbind()),
            _ => Ok(Py::new(py, Array::new(result))?.into_any()),
        }
    };
    objects.iter().map(move_one).collect()
}

/// Return the steps that ``collocate`` would take, without running them. Prints as a table.
///
/// Parameters
/// ----------
/// *arrays : Array, CudaArray, or object with one of the array interfaces
///     Host objects are also allowed: they would be copied to the target.
/// like : Array or CudaArray, optional
///     The array whose queue, or whose CUDA device, is the target.
/// queue : str, Device, Queue, optional
///     The target. Without ``like`` and ``queue``, the queue that needs the fewest bytes moved.
///
/// Returns
/// -------
/// Plan
///
/// Raises
/// ------
/// ValueError
///     Neither an array in USM nor a target is given.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> x = usmq.zeros(3)
/// >>> usmq.explain(x, like=x).steps[0].action
/// 'keep'
#[pyfunction]
#[pyo3(signature = (*arrays, like=None, queue=None))]
pub(super) fn explain(
    py: Python<'_>,
    arrays: &Bound<'_, PyTuple>,
    like: Option<&Bound<'_, PyAny>>,
    queue: Option<&Bound<'_, PyAny>>,
) -> PyResult<Plan> {
    let target = chosen(py, like, queue)?;
    let objects: Vec<_> = arrays.iter().collect();
    if let Some(PlanTarget::Cuda(ordinal)) = target {
        let steps = objects.iter().map(|object| step_to_card(object, ordinal)).collect::<PyResult<_>>()?;
        return Ok(Plan(crate::Plan { target: PlanTarget::Cuda(ordinal), steps }));
    }
    let queue = match target {
        Some(PlanTarget::Queue(queue)) => queue,
        _ => cheapest(py, &objects)?,
    };
    let sources = objects.iter().map(source).collect::<PyResult<Vec<_>>>()?;
    let items: Vec<_> = sources
        .iter()
        .map(|source| match source {
            Source::Usm { array, .. } => Ok(Item::Array(array)),
            Source::Cuda(array) => Ok(Item::Other(array.explain(&queue)?)),
            Source::Host(host) => Ok(Item::Other(host_step(host))),
        })
        .collect::<crate::Result<_>>()?;
    Ok(Plan(detach(py, || explain_items(&items, Some(&queue)))?))
}

/// The step that brings an object to a CUDA device.
fn step_to_card(object: &Bound<'_, PyAny>, ordinal: usize) -> PyResult<crate::Step> {
    let array = match source(object)? {
        Source::Usm { array, .. } => return Ok(CudaArray::explain_from_array(&array)),
        Source::Host(host) => return Ok(crate::Step { action: Action::ToCuda, ..host_step(&host) }),
        Source::Cuda(array) => array,
    };
    let what = array.to_string();
    if array.ordinal() == ordinal {
        let reason = "it is on the target device".to_owned();
        return Ok(crate::Step { action: Action::Keep, bytes: 0, reason, what });
    }
    let reason = "CUDA memory of another device; by way of USM".to_owned();
    Ok(crate::Step { action: Action::ToCuda, bytes: array.nbytes() as u64, reason, what })
}

fn chosen(
    py: Python<'_>,
    like: Option<&Bound<'_, PyAny>>,
    queue: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<PlanTarget>> {
    match (like, queue) {
        (Some(_), Some(_)) => Err(PyTypeError::new_err("give like= or queue=, not both")),
        (Some(like), None) => match protocol::read(like, &Wanted::default(), &[Memory::Usm, Memory::Cuda])? {
            Some(Source::Usm { array, .. }) => Ok(Some(PlanTarget::Queue(array.queue().clone()))),
            Some(Source::Cuda(array)) => Ok(Some(PlanTarget::Cuda(array.ordinal()))),
            _ => Err(no_array(like)),
        },
        (None, queue) => Ok(target::queue(py, queue)?.map(PlanTarget::Queue)),
    }
}

/// Reads an object that `collocate` takes, or that can be the prototype of an array.
pub(super) fn source<'py>(object: &Bound<'py, PyAny>) -> PyResult<Source<'py>> {
    protocol::read(object, &Wanted::default(), &[Memory::Usm, Memory::Host, Memory::Cuda])?
        .ok_or_else(|| no_array(object))
}

/// The step that copies host data to a device.
fn host_step(host: &HostInput<'_>) -> crate::Step {
    let (shape, dtype) = (host.shape(), host.dtype());
    let bytes = (shape.iter().product::<usize>() * dtype.itemsize()) as u64;
    let what = format!("{dtype}{shape:?} on the host");
    crate::Step { action: Action::FromHost, bytes, reason: "host memory".to_owned(), what }
}

/// The steps that bring arrays to one target. Prints as a table.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> plan = usmq.explain(usmq.zeros(3), queue=usmq.current_queue())
/// >>> plan.bytes
/// 0
#[pyclass(module = "usmq", frozen)]
pub(super) struct Plan(crate::Plan);

#[pymethods]
impl Plan {
    /// The target of the arrays: a queue, or ``"cuda:0"``.
    #[getter]
    fn target(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.0.target {
            PlanTarget::Queue(queue) => Ok(Py::new(py, Queue(queue.clone()))?.into_any()),
            place @ PlanTarget::Cuda(_) => Ok(PyString::new(py, &place.to_string()).into_any().unbind()),
        }
    }

    /// One step per array, in the order of the arguments.
    #[getter]
    fn steps(&self) -> Vec<Step> {
        self.0.steps.iter().cloned().map(Step).collect()
    }

    /// Bytes that the whole plan moves.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Plan\n{}>", self.0)
    }
}

/// The action for one array.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.explain([1.0, 2.0], queue=usmq.current_queue()).steps[0]
/// <usmq.Step from_host, 16 bytes: host memory>
#[pyclass(module = "usmq", frozen)]
pub(super) struct Step(crate::Step);

#[pymethods]
impl Step {
    /// ``"keep"``, ``"rebind"``, ``"copy_direct"``, ``"copy_staged"``, ``"from_host"``, ``"from_cuda"`` or
    /// ``"to_cuda"``.
    #[getter]
    fn action(&self) -> &'static str {
        self.0.action.name()
    }

    /// Bytes that are moved.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The reason why no cheaper action is possible.
    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Step {}, {} bytes: {}>", self.0.action.name(), self.0.bytes, self.0.reason)
    }
}
