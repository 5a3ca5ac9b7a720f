//! `usmq.Queue`, `usmq.Context` and `usmq.Event`.

use super::capsule::{context_capsule, queue_capsule};
use super::classes::{Context, Device, Event, Queue};
use super::gil::{call_on_own_thread, detach, drop_on_own_thread};
use super::{argument, errors, pickle, scope, submitter, target};
use crate::{QueueProperties, Target, Timestamps};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PySequence, PyTuple};
use std::mem::ManuallyDrop;

#[pymethods]
impl Queue {
    #[new]
    #[pyo3(signature = (target=None, *, context=None, in_order=None, profiling=None, priority=None))]
    fn new(
        py: Python<'_>,
        target: Option<&Bound<'_, PyAny>>,
        context: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::in_order)] in_order: Option<bool>,
        #[pyo3(from_py_with = argument::profiling)] profiling: Option<bool>,
        #[pyo3(from_py_with = argument::priority)] priority: Option<&str>,
    ) -> PyResult<Self> {
        let (target, context) = (target::target(target, "target")?, target::context(context)?);
        let own = match &target {
            Target::Queue(queue) => QueueProperties {
                in_order: queue.in_order(),
                profiling: queue.profiling(),
                priority: queue.priority(),
            },
            _ => QueueProperties::default(),
        };
        let properties = QueueProperties {
            in_order: in_order.unwrap_or(own.in_order),
            profiling: profiling.unwrap_or(own.profiling),
            priority: priority.map_or(Ok(own.priority), str::parse)?,
        };
        let queue = detach(py, || match (target, context) {
            (Target::Queue(queue), None) => queue.with_properties(properties),
            (target, context) => crate::Queue::new(target, context.as_ref(), properties),
        });
        Ok(Self(queue?))
    }

    /// The device on which commands run.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device().clone())
    }

    /// The context whose USM the queue's kernels may use.
    #[getter]
    fn context(&self) -> Context {
        Context(self.0.context().clone())
    }

    /// Whether commands run in the order of their submission.
    #[getter]
    fn in_order(&self) -> bool {
        self.0.in_order()
    }

    /// Whether events carry device timestamps.
    #[getter]
    fn profiling(&self) -> bool {
        self.0.profiling()
    }

    /// ``"normal"``, ``"high"`` or ``"low"``: a hint for the scheduler of the device.
    #[getter]
    fn priority(&self) -> &str {
        self.0.priority().name()
    }

    /// Submit a barrier.
    ///
    /// Its event completes after all commands that were submitted to this queue before, and after the given
    /// events. Later commands of this queue run after it.
    ///
    /// Parameters
    /// ----------
    /// after : sequence of Event, optional
    ///     Events of any queues.
    ///
    /// Returns
    /// -------
    /// Event
    ///     The barrier; the call does not wait.
    ///
    /// Examples
    /// --------
    /// >>> import usmq
    /// >>> first, second = usmq.Queue("cpu"), usmq.Queue("cpu", in_order=False)
    /// >>> second.barrier(after=[first.barrier()]).wait()
    #[pyo3(signature = (after=None))]
    fn barrier(&self, py: Python<'_>, after: Option<&Bound<'_, PyAny>>) -> PyResult<Event> {
        let after = after.map_or(Ok(Vec::new()), events)?;
        Ok(Event(submitter::submit(py, &self.0, || self.0.barrier(&after))?))
    }

    /// Block until every command submitted so far is complete.
    ///
    /// Raises
    /// ------
    /// SyclError
    ///     A command has reported an error since the last wait.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        Ok(detach(py, || self.0.wait())?)
    }

    /// Return a capsule "SyclQueueRef" with a second handle to this queue, as dpctl and dpnp accept it.
    fn _get_capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        queue_capsule(py, &self.0)
    }

    /// Pickles the device and properties.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<pickle::Reduced<'py>> {
        pickle::reduce_queue(py, &self.0)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __repr__(&self) -> String {
        format!("<usmq.{}>", self.0.to_string().replacen("queue", "Queue", 1))
    }
}

