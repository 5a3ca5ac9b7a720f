//! `usmq.asarray`: converts objects that hold numbers to arrays.

use super::classes::Array;
use super::create::uninit;
use super::cuda::{self, CudaArray};
use super::gil::detach;
use super::host::HostInput;
use super::protocol::{self, Memory, Source, Wanted};
use super::{argument, dtype, scope, target};
use crate::UsmKind;
use crate::trace::{Reason, with_reason};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Convert an object to an array, without a copy if possible.
///
/// Parameters
/// ----------
/// obj : object
///     An Array, an object with ``__sycl_usm_array_interface__`` (dpnp, dpctl), the buffer protocol (numpy, bytes),
///     ``__cuda_array_interface__`` (cupy, numba), an Arrow array of plain numbers without nulls, ``__dlpack__``, a
///     number, or nested sequences of numbers.
/// dtype : dtype, optional
///     The element type; by default that of the object.
/// usm_type : {"device", "shared", "host"}, optional
///     The USM kind; by default that of the object, or ``"device"`` for host data.
/// queue : str, Device, Queue, optional
///     The queue of the array; by default that of the object, or the current queue for host data.
/// copy : bool, optional
///     None: copy host data, and other data only if needed. True: always copy. False: raise an error if a copy is
///     needed; use host memory (buffers, Arrow arrays, DLPack tensors) in place, as an array of ``usm_type``
///     ``"system"``, on devices with ``usm_system_allocations``, as CPU devices. Call ``wait()`` before the host
///     accesses it.
/// device : str, Device, Queue, optional
///     Another name of ``queue``; or ``"cuda:0"``: create a :class:`CudaArray` in the memory of this CUDA device, for
///     other libraries.
///
/// Returns
/// -------
/// Array
///
/// Raises
/// ------
/// ValueError
///     ``copy=False`` and a copy is needed, or the device cannot use host memory; lists are ragged, or the
///     dtype cannot hold a number, as 300 in uint8 or 1e300 in float32. Elements of arrays and buffers convert as in
///     ``astype``, without this check.
/// TypeError
///     The object does not hold numbers of a supported dtype, as times do not; or the numbers of an array are complex,
///     and ``dtype`` is not.
/// AllocationError
///     Device or host memory is short.
/// InteropError
///     A foreign object breaks its protocol.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.asarray([1, 2, 3]).to_numpy().tolist()
/// [1, 2, 3]
/// >>> usmq.asarray(b"ab").shape
/// (2,)
#[pyfunction]
#[pyo3(signature = (obj, dtype=None, *, usm_type=None, queue=None, copy=None, device=None))]
pub(super) fn asarray(
    py: Python<'_>,
    obj: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: Option<&str>,
    queue: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::copy)] copy: Option<bool>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let dtype = dtype::parse_opt(dtype)?;
    let kind = usm_type.map(str::parse::<UsmKind>).transpose()?;
    if let Some(number) = device.and_then(cuda::ordinal) {
        if kind.is_some() || queue.is_some() {
            return Err(PyTypeError::new_err(
                "device= names a CUDA device and cannot be combined with queue= or usm_type=",
            ));
        }
        let array = on_cuda(py, obj, dtype, number, copy)?;
        return Ok(array.into_any());
    }
    let queue = target::place(py, queue, device)?;
    Ok(in_usm(py, obj, Wanted { dtype, kind, queue, copy })?.into_any())
}

/// The object's elements in USM.
fn in_usm(py: Python<'_>, obj: &Bound<'_, PyAny>, wanted: Wanted) -> PyResult<Py<Array>> {
    let source = protocol::read(obj, &wanted, protocol::ALL)?.ok_or_else(|| protocol::no_array(obj))?;
    let Wanted { dtype, kind, queue, copy } = wanted;
    let no_copy = |memory| {
        PyValueError::new_err(format!("{memory} memory cannot become USM without a copy, but copy=False"))
    };
    let new_kind = kind.unwrap_or(UsmKind::Device);
    let new_queue = || queue.clone().map_or_else(|| scope::current(py), Ok);
    let (source, copied, memory) = match source {
        Source::Usm { array, copied } => (array, copied, "host"),
        Source::Cuda(source) => {
            let queue = new_queue()?;
            let array = detach(py, || source.to_queue(&queue, new_kind))?;
            let copied = array.address() != source.address();
            (array, copied, "CUDA")
        }
        Source::Host(host) if copy == Some(false) => {
            (in_place(py, &host, kind, &new_queue()?)?, false, "host")
        }
        Source::Host(host) => {
            let queue = new_queue()?;
            let _why = with_reason(Reason::Import);
            (from_host(py, &host, new_kind, &queue)?, true, "host")
        }
    };
    if copied && copy == Some(false) {
        return Err(no_copy(memory));
    }
    let keeps = dtype.is_none_or(|dtype| dtype == source.dtype()) && kind.is_none() && queue.is_none();
    let result = if keeps { source.clone() } else { detach(py, || source.to(dtype, kind, queue.as_ref()))? };
    let is_copy = copied
        || result.address() != source.address()
        || result.size() == 0 && result.dtype() != source.dtype();
    match (copy, is_copy) {
        (Some(false), true) => Err(PyValueError::new_err(format!(
            "a copy is needed for {}, but copy=False",
            differences(&source, &result)
        ))),
        (Some(true), false) => Py::new(py, Array::new(detach(py, || result.copy())?)),
        _ => match obj.cast::<Array>() {
            // Return the object itself if it meets the request.
            Ok(own) if queue.is_none_or(|queue| queue == *source.queue()) && !is_copy => {
                Ok(own.clone().unbind())
            }
            _ => Py::new(py, Array::new(result)),
        },
    }
}

