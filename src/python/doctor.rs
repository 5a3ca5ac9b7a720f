//! The report of the doctor as Python objects.

use crate::doctor::{self, Finding, Report, State, Topic};
use crate::python::argument;
use crate::python::gil::detach;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

/// One finding that affects whether a device is visible.
#[pyclass(frozen, eq, module = "usmq")]
#[derive(Clone, PartialEq, Eq)]
pub(super) struct DoctorFinding(Finding);

#[pymethods]
impl DoctorFinding {
    /// The topic, as ``"runtime"``, ``"opencl"`` or ``"devices"``.
    #[getter]
    fn topic(&self) -> &'static str {
        self.0.topic.as_str()
    }

    /// The state: ``"ok"``, ``"note"`` or ``"problem"``.
    #[getter]
    fn state(&self) -> &'static str {
        self.0.state.as_str()
    }

    /// The fact.
    #[getter]
    fn what(&self) -> &str {
        &self.0.what
    }

    /// The fix, or None.
    #[getter]
    fn fix(&self) -> Option<&str> {
        self.0.fix.as_deref()
    }

    fn __repr__(&self) -> String {
        format!("<usmq.DoctorFinding {}: {}: {}>", self.topic(), self.state(), self.0.what)
    }
}

/// The report of :func:`usmq.doctor`. ``str(report)`` is the text of ``python -m usmq doctor``.
#[pyclass(frozen, module = "usmq")]
pub(super) struct DoctorReport(Report);

#[pymethods]
impl DoctorReport {
    /// Every finding, ordered by topic.
    #[getter]
    fn findings(&self) -> Vec<DoctorFinding> {
        self.0.findings().iter().cloned().map(DoctorFinding).collect()
    }

    /// Whether there is no problem; notes do not count.
    #[getter]
    fn ok(&self) -> bool {
        self.0.is_ok()
    }

    /// Number of visible devices.
    #[getter]
    fn devices(&self) -> usize {
        self.0.devices()
    }

    /// The summary, in one line.
    #[getter]
    fn verdict(&self) -> String {
        self.0.verdict()
    }

    /// Return the report as plain dictionaries and lists, as for JSON.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let findings = self.0.findings().iter().map(|finding| {
            let entry = PyDict::new(py);
            entry.set_item("topic", finding.topic.as_str())?;
            entry.set_item("state", finding.state.as_str())?;
            entry.set_item("what", &finding.what)?;
            entry.set_item("fix", finding.fix.as_deref())?;
            Ok(entry)
        });
        let dict = PyDict::new(py);
        dict.set_item("ok", self.ok())?;
        dict.set_item("devices", self.devices())?;
        dict.set_item("verdict", self.verdict())?;
        dict.set_item("findings", findings.collect::<PyResult<Vec<_>>>()?)?;
        Ok(dict)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// The report as tables, for notebooks.
    fn _repr_html_(&self) -> String {
        self.0.to_html()
    }

    fn __repr__(&self) -> String {
        format!("<usmq.DoctorReport: {}>", self.0.verdict())
    }
}

/// Create the report; `packages` returns the findings that only Python can collect, as tuples of state, fact
/// and fix.
#[pyfunction]
#[pyo3(signature = (timeout, packages, /))]
pub(super) fn examine(
    py: Python<'_>,
    #[pyo3(from_py_with = argument::timeout)] timeout: f64,
    packages: &Bound<'_, PyAny>,
) -> PyResult<DoctorReport> {
    let limit =
        Duration::try_from_secs_f64(timeout).ok().filter(|limit| !limit.is_zero()).ok_or_else(|| {
            PyValueError::new_err(format!("timeout must be a positive number of seconds, not {timeout:?}"))
        })?;
    let mut report = detach(py, || doctor::within(limit))?;
    let packages: Vec<(String, String, Option<String>)> = packages.call1((timeout,))?.extract()?;
    for (state, what, fix) in packages {
        let finding = match state.as_str() {
            "ok" => Finding::ok(Topic::Packages, what),
            "note" => Finding::note(Topic::Packages, what),
            "problem" => Finding { state: State::Problem, ..Finding::ok(Topic::Packages, what) },
            other => return Err(PyValueError::new_err(format!("unknown state {other:?}"))),
        };
        report.add(Finding { fix, ..finding });
    }
    Ok(DoctorReport(report))
}
