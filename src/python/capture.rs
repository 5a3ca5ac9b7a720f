//! `usmq.capture` and `usmq.Graph`.

use super::capture_scope::{self, Opened};
use super::classes::Event;
use super::gil::{Quiet, detach};
use super::{argument, protocol, submitter};
use crate::capture::Capture;
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

/// Record the commands of a ``with`` block, to run them again with one call.
///
/// Recorded are kernels, copies between arrays, fills, casts and collocations of this context (thread or asyncio task),
/// on all queues. They do not run in the block: ``graph.replay()`` runs them, each time it is called. Arrays made in
/// the block belong to the graph; their elements are undefined before the first replay. Host values that are copied to
/// an array in the block are the same in each replay. Work of other threads is not recorded.
///
/// Parameters
/// ----------
/// inputs : dict of str to Array, optional
///     Arrays whose memory a replay may exchange.
///
/// Returns
/// -------
/// Graph
///     A context manager; ``as`` binds the graph. An exception in the block discards the capture.
///
/// Raises
/// ------
/// CaptureError
///     In the block: a host read, a wait for recorded commands, an export of an array that the block writes, and other
///     calls that need results at once; the text says where to move the call.
/// ValueError
///     At the start of the block: two inputs share memory.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> x, y = usmq.ones(3, "f4"), usmq.zeros(3, "f4")
/// >>> add = usmq.elementwise("const float *x, float *y", "y[i] += x[i]")
/// >>> with usmq.capture(inputs={"x": x}) as graph:
/// ...     event = add(x, y)
/// >>> event = graph.replay()
/// >>> event = graph.replay({"x": usmq.full(3, 10, "f4")})
/// >>> y.tolist()
/// [11.0, 11.0, 11.0]
#[pyfunction]
#[pyo3(signature = (inputs=None))]
pub(super) fn capture(inputs: Option<&Bound<'_, PyAny>>) -> PyResult<Graph> {
    let inputs = Quiet::new(inputs.map_or_else(|| Ok(Vec::new()), named)?);
    Ok(Graph { state: Mutex::new(State::New(inputs)), done: PyOnceLock::new() })
}

/// Reads a dict of arrays.
fn named(inputs: &Bound<'_, PyAny>) -> PyResult<Vec<(String, crate::Array)>> {
    let wanted = || {
        let class = argument::class_name(inputs);
        PyTypeError::new_err(format!("inputs: expected a dict of names and arrays, not {class}"))
    };
    let inputs = inputs.cast::<PyDict>().map_err(|_| wanted())?;
    let one = |(name, object): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name = name.cast_into::<PyString>().map_err(|_| wanted())?.to_str()?.to_owned();
        let array = protocol::usm(&object)?.ok_or_else(|| protocol::no_array(&object))?;
        Ok((name, array))
    };
    inputs.iter().map(one).collect()
}

/// The commands of a ``with usmq.capture()`` block. A notebook shows them as a picture.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> x = usmq.zeros(3)
/// >>> with usmq.capture() as graph:
/// ...     y = x.copy()
/// >>> graph.replay().wait()
/// >>> y.tolist()
/// [0.0, 0.0, 0.0]
#[pyclass(module = "usmq", frozen)]
pub(super) struct Graph {
    state: Mutex<State>,
    done: PyOnceLock<Quiet<crate::Graph>>,
}

enum State {
    New(Quiet<Vec<(String, crate::Array)>>),
    Open(Opened),
    Over,
}

impl Graph {
    fn done(&self, py: Python<'_>) -> PyResult<&crate::Graph> {
        self.done.get(py).map(|graph| &**graph).ok_or_else(|| {
            let state = match &*self.state.lock() {
                State::Over => "its capture was discarded by an exception; capture again",
                State::Open(_) => {
                    let call = "a use of the graph".to_owned();
                    let found = "its with block has not ended".to_owned();
                    return crate::Error::Capture { call, found, fix: "move it behind the block".to_owned() }
                        .into();
                }
                State::New(_) => "it records in a with block",
            };
            PyValueError::new_err(format!("the graph has no commands: {state}"))
        })
    }
}