/// The memory of a host object as an array.
fn in_place(
    py: Python<'_>,
    host: &HostInput<'_>,
    kind: Option<UsmKind>,
    queue: &crate::Queue,
) -> PyResult<crate::Array> {
    let refuse = |why: &str| Err(PyValueError::new_err(format!("{why}, but copy=False")));
    if let Some(kind) = kind {
        return refuse(&format!("host memory cannot become {kind} USM without a copy"));
    }
    let Some((memory, owner)) = host.memory() else {
        return refuse("a number or a list becomes an array by a copy");
    };
    // SAFETY: a held buffer keeps its memory. Python has no unsafe: as for every consumer of the buffer protocol, the
    // program orders its own accesses, here with `Array.wait`.
    Ok(detach(py, || unsafe { crate::Array::from_host(&memory, queue, owner) })?)
}

/// The object's elements on a CUDA device.
pub(super) fn on_cuda(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    dtype: Option<crate::DType>,
    ordinal: usize,
    copy: Option<bool>,
) -> PyResult<Py<CudaArray>> {
    if let Ok(own) = object.cast::<CudaArray>() {
        let array = &own.get().0;
        if copy != Some(true)
            && array.ordinal() == ordinal
            && dtype.is_none_or(|dtype| dtype == array.dtype())
        {
            return Ok(own.clone().unbind());
        }
    }
    if copy == Some(false) {
        return Err(PyValueError::new_err("only CUDA memory of that device needs no copy, but copy=False"));
    }
    // Data that passes through the host anyway stays on the host first.
    let is_host = matches!(protocol::memory(object, protocol::ALL)?, Some(Memory::Host | Memory::Any));
    let wanted = Wanted { dtype, kind: is_host.then_some(UsmKind::Host), ..Default::default() };
    let array = in_usm(py, object, wanted)?;
    let moved = detach(py, || crate::interop::cuda::CudaArray::from_array(&array.get().array, ordinal))?;
    Py::new(py, CudaArray::new(moved))
}

/// Copies host data to new memory.
pub(super) fn from_host(
    py: Python<'_>,
    host: &HostInput<'_>,
    kind: UsmKind,
    queue: &crate::Queue,
) -> PyResult<crate::Array> {
    let (shape, dtype) = (host.shape(), host.dtype());
    let array = uninit(py, &shape, dtype, kind, queue)?;
    host.copy_to(py, &array)?;
    Ok(array)
}

/// Names the differences that a view of `source` cannot have.
fn differences(source: &crate::Array, result: &crate::Array) -> String {
    let dtype = format!("dtype {} instead of {}", result.dtype(), source.dtype());
    let kind = format!("{} instead of {}", result.memory_kind().title(), source.memory_kind().title());
    let place = format!("{}, which cannot use the memory of {}", result.queue(), source.queue());
    let (other_dtype, other_kind) =
        (result.dtype() != source.dtype(), result.memory_kind() != source.memory_kind());
    let other_place = result.context() != source.context() || !(other_dtype || other_kind);
    let all = [(other_dtype, dtype), (other_kind, kind), (other_place, place)];
    let said: Vec<_> = all.into_iter().filter_map(|(differs, text)| differs.then_some(text)).collect();
    said.join(" and ")
}

/// Sets the elements of an array from another array in USM, or from a host object. The copy of a host object is
/// complete on return unless the dtype or the shape differs.
pub(super) fn assign(py: Python<'_>, target: &crate::Array, object: &Bound<'_, PyAny>) -> PyResult<()> {
    // Numbers must fit the target; elements of arrays and buffers convert.
    let queue = Some(target.queue().clone());
    let wanted = Wanted { dtype: Some(target.dtype()), queue, ..Wanted::default() };
    let source = match protocol::read(object, &wanted, protocol::ALL)? {
        Some(Source::Usm { array, .. }) => detach(py, || crate::collocate(&array, target.queue()))?,
        Some(Source::Cuda(source)) => detach(py, || source.to_queue(target.queue(), UsmKind::Device))?,
        Some(Source::Host(host)) => {
            target.check_writable()?;
            if host.dtype() == target.dtype() && host.shape() == target.shape() {
                return host.copy_to(py, target);
            }
            from_host(py, &host, UsmKind::Device, target.queue())?
        }
        None => return Err(protocol::no_array(object)),
    };
    Ok(detach(py, || target.assign(&source))?)
}
