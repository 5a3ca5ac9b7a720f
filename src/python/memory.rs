//! Statistics and limits of memory.

use super::gil::detach;
use super::{argument, target};
use crate::{Device, Target, UsmKind, memory};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Report the usage of the memory pools, per USM kind.
///
/// Parameters
/// ----------
/// device : str or Device, optional
///     By default all devices.
///
/// Returns
/// -------
/// dict
///     For ``"device"``, ``"shared"`` and ``"host"`` a dict. In bytes: ``used`` (held by live arrays),
///     ``reserved`` (allocated from the runtime, in use or cached), ``peak`` (the largest ``used``) and
///     ``limit`` (or None). Counts: ``live`` allocations, ``hits`` (served from the cache) and ``misses``
///     (requests to the runtime).
///
/// Raises
/// ------
/// SelectorError
///     ``device`` is not a filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists the visible ones.
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

/// Limit the memory that arrays may use on a device.
///
/// Parameters
/// ----------
/// bytes : int, str or None
///     The limit for each USM kind, as a number of bytes or a size such as ``"512MiB"``, ``"1.5 GiB"`` or ``"2 GB"``; None
///     removes it. None for one device also overrides a limit for all
///     devices. Existing arrays keep their memory even beyond the limit.
/// device : str or Device, optional
///     By default each device.
/// usm_type : {"device", "shared", "host"}, optional
///     By default each kind.
///
/// Raises
/// ------
/// ValueError
///     The USM kind is unknown, or the text is not a size; the error lists the units.
/// SelectorError
///     ``device`` is not a filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists the visible ones.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.set_memory_limit("1GiB", "cpu")
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
    // Returning cached memory to the runtime may wait for kernels.
    Ok(detach(py, || memory::set_limit(bytes, device.as_ref(), kind))?)
}

/// A limit in bytes, for the argument of this name.
pub(super) fn limit(object: &Bound<'_, PyAny>, name: &str) -> PyResult<u64> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(memory::parse_size(text.to_str()?)?);
    }
    let wanted = "a number of bytes from 0 to 2**64 - 1, a size as \"512MiB\", or None";
    argument::given(object, name, wanted)
}

/// Record the source line of each allocation of USM, so that an AllocationError lists the lines whose arrays hold the
/// most memory.
///
/// Recording costs a few microseconds per allocation; while it is off, one load of a flag. ``usmq.profile()`` records the
/// allocations of its block, too, with their times and as a counter in the saved trace.
///
/// Parameters
/// ----------
/// enabled : bool
///     False ends recording and forgets what was recorded.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.record_allocations()
/// >>> x = usmq.zeros(1000)
/// >>> usmq.live_allocations()[0]["bytes"]
/// 4000
/// >>> usmq.record_allocations(False)
#[pyfunction]
#[pyo3(signature = (enabled=true))]
pub(super) fn record_allocations(#[pyo3(from_py_with = argument::enabled)] enabled: bool) -> PyResult<()> {
    Ok(memory::record_allocations(enabled)?)
}

/// Return the allocations since ``record_allocations()`` that arrays still hold, the largest first.
///
/// Returns
/// -------
/// list of dict
///     ``bytes``, ``usm_type``, ``device``, ``source`` (``"file:line"`` of the call, or None) and ``seconds`` (its age).
///     Empty while recording is off.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.record_allocations(False)
/// >>> usmq.live_allocations()
/// []
#[pyfunction]
pub(super) fn live_allocations(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let entry = |live: memory::LiveAllocation| {
        let entry = PyDict::new(py);
        entry.set_item("bytes", live.bytes)?;
        entry.set_item("usm_type", live.kind.name())?;
        entry.set_item("source", live.source)?;
        entry.set_item("seconds", live.since.elapsed().as_secs_f64())?;
        entry.set_item("device", Bound::new(py, super::classes::Device(live.device))?)?;
        Ok(entry)
    };
    memory::live_allocations()?.into_iter().map(entry).collect()
}

/// Return cached memory to the runtime.
///
/// Parameters
/// ----------
/// device : str or Device, optional
///     By default all devices.
///
/// Raises
/// ------
/// SelectorError
///     ``device`` is not a filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists the visible ones.
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

/// Set the function that usmq calls when an allocation of USM fails: ``make_room(device, usm_type, bytes)`` drops
/// arrays that can be restored later, and returns whether it has dropped any. usmq then tries again. None removes the
/// function.
#[pyfunction]
pub(super) fn set_relief(make_room: Option<Py<PyAny>>) -> PyResult<()> {
    let called = make_room.map(|function| {
        move |device: &Device, kind: UsmKind, bytes: u64| {
            let call = |py: Python<'_>| {
                let device = super::classes::Device(device.clone());
                let dropped = function.call1(py, (device, kind.name(), bytes));
                dropped.and_then(|dropped| dropped.is_truthy(py)).unwrap_or_else(|error| {
                    // The allocation reports that there is no memory.
                    error.write_unraisable(py, Some(function.bind(py)));
                    false
                })
            };
            Python::try_attach(call).unwrap_or(false)
        }
    });
    Ok(memory::set_relief(called)?)
}

fn device_of(py: Python<'_>, object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Device>> {
    match target::target(object, "device")? {
        Target::Unset => Ok(None),
        target => Ok(Some(detach(py, || target.device())?)),
    }
}
