//! `__sycl_usm_array_interface__` in Python, both ways; the rules are in `interop::suai`.

use super::array::Array;
use super::capsule::{context_from, queue_from};
use super::site::detach;
use super::{dtype, index};
use crate::interop::suai::{self, Descriptor, SyclObject};
use crate::{Device, Target};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

/// The dict of an array of ours.
pub(super) fn interface<'py>(py: Python<'py>, array: &crate::Array) -> PyResult<Bound<'py, PyDict>> {
    let descriptor = detach(py, || suai::export(array))?;
    let dict = PyDict::new(py);
    dict.set_item("data", (descriptor.pointer, descriptor.readonly))?;
    dict.set_item("shape", pyo3::types::PyTuple::new(py, &descriptor.shape)?)?;
    let strides = descriptor.strides.map(|strides| pyo3::types::PyTuple::new(py, strides)).transpose()?;
    dict.set_item("strides", strides)?;
    dict.set_item("typestr", descriptor.dtype.typestr())?;
    dict.set_item("version", 1)?;
    dict.set_item("offset", descriptor.offset)?;
    dict.set_item("syclobj", Bound::new(py, super::queue::Queue(array.queue().clone()))?)?;
    Ok(dict)
}

/// What dpnp holds on to while it uses an array of ours: the memory, not the Python object, so that no cycle keeps
/// both alive.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct Lent(crate::Array);

#[pymethods]
impl Lent {
    #[getter]
    fn __sycl_usm_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        interface(py, &self.0)
    }
}

/// The array as dpnp's own type. `dpnp.asarray` takes an object without a copy only when its `sycl_queue` and that of
/// its `__usm_ndarray__` are one Python object, so the view is made once per array.
pub(super) fn usm_ndarray<'py>(py: Python<'py>, owner: &Array) -> PyResult<Bound<'py, PyAny>> {
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(tensor) = modules.get_item("dpnp.tensor") else {
        return Err(PyAttributeError::new_err("dpnp is not loaded"));
    };
    let view = owner.usm_ndarray.get_or_try_init(py, || {
        // Memory first, then the view: dpnp's own reading of the interface refuses negative strides.
        let (span, offset) = owner.array.span()?;
        let lent = Bound::new(py, Lent(span))?;
        let memory = py.import("dpctl.memory")?.getattr("as_usm_memory")?.call1((lent,))?;
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
    // What was submitted since the view was made must come first, too.
    detach(py, || suai::export(&owner.array))?;
    Ok(view.bind(py).clone())
}

/// The USM of an object with the interface; None without it.
pub(super) fn import(object: &Bound<'_, PyAny>) -> PyResult<Option<crate::Array>> {
    let py = object.py();
    let Some(attribute) = object.getattr_opt(pyo3::intern!(py, "__sycl_usm_array_interface__"))? else {
        return Ok(None);
    };
    let dict = attribute.cast::<PyDict>().map_err(|_| {
        PyTypeError::new_err(format!(
            "__sycl_usm_array_interface__ is a dict, not {}",
            attribute.get_type().name().map_or_else(|_| "that".to_owned(), |name| name.to_string())
        ))
    })?;
    let descriptor = descriptor(object, dict)?;
    let sycl_object = sycl_object(&required(dict, "syclobj")?)?;
    let owner = Box::new(object.clone().unbind());
    // SAFETY: the protocol: the memory lives as long as the object that shows it, which the owner keeps.
    let array = detach(py, || unsafe { suai::import(&descriptor, &sycl_object, owner) })?;
    Ok(Some(array))
}

fn required<'py>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    dict.get_item(key)?
        .ok_or_else(|| PyValueError::new_err(format!("__sycl_usm_array_interface__ has no entry {key:?}")))
}

fn optional<'py>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(dict.get_item(key)?.filter(|value| !value.is_none()))
}

fn descriptor(object: &Bound<'_, PyAny>, dict: &Bound<'_, PyDict>) -> PyResult<Descriptor> {
    let version = named("version", index::whole(&required(dict, "version")?))?;
    if version != 1 {
        return Err(PyValueError::new_err(format!(
            "__sycl_usm_array_interface__ version {version} is not 1"
        )));
    }
    let data = required(dict, "data")?;
    if !data.is_instance_of::<PyTuple>() && !data.is_instance_of::<PyList>() {
        return Err(PyTypeError::new_err(format!(
            "data is a tuple of an address and a flag, not {}",
            data.repr()?
        )));
    }
    let parts: Vec<_> = data.try_iter()?.collect::<PyResult<_>>()?;
    let [pointer, readonly] = &parts[..] else {
        return Err(PyValueError::new_err(format!(
            "data has an address and a flag, not {} entries",
            parts.len()
        )));
    };
    let typestr = required(dict, "typestr")?;
    let typestr =
        typestr.cast::<PyString>().map_err(|_| PyTypeError::new_err("typestr is a string as \"<f4\""))?;
    let strides = match optional(dict, "strides")? {
        Some(strides) => {
            let numbers =
                strides.try_iter()?.map(|stride| index::whole(&stride?)).collect::<PyResult<Vec<_>>>();
            Some(named("strides", numbers)?)
        }
        None => None,
    };
    let offset = dict.get_item("offset")?.map(|offset| named("offset", index::whole(&offset))).transpose()?;
    Ok(Descriptor {
        pointer: named("data", address(pointer))?,
        readonly: readonly.is_truthy()? && !is_dpctl_memory(object)?,
        shape: named("shape", index::extents(&required(dict, "shape")?))?,
        strides,
        offset: offset.unwrap_or(0),
        dtype: dtype::parse(typestr.as_any())?,
    })
}

/// Names the entry that is wrong; the exception keeps its class.
fn named<T>(key: &str, value: PyResult<T>) -> PyResult<T> {
    value.map_err(|error| {
        Python::attach(|py| {
            let text = format!("__sycl_usm_array_interface__[{key:?}]: {}", error.value(py));
            PyErr::from_type(error.get_type(py), (text,))
        })
    })
}

fn address(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    if object.is_instance_of::<pyo3::types::PyFloat>() || object.is_instance_of::<pyo3::types::PyBool>() {
        return Err(PyTypeError::new_err(format!("data[0] is an address, not {}", object.repr()?)));
    }
    object.extract()
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
    if let Ok(queue) = object.cast::<super::queue::Queue>() {
        return Ok(SyclObject::Queue(queue.get().0.clone()));
    }
    if let Ok(context) = object.cast::<super::queue::Context>() {
        return Ok(SyclObject::Context(context.get().0.clone()));
    }
    if let Some(queue) = queue_from(object)? {
        return Ok(SyclObject::Queue(queue));
    }
    match context_from(object)? {
        Some(context) => Ok(SyclObject::Context(context)),
        None => Err(PyTypeError::new_err(format!(
            "syclobj is a queue, a context, a filter string or a capsule of one, not {}",
            object.get_type().name()?
        ))),
    }
}
