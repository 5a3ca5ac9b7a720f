//! The capsules of the Arrow PyCapsule interface, both ways.
//!
//! A capsule owns its struct. A consumer moves the struct out, which leaves a released one behind; the
//! destructor releases a struct that was not consumed.

use crate::interop::arrow::{
    ArrayStruct, ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema, Column,
    FfiStruct, Field, ForeignStruct, Table,
};
use crate::python::gil::{detach, quietly};
use crate::{Error, Result};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// The structs that have a capsule, and its name.
pub(super) trait Named: FfiStruct {
    const NAME: &'static CStr;

    fn is_released(&self) -> bool;
}

macro_rules! named {
    ($($type:ident $name:literal),* $(,)?) => { $(
        impl Named for $type {
            const NAME: &'static CStr = $name;

            fn is_released(&self) -> bool {
                $type::is_released(self)
            }
        }
    )* };
}

named!(
    ArrowSchema c"arrow_schema",
    ArrowArray c"arrow_array",
    ArrowArrayStream c"arrow_array_stream",
    ArrowDeviceArray c"arrow_device_array",
    ArrowDeviceArrayStream c"arrow_device_array_stream",
);

/// Creates a capsule that owns the struct.
pub(super) fn give<T: Named>(py: Python<'_>, value: T) -> PyResult<Bound<'_, PyCapsule>> {
    let pointer = NonNull::from(Box::leak(Box::new(value))).cast();
    // SAFETY: the pointer is a fresh box of the type that the name stands for, and the destructor frees that.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, T::NAME, Some(free::<T>)) }
}

unsafe extern "C" fn free<T: Named>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule, which `give` made under this name.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()) };
    if !pointer.is_null() {
        // SAFETY: the box of `give`, freed once. Dropping a struct that was moved out does nothing.
        quietly(|| drop(unsafe { Box::from_raw(pointer.cast::<T>()) }));
    }
}

/// The schema or stream of another library's capsule, moved out.
pub(super) fn take<T: Named + FfiStruct<About = ()>>(
    object: &Bound<'_, PyAny>,
) -> PyResult<ForeignStruct<T>> {
    // SAFETY: `moved` passes the struct that the capsule's name promises.
    moved(object, |source| unsafe { ForeignStruct::take(source) })
}

/// The array of another library's capsule, moved out.
fn take_array<A: Named + ArrayStruct>(
    object: &Bound<'_, PyAny>,
    field: &Arc<Field>,
) -> PyResult<ForeignStruct<A>> {
    // SAFETY: as above; the producer vouches for the field, which came with the array.
    moved(object, |source| unsafe { ForeignStruct::take_array(field, source) })
}

fn moved<T: Named>(
    object: &Bound<'_, PyAny>,
    take: impl FnOnce(*mut T) -> ForeignStruct<T>,
) -> PyResult<ForeignStruct<T>> {
    let pointer = pointer::<T>(object)?;
    // Only one of several concurrent consumers may take the struct, also in free-threaded Python.
    let taken = with_critical_section(object, || {
        // SAFETY: the name promises such a struct, and all code of usmq that reads or takes it is in this
        // section.
        if unsafe { pointer.as_ref() }.is_released() {
            return None;
        }
        Some(take(pointer.as_ptr()))
    });
    let used = || Error::interop(format!("the capsule {:?} has been used: its struct is released", T::NAME));
    Ok(taken.ok_or_else(used)?)
}

fn pointer<T: Named>(object: &Bound<'_, PyAny>) -> PyResult<NonNull<T>> {
    if !object.is_instance_of::<PyCapsule>() {
        return Err(PyTypeError::new_err(format!(
            "expected a capsule {:?}, not {}",
            T::NAME,
            object.get_type().name()?
        )));
    }
    // SAFETY: a live object of any type is allowed.
    if unsafe { ffi::PyCapsule_IsValid(object.as_ptr(), T::NAME.as_ptr()) } == 0 {
        return Err(
            Error::interop(format!("expected a capsule {:?}, not {}", T::NAME, object.repr()?)).into()
        );
    }
    // SAFETY: it is a capsule of this name, as just asked.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(object.as_ptr(), T::NAME.as_ptr()) };
    NonNull::new(pointer.cast()).ok_or_else(|| PyErr::fetch(object.py()))
}

