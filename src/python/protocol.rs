//! The protocols of foreign arrays, in the order in which usmq prefers them.

use super::buffer::has_buffer;
use super::classes::Array;
use super::cuda::{self, CudaArray};
use super::host::HostInput;
use super::{argument, arrow, dlpack, suai};
use crate::interop::dlpack::Import;
use crate::{DType, Queue, UsmKind, interop};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::type_object::PyTypeInfo;
use pyo3::types::PyString;

/// Where a protocol's elements are. This decides whether usmq copies them.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Memory {
    /// In USM: used in place.
    Usm,
    /// On the host: copied, or on request used in place.
    Host,
    /// On a CUDA device: copied, unless the SYCL runtime knows the address.
    Cuda,
    /// The producer decides: USM is used in place, other memory is copied.
    Any,
}

pub(super) const ALL: &[Memory] = &[Memory::Usm, Memory::Host, Memory::Cuda, Memory::Any];

/// A row of the table.
struct Protocol {
    /// Its attributes for [`Sign::Attribute`], else a name for readers of the table.
    names: &'static [&'static str],
    sign: Sign,
    memory: Memory,
    /// None leaves the object to the rows below.
    read: for<'a, 'py> fn(&Found<'a, 'py>) -> Read<'py>,
}

type Read<'py> = PyResult<Option<Source<'py>>>;

/// How an object shows that it has a protocol.
enum Sign {
    /// It has one of the named attributes.
    Attribute,
    Test(for<'a, 'py> fn(&'a Bound<'py, PyAny>) -> bool),
}

/// All protocols, the preferred one first. numpy arrays are the common case, and a query of an attribute may run Python
/// code, so most attributes come after the buffer protocol.
const PROTOCOLS: [Protocol; 8] = [
    Protocol { names: &["usmq.Array"], sign: Sign::Test(Array::is_type_of), memory: Memory::Usm, read: own },
    Protocol { names: &[suai::NAME], sign: Sign::Attribute, memory: Memory::Usm, read: usm_interface },
    Protocol { names: &["buffer"], sign: Sign::Test(has_buffer), memory: Memory::Host, read: in_buffer },
    Protocol {
        names: &["usmq.CudaArray"],
        sign: Sign::Test(CudaArray::is_type_of),
        memory: Memory::Cuda,
        read: own_cuda,
    },
    Protocol { names: &[cuda::NAME], sign: Sign::Attribute, memory: Memory::Cuda, read: cuda_interface },
    Protocol { names: &arrow::METHODS, sign: Sign::Attribute, memory: Memory::Any, read: column },
    Protocol { names: &["__dlpack__"], sign: Sign::Attribute, memory: Memory::Any, read: tensor },
    Protocol { names: &["numbers"], sign: Sign::Test(|_| true), memory: Memory::Host, read: numbers },
];

/// An object with a protocol.
struct Found<'a, 'py> {
    object: &'a Bound<'py, PyAny>,
    /// The attribute of [`Sign::Attribute`], else the object.
    attribute: Bound<'py, PyAny>,
    wanted: &'a Wanted,
    filter: &'a [Memory],
}

/// The elements of an object.
pub(super) enum Source<'py> {
    /// In USM, and whether they were copied there.
    Usm { array: crate::Array, copied: bool },
    /// On a CUDA device.
    Cuda(interop::cuda::CudaArray),
    /// On the host.
    Host(HostInput<'py>),
}

/// The properties that the caller requests of an array.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    pub(super) dtype: Option<DType>,
    pub(super) kind: Option<UsmKind>,
    pub(super) queue: Option<Queue>,
    pub(super) copy: Option<bool>,
}

/// Reads an object by the first of its protocols whose memory is in the filter. None without one; with
/// [`Memory::Host`] in the filter that is a TypeError instead.
pub(super) fn read<'py>(
    object: &Bound<'py, PyAny>,
    wanted: &Wanted,
    filter: &[Memory],
) -> PyResult<Option<Source<'py>>> {
    for found in protocols(object, filter) {
        let (row, attribute) = found?;
        if let Some(source) = (row.read)(&Found { object, attribute, wanted, filter })? {
            return Ok(Some(source));
        }
    }
    Ok(None)
}

