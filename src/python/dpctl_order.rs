//! The order of dpnp's operations after commands of usmq, on queues that both use; `usmq/_dpctl_order.py` explains it.

use super::capsule::queue_from;
use super::gil::detach;
use crate::{DeviceType, Queue};
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::collections::BTreeMap;

/// Lets operations of dpnp on `theirs`, dpctl's handle to `queue`, follow the commands of usmq. Without dpnp in the process
/// it does nothing.
pub(super) fn follow(queue: &Queue, theirs: &Bound<'_, PyAny>) -> PyResult<()> {
    static FOLLOW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = theirs.py();
    // oneMKL computes on the host if the type of the device is this one.
    if queue.device().device_type() != DeviceType::Cpu || !is_loaded(py, "dpnp")? {
        return Ok(());
    }
    let follow = FOLLOW
        .get_or_try_init(py, || PyResult::Ok(py.import("usmq._dpctl_order")?.getattr("follow")?.unbind()))?;
    follow.bind(py).call1((theirs, queue.id())).map(drop)
}

pub(super) fn is_loaded(py: Python<'_>, module: &str) -> PyResult<bool> {
    py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?.contains(module)
}

/// dpctl's cached queue of the array's device, on which consumers of DLPack that take no stream work. None if dpctl is not
/// loaded, or the device has no filter string.
pub(super) fn default_queue(py: Python<'_>, array: &crate::Array) -> PyResult<Option<Queue>> {
    static QUEUES: Mutex<BTreeMap<usize, (Py<PyAny>, Queue)>> = Mutex::new(BTreeMap::new());
    let device = array.device();
    let Some(filter) = device.filter_string() else { return Ok(None) };
    if !is_loaded(py, "dpctl")? {
        return Ok(None);
    }
    let known =
        QUEUES.lock().get(&device.ordinal()).map(|(theirs, queue)| (theirs.clone_ref(py), queue.clone()));
    let (theirs, queue) = match known {
        Some(known) => known,
        None => {
            let found = find_default_queue(py, filter)?.filter(|(_, queue)| queue.device() == device);
            let Some((theirs, queue)) = found else { return Ok(None) };
            QUEUES.lock().insert(device.ordinal(), (theirs.clone_ref(py), queue.clone()));
            (theirs, queue)
        }
    };
    follow(&queue, theirs.bind(py))?;
    Ok(Some(queue))
}

fn find_default_queue(py: Python<'_>, filter: &str) -> PyResult<Option<(Py<PyAny>, Queue)>> {
    // Another version of dpctl may not have it. The doctor names such a version.
    let Ok(module) = py.import("dpctl._sycl_queue_manager") else { return Ok(None) };
    let Some(cached) = module.getattr_opt("get_device_cached_queue")? else { return Ok(None) };
    // A device that dpctl does not accept has no consumer there.
    let Ok(theirs) = cached.call1((filter,)) else { return Ok(None) };
    Ok(queue_from(&theirs)?.map(|queue| (theirs.unbind(), queue)))
}

/// Waits for the commands of usmq that are in flight on the queue with this number. Their errors stay for the next wait.
#[pyfunction]
pub(super) fn _finish_commands(py: Python<'_>, number: usize) -> PyResult<()> {
    match Queue::with_id(number)? {
        Some(queue) if queue.has_commands_in_flight() => Ok(detach(py, || queue.finish_commands())?),
        _ => Ok(()),
    }
}
