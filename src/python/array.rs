//! `usmq.Array`.

use super::classes::{Array, Device, Event, Queue};
use super::dtype::{self, DType};
use super::gil::detach;
use super::host_view::ArrayView;
use super::{
    argument, asarray, buffer, comparison, dlpack, dlpack_c_api, index, join, numpy, pickle, placement,
    scalar, scope, suai, submitter, target,
};
use crate::interop::arrow::Column;
use crate::{Index, Scalar, UsmKind};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyComplex, PyDict, PyFloat, PyInt, PyTuple};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

#[pymethods]
impl Array {
    /// Extents, outermost first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.array.shape())
    }

    /// Strides along each axis, in bytes as in numpy.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let itemsize = self.array.dtype().itemsize() as isize;
        PyTuple::new(py, self.array.strides().iter().map(|stride| stride * itemsize))
    }

    /// The element type.
    #[getter]
    fn dtype(&self) -> DType {
        DType(self.array.dtype())
    }

    /// The numpy dtype, for ``numpy.dtype(x)`` and ``numpy.result_type(x, y)``.
    #[getter]
    fn __numpy_dtype__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype::numpy_dtype(py, self.array.dtype())
    }

    /// Number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.array.ndim()
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.array.size()
    }

    /// Bytes of all elements, without the gaps of a strided view.
    #[getter]
    fn nbytes(&self) -> usize {
        self.array.nbytes()
    }

    /// Bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.array.dtype().itemsize()
    }

    /// ``"device"``, ``"shared"`` or ``"host"``; ``"system"`` for memory of the host that is used in place.
    #[getter]
    fn usm_type(&self) -> &'static str {
        self.array.memory_kind().name()
    }

    /// The queue that runs this array's work. Kernels follow it.
    #[getter]
    fn queue(&self) -> Queue {
        Queue(self.array.queue().clone())
    }

    /// The queue's device.
    #[getter]
    fn device(&self) -> Device {
        Device(self.array.device().clone())
    }

    /// Address of the first element.
    #[getter]
    fn ptr(&self) -> usize {
        self.array.address()
    }

    /// Whether the array is read-only.
    #[getter]
    fn readonly(&self) -> bool {
        self.array.is_readonly()
    }

    /// The axes in reverse order: a view.
    #[getter(T)]
    fn transposed(&self) -> Self {
        Self::new(self.array.transpose())
    }

    /// The real parts of a complex array, as a view; of another array, the array itself.
    #[getter]
    fn real(&self) -> PyResult<Self> {
        Ok(Self::new(self.array.real()?))
    }

    /// The imaginary parts of a complex array, as a view. Raises TypeError for real numbers.
    #[getter]
    fn imag(&self) -> PyResult<Self> {
        Ok(Self::new(self.array.imag()?))
    }

    /// The axes in another order: a view. ``axes`` has the old number of each new axis, one by one or as one
    /// sequence; without arguments the axes are reversed. Raises ValueError if the numbers are not a
    /// permutation of the axes.
    #[pyo3(signature = (*axes))]
    fn transpose(&self, axes: &Bound<'_, PyTuple>) -> PyResult<Self> {
        if axes.is_empty() {
            return Ok(self.transposed());
        }
        let axes = index::numbers(axes, "axes")?;
        let ndim = self.array.ndim() as isize;
        let axes: Vec<usize> = axes
            .iter()
            .map(|axis| if *axis < 0 { axis + ndim } else { *axis })
            .map(|axis| usize::try_from(axis).unwrap_or(usize::MAX))
            .collect();
        Ok(Self::new(self.array.permute(axes)?))
    }

    /// Return the same elements, in C order, in another shape: a view if the strides allow it, else a copy.
    /// Pass the extents one by one or as one sequence; one may be -1. Raises ValueError if the number of
    /// elements differs.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let shape = index::numbers(shape, "shape")?;
        Ok(Self::new(detach(py, || self.array.reshape(shape))?))
    }

    /// Return the elements in C order on one axis: a view if they are contiguous, else a copy.
    fn ravel(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::new(detach(py, || self.array.ravel())?))
    }

    /// Return a copy of the elements, in C order, on one axis. Returns before the copy is complete.
    fn flatten(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::new(detach(py, || self.array.copy()?.ravel())?))
    }

    /// Return a view without axes of extent 1: without all of them, or without those in ``axis``, an int or a
    /// tuple. Raises ValueError for an axis of another extent, and IndexError for one that does not exist.
    #[pyo3(signature = (axis=None))]
    fn squeeze(&self, axis: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        join::squeezed(&self.array, axis)
    }

    /// Return a view with new axes of extent 1 at the positions ``axis`` of the result, an int or a tuple. Raises
    /// IndexError for a position outside the result.
    fn expand_dims(&self, axis: &Bound<'_, PyAny>) -> PyResult<Self> {
        join::expanded(&self.array, axis)
    }

    /// Return the array on another queue, with another dtype or in memory of another kind: the array itself if
    /// nothing differs, a view if the queue can use the memory, else a copy. Returns before the copy is complete.
    ///
    /// Parameters
    /// ----------
    /// target : str, Device, Queue, optional
    ///     The queue of the result; by default the current queue.
    /// dtype : dtype, optional
    ///     The element type, converted as in ``astype``; by default the same.
    /// usm_type : {"device", "shared", "host"}, optional
    ///     The USM kind; by default the same.
    /// device : str, Device, Queue, optional
    ///     Another name of ``target``.
    ///
    /// Raises
    /// ------
    /// AllocationError
    ///     A copy is needed and memory is short.
    ///
    /// Examples
    /// --------
    /// >>> import usmq
    /// >>> x = usmq.arange(3)
    /// >>> x.to(x.queue) is x, x.to(dtype="f4").tolist()
    /// (True, [0.0, 1.0, 2.0])
    #[pyo3(signature = (target=None, *, dtype=None, usm_type=None, device=None))]
    fn to(
        slf: &Bound<'_, Self>,
        target: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::usm_type)] usm_type: Option<&str>,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        let (py, own) = (slf.py(), &slf.get().array);
        let queue = match (target, device) {
            (target, None) => target::named(py, target, "target")?,
            (None, device) => target::named(py, device, "device")?,
            _ => return Err(PyTypeError::new_err("device= is another name of the target: pass one of them")),
        };
        let queue = queue.map_or_else(|| scope::current(py), Ok)?;
        let dtype = dtype::parse_opt(dtype)?;
        let kind = usm_type.map(str::parse::<UsmKind>).transpose()?;
        let moved = detach(py, || own.to(dtype, kind, Some(&queue)))?;
        if moved.is_same(own) {
            return Ok(slf.clone().unbind());
        }
        Py::new(py, Self::new(moved))
    }

    /// Return the array on the queue of ``other``, as ``usmq.collocate(x, like=other)``.
    fn collocate<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        placement::collocate(slf.py(), &PyTuple::new(slf.py(), [slf])?, Some(other), None)
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self::new(self.array.index(&index::parts(key)?)?))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        let part = self.array.index(&index::parts(key)?)?;
        match index::scalar(value)? {
            Some((number, _)) => fill(py, &part, number),
            None => asarray::assign(py, &part, value),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        self.array
            .shape()
            .first()
            .copied()
            .ok_or_else(|| PyTypeError::new_err("len() of an array without axes"))
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PyResult<ArrayIterator> {
        Ok(ArrayIterator::new(slf, slf.get().__len__()?))
    }

    /// Return a contiguous copy with elements of another type.
    ///
    /// Numbers convert as in C++: a float to an integer is truncated, and unspecified if out of range; a float
    /// beyond the range of a smaller type becomes infinite. To bool, each number except 0 is true. Returns before
    /// the copy is complete. Raises TypeError from complex to real numbers; ``real`` and ``imag`` are views.
    fn astype(&self, py: Python<'_>, dtype: &Bound<'_, PyAny>) -> PyResult<Self> {
        let dtype = dtype::parse(dtype)?;
        Ok(Self::new(detach(py, || self.array.cast(dtype))?))
    }

    /// Return a contiguous copy in memory of the same kind, on the same queue; of system memory in host USM. Returns
    /// before the copy is complete.
    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::new(detach(py, || self.array.copy())?))
    }

    /// Set the elements. Those of arrays and buffers convert as in ``astype``; numbers and lists must fit the dtype.
    ///
    /// With an array as the source it returns before the copy is complete; with a host object, as soon as
    /// that object may be changed again.
    ///
    /// Parameters
    /// ----------
    /// source : Array or host object
    ///     As for ``asarray``, of this array's shape. An array on another queue is collocated.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     The shapes differ, this array is read-only, or the dtype cannot hold a number, as 1.5 in int32.
    /// TypeError
    ///     The source is complex and this array is not, or the source does not hold numbers of a supported dtype.
    fn copy_from(&self, source: &Bound<'_, PyAny>) -> PyResult<()> {
        asarray::assign(source.py(), &self.array, source)
    }

    /// Set every element to one value. May return before the fill is complete. Raises ValueError if the dtype
    /// cannot hold the value, as 0.5 in int32, 300 in uint8 or 1e300 in float32, or if the array is
    /// read-only.
    fn fill(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some((number, _)) = index::scalar(value)? else {
            return Err(argument::wrong_type(value, "value", "a number"));
        };
        fill(value.py(), &self.array, number)
    }

    /// DLPack: return a capsule for a consumer on this device, or on the host (``dl_device=(1, 0)``), with a
    /// copy if needed.
    ///
    /// ``stream`` is the consumer's queue: its later work runs after the work of usmq. None waits; -1 does
    /// not synchronize.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::max_version)] max_version: Option<(u32, u32)>,
        #[pyo3(from_py_with = argument::dl_device)] dl_device: Option<(i32, i32)>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        dlpack::export(py, &self.array, &dlpack::Asked { stream, max_version, dl_device, copy })
    }

    /// DLPack: ``(14, n)``, n the ordinal of the root device; ``(1, 0)`` for system memory.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = crate::interop::dlpack::device_of(&self.array);
        (device.kind, device.id)
    }

    /// DLPack: the functions of its C exchange API.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
        dlpack_c_api::capsule(py)
    }

    /// Arrow PyCapsule interface: the type of the column made from this array.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        super::arrow::schema(py, &Column::from_array("", &self.array)?)
    }

    /// Arrow PyCapsule interface, as for ``Column``.
    #[pyo3(signature = (requested_schema=None, *, wait=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::wait)] wait: Option<bool>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        super::arrow::device_array(py, &Column::from_array("", &self.array)?, requested_schema, wait, kwargs)
    }

    /// Move shared memory towards the device of a queue, before a kernel there uses it.
    ///
    /// Whether data moves is up to the driver. The command is ordered as a read of the array.
    ///
    /// Parameters
    /// ----------
    /// queue : str, Device, Queue, another library's queue or None
    ///     The queue; None is that of the array.
    ///
    /// Returns
    /// -------
    /// Event
    ///     The command; the call does not wait.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     The array is in device or host memory, which does not move.
    /// PlacementError
    ///     The queue cannot use the array.
    #[pyo3(signature = (queue=None))]
    fn prefetch(&self, py: Python<'_>, queue: Option<&Bound<'_, PyAny>>) -> PyResult<Event> {
        let queue = target::queue(py, queue)?;
        Ok(Event(submitter::submit(py, self.array.queue(), || self.array.prefetch(queue.as_ref()))?))
    }

    /// Tell the driver how shared memory is used.
    ///
    /// Parameters
    /// ----------
    /// advice : int
    ///     A number of the backend; 0 takes earlier advice back.
    /// queue : str, Device, Queue, another library's queue or None
    ///     The queue; None is that of the array.
    ///
    /// Returns
    /// -------
    /// Event
    ///     The command; the call does not wait.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     The array is in device or host memory, which does not move.
    /// PlacementError
    ///     The queue cannot use the array.
    #[pyo3(signature = (advice, queue=None))]
    fn mem_advise(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::advice)] advice: i32,
        queue: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Event> {
        let queue = target::queue(py, queue)?;
        Ok(Event(submitter::submit(py, self.array.queue(), || {
            self.array.mem_advise(advice, queue.as_ref())
        })?))
    }

    /// Block until no command submitted so far uses the memory. Raises SyclError with the errors of these
    /// commands.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        Ok(detach(py, || self.array.wait())?)
    }

    /// Return the elements as a new numpy array. Waits only for earlier writes. Raises SyclError with the
    /// errors of these writes, TypeError for bfloat16, which numpy lacks, and ImportError without numpy:
    /// ``tolist()`` does not need it.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::copy(py, &self.array)
    }

    /// Return the elements as nested lists of Python numbers, or one number for an array without axes, as
    /// numpy's ``tolist``. Does not need numpy. Waits only for earlier writes. Raises SyclError with their
    /// errors.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        scalar::lists(py, &self.array)
    }

    /// Return the only element as a Python number, after a wait as in ``to_numpy``. ``bool``, ``int``,
    /// ``float`` and ``complex`` also accept an array of one element. Raises ValueError for another size.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        scalar::item(py, &self.array, "item()", PyValueError::new_err::<String>)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        scalar::truth(py, &self.array)
    }

    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        scalar::of_class(&self.array, &py.get_type::<PyInt>())
    }

    fn __float__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        scalar::of_class(&self.array, &py.get_type::<PyFloat>())
    }

    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        scalar::of_class(&self.array, &py.get_type::<PyComplex>())
    }

    fn __index__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        scalar::index(py, &self.array)
    }

    fn __contains__(&self, _value: &Bound<'_, PyAny>) -> PyResult<bool> {
        Err(scalar::not_searched())
    }

    /// Return host or shared USM as a numpy array without a copy; raises an error for device memory.
    #[pyo3(signature = (dtype=None, *, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        numpy::view(slf, dtype, copy)
    }

    /// Return host or shared USM for readers on the host, without a copy: ``torch.from_dlpack(x.host_view())``,
    /// ``jax.numpy.from_dlpack``, ``numpy.asarray``, ``pyarrow.array``, ``polars.Series``, ``memoryview``. Each of these
    /// calls waits for earlier writes.
    ///
    /// usmq does not track access through the view: do not run kernels on the array while it is in use. Raises
    /// BufferError for device memory.
    fn host_view(slf: &Bound<'_, Self>) -> PyResult<ArrayView> {
        ArrayView::new(slf)
    }

    /// The interface that dpctl, dpnp and other consumers read: version 1; strides and offset count elements.
    ///
    /// The consumer must use the queue in ``syclobj``. If a consumer could bypass the order of that queue,
    /// reading this attribute waits.
    #[getter]
    fn __sycl_usm_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        suai::interface(py, &self.array)
    }

    /// The array as a ``dpnp.tensor.usm_ndarray``, so that ``dpnp.asarray`` needs no copy; absent unless dpnp
    /// is loaded.
    #[getter]
    fn __usm_ndarray__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        suai::usm_ndarray(py, self)
    }

    /// The queue as dpctl's type; absent unless dpctl is loaded. ``usmq.dpctl_queue(x.queue)`` loads it.
    #[getter]
    fn sycl_queue<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        suai::sycl_queue(py, self)
    }

    // SAFETY: called by Python with a buffer to fill; `buffer::export` keeps the rules of PEP 3118.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above.
        unsafe { buffer::export(&slf, view, flags) }
    }

    // SAFETY: called by Python once per buffer that `__getbuffer__` has filled.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: as above.
        unsafe { buffer::release(view) }
    }

    /// Pickles the array with its elements; the reader restores it on its current queue.
    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: i32) -> PyResult<pickle::Reduced<'py>> {
        pickle::reduce_array(py, &self.array, protocol)
    }

    /// Bytes of the object and of its elements in any memory, as dask requests.
    fn __sizeof__(&self) -> usize {
        size_of::<Self>() + self.array.nbytes()
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Self> {
        self.copy(py)
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.copy(py)
    }

    /// The elements as numpy prints them, with dtype, kind and device. Beyond 1000 elements only the first and the
    /// last 3 of each axis are copied to the host and printed. Waits for earlier writes; an error of theirs becomes
    /// part of the text.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(detach(py, || self.array.represent())?)
    }

    /// The elements as ``str`` of a numpy array. Otherwise as ``repr``.
    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(detach(py, || self.array.preview_or_error())?)
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        comparison::refuse(other, op)
    }

    /// Of the object, not of its elements.
    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().addr() >> 4
    }
}

fn fill(py: Python<'_>, array: &crate::Array, number: Scalar) -> PyResult<()> {
    Ok(detach(py, || array.fill_number(number))?)
}

/// The iterator of an array. Threads may share it: it yields each view once. Python's own iterator over an
/// object with `__getitem__` releases the array twice when two threads reach its end at once in free-threaded
/// Python.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct ArrayIterator {
    array: Py<Array>,
    length: usize,
    next: AtomicUsize,
}

impl ArrayIterator {
    pub(super) fn new(array: &Bound<'_, Array>, length: usize) -> Self {
        Self { array: array.clone().unbind(), length, next: AtomicUsize::new(0) }
    }
}

#[pymethods]
impl ArrayIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self) -> PyResult<Option<Array>> {
        // An extent fits in isize, and the iterator does not advance past the end.
        let next = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < self.length).then_some(next + 1)
        });
        match next {
            Ok(place) => Ok(Some(Array::new(self.array.get().array.index(&[Index::At(place as isize)])?))),
            Err(_) => Ok(None),
        }
    }

    fn __length_hint__(&self) -> usize {
        self.length - self.next.load(Ordering::Relaxed)
    }
}
