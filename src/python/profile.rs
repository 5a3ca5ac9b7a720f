//! `usmq.profile`, `usmq.Profile` and its events.

use super::argument;
use super::gil::detach;
use crate::profile::{Event, Profile as Recorded, Session};
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

/// Record the commands of usmq inside a ``with`` block: kernels, copies, fills, waits and memory, on all
/// threads.
///
/// Blocks may nest and overlap; each records the commands submitted while it is open. Leaving the block waits
/// for them.
///
/// Returns
/// -------
/// Profile
///
/// Examples
/// --------
/// >>> import usmq
/// >>> with usmq.profile() as p:
/// ...     x = usmq.asarray([1.0, 2.0], "f4").to_numpy()
/// >>> [(event.kind, event.reason, event.bytes) for event in p.events if event.kind == "copy"]
/// [('copy', 'import', 8), ('copy', 'host read', 8)]
#[pyfunction]
pub(super) fn profile() -> Profile {
    Profile { state: Mutex::new(State::New), done: PyOnceLock::new() }
}

/// Record the work of other libraries in profiles, as the SYCL runtime reports it; for ``python -m usmq trace``.
#[pyfunction]
pub(super) fn watch_calls(py: Python<'_>) -> PyResult<()> {
    super::lines::find_lines_of_libraries(py)?;
    Ok(detach(py, crate::profile::watch_calls)?)
}

/// The record of a ``with usmq.profile()`` block. Prints as a table; a notebook also shows the timeline.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> with usmq.profile() as p:
/// ...     x = usmq.zeros(3)
/// >>> [(event.kind, event.bytes) for event in p.events]
/// [('allocate', 12), ('fill', 12)]
#[pyclass(module = "usmq", frozen)]
pub(super) struct Profile {
    state: Mutex<State>,
    done: PyOnceLock<Arc<Recorded>>,
}

enum State {
    New,
    Open(Session),
    Over,
}

impl State {
    /// Takes the open session, once.
    fn end(&mut self) -> Option<Session> {
        match std::mem::replace(self, Self::Over) {
            Self::Open(session) => Some(session),
            before => {
                *self = before;
                None
            }
        }
    }
}

impl Profile {
    fn done(&self, py: Python<'_>) -> PyResult<&Arc<Recorded>> {
        self.done
            .get(py)
            .ok_or_else(|| PyValueError::new_err("the profile is complete only after its with block ends"))
    }
}

#[pymethods]
impl Profile {
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let this = slf.get();
        let session = Session::start();
        let mut state = this.state.lock();
        if !matches!(*state, State::New) {
            return Err(PyRuntimeError::new_err("a profile records once; call usmq.profile() for another"));
        }
        *state = State::Open(session);
        drop(state);
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<bool> {
        let Some(session) = self.state.lock().end() else {
            return Err(PyRuntimeError::new_err("this profile is not being recorded"));
        };
        match detach(py, || session.finish()) {
            Ok(profile) => {
                // Only one thread can have taken the session.
                let _ = self.done.set(py, Arc::new(profile));
            }
            // An exception of the block has more information.
            Err(error) if _exception.get_item(0).is_ok_and(|class| class.is_none()) => {
                return Err(error.into());
            }
            Err(_) => {}
        }
        Ok(false)
    }

    /// The events, in the order of the host's requests.
    #[getter]
    fn events(&self, py: Python<'_>) -> PyResult<Vec<ProfileEvent>> {
        let profile = self.done(py)?;
        Ok((0..profile.events().len())
            .map(|place| ProfileEvent { profile: profile.clone(), place })
            .collect())
    }

