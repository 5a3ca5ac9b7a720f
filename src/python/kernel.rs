//! `usmq.Kernel` and the marks of its arguments.

use super::buffer::has_buffer;
use super::classes::{Event, Queue};
use super::dlpack::{self, InPlace};
use super::gil::detach;
use super::host::HostInput;
use super::protocol::{self, Memory};
use super::{argument, dtype, index, memory, scope, structure, submitter, target};
use crate::Error;
use crate::array::{DType, HostMemory};
use crate::kernel::{Arg, KernelOptions, Launch, Param};
use crate::memory::Access;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// A function that runs on a device.
///
/// Made by ``from_sycl``, ``from_opencl`` or ``from_spirv``. ``kernel(global_size, *args, local_size=None,
/// queue=None)`` submits it and returns immediately; the sections below describe this call.
///
/// Parameters
/// ----------
/// global_size : int or sequence of int
///     Work-items in one to three dimensions; the last one varies fastest.
/// *args
///     Arrays, numbers and ``usmq.local``; for a vector such as ``float4`` a tuple of numbers, for a structure
///     a numpy scalar with fields or a ``ctypes.Structure`` of its layout. ``usmq.read(x)`` and
///     ``usmq.write(x)`` state how the kernel accesses an array if its signature does not. numpy arrays and other buffers are used in place on devices with
///     ``usm_system_allocations``, else copied to the device and, unless the kernel only reads them, back; such a
///     launch returns after the kernel and the copies.
/// local_size : int or sequence of int, optional
///     Work-items in a work-group; required with ``usmq.local``.
/// queue : str, Device, Queue, optional
///     The queue that runs the kernel; by default that of the arrays. Buffers have none: without arrays, the current
///     queue.
///
/// Returns
/// -------
/// Event
///     You need not keep it: later commands on the arrays run after the kernel in any case.
///
/// Raises
/// ------
/// LaunchError
///     The kernel or the driver does not accept the arguments or ranges; the text names the argument.
/// PlacementError
///     The arrays are on different queues; the text names them and the fix.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> double = usmq.Kernel.from_sycl('''
/// ... #include <usmq/kernel.h>
/// ... USMQ_KERNEL(1) void twice(float *x) { x[global_id(0)] *= 2; }''', "twice")
/// >>> x = usmq.asarray([1.0, 2.0], "f4")
/// >>> event = double(2, x)
/// >>> x.to_numpy().tolist()
/// [2.0, 4.0]
#[pyclass(module = "usmq", frozen)]
pub(super) struct Kernel(crate::Kernel);

