//! `usmq.Field`: the type of a column or table.

use super::capsule::give;
use crate::python::classes::Field;
use crate::python::pickle;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use std::sync::Arc;

#[pymethods]
impl Field {
    /// The name; may be empty.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The Arrow format string, as ``"g"`` for float64.
    #[getter]
    fn format(&self) -> &str {
        self.0.format()
    }

    /// The name of the Arrow type, as ``"double"``, ``"timestamp[us, tz=UTC]"`` or ``"list<item: int32>"``.
    #[getter]
    fn r#type(&self) -> String {
        self.0.type_name()
    }

    /// Whether values may be null.
    #[getter]
    fn nullable(&self) -> bool {
        self.0.is_nullable()
    }

    /// The fields of the children.
    #[getter]
    fn children(&self) -> Vec<Self> {
        self.0.children().iter().cloned().map(Self).collect()
    }

    /// The field of the values, when this one holds indices into a dictionary.
    #[getter]
    fn dictionary(&self) -> Option<Self> {
        self.0.dictionary().map(|field| Self(Arc::new(field.clone())))
    }

    /// Metadata as the producer gave it, extension types included.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let metadata = PyDict::new(py);
        for (key, value) in self.0.metadata() {
            metadata.set_item(PyBytes::new(py, key), PyBytes::new(py, value))?;
        }
        Ok(metadata)
    }

    /// Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        give(py, self.0.export()?)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<pickle::Reduced<'py>> {
        pickle::reduce_field(py, &self.0)
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Field {:?} {}>", self.0.name(), self.0.type_name())
    }
}