#[pymethods]
impl Graph {
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let py = slf.py();
        let this = slf.get();
        let taken = std::mem::replace(&mut *this.state.lock(), State::Over);
        let State::New(inputs) = taken else {
            *this.state.lock() = taken;
            return Err(PyRuntimeError::new_err("a graph captures once; call usmq.capture() for another"));
        };
        let named: Vec<_> = inputs.iter().map(|(name, array)| (&name[..], array)).collect();
        let capture = detach(py, || Capture::begin(&named))?;
        *this.state.lock() = State::Open(Opened::new(py, capture)?);
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let closed = || PyRuntimeError::new_err("this graph is not capturing");
        let token = match &*self.state.lock() {
            State::Open(opened) => opened.token(py),
            _ => return Err(closed()),
        };
        // Elsewhere this is an error, and the thread or task that entered it still records. It succeeds once.
        capture_scope::leave(py, &token)?;
        let State::Open(opened) = std::mem::replace(&mut *self.state.lock(), State::Over) else {
            return Err(closed());
        };
        let capture = opened.capture.clone();
        drop(opened);
        if exception.get_item(0).is_ok_and(|class| !class.is_none()) {
            capture.discard();
            return Ok(false);
        }
        let graph = detach(py, || capture.finish())?;
        // Only one thread can have taken the capture.
        let _ = self.done.set(py, Quiet::new(graph));
        Ok(false)
    }

    /// Run the commands; returns immediately.
    ///
    /// A replay counts as one command: it follows all earlier work on its arrays, and later work on them follows it, from
    /// any thread.
    ///
    /// Parameters
    /// ----------
    /// inputs : dict of str to Array, optional
    ///     Other arrays for inputs of the capture, with the same shape, strides, dtype, USM kind, context and, except host
    ///     USM, device. Other inputs keep the array of the capture.
    ///
    /// Returns
    /// -------
    /// Event
    ///     Complete after all commands.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     An unknown name, another layout, a read-only array for an input that the commands write, or memory that other
    ///     commands of the graph use.
    /// TypeError
    ///     Another dtype.
    /// PlacementError
    ///     Memory of another kind, device or context.
    /// CaptureError
    ///     The call is inside a capture.
    #[pyo3(signature = (inputs=None))]
    fn replay(&self, py: Python<'_>, inputs: Option<&Bound<'_, PyAny>>) -> PyResult<Event> {
        let graph = self.done(py)?;
        let Some(inputs) = inputs else {
            return Ok(Event(submitter::submit(py, graph.queue(), || graph.replay())?));
        };
        let inputs = Quiet::new(named(inputs)?);
        let named: Vec<_> = inputs.iter().map(|(name, array)| (&name[..], array)).collect();
        Ok(Event(submitter::submit(py, graph.queue(), || graph.replay_with(&named))?))
    }

    /// Return the parts of the graph as text: device, number of commands, and whether a replay submits a SYCL graph or
    /// a prepared list of commands, with the reason.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.done(py)?.explain())
    }

    /// Return a picture of the commands and their order, as SVG that needs no other file.
    fn svg(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.done(py)?.svg())
    }

    fn _repr_svg_(&self, py: Python<'_>) -> Option<String> {
        Some(self.done.get(py)?.svg())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.done.get(py) {
            Some(graph) => {
                let text = graph.explain();
                format!("<usmq.Graph: {}>", text.lines().next().unwrap_or_default())
            }
            None => {
                let state = match &*self.state.lock() {
                    State::New(_) => "not captured yet",
                    State::Open(_) => "capturing",
                    State::Over => "discarded by an exception",
                };
                format!("<usmq.Graph: {state}>")
            }
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // The context that entered it has gone without leaving it.
        if let State::Open(opened) = std::mem::replace(self.state.get_mut(), State::Over) {
            super::gil::quietly(|| opened.capture.discard());
        }
    }
}