#[pymethods]
impl Kernel {
    /// Build a kernel from SYCL C++.
    ///
    /// Parameters
    /// ----------
    /// source : str
    ///     The translation unit. The kernel is a free function in it, declared with ``USMQ_KERNEL``
    ///     of ``usmq/kernel.h`` or ``SYCL_EXT_ONEAPI_FUNCTION_PROPERTY`` of ``sycl/sycl.hpp``: the
    ///     SYCL extensions ``sycl_ext_oneapi_kernel_compiler_sycl`` and
    ///     ``sycl_ext_oneapi_free_function_kernels``.
    /// name : str
    ///     The function's name.
    /// options : sequence of str
    ///     Compiler flags, one per item, as ``["-DN=3", "-O2"]``. A single str raises TypeError.
    /// params : sequence, optional
    ///     The parameters, if usmq cannot read them from the source: a dtype for a number,
    ///     ``usmq.read("f4")``, ``usmq.write("f4")`` or ``usmq.local(n)`` for memory.
    /// queue : str, Device, Queue, optional
    ///     The queue for the first build; by default the current queue.
    /// debug : bool
    ///     Check that the kernel stays inside its arrays. A launch then waits for the kernel, and raises
    ///     LaunchError with argument, index and work-item of the first access outside of an array. Such an access
    ///     changes no memory.
    ///
    /// Raises
    /// ------
    /// KernelBuildError
    ///     The source does not compile, is empty or lacks the kernel; ``.log`` has the compiler's output.
    /// ValueError
    ///     ``params`` contradict the readable source or the built kernel, or a str contains a NUL character.
    #[staticmethod]
    #[pyo3(signature = (source, name, *, options=Vec::new(), params=None, queue=None, debug=false))]
    fn from_sycl(
        py: Python<'_>,
        #[pyo3(from_py_with = argument::source)] source: &str,
        #[pyo3(from_py_with = argument::name)] name: &str,
        #[pyo3(from_py_with = argument::options)] options: Vec<String>,
        params: Option<&Bound<'_, PyAny>>,
        queue: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::debug)] debug: bool,
    ) -> PyResult<Self> {
        let options = KernelOptions { debug, ..kernel_options(py, options, params, queue)? };
        Ok(Self(detach(py, || crate::Kernel::from_sycl_with(source, name, options))?))
    }

    /// Build a kernel from OpenCL C, for devices of the opencl backend; parameters as ``from_sycl``.
    #[staticmethod]
    #[pyo3(signature = (source, name, *, options=Vec::new(), params=None, queue=None))]
    fn from_opencl(
        py: Python<'_>,
        #[pyo3(from_py_with = argument::source)] source: &str,
        #[pyo3(from_py_with = argument::name)] name: &str,
        #[pyo3(from_py_with = argument::options)] options: Vec<String>,
        params: Option<&Bound<'_, PyAny>>,
        queue: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let options = kernel_options(py, options, params, queue)?;
        Ok(Self(detach(py, || crate::Kernel::from_opencl(source, name, options))?))
    }

    /// Build a kernel from the bytes of a SPIR-V module; parameters as ``from_sycl``.
    ///
    /// Pass only modules that a compiler has written, from a source that you trust: usmq checks frame, ids and
    /// kernels of a module, but a driver may end the process on any other mistake in it.
    ///
    /// Raises
    /// ------
    /// KernelBuildError
    ///     The bytes are not a SPIR-V module, or the module lacks the kernel.
    /// ValueError
    ///     ``params`` contradict the built kernel.
    #[staticmethod]
    #[pyo3(signature = (module, name, *, params=None, queue=None))]
    fn from_spirv(
        py: Python<'_>,
        #[pyo3(from_py_with = argument::module)] module: &[u8],
        #[pyo3(from_py_with = argument::name)] name: &str,
        params: Option<&Bound<'_, PyAny>>,
        queue: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let options = kernel_options(py, Vec::new(), params, queue)?;
        // SAFETY: Python has no unsafe: the docstring makes the caller responsible for the module.
        Ok(Self(detach(py, || unsafe { crate::Kernel::from_spirv(module, name, options) })?))
    }

    /// The function's name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether its launches check that it stays inside its arrays.
    #[getter]
    fn debug(&self) -> bool {
        self.0.is_debug()
    }

    // Documented with the class: Python has its own text for special methods.
    #[pyo3(signature = (global_size, *args, local_size=None, queue=None))]
    fn __call__(
        &self,
        py: Python<'_>,
        global_size: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        local_size: Option<&Bound<'_, PyAny>>,
        queue: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Event> {
        let global = index::shape(global_size, "global_size")?;
        let local = local_size.map(|size| index::shape(size, "local_size")).transpose()?;
        let queue = match target::queue(py, queue)? {
            // Without data to follow, the scope of this Python context decides.
            None if !args.iter().any(|arg| holds_memory(&arg)) => Some(scope::current(py)?),
            given => given,
        };
        // Dropped after the arguments, so that host objects are released on return.
        let mut buffers = Vec::new();
        let args: SmallVec<[Arg<'_>; 6]> = args
            .iter_borrowed()
            .enumerate()
            .map(|(position, arg)| {
                let name = self.0.name();
                let refused = |why| {
                    Error::launch(
                        name,
                        Some(position),
                        format!("kernel {name:?}, argument {position}: {why}"),
                    )
                };
                argument(arg, &mut |host| host_argument(refused, host, &mut buffers))
            })
            .collect::<PyResult<_>>()?;
        let launch = Launch { global: &global, local: local.as_deref(), queue: queue.as_ref() };
        // Another Python thread may take the GIL when this thread releases it, and hold it for milliseconds.
        // So release it only for a build and the submission.
        let prepared = self.0.prepare_built(launch, &args)?;
        let event = match prepared {
            // SAFETY: Python has no unsafe: the author of a kernel is responsible for what it does with its arguments.
            Some(prepared) => submitter::submit(py, prepared.queue(), || unsafe { prepared.submit() })?,
            // SAFETY: as above.
            None => detach(py, || unsafe { self.0.launch_with(launch, &args[..]) })?,
        };
        Ok(Event(event))
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Kernel {}{}>", self.0.signature(), if self.0.is_debug() { ", debug" } else { "" })
    }
}

/// An object with a buffer as an argument. `error` adds kernel and argument to the reason of a refusal. Adds the held
/// buffer to the list.
pub(super) fn host_argument<'py>(
    error: impl Fn(String) -> Error,
    object: &Bound<'py, PyAny>,
    buffers: &mut Vec<HostInput<'py>>,
) -> PyResult<(HostMemory, Arc<dyn Any + Send + Sync>)> {
    let py = object.py();
    let refused = |raised: PyErr| {
        let is_refusal = raised.is_instance_of::<PyTypeError>(py)
            || raised.is_instance_of::<PyValueError>(py)
            || raised.is_instance_of::<PyBufferError>(py);
        if !is_refusal {
            return raised;
        }
        let class = argument::class_name(object);
        let fix = if structure::has_fields(object).unwrap_or(false) {
            "; for a structure by value pass one element, as x[0]"
        } else {
            ""
        };
        error(format!("{class}: {}{fix}", raised.value(py))).into()
    };
    let host = HostInput::buffer(object, None).map_err(refused)?;
    let (memory, owner) = host.memory().ok_or_else(|| refuse(object))?;
    buffers.push(host);
    Ok((memory, Arc::from(owner)))
}

