//! The buffer protocol (PEP 3118), both ways.

use super::classes::Array;
use super::gil::{detach, quietly, remembered};
use crate::DType;
use crate::array::{Family, HostMemory, Layout};
use crate::memory::{Access, ForeignOwner, try_reserve};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The data of an exported buffer. It lives until the consumer releases the buffer.
struct ExportedBuffer {
    format: CString,
    shape: Vec<isize>,
    strides: Vec<isize>,
}

/// Fills a buffer with host or shared USM. Waits for earlier writes.
///
/// # Safety
/// Python's own call of `bf_getbuffer`.
pub(super) unsafe fn export(slf: &Bound<'_, Array>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    // SAFETY: Python passes a view to fill; a failed request must leave its object NULL.
    unsafe { (*view).obj = std::ptr::null_mut() };
    let array = &slf.get().array;
    if !array.memory_kind().is_host_accessible() {
        return Err(PyBufferError::new_err(
            "the host cannot read device USM; copy it with to_numpy(), or allocate it with \
             usm_type=\"shared\" or \"host\"",
        ));
    }
    if flags & ffi::PyBUF_WRITABLE != 0 && array.is_readonly() {
        return Err(PyBufferError::new_err("the array is read-only"));
    }
    let Some(format) = array.dtype().row().buffer.and_then(|format| CString::new(format).ok()) else {
        return Err(PyBufferError::new_err(format!(
            "the buffer protocol has no format for {}",
            array.dtype()
        )));
    };
    let asks = |request: c_int| flags & request == request;
    let strides = strides_for(array, asks)?;
    let access = if array.is_readonly() { Access::Read } else { Access::Write };
    // The consumer may pass the memory to usmq again.
    detach(slf.py(), || {
        array.shared_allocation().hand_over().and_then(|()| array.allocation().wait_for_host(access))
    })
    .map_err(|error| remembered(slf.py(), error))?;

    let itemsize = array.dtype().itemsize() as isize;
    let mut exported = Box::new(ExportedBuffer {
        format,
        shape: array.shape().iter().map(|extent| *extent as isize).collect(),
        strides: strides.iter().map(|stride| stride * itemsize).collect(),
    });
    // A scalar has neither shape nor strides; bytes without a shape have one axis.
    let ndim = if asks(ffi::PyBUF_ND) { array.ndim() } else { 1 };
    let list = |wanted: bool, numbers: &mut Vec<isize>| {
        if wanted && ndim > 0 { numbers.as_mut_ptr() } else { std::ptr::null_mut() }
    };
    let buffer = ffi::Py_buffer {
        buf: array.address() as *mut c_void,
        obj: slf.clone().into_any().into_ptr(),
        len: array.nbytes() as isize,
        itemsize,
        readonly: c_int::from(array.is_readonly()),
        ndim: ndim as c_int,
        format: if asks(ffi::PyBUF_FORMAT) {
            exported.format.as_ptr().cast_mut()
        } else {
            std::ptr::null_mut()
        },
        shape: list(asks(ffi::PyBUF_ND), &mut exported.shape),
        strides: list(asks(ffi::PyBUF_STRIDES), &mut exported.strides),
        suboffsets: std::ptr::null_mut(),
        internal: Box::into_raw(exported).cast(),
    };
    // SAFETY: Python passes a view to fill.
    unsafe { view.write(buffer) };
    Ok(())
}

/// Returns the strides in elements for a consumer, or an error if it requires a memory order that the array
/// does not have. Source: "Buffer request types" in the Python/C API.
fn strides_for(array: &crate::Array, asks: impl Fn(c_int) -> bool) -> PyResult<Vec<isize>> {
    let (c, f) = (array.is_contiguous(), array.transpose().is_contiguous());
    let refuse = |what: &str| {
        Err(PyBufferError::new_err(format!(
            "the consumer requested {what} memory, but {array} is not; call copy() for a C-contiguous array"
        )))
    };
    if !c && (asks(ffi::PyBUF_C_CONTIGUOUS) || !asks(ffi::PyBUF_STRIDES)) {
        return refuse("C-contiguous");
    }
    if !f && asks(ffi::PyBUF_F_CONTIGUOUS) {
        return refuse("Fortran-contiguous");
    }
    if !c && !f && asks(ffi::PyBUF_ANY_CONTIGUOUS) {
        return refuse("contiguous");
    }
    // The stride of an axis of one element is arbitrary, but a consumer that requested an order may compute
    // with it.
    let mut shape = array.shape().to_vec();
    if c && !asks(ffi::PyBUF_F_CONTIGUOUS) {
        return Ok(Layout::contiguous(&shape, 1)?.strides().to_vec());
    }
    if f {
        shape.reverse();
        return Ok(Layout::contiguous(&shape, 1)?.strides().iter().rev().copied().collect());
    }
    Ok(array.strides().to_vec())
}