/// The memory of the protocol that [`read`] tries first.
pub(super) fn memory(object: &Bound<'_, PyAny>, filter: &[Memory]) -> PyResult<Option<Memory>> {
    Ok(protocols(object, filter).next().transpose()?.map(|(row, _)| row.memory))
}

/// The object's own USM, if any.
pub(super) fn usm(object: &Bound<'_, PyAny>) -> PyResult<Option<crate::Array>> {
    Ok(match read(object, &Wanted::default(), &[Memory::Usm])? {
        Some(Source::Usm { array, .. }) => Some(array),
        _ => None,
    })
}

/// The error for an object without a protocol that the caller accepts.
pub(super) fn no_array(object: &Bound<'_, PyAny>) -> PyErr {
    let fix = if object.hasattr("__arrow_c_device_array__").unwrap_or(false) {
        "move it with to(queue), or pass values() of a column"
    } else {
        "copy host data to USM with usmq.asarray()"
    };
    PyTypeError::new_err(format!("expected an array in USM, not {}; {fix}", argument::class_name(object)))
}

/// The rows of the protocols that the object has, each with [`Found::attribute`].
fn protocols<'py>(
    object: &Bound<'py, PyAny>,
    filter: &[Memory],
) -> impl Iterator<Item = PyResult<(&'static Protocol, Bound<'py, PyAny>)>> {
    let rows = PROTOCOLS.iter().filter(|row| filter.contains(&row.memory));
    rows.filter_map(|row| Some(row.find(object).transpose()?.map(|attribute| (row, attribute))))
}

impl Protocol {
    fn find<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Sign::Test(test) = self.sign {
            return Ok(test(object).then(|| object.clone()));
        }
        for name in self.names {
            // Python caches lookups of interned names.
            if let Some(attribute) = object.getattr_opt(PyString::intern(object.py(), name))? {
                return Ok(Some(attribute));
            }
        }
        Ok(None)
    }
}

fn own<'py>(found: &Found<'_, 'py>) -> Read<'py> {
    in_usm(crate::Array::clone(&found.object.cast::<Array>()?.get().array), false)
}

fn in_usm<'py>(array: crate::Array, copied: bool) -> Read<'py> {
    Ok(Some(Source::Usm { array, copied }))
}

fn usm_interface<'py>(found: &Found<'_, 'py>) -> Read<'py> {
    in_usm(suai::import(found.object, &found.attribute)?, false)
}

fn in_buffer<'py>(found: &Found<'_, 'py>) -> Read<'py> {
    let refused = match HostInput::buffer(found.object, found.wanted.dtype) {
        Ok(buffer) => return Ok(Some(Source::Host(buffer))),
        Err(refused) => refused,
    };
    // Buffer formats cannot express bfloat16, so jax refuses them; DLPack tensors can.
    let is_refused = refused.is_instance_of::<PyBufferError>(found.object.py());
    if is_refused && found.filter.contains(&Memory::Any) && found.object.hasattr("__dlpack__")? {
        return tensor(found);
    }
    Err(refused)
}

fn own_cuda<'py>(found: &Found<'_, 'py>) -> Read<'py> {
    let array = interop::cuda::CudaArray::clone(&found.object.cast::<CudaArray>()?.get().0);
    Ok(Some(Source::Cuda(array)))
}

fn cuda_interface<'py>(found: &Found<'_, 'py>) -> Read<'py> {
    Ok(cuda::import(found.object, &found.attribute)?.map(Source::Cuda))
}

fn column<'py>(found: &Found<'_, 'py>) -> Read<'py> {
    let Wanted { kind, queue, copy, .. } = found.wanted;
    let (array, copied) = arrow::numbers(found.object, (queue.as_ref(), *kind), *copy == Some(false))?;
    in_usm(array, copied)
}

fn tensor<'py>(found: &Found<'_, 'py>) -> Read<'py> {
    let Wanted { kind, queue, copy, .. } = found.wanted;
    let array = dlpack::read(found.object, Import { queue: queue.as_ref(), kind: *kind, copy: *copy })?;
    // The import makes a requested copy, and refuses one that is not allowed.
    in_usm(array, *copy == Some(true))
}

fn numbers<'py>(found: &Found<'_, 'py>) -> Read<'py> {
    Ok(Some(Source::Host(HostInput::numbers(found.object, found.wanted.dtype)?)))
}