fn kernel_options(
    py: Python<'_>,
    flags: Vec<String>,
    params: Option<&Bound<'_, PyAny>>,
    queue: Option<&Bound<'_, PyAny>>,
) -> PyResult<KernelOptions> {
    let params = match params {
        // A str would be read as one dtype per character.
        Some(params) if index::is_text(params) || !params.hasattr("__iter__")? => {
            let wanted =
                "a sequence of dtypes, usmq.read, usmq.write and usmq.local, as [\"f4\", usmq.read(\"f4\")]";
            return Err(argument::wrong_type(params, "params", wanted));
        }
        Some(params) => Some(params.try_iter()?.map(|entry| param(&entry?)).collect::<PyResult<Vec<_>>>()?),
        None => None,
    };
    Ok(KernelOptions { flags, params, queue: Some(scope::queue_or_current(py, queue)?), debug: false })
}

/// The access of a kernel to an argument, created by ``usmq.read`` and ``usmq.write``.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct Mark {
    writes: bool,
    of: Py<PyAny>,
}

#[pymethods]
impl Mark {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = if self.writes { "write" } else { "read" };
        Ok(format!("usmq.{name}({})", self.of.bind(py).repr()?))
    }
}

/// Local memory of a work-group, created by ``usmq.local``.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct Local {
    /// One number of bytes without a dtype.
    extents: Vec<usize>,
    dtype: Option<DType>,
}

#[pymethods]
impl Local {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Some(dtype) = self.dtype else { return Ok(format!("usmq.local({})", self.extents[0])) };
        let extents = PyTuple::new(py, &self.extents)?;
        Ok(format!("usmq.local({}, {:?})", extents.repr()?, dtype.short_name()))
    }
}

impl Local {
    fn arg(&self) -> crate::Result<Arg<'static>> {
        match self.dtype {
            None => Ok(Arg::local(self.extents[0])),
            Some(dtype) => Arg::local_array(&self.extents, dtype),
        }
    }
}

/// Mark an array that the kernel only reads, or a dtype in ``params=`` of such arrays.
///
/// A ``Kernel`` must keep this promise: otherwise other commands and the host may use the elements while it writes
/// them. One-line kernels use the access that they declare, and raise LaunchError for a mark that contradicts it.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.read("f4")
/// usmq.read('f4')
#[pyfunction]
pub(super) fn read(x: Py<PyAny>) -> Mark {
    Mark { writes: false, of: x }
}