/// Frees the buffer of [`export`].
///
/// # Safety
/// Python's own call of `bf_releasebuffer`, once for each buffer that [`export`] has filled.
pub(super) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: the view is the one that `export` has filled.
    let internal = unsafe { (*view).internal };
    // SAFETY: `export` put the box there, and this is its only release.
    drop(unsafe { Box::from_raw(internal.cast::<ExportedBuffer>()) });
}

/// A view of another object's buffer; it keeps the memory alive.
struct BufferView(Box<ffi::Py_buffer>);

// SAFETY: a view is plain data; only its release needs the GIL, and `drop` takes it.
unsafe impl Send for BufferView {}
// SAFETY: as above.
unsafe impl Sync for BufferView {}

impl BufferView {
    fn release(&mut self) {
        // SAFETY: filled by PyObject_GetBuffer, with the lock held. A second call finds no object and does nothing.
        quietly(|| unsafe { ffi::PyBuffer_Release(&raw mut *self.0) });
    }
}

impl Drop for BufferView {
    /// Runs on any thread: the last owner may be a copy that continues after its caller was interrupted.
    fn drop(&mut self) {
        if !self.0.obj.is_null() {
            // The owner cannot be released after the Python interpreter has shut down.
            Python::try_attach(|_| self.release());
        }
    }
}

/// A buffer of another object, released when dropped.
pub(super) struct ForeignBuffer<'py> {
    view: Arc<BufferView>,
    py: Python<'py>,
}

/// The attribute of arrays on a CUDA device.
pub(super) const CUDA_INTERFACE: &str = "__cuda_array_interface__";

/// Whether the object has the buffer protocol for memory of the host. Arrays of CuPy have it for no memory, or for managed
/// memory without its order.
pub(super) fn has_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object.
    let has = unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 };
    let on_cuda = || {
        object.get_type().getattr_opt(intern!(object.py(), CUDA_INTERFACE)).is_ok_and(|found| found.is_some())
    };
    has && !on_cuda()
}

impl<'py> ForeignBuffer<'py> {
    /// Any strided buffer with its format.
    pub(super) fn readable(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::get(object, ffi::PyBUF_RECORDS_RO)
    }

    /// A contiguous buffer to write to.
    pub(super) fn writable(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::get(object, ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_WRITABLE)
    }

