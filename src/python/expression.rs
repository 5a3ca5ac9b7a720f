//! The Python classes of one-line kernels.

use super::argument;
use super::buffer::has_buffer;
use super::classes::{Array, Event};
use super::gil::detach;
use super::host::HostInput;
use super::index::scalar;
use super::kernel::{argument as kernel_argument, holds_memory, host_argument};
use super::{scope, target};
use crate::array::Scalar;
use crate::{Arg, ElementwiseLaunch, Error, ExpressionOptions, ReductionLaunch, ReductionOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A kernel that runs one expression for each element, created by ``usmq.elementwise``.
///
/// ``kernel(*args, size=None, queue=None)`` runs it for the common shape of the arrays, or for ``size``
/// elements if all arrays are ``raw``, and returns an ``Event`` at once. With numpy arrays or other buffers of the
/// host it returns after the kernel and the copies.
#[pyclass(module = "usmq", frozen)]
pub(super) struct Elementwise(crate::Elementwise);

/// A kernel that combines elements, created by ``usmq.reduction``.
///
/// ``kernel(*args, axis=None, keepdims=False, queue=None)`` combines along one axis, or all elements, and
/// returns an ``Array`` at once; with numpy arrays or other buffers of the host, after the kernel.
#[pyclass(module = "usmq", frozen)]
pub(super) struct Reduction(crate::Reduction);

/// Create a kernel from one statement for element ``i``.
///
/// Parameters
/// ----------
/// params : str
///     The parameters, as in C++: ``float a`` is a number, ``const float *x`` an array that is read at
///     ``x[i]``, and ``float *y`` one that may also be written there. Arrays broadcast, and may be strided
///     views of USM or of the host; a number may take the place of a ``const`` array. ``raw const float *x`` is used as a
///     whole, at any index. A capital letter, such as ``T``, stands for the type of the arguments.
/// operation : str
///     The statement. ``i`` is the number of the element in C order and ``n`` the number of elements. The
///     functions of ``usmq/kernel.h`` are available.
/// name : str
///     The name of the kernel in errors and profiles.
/// preamble : str
///     Text before the kernel, such as functions that the operation calls.
/// options : sequence of str
///     Compiler flags, one per item.
/// queue : str, Device, Queue, optional
///     The queue for the first build; by default the current queue. A kernel with type letters is built
///     at its first launch.
///
/// Raises
/// ------
/// KernelBuildError
///     The operation does not compile; ``.log`` has the compiler's output.
/// ValueError
///     The parameters cannot be read.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> axpy = usmq.elementwise("float a, const float *x, float *y", "y[i] += a * x[i]")
/// >>> x, y = usmq.arange(3, dtype="f4"), usmq.zeros(3, "f4")
/// >>> event = axpy(2.0, x, y)
/// >>> y.tolist()
/// [0.0, 2.0, 4.0]
#[pyfunction]
#[pyo3(signature = (params, operation, *, name="elementwise", preamble="", options=Vec::new(), queue=None))]
pub(super) fn elementwise(
    py: Python<'_>,
    #[pyo3(from_py_with = argument::params)] params: &str,
    #[pyo3(from_py_with = argument::operation)] operation: &str,
    #[pyo3(from_py_with = argument::name)] name: &str,
    #[pyo3(from_py_with = argument::preamble)] preamble: &str,
    #[pyo3(from_py_with = argument::options)] options: Vec<String>,
    queue: Option<&Bound<'_, PyAny>>,
) -> PyResult<Elementwise> {
    let options = expression_options(py, name, preamble, options, queue)?;
    // SAFETY: Python has no unsafe: the author of an operation is responsible for the elements that it uses.
    let build = || unsafe { crate::Elementwise::new_with(params, operation, options) };
    Ok(Elementwise(detach(py, build)?))
}

/// Create a kernel that maps each element to a value and combines the values.
///
/// Parameters
/// ----------
/// params : str
///     As in ``usmq.elementwise``; all arrays are ``const``.
/// result : str
///     The type of the result, or one of the type letters.
/// map : str
///     The expression for element ``i``.
/// combine : str
///     The expression that combines two values ``a`` and ``b``, in any order and grouping.
/// identity : str
///     The value that changes nothing in ``combine``, and the result for no element.
/// post : str
///     An expression for the result from the combined value ``a`` and the number ``n`` of its elements.
/// deterministic : bool
///     The same bits on every device. Otherwise the grouping also depends on the number of compute
///     units, and the bits are the same in each run on one device.
/// name, preamble, options, queue
///     As in ``usmq.elementwise``.
///
/// Raises
/// ------
/// KernelBuildError
///     An expression does not compile; ``.log`` has the compiler's output.
/// ValueError
///     The parameters cannot be read, or allow writes.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> squares = usmq.reduction("const T *x", "T", "x[i] * x[i]", "a + b", "0")
/// >>> x = usmq.arange(6, dtype="f4").reshape(2, 3)
/// >>> squares(x).tolist(), squares(x, axis=0).tolist()
/// (55.0, [9.0, 17.0, 29.0])
#[pyfunction]
#[pyo3(signature = (params, result, map, combine, identity, *, post="", deterministic=false, name="reduction",
                    preamble="", options=Vec::new(), queue=None))]