/// Return a queue as dpctl's type, for dpctl and dpnp. It is the same queue: commands of all libraries share
/// its order.
///
/// Parameters
/// ----------
/// target : str, Device, Queue, another library's queue or None
///     The queue; None is the current queue.
///
/// Returns
/// -------
/// dpctl.SyclQueue
///     A second handle to the queue.
///
/// Raises
/// ------
/// ImportError
///     dpctl is not installed.
/// SelectorError
///     ``target`` is not a filter string.
/// DeviceNotFoundError
///     No visible device matches; the text lists the visible ones.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> with usmq.use_queue("cpu") as q:
/// ...     theirs = usmq.dpctl_queue()
/// >>> usmq.Queue(theirs) == q
/// True
#[pyfunction]
#[pyo3(signature = (target=None))]
pub(super) fn dpctl_queue<'py>(
    py: Python<'py>,
    target: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let dpctl = errors::optional(py, "dpctl", "usmq.dpctl_queue()", "")?;
    let queue = match target::named(py, target, "target")? {
        Some(queue) => queue,
        None => scope::current(py)?,
    };
    dpctl.getattr("SyclQueue")?.call1((queue_capsule(py, &queue)?,))
}

/// Query a context for the kind, device and allocation of an address.
///
/// Parameters
/// ----------
/// ptr : int
///     Any address.
/// context : Context
///     A usmq.Context, or another library's context.
///
/// Returns
/// -------
/// PointerInfo or None
///     None for an address that is not USM of this context.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> x = usmq.zeros(3)
/// >>> info = usmq.pointer_info(x.ptr, x.queue.context)
/// >>> info.kind, info.device == x.device, info.base is None or info.base <= x.ptr
/// ('device', True, True)
/// >>> usmq.pointer_info(0, x.queue.context) is None
/// True
#[pyfunction]
pub(super) fn pointer_info(
    #[pyo3(from_py_with = argument::ptr)] ptr: usize,
    context: &Bound<'_, PyAny>,
) -> PyResult<Option<PointerInfo>> {
    let context = target::required_context(context)?;
    Ok(context.pointer_info(ptr)?.map(PointerInfo))
}

/// The result of ``usmq.pointer_info``.
#[pyclass(module = "usmq", frozen)]
pub(super) struct PointerInfo(crate::PointerInfo);

#[pymethods]
impl PointerInfo {
    /// The USM kind: ``"device"``, ``"shared"`` or ``"host"``.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// The device that owns device or shared memory; for host memory a device of the context.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device.clone())
    }

    /// The first address of the allocation; None if the driver does not report it.
    #[getter]
    fn base(&self) -> Option<usize> {
        self.0.base
    }

    /// The bytes of the allocation; None if the driver does not report them.
    #[getter]
    fn nbytes(&self) -> Option<usize> {
        self.0.bytes
    }

    fn __repr__(&self) -> String {
        let base = self.0.base.map_or("None".to_owned(), |base| format!("{base:#x}"));
        let bytes = self.0.bytes.map_or("None".to_owned(), |bytes| bytes.to_string());
        format!(
            "<usmq.PointerInfo kind={:?} device={:?} base={base} nbytes={bytes}>",
            self.0.kind.name(),
            self.0.device.to_string()
        )
    }
}

#[pymethods]
impl Context {
    #[new]
    fn new(py: Python<'_>, devices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let wanted = "a sequence of usmq.Device, as [usmq.Device(\"cpu\")]";
        let wrong = || argument::wrong_type(devices, "devices", wanted);
        devices.cast::<PySequence>().map_err(|_| wrong())?;
        let devices = devices
            .try_iter()?
            .map(|device| Ok(device?.cast::<Device>().map_err(|_| wrong())?.get().0.clone()))
            .collect::<PyResult<Vec<_>>>()?;
        if devices.is_empty() {
            return Err(crate::Error::value("a context needs at least one device").into());
        }
        Ok(Self(detach(py, || crate::Context::new(&devices))?))
    }

    /// The devices of this context.
    #[getter]
    fn devices(&self) -> PyResult<Vec<Device>> {
        Ok(self.0.devices()?.into_iter().map(Device).collect())
    }

    /// Return a capsule "SyclContextRef" with a second handle to this context.
    fn _get_capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        context_capsule(py, &self.0)
    }

    fn __repr__(&self) -> String {
        format!("<usmq.{}>", self.0.to_string().replacen("context", "Context", 1))
    }
}

fn events(after: &Bound<'_, PyAny>) -> PyResult<Vec<crate::Event>> {
    let wrong = || argument::wrong_type(after, "after", "a sequence of usmq.Event, as [event]");
    after.cast::<PySequence>().map_err(|_| wrong())?;
    after.try_iter()?.map(|event| Ok(event?.cast::<Event>().map_err(|_| wrong())?.get().0.clone())).collect()
}