/// Mark an array whose previous elements the kernel does not read, or a dtype in ``params=`` of such arrays.
///
/// ``usmq.read`` describes which kernels rely on a mark.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.write("f4")
/// usmq.write('f4')
#[pyfunction]
pub(super) fn write(x: Py<PyAny>) -> Mark {
    Mark { writes: true, of: x }
}

/// Request local memory for each work-group.
///
/// A launch with it needs a ``local_size``. A kernel declares it as ``local_memory`` of ``usmq/kernel.h``, a
/// ``local_accessor``, a ``work_group_memory`` or, in OpenCL C, a pointer.
///
/// Parameters
/// ----------
/// size : int or sequence of int
///     A number of bytes; with a dtype, one to three extents. A ``local_accessor`` of more than one dimension
///     needs as many extents.
/// dtype : dtype, optional
///     The type of the elements.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.local(1024)
/// usmq.local(1024)
/// >>> usmq.local((16, 17), "f4")
/// usmq.local((16, 17), "f4")
#[pyfunction]
#[pyo3(signature = (size, dtype=None))]
pub(super) fn local(size: &Bound<'_, PyAny>, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<Local> {
    let Some(dtype) = dtype else {
        let nbytes = argument::given(size, "size", "a whole number of bytes, or extents with a dtype")?;
        return Ok(Local { extents: vec![nbytes], dtype: None });
    };
    let local = Local { extents: index::shape(size, "size")?, dtype: Some(dtype::parse(dtype)?) };
    local.arg()?;
    Ok(local)
}

/// The text of ``help(kernel)``: that of the kernel, not of its class.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct KernelDoc(Py<PyAny>);

#[pymethods]
impl KernelDoc {
    fn __get__(&self, instance: Option<&Bound<'_, Kernel>>, class: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Some(kernel) = instance else { return Ok(self.0.clone_ref(class.py())) };
        let kernel = &kernel.get().0;
        let dimensions = match kernel.dimensions() {
            Some(1) => "a range of one dimension".to_owned(),
            Some(count) => format!("a range of {count} dimensions"),
            None => "a range of one to three dimensions".to_owned(),
        };
        let text = format!(
            "{}\n\nA kernel over {dimensions}. Call it as kernel(global_size, *args, local_size=None, queue=None);\n\
             help(usmq.Kernel) describes the call.",
            kernel.signature()
        );
        Ok(text.into_pyobject(class.py())?.into_any().unbind())
    }
}

/// Gives each kernel its own text for ``help``.
pub(super) fn describe_kernels(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Kernel>();
    let doc = KernelDoc(class.getattr("__doc__")?.unbind());
    class.setattr("__doc__", Py::new(py, doc)?)
}

fn param(object: &Bound<'_, PyAny>) -> PyResult<Param> {
    if object.is_instance_of::<Local>() {
        return Ok(Param::Local);
    }
    if let Ok(mark) = object.cast::<Mark>() {
        let dtype = dtype::parse(mark.get().of.bind(object.py()))?;
        return Ok(if mark.get().writes { Param::Write(Some(dtype)) } else { Param::Read(Some(dtype)) });
    }
    Ok(Param::Scalar(dtype::parse(object)?))
}

/// Whether it is an array with a queue.
pub(super) fn holds_memory(object: &Bound<'_, PyAny>) -> bool {
    // The usual arguments, since each attribute that an object lacks costs an exception.
    if index::is_plain(object) {
        return false;
    }
    let marked = object.cast::<Mark>().map(|mark| mark.get().of.bind(object.py()));
    matches!(protocol::memory(marked.unwrap_or(object), &[Memory::Usm]), Ok(Some(_)))
}

/// Reads the memory of an object with a buffer.
pub(super) type ReadHost<'a, 'py> =
    &'a mut dyn FnMut(&Bound<'py, PyAny>) -> PyResult<(HostMemory, Arc<dyn Any + Send + Sync>)>;

