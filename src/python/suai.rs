//! `__sycl_usm_array_interface__` in Python, both ways; the rules are in `interop::suai`.

use super::array_interface::Entries;
use super::capsule::{context_from, queue_capsule, queue_from};
use super::classes::Array;
use super::gil::detach;
use super::owner::PyOwner;
use super::{dpctl_memory, dpctl_order};
use crate::interop::suai::{self, Descriptor, SyclObject};
use crate::{Device, Target};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

pub(super) const NAME: &str = "__sycl_usm_array_interface__";

/// For system memory the attributes are absent, so that consumers use other protocols.
fn check_usm(array: &crate::Array) -> PyResult<()> {
    suai::check_usm(array).map_err(|error| PyAttributeError::new_err(error.to_string()))
}

/// The dict of a usmq array.
pub(super) fn interface<'py>(py: Python<'py>, array: &crate::Array) -> PyResult<Bound<'py, PyDict>> {
    check_usm(array)?;
    let descriptor = detach(py, || suai::export(array))?;
    let dict = PyDict::new(py);
    dict.set_item("data", (descriptor.pointer, descriptor.readonly))?;
    dict.set_item("shape", pyo3::types::PyTuple::new(py, &descriptor.shape)?)?;
    let strides = descriptor.strides.map(|strides| pyo3::types::PyTuple::new(py, strides)).transpose()?;
    dict.set_item("strides", strides)?;
    dict.set_item("typestr", descriptor.dtype.typestr())?;
    dict.set_item("version", 1)?;
    dict.set_item("offset", descriptor.offset)?;
    dict.set_item("syclobj", Bound::new(py, super::classes::Queue(array.queue().clone()))?)?;
    Ok(dict)
}

/// The object that dpnp references while it uses a usmq array: it owns the memory, not the Python array, so
/// no reference cycle keeps both alive.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct Lent(crate::Array);

#[pymethods]
impl Lent {
    #[getter]
    fn __sycl_usm_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        interface(py, &self.0)
    }
}

/// Returns the array as dpnp's type. `dpnp.asarray` skips the copy only if the object's `sycl_queue` and that
/// of its `__usm_ndarray__` are the same Python object, so the view is created once per array.
pub(super) fn usm_ndarray<'py>(py: Python<'py>, owner: &Array) -> PyResult<Bound<'py, PyAny>> {
    check_usm(&owner.array)?;
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(tensor) = modules.get_item("dpnp.tensor") else {
        return Err(PyAttributeError::new_err("dpnp is not loaded: import dpnp first"));
    };
    let view = owner.usm_ndarray.get_or_try_init(py, || {
        // Create the memory object first, then the view: dpnp's import of the interface refuses negative
        // strides.
        let (span, offset) = owner.array.span()?;
        let lent = Bound::new(py, Lent(span.clone()))?;
        let memory = py.import("dpctl.memory")?.getattr("as_usm_memory")?.call1((lent,))?;
        dpctl_memory::own(&memory, &span)?;
        let kwargs = PyDict::new(py);
        kwargs.set_item("dtype", owner.array.dtype().typestr())?;
        kwargs.set_item("buffer", memory)?;
        kwargs.set_item("strides", PyTuple::new(py, owner.array.strides())?)?;
        kwargs.set_item("offset", offset)?;
        let view =
            tensor.getattr("usm_ndarray")?.call((PyTuple::new(py, owner.array.shape())?,), Some(&kwargs))?;
        if owner.array.is_readonly() {
            view.getattr("flags")?.set_item("W", false)?;
        }
        PyResult::Ok(view.unbind())
    })?;
    let view = view.bind(py).clone();
    dpctl_order::follow(owner.array.queue(), &view.getattr(intern!(py, "sycl_queue"))?)?;
    // Also order the commands submitted since the view was created.
    detach(py, || suai::export(&owner.array))?;
    Ok(view)
}

/// The queue of the array as dpctl's type. With dpnp in the process it is that of the view, by which dpnp recognizes it.
pub(super) fn sycl_queue<'py>(py: Python<'py>, owner: &Array) -> PyResult<Bound<'py, PyAny>> {
    if dpctl_order::is_loaded(py, "dpnp.tensor")? {
        return usm_ndarray(py, owner)?.getattr("sycl_queue");
    }
    check_usm(&owner.array)?;
    if !dpctl_order::is_loaded(py, "dpctl")? {
        return Err(PyAttributeError::new_err(
            "dpctl is not loaded; usmq.dpctl_queue(x.queue) loads it and returns the queue as its type",
        ));
    }
    py.import("dpctl")?.getattr("SyclQueue")?.call1((queue_capsule(py, owner.array.queue())?,))
}

/// The USM of an object, by its attribute.
pub(super) fn import(object: &Bound<'_, PyAny>, attribute: &Bound<'_, PyAny>) -> PyResult<crate::Array> {
    let entries = Entries::new(NAME, attribute)?;
    let descriptor = descriptor(object, &entries)?;
    let sycl_object = sycl_object(&entries.required(intern!(object.py(), "syclobj"))?)?;
    let owner = Box::new(PyOwner::new(object));
    // SAFETY: the protocol: the memory lives as long as the object that exports it, and the owner keeps it
    // alive.
    Ok(detach(object.py(), || unsafe { suai::import(&descriptor, &sycl_object, owner) })?)
}

fn descriptor(object: &Bound<'_, PyAny>, entries: &Entries<'_, '_>) -> PyResult<Descriptor> {
    let py = object.py();
    let version = entries.whole(intern!(py, "version"))?;
    if version != 1 {
        return Err(PyValueError::new_err(format!("{NAME} version {version} is not 1")));
    }
    let (pointer, flag) = entries.data()?;
    Ok(Descriptor {
        pointer,
        readonly: flag && !is_dpctl_memory(object)?,
        shape: entries.shape()?,
        strides: entries.strides()?,
        // None is not allowed here.
        offset: if entries.has(intern!(py, "offset"))? { entries.whole(intern!(py, "offset"))? } else { 0 },
        dtype: entries.dtype()?,
    })
}

/// dpctl's own memory objects set the flag to say "writable", against the specification.
fn is_dpctl_memory(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = object.get_type().getattr("__module__")?;
    Ok(module.extract::<String>().is_ok_and(|name| name.starts_with("dpctl.memory")))
}

/// A queue, a context, a filter string, a capsule of either, or an object that gives such a capsule.
fn sycl_object(object: &Bound<'_, PyAny>) -> PyResult<SyclObject> {
    if let Ok(filter) = object.cast::<PyString>() {
        let target = Target::Filter(filter.to_str()?.to_owned());
        let context =
            detach(object.py(), || target.device().and_then(|device: Device| device.default_context()))?;
        return Ok(SyclObject::Context(context));
    }
    if let Ok(queue) = object.cast::<super::classes::Queue>() {
        return Ok(SyclObject::Queue(queue.get().0.clone()));
    }
    if let Ok(context) = object.cast::<super::classes::Context>() {
        return Ok(SyclObject::Context(context.get().0.clone()));
    }
    if let Some(queue) = queue_from(object)? {
        dpctl_order::follow(&queue, object)?;
        return Ok(SyclObject::Queue(queue));
    }
    match context_from(object)? {
        Some(context) => Ok(SyclObject::Context(context)),
        None => Err(PyTypeError::new_err(format!(
            "syclobj must be a queue, a context, a filter string or a capsule of one, not {}",
            object.get_type().name()?
        ))),
    }
}