    fn get(object: &Bound<'py, PyAny>, flags: c_int) -> PyResult<Self> {
        // The view may point into itself, so it is filled at its final address.
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::zeroed());
        // SAFETY: a live object and memory for a view.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: PyObject_GetBuffer has filled it; the box keeps its place.
        let view = unsafe { Box::from_raw(Box::into_raw(view).cast::<ffi::Py_buffer>()) };
        Ok(Self { view: Arc::new(BufferView(view)), py: object.py() })
    }

    fn view(&self) -> &ffi::Py_buffer {
        &self.view.0
    }

    /// An owner that keeps the memory alive without the GIL.
    pub(super) fn owner(&self) -> impl Fn() -> ForeignOwner + Sync + use<> {
        let view = self.view.clone();
        move || Box::new(view.clone())
    }

    /// The elements in place.
    pub(super) fn memory(&self, dtype: DType) -> HostMemory {
        let (view, shape) = (self.view(), self.shape());
        let strides = (view.ndim > 0 && !view.strides.is_null()).then(|| {
            // SAFETY: non-null strides have `ndim` entries while the view is held.
            unsafe { std::slice::from_raw_parts(view.strides, shape.len()) }.to_vec()
        });
        HostMemory { pointer: self.address(), shape, strides, dtype, readonly: view.readonly != 0 }
    }

    pub(super) fn address(&self) -> usize {
        self.view().buf as usize
    }

    pub(super) fn bytes(&self) -> usize {
        self.view().len.unsigned_abs()
    }

    pub(super) fn ndim(&self) -> usize {
        self.view().ndim.unsigned_abs() as usize
    }

    pub(super) fn shape(&self) -> Vec<usize> {
        if self.view().ndim == 0 {
            return Vec::new();
        }
        if self.view().shape.is_null() {
            return vec![self.bytes() / self.view().itemsize.max(1).unsigned_abs()];
        }
        // SAFETY: a non-null shape has `ndim` entries while the view is held.
        let shape = unsafe {
            std::slice::from_raw_parts(self.view().shape, self.view().ndim.unsigned_abs() as usize)
        };
        shape.iter().map(|extent| extent.unsigned_abs()).collect()
    }

    /// The dtype of the format, if usmq supports it.
    pub(super) fn dtype(&self) -> PyResult<DType> {
        let text = if self.view().format.is_null() {
            "B"
        } else {
            // SAFETY: a non-null format is a C string while the view is held.
            unsafe { CStr::from_ptr(self.view().format) }.to_str().unwrap_or("?!")
        };
        let itemsize = self.view().itemsize.unsigned_abs();
        let (bare, swapped) = match text.strip_prefix(['<', '@', '=']) {
            Some(bare) => (bare, false),
            None => (
                text.trim_start_matches('>').trim_start_matches('!'),
                text.starts_with(['>', '!']) && itemsize > 1,
            ),
        };
        // The size of a letter depends on the machine and on the mark before it.
        let family = match bare {
            "q" | "n" => Some(Family::Signed),
            "Q" | "N" => Some(Family::Unsigned),
            "F" | "D" => Some(Family::Complex),
            _ => DType::find(|row| row.buffer == Some(bare)).map(DType::family),
        };
        let found = DType::find(|row| {
            row.buffer.is_some() && Some(row.family) == family && row.itemsize == itemsize && !swapped
        });
        found.ok_or_else(|| {
            let hint = if swapped { "; big-endian data must be converted first" } else { "" };
            PyTypeError::new_err(format!("buffer format {text:?} is not a dtype that usmq supports{hint}"))
        })
    }

    /// The elements in C order.
    pub(super) fn to_contiguous(&self) -> PyResult<Vec<u8>> {
        let mut bytes =
            try_reserve::try_with_capacity::<u8>(self.bytes(), "the buffer's elements in C order")?;
        // SAFETY: the target has room for the length of the view.
        let status = unsafe {
            ffi::PyBuffer_ToContiguous(
                bytes.as_mut_ptr().cast(),
                std::ptr::from_ref(self.view()).cast_mut(),
                self.view().len,
                b'C' as std::ffi::c_char,
            )
        };
        if status != 0 {
            return Err(PyErr::fetch(self.py));
        }
        // SAFETY: the call has written as many.
        unsafe { bytes.set_len(self.bytes()) };
        Ok(bytes)
    }

    /// The elements in place, if they are contiguous in C order.
    pub(super) fn as_contiguous(&self) -> Option<&[u8]> {
        // SAFETY: a view that is held.
        let contiguous =
            unsafe { ffi::PyBuffer_IsContiguous(std::ptr::from_ref(self.view()), b'C' as std::ffi::c_char) };
        if contiguous == 0 || self.view().buf.is_null() {
            return None;
        }
        // SAFETY: the producer promises `len` bytes at `buf` while the view is held, which the borrow ensures. Another
        // thread that writes them meanwhile gives unspecified elements, as for every consumer of the protocol.
        Some(unsafe { std::slice::from_raw_parts(self.view().buf.cast(), self.bytes()) })
    }
}

impl Drop for ForeignBuffer<'_> {
    fn drop(&mut self) {
        // `py` proves that the GIL is held, also while the interpreter shuts down and attaching fails.
        if let Some(view) = Arc::get_mut(&mut self.view) {
            view.release();
        }
    }
}