    /// Nanoseconds from the beginning to the end.
    #[getter]
    fn duration(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.done(py)?.duration())
    }

    /// The number of events dropped beyond the limit of 262,144.
    #[getter]
    fn dropped(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.done(py)?.dropped())
    }

    /// Copies that could be avoided, and how.
    #[getter]
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.done(py)?.advice().iter().map(ToString::to_string).collect())
    }

    /// Write the profile to a file: ``.json`` for ui.perfetto.dev and chrome://tracing, ``.svg`` for a picture,
    /// ``.html`` for a page with the table and the picture, ``.txt`` for the table.
    ///
    /// Parameters
    /// ----------
    /// path : str, bytes or path object
    ///     As for Python's ``open``.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     The file name has another suffix.
    /// OSError
    ///     The file cannot be written.
    fn save(&self, py: Python<'_>, #[pyo3(from_py_with = argument::path)] path: PathBuf) -> PyResult<()> {
        let profile = self.done(py)?;
        detach(py, || profile.save(&path)).map_err(|error| match (error.kind(), error.raw_os_error()) {
            (ErrorKind::InvalidInput, _) => PyValueError::new_err(error.to_string()),
            // The same error as Python's `open`, with the path.
            (_, Some(code)) => match py.import("os").and_then(|os| os.call_method1("strerror", (code,))) {
                Ok(text) => PyOSError::new_err((code, text.unbind(), path.into_os_string())),
                Err(failure) => failure,
            },
            _ => error.into(),
        })
    }

    fn _repr_html_(&self, py: Python<'_>) -> Option<String> {
        Some(self.done.get(py)?.to_html())
    }

    fn __str__(&self, py: Python<'_>) -> String {
        self.done.get(py).map_or_else(|| self.__repr__(py), |profile| profile.to_string())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.done.get(py) {
            Some(profile) => format!("<usmq.Profile of {} events>", profile.events().len()),
            None => "<usmq.Profile, not complete>".to_owned(),
        }
    }
}

/// One event of a profile. Times are nanoseconds since its beginning.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> with usmq.profile() as p:
/// ...     usmq.zeros(3).wait()
/// >>> p.events[1].kind, p.events[1].bytes
/// ('fill', 12)
#[pyclass(module = "usmq", frozen)]
pub(super) struct ProfileEvent {
    profile: Arc<Recorded>,
    place: usize,
}

impl ProfileEvent {
    fn event(&self) -> &Event {
        &self.profile.events()[self.place]
    }
}

#[pymethods]
impl ProfileEvent {
    /// ``"kernel"``, ``"copy"``, ``"fill"``, ``"barrier"``, ``"wait"``, ``"build"``, ``"allocate"`` or
    /// ``"free"``.
    #[getter]
    fn kind(&self) -> &'static str {
        self.event().kind.name()
    }

    /// The kernel's name; for other events a description.
    #[getter]
    fn name(&self) -> &str {
        &self.event().name
    }

    /// The reason: ``"explicit"``, ``"host read"``, ``"host write"``, ``"collocate"``, ``"context
    /// mismatch"``, ``"import"``, ``"export"``, ``"contiguity"``, ``"conversion"``, ``"order"`` or ``"host
    /// argument"``.
    #[getter]
    fn reason(&self) -> &'static str {
        self.event().reason.name()
    }

    /// The filter string of the device; None for waits and host USM of other libraries.
    #[getter]
    fn device(&self) -> Option<&str> {
        self.event().device.map(|device| &*self.profile.devices()[device].filter)
    }

    /// The number of the queue in this profile, from 1; None for memory, builds and waits of other libraries.
    #[getter]
    fn queue(&self) -> Option<usize> {
        self.event().queue.map(|queue| queue + 1)
    }

    /// The number of the host thread in this profile, from 1.
    #[getter]
    fn thread(&self) -> u32 {
        self.event().thread
    }

    /// Bytes copied, filled, allocated or freed; else 0.
    #[getter]
    fn bytes(&self) -> u64 {
        self.event().bytes
    }

    /// Time of the host's request.
    #[getter]
    fn submit(&self) -> u64 {
        self.event().submit
    }

    /// Time of the start.
    #[getter]
    fn start(&self) -> u64 {
        self.event().start
    }

    /// Time of the end.
    #[getter]
    fn end(&self) -> u64 {
        self.event().end
    }

    /// Time from start to end.
    #[getter]
    fn duration(&self) -> u64 {
        self.event().duration()
    }

    /// The clock of ``start`` and ``end``: ``"device"``, or ``"host"`` for times that the host observed.
    #[getter]
    fn clock(&self) -> &'static str {
        self.event().clock.name()
    }

    /// For an allocation from a pool: whether the pool had a free block.
    #[getter]
    fn hit(&self) -> bool {
        self.event().hit
    }

    /// ``"file:line"`` of the caller, outside usmq.
    #[getter]
    fn source(&self) -> Option<&str> {
        self.event().source.as_deref()
    }

    /// Positions in ``events`` of the events it waited for, in addition to the order of its own queue.
    #[getter]
    fn waited_for(&self) -> Vec<usize> {
        self.event().waited_for.clone()
    }

    fn __repr__(&self) -> String {
        let event = self.event();
        let bytes = if event.bytes > 0 { format!(" {} bytes", event.bytes) } else { String::new() };
        format!("<usmq.ProfileEvent {} {:?}{bytes}, {}>", self.kind(), event.name, self.reason())
    }
}
