//! Views of arrays for readers on the host, which take memory of the host only.

use super::argument;
use super::arrow::view::ColumnView;
use super::classes::Array;
use super::{dlpack, numpy};
use crate::interop::arrow::Column;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::c_int;

/// `kDLCPU`, and the number of the only such device.
const HOST: (i32, i32) = (1, 0);

/// An array in host or shared USM as an array of the host, without a copy: for ``torch.from_dlpack``, ``jax.numpy``, numpy,
/// pyarrow, polars and every consumer of a buffer. Each of them waits for earlier writes.
///
/// usmq does not track access through the view: do not run kernels on the array while it is in use.
///
/// Examples
/// --------
/// >>> import numpy, usmq
/// >>> x = usmq.ones(3, usm_type="shared")
/// >>> numpy.from_dlpack(x.host_view()).tolist()
/// [1.0, 1.0, 1.0]
/// >>> bytes(memoryview(x.host_view()).cast("B")[:4])
/// b'\x00\x00\x80?'
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct ArrayView(Py<Array>);

impl ArrayView {
    pub(super) fn new(array: &Bound<'_, Array>) -> PyResult<Self> {
        let own = &array.get().array;
        if own.memory_kind().is_host_accessible() {
            return Ok(Self(array.clone().unbind()));
        }
        Err(PyBufferError::new_err(format!(
            "the host cannot read {}; copy it with to_numpy(), or allocate it with usm_type=\"shared\" or \"host\"",
            **own
        )))
    }

    fn column<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ColumnView>> {
        Bound::new(py, ColumnView::new(py, &Column::from_array("", &self.0.bind(py).get().array)?)?)
    }
}

#[pymethods]
impl ArrayView {
    /// DLPack: return a capsule on the host, ``(1, 0)``. ``stream`` must be None.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::max_version)] max_version: Option<(u32, u32)>,
        #[pyo3(from_py_with = argument::dl_device)] dl_device: Option<(i32, i32)>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if stream.is_some() {
            return Err(PyTypeError::new_err("memory of the host has no stream: stream must be None"));
        }
        let dl_device = dl_device.or(Some(HOST));
        dlpack::export(
            py,
            &self.0.bind(py).get().array,
            &dlpack::Asked { stream, max_version, dl_device, copy },
        )
    }

    /// DLPack: ``(1, 0)``, the host.
    fn __dlpack_device__(&self) -> (i32, i32) {
        HOST
    }

    /// Return the array as a numpy array without a copy.
    #[pyo3(signature = (dtype=None, *, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        numpy::view(self.0.bind(py), dtype, copy)
    }

    /// Arrow PyCapsule interface: the type of the column made from this array.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py)?.call_method0("__arrow_c_schema__")
    }

    /// Arrow PyCapsule interface: the array as a column on the host, without a copy.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.column(py)?.call_method1("__arrow_c_array__", (requested_schema,))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.bind(py).len()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<usmq host view of {}>", *self.0.bind(py).get().array))
    }

    // SAFETY: called by Python with a buffer to fill, which the array fills: it is the exporter that Python releases.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above; a failed request leaves the object of the view NULL.
        match unsafe { ffi::PyObject_GetBuffer(slf.get().0.as_ptr(), view, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
