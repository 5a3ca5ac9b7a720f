//! New arrays with the properties of another: `empty_like`, `zeros_like`, `ones_like`, `full_like`.

use super::classes::Array;
use super::gil::detach;
use super::protocol::Source;
use super::{argument, create, dtype, index, placement, scope, target};
use crate::{Scalar, UsmKind};
use pyo3::prelude::*;

/// Makes the functions that differ only in name and content.
macro_rules! like {
    ($(#[$doc:meta])* $name:ident, $fill:expr) => {
        $(#[$doc])*
        #[pyfunction]
        #[allow(clippy::too_many_arguments)] // two names of one
        #[pyo3(signature = (x, dtype=None, *, shape=None, usm_type=None, queue=None, device=None))]
        pub(super) fn $name(
            py: Python<'_>,
            x: &Bound<'_, PyAny>,
            dtype: Option<&Bound<'_, PyAny>>,
            shape: Option<&Bound<'_, PyAny>>,
            #[pyo3(from_py_with = argument::usm_type)] usm_type: Option<&str>,
            queue: Option<&Bound<'_, PyAny>>,
            device: Option<&Bound<'_, PyAny>>,
        ) -> PyResult<Array> {
            let fill: Option<Scalar> = $fill;
            new(py, x, dtype, shape, usm_type, target::place(py, queue, device)?, fill)
        }
    };
}

like! {
    /// Create an uninitialised array like another one.
    ///
    /// Parameters
    /// ----------
    /// x : Array or object with one of the array interfaces
    ///     The prototype. Its elements are not read.
    /// dtype : dtype, optional
    ///     By default that of the prototype.
    /// shape : int or sequence of int, optional
    ///     By default that of the prototype. The result is contiguous in C order.
    /// usm_type : {"device", "shared", "host"}, optional
    ///     By default that of the prototype; ``"host"`` for system memory, ``"device"`` for other host objects.
    /// queue : str, Device, Queue, optional
    ///     By default that of the prototype; the current queue for host objects.
    /// device : str, Device, Queue, optional
    ///     Another name of ``queue``, as in the Python array API standard.
    ///
    /// Raises
    /// ------
    /// ValueError, TypeError, SelectorError, DeviceNotFoundError, AllocationError
    ///     As ``empty``.
    ///
    /// Examples
    /// --------
    /// >>> import usmq
    /// >>> x = usmq.zeros((2, 3), "i4", usm_type="shared")
    /// >>> y = usmq.empty_like(x, "f8")
    /// >>> y.shape, str(y.dtype), y.usm_type, y.queue == x.queue
    /// ((2, 3), 'float64', 'shared', True)
    empty_like, None
}

like! {
    /// Create an array of zeros like another one. Returns before they are written.
    ///
    /// Parameters
    /// ----------
    /// x : Array or object with one of the array interfaces
    ///     The prototype. Its elements are not read.
    /// dtype, shape, usm_type, queue, device : optional
    ///     As for ``empty_like``.
    ///
    /// Raises
    /// ------
    /// ValueError, TypeError, SelectorError, DeviceNotFoundError, AllocationError
    ///     As ``empty``.
    ///
    /// Examples
    /// --------
    /// >>> import usmq
    /// >>> usmq.zeros_like(usmq.arange(3)).tolist()
    /// [0, 0, 0]
    zeros_like, Some(Scalar::Int(0))
}

like! {
    /// Create an array of ones like another one. Returns before they are written.
    ///
    /// Parameters
    /// ----------
    /// x : Array or object with one of the array interfaces
    ///     The prototype. Its elements are not read.
    /// dtype, shape, usm_type, queue, device : optional
    ///     As for ``empty_like``.
    ///
    /// Raises
    /// ------
    /// ValueError, TypeError, SelectorError, DeviceNotFoundError, AllocationError
    ///     As ``empty``.
    ///
    /// Examples
    /// --------
    /// >>> import usmq
    /// >>> usmq.ones_like(usmq.arange(3), "f4").tolist()
    /// [1.0, 1.0, 1.0]
    ones_like, Some(Scalar::Int(1))
}

/// Create an array like another one, filled with one value. Returns before it is written.
///
/// Parameters
/// ----------
/// x : Array or object with one of the array interfaces
///     The prototype. Its elements are not read.
/// value : number
///     A number that the dtype can hold.
/// dtype, shape, usm_type, queue, device : optional
///     As for ``empty_like``.
///
/// Raises
/// ------
/// ValueError
///     The dtype cannot hold the value, or as ``empty``.
/// TypeError, SelectorError, DeviceNotFoundError, AllocationError
///     As ``empty``.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.full_like(usmq.arange(3), 7).tolist()
/// [7, 7, 7]
#[pyfunction]
#[allow(clippy::too_many_arguments)] // two names of one
#[pyo3(signature = (x, value, dtype=None, *, shape=None, usm_type=None, queue=None, device=None))]
pub(super) fn full_like(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    shape: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = argument::usm_type)] usm_type: Option<&str>,
    queue: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    let (number, _) = create::number(value, "value")?;
    new(py, x, dtype, shape, usm_type, target::place(py, queue, device)?, Some(number))
}

fn new(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    shape: Option<&Bound<'_, PyAny>>,
    usm_type: Option<&str>,
    queue: Option<crate::Queue>,
    fill: Option<Scalar>,
) -> PyResult<Array> {
    let dtype = dtype::parse_opt(dtype)?;
    let shape = shape.map(|shape| index::shape(shape, "shape")).transpose()?;
    let kind = usm_type.map(str::parse::<UsmKind>).transpose()?;
    let (own_shape, own_dtype, own_kind, own_queue) = match placement::source(x)? {
        Source::Usm { array, .. } => {
            (array.shape().to_vec(), array.dtype(), array.kind_of_copies(), Some(array.queue().clone()))
        }
        Source::Cuda(array) => (array.shape().to_vec(), array.dtype(), UsmKind::Device, None),
        Source::Host(host) => (host.shape(), host.dtype(), UsmKind::Device, None),
    };
    let queue = queue.or(own_queue).map_or_else(|| scope::current(py), Ok)?;
    let (shape, dtype, kind) =
        (shape.unwrap_or(own_shape), dtype.unwrap_or(own_dtype), kind.unwrap_or(own_kind));
    let made = detach(py, || -> crate::Result<_> {
        let array = crate::Array::uninit(shape, dtype, kind, &queue)?;
        fill.map(|number| array.fill_number(number)).transpose()?;
        Ok(array)
    })?;
    Ok(Array::new(made))
}
