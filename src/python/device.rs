//! `usmq.Device`, and the visible devices.

use super::classes::Device;
use super::gil::detach;
use super::{argument, index, pickle, target};
use crate::runtime::emulator::{self, Fault};
use crate::{Partition, UsmKind};
use pyo3::exceptions::{PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PySequence, PyString, PyTuple};
use std::ffi::CString;

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (filter=None, /))]
    fn new(py: Python<'_>, filter: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let target = target::target(filter, "filter")?;
        Ok(Self(detach(py, || target.device())?))
    }

    /// The device's name, as the driver reports it.
    #[getter]
    fn name(&self) -> &str {
        self.0.name().trim()
    }

    /// The vendor's name.
    #[getter]
    fn vendor(&self) -> &str {
        self.0.vendor()
    }

    /// The driver's version.
    #[getter]
    fn driver_version(&self) -> &str {
        self.0.driver_version()
    }

    /// ``"opencl"``, ``"level_zero"``, ``"cuda"``, ``"hip"``, ``"native_cpu"`` or ``"other"``.
    #[getter]
    fn backend(&self) -> &str {
        self.0.backend().name()
    }

    /// ``"cpu"``, ``"gpu"``, ``"accelerator"`` or ``"custom"``.
    #[getter]
    fn device_type(&self) -> &str {
        self.0.device_type().name()
    }

    /// The filter string of this root device; None for a sub-device.
    #[getter]
    fn filter_string(&self) -> Option<&str> {
        self.0.filter_string()
    }

    /// Names of the SYCL aspects that the device has, as ``"fp64"``.
    #[getter]
    fn aspects(&self) -> PyResult<Vec<&'static str>> {
        Ok(self.0.aspects()?.into_iter().map(crate::Aspect::name).collect())
    }

    /// Number of compute units.
    #[getter]
    fn max_compute_units(&self) -> u32 {
        self.0.max_compute_units()
    }

    /// Largest number of work-items in a work-group.
    #[getter]
    fn max_work_group_size(&self) -> usize {
        self.0.max_work_group_size()
    }

    /// Global memory in bytes.
    #[getter]
    fn global_mem_size(&self) -> u64 {
        self.0.global_mem_size()
    }

    /// Local memory of a work-group in bytes.
    #[getter]
    fn local_mem_size(&self) -> u64 {
        self.0.local_mem_size()
    }

    /// Largest single allocation in bytes.
    #[getter]
    fn max_alloc_size(&self) -> u64 {
        self.0.max_alloc_size()
    }

    /// The parent of a sub-device; None for a root device.
    #[getter]
    fn parent(&self) -> Option<Self> {
        self.0.parent().cloned().map(Self)
    }

    /// Position of the root device among all visible ones.
    #[getter]
    fn ordinal(&self) -> usize {
        self.0.ordinal()
    }

    /// Whether memory of this USM kind can be allocated.
    ///
    /// Parameters
    /// ----------
    /// kind : str
    ///     ``"device"``, ``"shared"`` or ``"host"``.
    fn has_usm(&self, #[pyo3(from_py_with = argument::kind)] kind: &str) -> PyResult<bool> {
        Ok(self.0.has_usm(kind.parse::<UsmKind>()?))
    }

    /// Partition the device into sub-devices. The same request returns the same sub-devices. Each has its own
    /// context, and thus its own memory.
    ///
    /// Parameters
    /// ----------
    /// partition : int, list of int or "numa"
    ///     The compute units of every part, a list with the compute units of each part, or one part per NUMA
    ///     domain.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     A part would have less than one compute unit, or the name is unknown.
    /// TypeError
    ///     ``partition`` has another type.
    /// SyclError
    ///     The device cannot be partitioned this way, for example because it has too few compute units.
    fn sub_devices(&self, py: Python<'_>, partition: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        let partition = partition_from(partition)?;
        let parts = detach(py, || self.0.sub_devices(&partition))?;
        Ok(parts.into_iter().map(Self).collect())
    }

    /// Pickles the filter string.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<pickle::Reduced<'py>> {
        let args = PyTuple::new(py, [pickle::filter(&self.0)?])?;
        Ok((py.get_type::<Self>().into_any(), args))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Device {}>", self.0)
    }
}

fn partition_from(object: &Bound<'_, PyAny>) -> PyResult<Partition> {
    if let Ok(text) = object.cast::<PyString>() {
        return match text.to_str()? {
            "numa" => Ok(Partition::Numa),
            other => Err(crate::Error::Value(format!(
                "partition must be \"numa\" where it is a str, not {other:?}"
            ))
            .into()),
        };
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(Partition::Equally(index::shape(object, "partition")?.into_iter().sum()));
    }
    match object.cast::<PySequence>() {
        Ok(_) if !object.is_instance_of::<PyBytes>() => {
            Ok(Partition::ByCounts(index::extents(object, "partition")?))
        }
        _ => {
            let wanted = "a number of compute units, a sequence of such numbers, or \"numa\"";
            Err(argument::wrong_type(object, "partition", wanted))
        }
    }
}

/// List every visible root device, in the order of the runtime.
///
/// A platform whose devices cannot be listed is skipped; ``python -m usmq doctor`` reports it.
///
/// The first use of a device in a process may set environment variables with ``setenv``, which is not
/// thread-safe: call this function before you start threads that use the environment, for example for name
/// resolution.
///
/// Warns
/// -----
/// RuntimeWarning
///     A variable of the emulated GPUs has changed since the first device query, which read it.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> all(device.parent is None for device in usmq.devices())
/// True
#[pyfunction]
pub(super) fn devices(py: Python<'_>) -> PyResult<Vec<Device>> {
    let devices = detach(py, crate::devices)?;
    if let Some(Ok(text)) = emulator::ignored_change().map(CString::new) {
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)?;
    }
    Ok(devices.into_iter().map(Device).collect())
}

/// Platforms whose devices could not be listed: pairs of name and reason.
#[pyfunction]
pub(super) fn platform_problems(py: Python<'_>) -> PyResult<Vec<(String, String)>> {
    let problems = detach(py, crate::platform_problems)?;
    Ok(problems.into_iter().map(|problem| (problem.platform, problem.error.to_string())).collect())
}

/// Copies the variables that usmq has set for the runtime to ``os.environ``: child processes often get a copy
/// of it, and may query devices before usmq does.
pub(super) fn share_environment(py: Python<'_>) -> PyResult<()> {
    let environ = py.import("os")?.getattr("environ")?;
    for (name, value) in crate::runtime::name_driver() {
        environ.set_item(name, value.into_os_string())?;
    }
    Ok(())
}

/// Check the variables of the emulated GPUs and set those that a program needs to see them; for ``usmq
/// emulate``.
#[pyfunction]
pub(super) fn prepare_emulation(py: Python<'_>) -> PyResult<()> {
    match emulator::fault()? {
        Some(Fault::Setting(text)) => Err(PyValueError::new_err(text)),
        Some(fault) => Err(crate::Error::from(fault).into()),
        None => share_environment(py),
    }
}

/// Paths of the loaded libraries whose names start with the prefix; for ``doctor``.
#[pyfunction]
pub(super) fn runtime_libraries(prefix: &str) -> Vec<String> {
    crate::runtime::libraries(prefix).into_iter().map(|path| path.display().to_string()).collect()
}
