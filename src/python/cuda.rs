//! CUDA memory in Python: `usmq.CudaArray` and `__cuda_array_interface__`; the rules are in `interop::cuda`.

use super::argument::Given;
use super::array_interface::Entries;
use super::classes::Array;
use super::dtype::DType;
use super::gil::{Quiet, detach};
use super::owner::PyOwner;
use super::{argument, dlpack, scope, target};
use crate::interop::cuda::{self, Descriptor};
use crate::{Error, UsmKind};
use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString, PyTuple};

pub(super) use super::buffer::CUDA_INTERFACE as NAME;

/// An n-dimensional array in the memory of a CUDA device.
///
/// Create it with ``asarray(x, device="cuda:0")``, or with ``collocate(x, like=...)`` and an array on a CUDA
/// device. It is for use by other libraries: it has ``__cuda_array_interface__`` and converts to and from USM
/// without a wait on the host.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> try:
/// ...     x = usmq.asarray([1.0, 2.0], device="cuda:0")
/// ... except usmq.RuntimeNotFoundError:
/// ...     pass  # no NVIDIA driver here
#[pyclass(module = "usmq", frozen, weakref)]
pub(super) struct CudaArray(pub(super) Quiet<cuda::CudaArray>);

#[pymethods]
impl CudaArray {
    /// Extents, outermost first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Strides along each axis, in bytes as in numpy.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let itemsize = self.0.dtype().itemsize() as isize;
        PyTuple::new(py, self.0.strides().iter().map(|stride| stride * itemsize))
    }

    /// The element type.
    #[getter]
    fn dtype(&self) -> DType {
        DType(self.0.dtype())
    }

    /// Number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.shape().len()
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.0.size()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    /// Bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.dtype().itemsize()
    }

    /// The CUDA device, as ``"cuda:0"``.
    #[getter]
    fn device(&self) -> String {
        format!("cuda:{}", self.0.ordinal())
    }

    /// Address of the first element.
    #[getter]
    fn ptr(&self) -> usize {
        self.0.address()
    }

    /// Whether the array is read-only.
    #[getter]
    fn readonly(&self) -> bool {
        self.0.is_readonly()
    }

    /// The interface for numba, cupy, torch and others, version 3. Work on its stream runs after the work of
    /// usmq.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let descriptor = cuda::export(&self.0)?;
        let dict = PyDict::new(py);
        dict.set_item("shape", PyTuple::new(py, &descriptor.shape)?)?;
        dict.set_item("typestr", descriptor.dtype.typestr())?;
        dict.set_item("data", (descriptor.pointer, descriptor.readonly))?;
        dict.set_item("strides", descriptor.strides.map(|steps| PyTuple::new(py, steps)).transpose()?)?;
        dict.set_item("stream", descriptor.stream)?;
        dict.set_item("version", 3)?;
        Ok(dict)
    }

    /// DLPack device: ``(kDLCUDA, number)``.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (2, i32::try_from(self.0.ordinal()).unwrap_or(i32::MAX))
    }

    /// DLPack capsule, without a copy. ``stream`` is 1 (or None), 2, a handle, or -1 for no order.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::stream)] stream: Option<isize>,
        #[pyo3(from_py_with = argument::max_version)] max_version: Option<(u32, u32)>,
        #[pyo3(from_py_with = argument::dl_device)] dl_device: Option<(i32, i32)>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) || copy == Some(true) {
            let text = format!(
                "{} can be exported only on its own device; copy it with to() or to_numpy()",
                *self.0
            );
            return Err(Error::interop(text).into());
        }
        // Array API: without `stream` the consumer uses the legacy default stream.
        let stream = match stream.unwrap_or(1) {
            -1 => None,
            number => Some(usize::try_from(number).map_err(|_| {
                PyBufferError::new_err(format!("stream {number} is neither -1, 1, 2 nor a handle"))
            })?),
        };
        dlpack::export_cuda(py, &self.0, stream, max_version)
    }

    /// Arrow PyCapsule interface: an array of type ARROW_DEVICE_CUDA with an event. One contiguous axis only.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        super::arrow::cuda_array(py, &self.0, requested_schema, kwargs)
    }

    /// Return a copy in USM, without a wait on the host; by default on the current queue.
    #[pyo3(signature = (queue=None, *, usm_type="device"))]
    fn to(
        &self,
        py: Python<'_>,
        queue: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::usm_type)] usm_type: &str,
    ) -> PyResult<Array> {
        let kind: UsmKind = usm_type.parse()?;
        let queue = target::queue(py, queue)?.map_or_else(|| scope::current(py), Ok)?;
        Ok(Array::new(detach(py, || self.0.to_queue(&queue, kind))?))
    }

    /// Return a numpy array with a copy of the elements.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Bound::new(py, self.to(py, None, "host")?)?.call_method0("to_numpy")
    }

    /// Block until the work submitted so far to the array's stream is complete.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        Ok(detach(py, || self.0.wait())?)
    }

    fn __repr__(&self) -> String {
        format!("<usmq.CudaArray {}>", *self.0)
    }
}

impl CudaArray {
    pub(super) fn new(array: cuda::CudaArray) -> Self {
        Self(Quiet::new(array))
    }
}

/// The number in `"cuda"` or `"cuda:1"`; None for anything else, as the filter string `"cuda:gpu"`.
pub(super) fn ordinal(device: &Bound<'_, PyAny>) -> Option<usize> {
    let device = device.cast::<PyString>().ok()?.to_str().ok()?;
    match device.strip_prefix("cuda")? {
        "" => Some(0),
        rest => rest
            .strip_prefix(':')
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok()),
    }
}

/// The CUDA memory of an object, by its attribute; None if DLPack must read it.
pub(super) fn import(
    object: &Bound<'_, PyAny>,
    attribute: &Bound<'_, PyAny>,
) -> PyResult<Option<cuda::CudaArray>> {
    let descriptor = descriptor(&Entries::new(NAME, attribute)?)?;
    if descriptor.stream.is_none() && object.hasattr("__dlpack__")? {
        // torch names no stream although work may be pending. DLPack orders it; see `dlpack::read`.
        return Ok(None);
    }
    let owner = Box::new(PyOwner::new(object));
    // SAFETY: the protocol: the memory and the stream live as long as the object that exports them, and the
    // owner keeps it alive.
    Ok(Some(detach(object.py(), || unsafe { cuda::import(&descriptor, owner) })?))
}

fn descriptor(entries: &Entries<'_, '_>) -> PyResult<Descriptor> {
    let version = entries.whole(intern!(entries.py(), "version"))?;
    if !(2..=3).contains(&version) {
        return Err(Error::interop(format!("{NAME} version {version} is neither 2 nor 3")).into());
    }
    if entries.optional(intern!(entries.py(), "mask"))?.is_some() {
        return Err(Error::interop(format!(
            "{NAME} has a mask; usmq arrays do not support missing elements"
        ))
        .into());
    }
    let (pointer, readonly) = entries.data()?;
    // Version 2 has no streams: its producers have completed their work.
    let stream = match entries.optional(intern!(entries.py(), "stream"))?.filter(|_| version == 3) {
        Some(stream) => Some(usize::read(&stream).map_err(|misfit| {
            entries.wrong(misfit, &stream, "stream", "a whole number from 0 to 2**64 - 1, or None")
        })?),
        None => None,
    };
    let strides = entries.strides()?;
    Ok(Descriptor { pointer, readonly, shape: entries.shape()?, strides, dtype: entries.dtype()?, stream })
}