/// Runs code of the user, which has no caller to raise an exception in. `run` is the function, or calls it.
fn call_back<'py>(
    run: &Bound<'py, PyAny>,
    arguments: impl pyo3::call::PyCallArgs<'py>,
    function: &Bound<'py, PyAny>,
) {
    if let Err(error) = run.call1(arguments) {
        error.write_unraisable(function.py(), Some(function));
    }
}

/// A call of `function` with the event, from a thread of usmq.
fn later(function: &Bound<'_, PyAny>, event: &Bound<'_, Event>) -> PyResult<impl FnOnce() + Send + 'static> {
    let arguments = PyTuple::new(event.py(), [event])?;
    // Without the interpreter the objects are leaked.
    let objects = ManuallyDrop::new((function.clone().unbind(), arguments.unbind()));
    Ok(move || {
        Python::try_attach(|py| {
            let (function, arguments) = ManuallyDrop::into_inner(objects);
            call_on_own_thread(function.bind(py), arguments.bind(py));
            drop_on_own_thread(py, function);
            drop_on_own_thread(py, arguments);
        });
    })
}

#[pymethods]
impl Event {
    /// Block until the command is complete.
    ///
    /// Raises
    /// ------
    /// SyclError
    ///     The command, or an earlier one on its queue, has reported an error.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        if submitter::done_soon(|| self.0.is_complete()) && !self.0.expects_output() {
            // A thread that releases the GIL may get it back much later, when other threads run Python.
            return Ok(self.0.wait()?);
        }
        Ok(detach(py, || self.0.wait())?)
    }

    /// Return whether the command is complete or has failed; never blocks.
    fn done(&self) -> PyResult<bool> {
        Ok(self.0.done()?)
    }

    /// When the command was submitted, started and ended: a named tuple ``(submit, start, end)`` in nanoseconds of
    /// the device's clock. Waits for the end.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     The queue was created without ``profiling=True``.
    #[getter]
    fn timestamps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let Timestamps { submit, start, end } = detach(py, || self.0.timestamps())?;
        let class = CLASS.get_or_try_init(py, || {
            PyResult::Ok(py.import("usmq._timestamps")?.getattr("Timestamps")?.unbind())
        })?;
        class.bind(py).call1((submit, start, end))
    }

    /// Call a function with the event, once, after the command is complete or has failed.
    ///
    /// If that is the case already, the function is called now. Otherwise a thread of usmq calls it, one
    /// function after the other; memory is not released meanwhile, so pass longer work to a thread of your
    /// own. An exception is passed to ``sys.unraisablehook``, also that of ``sys.exit``. Call ``event.wait()``, which then does not block,
    /// to learn whether the command has failed. Functions that are not called before the interpreter exits
    /// are never called.
    ///
    /// Parameters
    /// ----------
    /// function : callable
    ///     Called as ``function(event)``, outside the scopes and the context of the caller.
    ///
    /// Examples
    /// --------
    /// >>> import threading, usmq
    /// >>> kernel = usmq.Kernel.from_opencl("kernel void nothing() {}", "nothing", queue="opencl:cpu")
    /// >>> called = threading.Event()
    /// >>> kernel(1, queue="opencl:cpu").add_done_callback(lambda event: called.set())
    /// >>> called.wait()
    /// True
    fn add_done_callback(slf: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        if !function.is_callable() {
            return Err(argument::wrong_type(function, "function", "a callable of one argument, the event"));
        }
        let py = slf.py();
        let event = &slf.get().0;
        if event.done()? {
            if event.expects_output() {
                detach(py, || event.write_output());
            }
            let outside = py.import("contextvars")?.getattr("Context")?.call0()?;
            call_back(&outside.getattr("run")?, (function, slf), function);
            return Ok(());
        }
        let called = later(function, slf)?;
        detach(py, || event.on_complete(called));
        Ok(())
    }

    /// As ``add_done_callback``, for a function that wakes a task: others do not delay it.
    fn _wake(slf: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        let (command, called) = (slf.get().0.clone(), later(function, slf)?);
        detach(slf.py(), || command.wake_on_complete(called));
        Ok(())
    }

    /// Waits in asyncio for the end of the command, and raises its errors as ``wait`` does. The event loop
    /// runs other tasks meanwhile. Cancelling the task ends the wait; the command continues.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("usmq._asyncio")?.call_method1("wait", (slf,))?.call_method0("__await__")
    }

    /// The queue on which the command runs.
    #[getter]
    fn queue(&self) -> Queue {
        Queue(self.0.queue().clone())
    }

    fn __repr__(&self) -> String {
        let state = if self.0.is_complete() { "complete" } else { "pending" };
        format!("<usmq.Event {state} on {}>", self.0.queue())
    }
}