/// Reads the struct of a capsule without consuming it: for a requested schema.
pub(super) fn look(object: &Bound<'_, PyAny>) -> PyResult<Field> {
    let pointer = pointer::<ArrowSchema>(object)?;
    let field = with_critical_section(object, || {
        // SAFETY: the name promises such a struct. The copy is only read: the capsule's own is what gets released.
        let schema = ManuallyDrop::new(ForeignStruct::from(unsafe { pointer.read() }));
        Field::import(&schema)
    });
    Ok(field?)
}

/// The array that a method of the protocol returns, with its schema.
pub(super) fn pair<'py, A: Named + ArrayStruct>(
    object: &Bound<'py, PyAny>,
    method: &str,
) -> PyResult<ForeignStruct<A>> {
    let both = object.call_method0(method)?;
    let pair = both.cast::<PyTuple>().ok().filter(|both| both.len() == 2);
    let Some(pair) = pair else {
        return Err(PyTypeError::new_err(format!(
            "{method}() must return two capsules, not {}",
            both.repr()?
        )));
    };
    let (schema, array): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract()?;
    // Check this first: after the array is taken, usmq must release it.
    pointer::<A>(&array)?;
    let field = Field::import_shared(&take::<ArrowSchema>(&schema)?)?;
    take_array(&array, &field)
}

/// The schema and the array of a column as two capsules.
pub(super) fn give_pair<'py, A: Named + Send>(
    py: Python<'py>,
    column: &Column,
    array: impl FnOnce(&Column) -> Result<A> + Send,
) -> PyResult<Bound<'py, PyTuple>> {
    let (schema, array) = detach(py, || Ok::<_, Error>((column.export_schema()?, array(column)?)))?;
    PyTuple::new(py, [give(py, schema)?, give(py, array)?])
}

/// Keyword arguments of a later protocol version are ignored while they are None.
pub(super) fn refuse_unknown(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let Some(kwargs) = kwargs else { return Ok(()) };
    let unknown: Vec<_> =
        kwargs.iter().filter(|(_, value)| !value.is_none()).map(|(name, _)| name.to_string()).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(PyNotImplementedError::new_err(format!("unsupported arguments: {}", unknown.join(", "))))
}

/// A requested schema is best-effort by the protocol: usmq does not convert, so for a schema with the same
/// fields it returns the data unchanged, in its own schema. An incompatible schema is an error, as the
/// protocol requires: one with another number of fields, at any level that both nest, or with other column
/// names.
///
/// Source: "The Arrow PyCapsule Interface", "Schema Requests".
pub(super) fn check_requested(requested: Option<&Bound<'_, PyAny>>, own: &Field) -> PyResult<()> {
    let Some(requested) = requested.filter(|requested| !requested.is_none()) else { return Ok(()) };
    Ok(compatible(&look(requested)?, own)?)
}

fn compatible(wish: &Field, own: &Field) -> Result<()> {
    let names =
        |field: &Field| field.children().iter().map(|child| child.name().to_owned()).collect::<Vec<_>>();
    let refuse = |wanted: String, found: String| {
        Err(Error::interop(format!(
            "the requested schema has {wanted}, but the data has {found}; request the data's fields or no \
             schema, and convert the result"
        )))
    };
    // Run-end encoded or not is another representation of the same values.
    if wish.format() == "+r" || own.format() == "+r" {
        return Ok(());
    }
    if wish.children().len() != own.children().len() {
        let count = |field: &Field| format!("{} fields in {:?}", field.children().len(), field.name());
        return refuse(count(wish), count(own));
    }
    if own.is_struct() && names(wish) != names(own) {
        return refuse(format!("the fields {:?}", names(wish)), format!("{:?}", names(own)));
    }
    // The producer chooses the names of other children, as those of a list.
    wish.children().iter().zip(own.children()).try_for_each(|(wish, own)| compatible(wish, own))
}

/// The one batch of a table.
pub(super) fn single(table: &Table) -> PyResult<&Column> {
    match table.batches() {
        [batch] => Ok(batch),
        batches => Err(Error::interop(format!(
            "{table} has {} batches, but an array holds one; use its stream",
            batches.len()
        ))
        .into()),
    }
}