#[allow(clippy::too_many_arguments, reason = "the parameters of Python, all but five by name")]
pub(super) fn reduction(
    py: Python<'_>,
    #[pyo3(from_py_with = argument::params)] params: &str,
    #[pyo3(from_py_with = argument::result)] result: &str,
    #[pyo3(from_py_with = argument::map)] map: &str,
    #[pyo3(from_py_with = argument::combine)] combine: &str,
    #[pyo3(from_py_with = argument::identity)] identity: &str,
    #[pyo3(from_py_with = argument::post)] post: &str,
    #[pyo3(from_py_with = argument::deterministic)] deterministic: bool,
    #[pyo3(from_py_with = argument::name)] name: &str,
    #[pyo3(from_py_with = argument::preamble)] preamble: &str,
    #[pyo3(from_py_with = argument::options)] options: Vec<String>,
    queue: Option<&Bound<'_, PyAny>>,
) -> PyResult<Reduction> {
    let expression = expression_options(py, name, preamble, options, queue)?;
    let options = ReductionOptions { post: post.to_owned(), deterministic, expression };
    // SAFETY: Python has no unsafe: the author of an expression is responsible for the elements that it reads.
    let build = || unsafe { crate::Reduction::new_with(params, result, map, combine, identity, options) };
    Ok(Reduction(detach(py, build)?))
}

fn expression_options(
    py: Python<'_>,
    name: &str,
    preamble: &str,
    flags: Vec<String>,
    queue: Option<&Bound<'_, PyAny>>,
) -> PyResult<ExpressionOptions> {
    let queue = Some(scope::queue_or_current(py, queue)?);
    Ok(ExpressionOptions { name: name.to_owned(), preamble: preamble.to_owned(), flags, queue })
}

/// The arguments of a launch, and its queue if the data does not decide. `parameter` returns the name of a parameter for
/// errors, and whether it takes an array.
fn launched<'a, 'py, 'n>(
    args: &'a Bound<'py, PyTuple>,
    queue: Option<&Bound<'py, PyAny>>,
    kernel: &str,
    parameter: impl Fn(usize) -> Option<(&'n str, bool)>,
    buffers: &mut Vec<HostInput<'py>>,
) -> PyResult<(Vec<Arg<'a>>, Option<crate::Queue>)> {
    let py = args.py();
    let queue = match target::queue(py, queue)? {
        None if !args.iter().any(|arg| holds_memory(&arg)) => Some(scope::current(py)?),
        given => given,
    };
    let read = |(position, arg): (usize, Borrowed<'a, 'py, PyAny>)| {
        let parameter = parameter(position);
        let refused = |why| {
            let name = parameter.map_or_else(|| position.to_string(), |(name, _)| name.to_owned());
            Error::launch(kernel, Some(position), format!("kernel {kernel:?}: argument {name}: {why}"))
        };
        // An array without axes is a number where a kernel takes one.
        if parameter.is_some_and(|(_, takes_array)| takes_array) && is_writable_number(&arg) {
            let (memory, owner) = host_argument(refused, &arg, buffers)?;
            return Ok(Arg::host(memory, Some(owner)));
        }
        kernel_argument(arg, &mut |host| host_argument(refused, host, buffers))
    };
    let args = args.iter_borrowed().enumerate().map(read).collect::<PyResult<_>>()?;
    Ok((args, queue))
}

/// Whether it is an array of the host without axes: numpy's scalars are not writable.
fn is_writable_number(object: &Bound<'_, PyAny>) -> bool {
    has_buffer(object)
        && !object.is_instance_of::<Array>()
        && object.getattr("ndim").is_ok_and(|ndim| ndim.extract::<usize>().is_ok_and(|ndim| ndim == 0))
        && HostInput::buffer(object, None)
            .is_ok_and(|host| host.memory().is_some_and(|(memory, _)| !memory.readonly))
}

#[pymethods]
impl Elementwise {
    /// The name of the kernel.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[pyo3(signature = (*args, size=None, queue=None))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        #[pyo3(from_py_with = argument::size)] size: Option<usize>,
        queue: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Event> {
        // Dropped after the arguments, so that host objects are released on return.
        let mut buffers = Vec::new();
        let parameter = |position| self.0.parameter(position);
        let (args, queue) = launched(args, queue, self.0.name(), parameter, &mut buffers)?;
        let launch = ElementwiseLaunch { size, queue: queue.as_ref() };
        // SAFETY: the buffers are held. Python has no unsafe: as for every consumer of the buffer protocol, the program
        // orders its own accesses.
        Ok(Event(detach(py, || unsafe { self.0.launch_with_host(launch, &args) })?))
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Elementwise {}({})>", self.0.name(), self.0.params())
    }
}

#[pymethods]
impl Reduction {
    /// The name of the kernel.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[pyo3(signature = (*args, axis=None, keepdims=false, queue=None))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        axis: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::keepdims)] keepdims: bool,
        queue: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Array> {
        let axis = match axis.map(scalar).transpose()?.flatten() {
            Some((Scalar::Int(axis), _)) => {
                // An axis beyond this range is out of range for every array.
                Some(isize::try_from(axis).unwrap_or(if axis < 0 { isize::MIN } else { isize::MAX }))
            }
            None if axis.is_none() => None,
            _ => return Err(PyTypeError::new_err("axis must be a whole number or None, for all axes")),
        };
        let mut buffers = Vec::new();
        let parameter = |position| self.0.parameter(position);
        let (args, queue) = launched(args, queue, self.0.name(), parameter, &mut buffers)?;
        let launch = ReductionLaunch { axis, keepdims, queue: queue.as_ref() };
        // SAFETY: as above.
        Ok(Array::new(detach(py, || unsafe { self.0.launch_with_host(launch, &args) })?))
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Reduction {}({})>", self.0.name(), self.0.params())
    }
}
