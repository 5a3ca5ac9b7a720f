//! `follow`, `collocate`, `explain`.

use super::array::Array;
use super::queue::Queue;
use super::site::detach;
use super::{asarray, target};
use crate::placement::{Item, explain_items};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The one queue that all arrays share.
///
/// Parameters
/// ----------
/// *arrays : Array or object with ``__sycl_usm_array_interface__``
/// queue : str, Device, Queue, optional
///     A queue that wins, if every array is usable from it.
///
/// Raises
/// ------
/// PlacementError
///     They do not share one; the text names each array's queue and the call that mends it.
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
    let arrays = all(arrays)?;
    let refs: Vec<_> = arrays.iter().collect();
    if let Some(queue) = target::queue(py, queue)? {
        detach(py, || crate::usable_from(&queue, &refs))?;
        return Ok(Queue(queue));
    }
    if refs.is_empty() {
        return Ok(Queue(super::scope::current(py)?));
    }
    Ok(Queue(crate::follow(&refs)?))
}

/// Bring arrays to one queue, moving only what must move.
///
/// Parameters
/// ----------
/// *arrays : Array or object with ``__sycl_usm_array_interface__``
///     Host objects are copied to the target.
/// like : Array, optional
///     The array whose queue is the target.
/// queue : str, Device, Queue, optional
///     The target. Without either, the queue to which the fewest bytes move.
///
/// Returns
/// -------
/// Array or tuple of Array
///     One for one. An array that is on the target already comes back as it is; one that the target can reach comes
///     back as a view with the target's queue; others are copied, without a wait.
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
    let given = all_or_host(py, arrays, chosen(py, like, queue)?)?;
    let refs: Vec<_> = given.arrays.iter().collect();
    let results = detach(py, || crate::collocate_all(&refs, given.target.as_ref()))?;
    let objects = arrays
        .iter()
        .zip(results)
        .map(|(object, result)| match object.cast::<Array>() {
            Ok(own) if own.get().array.queue() == result.queue() => Ok(own.clone().into_any()),
            _ => Ok(Bound::new(py, Array::new(result))?.into_any()),
        })
        .collect::<PyResult<Vec<_>>>()?;
    match &objects[..] {
        [only] => Ok(only.clone().unbind()),
        _ => Ok(PyTuple::new(py, objects)?.into_any().unbind()),
    }
}

/// What ``collocate`` would do, without doing it. Prints as a table.
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
    let objects =
        arrays.iter().map(|object| item(&object, target.is_some())).collect::<PyResult<Vec<_>>>()?;
    let items: Vec<_> = objects
        .iter()
        .map(|object| match object {
            Object::Array(array) => Item::Array(array),
            Object::Host(bytes, what) => Item::Host { bytes: *bytes, what: what.clone() },
        })
        .collect();
    Ok(Plan(detach(py, || explain_items(&items, target.as_ref()))?))
}

fn chosen(
    py: Python<'_>,
    like: Option<&Bound<'_, PyAny>>,
    queue: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<crate::Queue>> {
    match (like, queue) {
        (Some(_), Some(_)) => Err(PyTypeError::new_err("give like= or queue=, not both")),
        (Some(like), None) => Ok(Some(array(like)?.queue().clone())),
        (None, queue) => target::queue(py, queue),
    }
}

fn all(arrays: &Bound<'_, PyTuple>) -> PyResult<Vec<crate::Array>> {
    arrays.iter().map(|object| array(&object)).collect()
}

fn array(object: &Bound<'_, PyAny>) -> PyResult<crate::Array> {
    asarray::shared(object)?.ok_or_else(|| {
        let name = object.get_type().name().map_or_else(|_| "that".to_owned(), |name| name.to_string());
        let mend = if object.hasattr("__arrow_c_device_array__").unwrap_or(false) {
            "its to(queue) moves it, and values() of a column are an array"
        } else {
            "usmq.asarray() brings host data there"
        };
        PyTypeError::new_err(format!("expected an array in USM, not {name}; {mend}"))
    })
}

enum Object {
    Array(crate::Array),
    /// Bytes, and what it is for people.
    Host(u64, String),
}

fn item(object: &Bound<'_, PyAny>, has_target: bool) -> PyResult<Object> {
    match asarray::shared(object)? {
        Some(array) => Ok(Object::Array(array)),
        None if has_target => {
            let (bytes, what) = asarray::describe_host(object)?;
            Ok(Object::Host(bytes, what))
        }
        None => array(object).map(Object::Array),
    }
}

struct Given {
    arrays: Vec<crate::Array>,
    target: Option<crate::Queue>,
}

/// Arrays as they are; host data is put on the target.
fn all_or_host(
    py: Python<'_>,
    objects: &Bound<'_, PyTuple>,
    target: Option<crate::Queue>,
) -> PyResult<Given> {
    let arrays = objects.iter().map(|object| match (asarray::shared(&object)?, &target) {
        (Some(array), _) => Ok(array),
        (None, Some(queue)) => asarray::host_array(py, &object, queue),
        (None, None) => array(&object),
    });
    Ok(Given { arrays: arrays.collect::<PyResult<_>>()?, target })
}

/// What it takes to bring arrays together. Prints as a table.
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
    /// Where the arrays go.
    #[getter]
    fn target(&self) -> Queue {
        Queue(self.0.target.clone())
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

/// What happens to one array.
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
    /// ``"keep"``, ``"rebind"``, ``"copy_direct"``, ``"copy_staged"`` or ``"from_host"``.
    #[getter]
    fn action(&self) -> &'static str {
        self.0.action.name()
    }

    /// Bytes that are moved.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Why nothing cheaper will do.
    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Step {}, {} bytes: {}>", self.0.action.name(), self.0.bytes, self.0.reason)
    }
}
