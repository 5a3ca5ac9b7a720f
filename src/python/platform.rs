//! `usmq.Platform`, and the visible platforms and devices.

use super::argument;
use super::classes::{Context, Device};
use super::gil::detach;
use crate::DeviceFilter;
use crate::device::layer_problems;
use crate::runtime::emulator;
use pyo3::exceptions::{PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::CString;

/// A SYCL platform: the devices of one driver, with their default context.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> platform = usmq.Device("cpu").platform
/// >>> usmq.Device("cpu") in platform.devices
/// True
#[pyclass(module = "usmq", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Platform(pub(super) crate::Platform);

#[pymethods]
impl Platform {
    /// The platform's name, as the driver reports it.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The vendor's name.
    #[getter]
    fn vendor(&self) -> &str {
        self.0.vendor()
    }

    /// The version, as the driver reports it.
    #[getter]
    fn version(&self) -> &str {
        self.0.version()
    }

    /// The backend of its devices, as ``"opencl"``.
    #[getter]
    fn backend(&self) -> &str {
        self.0.backend().name()
    }

    /// Its root devices.
    #[getter]
    fn devices(&self) -> Vec<Device> {
        self.0.devices().iter().cloned().map(Device).collect()
    }

    /// The default context of its devices, which other SYCL libraries use too.
    #[getter]
    fn default_context(&self, py: Python<'_>) -> PyResult<Context> {
        Ok(Context(detach(py, || self.0.default_context())?))
    }

    fn __repr__(&self) -> String {
        format!("<usmq.{}>", self.0.to_string().replacen("platform", "Platform", 1))
    }
}

/// List every visible platform, in the order of the runtime.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> [device for platform in usmq.platforms() for device in platform.devices] == usmq.devices()
/// True
#[pyfunction]
pub(super) fn platforms(py: Python<'_>) -> PyResult<Vec<Platform>> {
    Ok(detach(py, crate::platforms)?.into_iter().map(Platform).collect())
}

/// The filter that these arguments describe.
pub(super) fn filter(
    aspects: Option<Vec<String>>,
    excluded_aspects: Option<Vec<String>>,
    backend: Option<&str>,
    device_type: Option<&str>,
) -> DeviceFilter {
    let mut filter = DeviceFilter::new();
    filter = aspects.into_iter().flatten().fold(filter, DeviceFilter::aspect);
    filter = excluded_aspects.into_iter().flatten().fold(filter, DeviceFilter::without_aspect);
    filter = backend.into_iter().fold(filter, DeviceFilter::backend);
    device_type.into_iter().fold(filter, DeviceFilter::device_type)
}

/// List the visible root devices, in the order of the runtime; all, or those with the given properties.
///
/// Parameters
/// ----------
/// aspects : sequence of str, optional
///     SYCL aspects that a device must have, as ``["fp64"]``.
/// excluded_aspects : sequence of str, optional
///     SYCL aspects that it must not have, as ``["emulated"]``.
/// backend : str, optional
///     Its backend, as ``"opencl"`` or ``"level_zero"``.
/// device_type : str, optional
///     ``"cpu"``, ``"gpu"``, ``"accelerator"`` or ``"custom"``.
///
/// A platform whose devices cannot be listed is skipped; ``python -m usmq doctor`` reports it.
///
/// The first use of a device in a process may set environment variables with ``setenv``, which is not
/// thread-safe: call this function before you start threads that use the environment, for example for name
/// resolution.
///
/// Raises
/// ------
/// ValueError
///     A name is unknown.
///
/// Warns
/// -----
/// RuntimeWarning
///     A part of usmq's OpenCL layer is off that the process needs (:func:`layers`). A variable of the
///     emulated GPUs has changed since the first device query, which read it.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> all(device.parent is None for device in usmq.devices())
/// True
/// >>> all(device.has_aspect("fp64") for device in usmq.devices(aspects=["fp64"]))
/// True
#[pyfunction]
#[pyo3(signature = (*, aspects=None, excluded_aspects=None, backend=None, device_type=None))]
pub(super) fn devices(
    py: Python<'_>,
    #[pyo3(from_py_with = argument::aspects)] aspects: Option<Vec<String>>,
    #[pyo3(from_py_with = argument::excluded_aspects)] excluded_aspects: Option<Vec<String>>,
    #[pyo3(from_py_with = argument::backend)] backend: Option<&str>,
    #[pyo3(from_py_with = argument::device_type)] device_type: Option<&str>,
) -> PyResult<Vec<Device>> {
    let filter = filter(aspects, excluded_aspects, backend, device_type);
    let devices = detach(py, || filter.devices())?;
    let problems = layer_problems(&crate::devices()?).into_iter().map(|problem| problem.text);
    for text in problems.chain(emulator::ignored_change()) {
        let text = CString::new(text).map_err(|_| PyValueError::new_err("a warning contains NUL"))?;
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)?;
    }
    Ok(devices.into_iter().map(Device).collect())
}

/// Return whether each part of usmq's OpenCL layer is in use, as the layer itself reports it.
///
/// Queries the devices first. :func:`devices` warns if a part is off that the process needs.
///
/// Returns
/// -------
/// dict
///     ``"waits"``: waits of several threads, of any library, cannot lock up the OpenCL driver for
///     CPUs, since its queues are in-order. ``"emulator"``: the process emulates GPUs (``USMQ_EMULATE_GPUS``).
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.layers()["waits"]
/// True
#[pyfunction]
pub(super) fn layers(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let found = detach(py, crate::layers)?;
    let dict = PyDict::new(py);
    dict.set_item("waits", found.waits)?;
    dict.set_item("emulator", found.emulator)?;
    Ok(dict)
}

/// Platforms whose devices could not be listed: pairs of name and reason.
#[pyfunction]
pub(super) fn platform_problems(py: Python<'_>) -> PyResult<Vec<(String, String)>> {
    let problems = detach(py, crate::platform_problems)?;
    Ok(problems.into_iter().map(|problem| (problem.platform, problem.error.to_string())).collect())
}
