//! `usmq.Timer`.

use super::classes::Queue;
use super::gil::detach;
use super::scope;
use crate::{Elapsed, Error};
use parking_lot::Mutex;
use pyo3::prelude::*;

/// Measures a ``with`` block: the time on the host, and the time of its commands on the device.
///
/// The queue needs no timestamps. Two barriers mark the begin and the end of the block's commands on it, and
/// a queue of the timer records when they complete. The block does not wait for the device. A timer can be
/// entered again, which replaces the result.
///
/// Parameters
/// ----------
/// queue : str, Device, Queue, another library's queue or None
///     The queue to measure; None is the current queue.
///
/// Raises
/// ------
/// ValueError
///     The device records no timestamps.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> with usmq.Timer("cpu") as t:
/// ...     x = usmq.full(1_000_000, 1.0, queue="cpu")
/// >>> t.device_s > 0 and t.host_s > 0
/// True
#[pyclass(module = "usmq", frozen)]
pub(super) struct Timer {
    queue: crate::Queue,
    state: Mutex<State>,
}

enum State {
    New,
    Running(crate::Timer),
    Done(Elapsed),
}

impl Timer {
    fn elapsed(&self) -> PyResult<Elapsed> {
        match &*self.state.lock() {
            State::Done(elapsed) => Ok(elapsed.clone()),
            State::New | State::Running(_) => {
                Err(Error::value("the timer has no result: read it after its `with` block has ended").into())
            }
        }
    }
}

#[pymethods]
impl Timer {
    #[new]
    #[pyo3(signature = (queue=None))]
    fn new(py: Python<'_>, queue: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self { queue: scope::queue_or_current(py, queue)?, state: Mutex::new(State::New) })
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let own = slf.get();
        if matches!(&*own.state.lock(), State::Running(_)) {
            return Err(Error::value("the timer is running: use one timer for each block").into());
        }
        let timer = detach(slf.py(), || crate::Timer::start(&own.queue))?;
        *own.state.lock() = State::Running(timer);
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<bool> {
        let State::Running(timer) = std::mem::replace(&mut *self.state.lock(), State::New) else {
            return Err(Error::value("the timer is not running").into());
        };
        let elapsed = detach(py, || timer.stop())?;
        *self.state.lock() = State::Done(elapsed);
        Ok(false)
    }

    /// Seconds that the block took on the host. Work that runs after the block is not included.
    #[getter]
    fn host_s(&self) -> PyResult<f64> {
        Ok(self.elapsed()?.host().as_secs_f64())
    }

    /// Seconds of the block's commands on the device, by its clock: from the end of earlier commands of the
    /// queue, or from the begin of the block if there are none, to the end of the last command. Waits for
    /// it.
    #[getter]
    fn device_s(&self, py: Python<'_>) -> PyResult<f64> {
        let elapsed = self.elapsed()?;
        Ok(detach(py, || elapsed.device())?.as_secs_f64())
    }

    /// The measured queue.
    #[getter]
    fn queue(&self) -> Queue {
        Queue(self.queue.clone())
    }

    fn __repr__(&self) -> String {
        let state = match &*self.state.lock() {
            State::New => "not started".to_owned(),
            State::Running(_) => "running".to_owned(),
            State::Done(elapsed) => format!("{:.6} s on the host", elapsed.host().as_secs_f64()),
        };
        format!("<usmq.Timer {state}, {}>", self.queue)
    }
}