/// A kernel argument from an object. It borrows an array of usmq from its object.
pub(super) fn argument<'a, 'py>(
    object: Borrowed<'a, 'py, PyAny>,
    host: ReadHost<'_, 'py>,
) -> PyResult<Arg<'a>> {
    if let Some(own) = own_array(object) {
        return Ok(Arg::from(own));
    }
    if let Ok(local) = object.cast::<Local>() {
        return Ok(local.get().arg()?);
    }
    if let Ok(mark) = object.cast::<Mark>() {
        let marked = mark.get().of.bind_borrowed(object.py());
        let writes = mark.get().writes;
        if let Some(own) = own_array(marked) {
            return Ok(if writes { Arg::write(own) } else { Arg::read(own) });
        }
        return Ok(match memory_of(&marked, host)? {
            InPlace::Usm(array) => Arg::marked(array, if writes { Access::Write } else { Access::Read }),
            InPlace::Host(memory, owner) => {
                // Elements that the kernel does not write keep their values.
                let new = if writes { Arg::host } else { Arg::host_read };
                new(memory, Some(owner))
            }
        });
    }
    let object = &*object;
    if let Some(bytes) = structure::bytes(object)? {
        return Ok(Arg::bytes(&bytes));
    }
    if let Ok(numbers) = object.cast::<PyTuple>() {
        let number = |item: Bound<'py, PyAny>| match index::scalar(&item)? {
            Some((number, _)) => Ok(number),
            None => Err(PyTypeError::new_err(format!(
                "a tuple as a kernel argument is a vector, so it must have numbers, not {}",
                argument::class_name(&item)
            ))),
        };
        return Ok(Arg::vector(&numbers.iter().map(number).collect::<PyResult<Vec<_>>>()?));
    }
    if let Some((number, dtype)) = index::scalar(object)? {
        return Ok(Arg::number(number, dtype));
    }
    if object.is_instance_of::<PyString>() || object.is_instance_of::<Queue>() {
        return Err(refuse(object));
    }
    Ok(match memory_of(object, host)? {
        InPlace::Usm(array) => Arg::from(array),
        InPlace::Host(memory, owner) => Arg::host(memory, Some(owner)),
    })
}

fn memory_of<'py>(object: &Bound<'py, PyAny>, host: ReadHost<'_, 'py>) -> PyResult<InPlace> {
    if let Some(array) = protocol::usm(object)? {
        return Ok(InPlace::Usm(array));
    }
    if has_buffer(object) {
        return host(object).map(|(memory, owner)| InPlace::Host(memory, owner));
    }
    if object.getattr_opt(intern!(object.py(), "__dlpack__"))?.is_some() {
        return dlpack::in_place(object);
    }
    Err(refuse(object))
}

fn own_array<'a>(object: Borrowed<'a, '_, PyAny>) -> Option<&'a crate::Array> {
    Some(&*object.cast::<super::classes::Array>().ok()?.get().array)
}

fn refuse(object: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "a kernel argument must be an array in USM, a numpy array, a buffer, a DLPack tensor, a number, a tuple of \
         numbers, a structure or usmq.local(size), not {}; copy other host data with usmq.asarray()",
        argument::class_name(object)
    ))
}

/// Set the limit of memory for built kernels.
///
/// usmq counts 2 MiB for each build and drops those that were not used for the longest time. A ``Kernel``
/// keeps its own builds.
///
/// Parameters
/// ----------
/// bytes : int or str, optional
///     The limit of the process in bytes, or as text such as ``"1GiB"``; None is the initial limit, 512 MiB.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.set_kernel_cache_limit(2**30)
/// >>> usmq.set_kernel_cache_limit(None)
#[pyfunction]
pub(super) fn set_kernel_cache_limit(py: Python<'_>, bytes: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let bytes = bytes.map(|bytes| memory::limit(bytes, "bytes")).transpose()?;
    Ok(detach(py, || crate::set_kernel_cache_limit(bytes))?)
}

/// Drop all built kernels that no ``Kernel`` keeps. Files of the cache on disk stay.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.clear_kernel_cache()
#[pyfunction]
pub(super) fn clear_kernel_cache(py: Python<'_>) -> PyResult<()> {
    Ok(detach(py, crate::clear_kernel_cache)?)
}
