//! Statistics and limits of memory.

use super::gil::detach;
use super::{argument, target};
use crate::{Device, Target, UsmKind, memory};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What the memory pools hold, per USM kind.
///
/// Parameters
/// ----------
/// device : str or Device, optional
///     All devices when omitted.
///
/// Returns
/// -------
/// dict
///     For ``"device"``, ``"shared"`` and ``"host"`` a dict. In bytes: ``used`` (held by live arrays), ``reserved``
///     (taken from the runtime, in use or kept), ``peak`` (the largest ``used``) and ``limit`` (or None). Counts:
///     ``live`` allocations, ``hits`` (served from what was kept) and ``misses`` (requests to the runtime).
///
/// Raises
/// ------
/// SelectorError
///     It is no filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists those that are visible.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> before = usmq.memory_stats()["device"]["live"]
/// >>> x = usmq.empty(10)
/// >>> usmq.memory_stats()["device"]["live"] - before
/// 1
#[pyfunction]
#[pyo3(signature = (device=None))]
pub(super) fn memory_stats<'py>(
    py: Python<'py>,
    device: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let device = device_of(py, device)?;
    let all = PyDict::new(py);
    for (kind, stats) in memory::stats(device.as_ref())? {
        let one = PyDict::new(py);
        one.set_item("used", stats.used)?;
        one.set_item("reserved", stats.reserved)?;
        one.set_item("peak", stats.peak)?;
        one.set_item("limit", stats.limit)?;
        one.set_item("live", stats.live)?;
        one.set_item("hits", stats.hits)?;
        one.set_item("misses", stats.misses)?;
        all.set_item(kind.name(), one)?;
    }
    Ok(all)
}

/// Set the most bytes that arrays may take from a device's memory.
///
/// Parameters
/// ----------
/// bytes : int or None
///     The limit for each USM kind; None lifts it, for one device also where each has one. What arrays hold beyond it
///     stays theirs.
/// device : str or Device, optional
///     Each device when omitted.
/// usm_type : {"device", "shared", "host"}, optional
///     Each kind when omitted.
///
/// Raises
/// ------
/// ValueError
///     There is no such USM kind.
/// SelectorError
///     ``device`` is no filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists those that are visible.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.set_memory_limit(2**30, "cpu")
/// >>> usmq.memory_stats("cpu")["device"]["limit"] == 2**30
/// True
/// >>> usmq.set_memory_limit(None, "cpu")
#[pyfunction]
#[pyo3(signature = (bytes, device=None, usm_type=None))]
pub(super) fn set_memory_limit(
    py: Python<'_>,
    bytes: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: Option<&str>,
) -> PyResult<()> {
    let bytes = bytes.map(|bytes| limit(bytes, "bytes")).transpose()?;
    let device = device_of(py, device)?;
    let kind = usm_type.map(str::parse::<UsmKind>).transpose()?;
    // What is kept goes back to the runtime, which may wait for kernels.
    Ok(detach(py, || memory::set_limit(bytes, device.as_ref(), kind))?)
}

/// A limit in bytes, for the argument of this name.
pub(super) fn limit(object: &Bound<'_, PyAny>, name: &str) -> PyResult<u64> {
    argument::given(object, name, "a number of bytes from 0 to 2**64 - 1, or None")
}

/// Return memory that is kept for reuse to the runtime.
///
/// Parameters
/// ----------
/// device : str or Device, optional
///     All devices when omitted.
///
/// Raises
/// ------
/// SelectorError
///     It is no filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists those that are visible.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.trim_memory()
#[pyfunction]
#[pyo3(signature = (device=None))]
pub(super) fn trim_memory(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let device = device_of(py, device)?;
    Ok(detach(py, || memory::trim(device.as_ref()))?)
}

fn device_of(py: Python<'_>, object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Device>> {
    match target::target(object, "device")? {
        Target::Unset => Ok(None),
        target => Ok(Some(detach(py, || target.device())?)),
    }
}
