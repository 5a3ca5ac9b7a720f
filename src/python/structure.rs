//! Structures by value as kernel arguments: their bytes, if a kernel can read each field.

use super::{argument, index};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

/// The byte order of numpy's dtypes that this machine does not have.
const FOREIGN: &str = if cfg!(target_endian = "little") { ">" } else { "<" };
/// The attribute of a type of ctypes that is the same type in the byte order of this machine.
const NATIVE: &str = if cfg!(target_endian = "little") { "__ctype_le__" } else { "__ctype_be__" };

/// The bytes of a structure: of a numpy scalar with fields, or an instance of `ctypes.Structure` or `Union`.
pub(super) fn bytes(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if index::is_plain(object) {
        return Ok(None);
    }
    let py = object.py();
    let bytes = |object: &Bound<'_, PyAny>| py.get_type::<PyBytes>().call1((object,))?.extract().map(Some);
    if let Some(ndim) = object.getattr_opt("ndim")? {
        if ndim.extract::<usize>().ok() != Some(0) || !has_fields(object)? {
            return Ok(None);
        }
        check_dtype(object, &object.getattr("dtype")?, "")?;
        return bytes(&object.call_method0("tobytes")?);
    }
    let Some(ctypes) = Ctypes::loaded(py)? else { return Ok(None) };
    if !object.is_instance(&ctypes.structure)? && !object.is_instance(&ctypes.union)? {
        return Ok(None);
    }
    ctypes.check(object, object.get_type().as_any(), "")?;
    bytes(object)
}

/// Whether it has a dtype of numpy with fields.
pub(super) fn has_fields(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(dtype) = object.getattr_opt("dtype")? else { return Ok(false) };
    Ok(dtype.getattr_opt("names")?.is_some_and(|names| !names.is_none()))
}

/// Refuses fields, also those inside of structures and arrays, that no kernel can read.
fn check_dtype(object: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>, place: &str) -> PyResult<()> {
    let names = dtype.getattr("names")?;
    if !names.is_none() {
        let fields = dtype.getattr("fields")?;
        for name in names.try_iter()? {
            let name = name?;
            check_dtype(object, &fields.get_item(&name)?.get_item(0)?, &inside(place, &name)?)?;
        }
        return Ok(());
    }
    let base = dtype.getattr("base")?;
    if !base.is(dtype) {
        return check_dtype(object, &base, place);
    }
    if dtype.getattr("hasobject")?.is_truthy()? {
        return Err(refuse_objects(object, place));
    }
    if dtype.getattr("byteorder")?.extract::<String>()? == FOREIGN {
        let fix = "convert it with x.astype(x.dtype.newbyteorder(\"=\"))";
        return Err(refuse_order(object, place, fix));
    }
    Ok(())
}

/// The classes of ctypes, in a process that has loaded it.
struct Ctypes<'py> {
    structure: Bound<'py, PyAny>,
    union: Bound<'py, PyAny>,
    array: Bound<'py, PyAny>,
}

impl<'py> Ctypes<'py> {
    fn loaded(py: Python<'py>) -> PyResult<Option<Self>> {
        let modules = py.import("sys")?.getattr("modules")?;
        let Ok(ctypes) = modules.get_item("_ctypes") else { return Ok(None) };
        let class = |name: &str| ctypes.getattr(name);
        Ok(Some(Self { structure: class("Structure")?, union: class("Union")?, array: class("Array")? }))
    }

    /// As [`check_dtype`], for a type of ctypes.
    fn check(&self, object: &Bound<'_, PyAny>, of: &Bound<'_, PyAny>, place: &str) -> PyResult<()> {
        let Ok(class) = of.cast::<PyType>() else { return Ok(()) };
        if class.is_subclass(&self.array)? {
            return self.check(object, &class.getattr("_type_")?, place);
        }
        if class.is_subclass(&self.structure)? || class.is_subclass(&self.union)? {
            if class.getattr_opt("_swappedbytes_")?.is_some() {
                return Err(refuse_order(object, place, "use a ctypes.Structure or Union"));
            }
            // Each class has its own fields besides those of its bases.
            for base in class.mro() {
                let own = base.getattr("__dict__")?;
                let Ok(fields) = own.get_item("_fields_") else { continue };
                for field in fields.try_iter()? {
                    let field = field?;
                    self.check(object, &field.get_item(1)?, &inside(place, &field.get_item(0)?)?)?;
                }
            }
            return Ok(());
        }
        if class
            .getattr_opt("_type_")?
            .is_some_and(|code| code.extract::<&str>().is_ok_and(|code| code == "O"))
        {
            return Err(refuse_objects(object, place));
        }
        match class.getattr_opt(NATIVE)? {
            Some(native) if !native.is(class) => {
                Err(refuse_order(object, place, "use a type of ctypes in the byte order of the machine"))
            }
            _ => Ok(()),
        }
    }
}

fn inside(place: &str, name: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = name.str()?;
    Ok(if place.is_empty() { name.to_string() } else { format!("{place}.{name}") })
}

fn refuse_objects(object: &Bound<'_, PyAny>, place: &str) -> PyErr {
    refuse(object, place, "holds Python objects, which no kernel can read; use a number")
}

fn refuse_order(object: &Bound<'_, PyAny>, place: &str, fix: &str) -> PyErr {
    refuse(object, place, &format!("has the byte order of other machines; {fix}"))
}

fn refuse(object: &Bound<'_, PyAny>, place: &str, why: &str) -> PyErr {
    let what = if place.is_empty() { "it".to_owned() } else { format!("field {place:?}") };
    PyTypeError::new_err(format!(
        "a structure as a kernel argument, {}: {what} {why}",
        argument::class_name(object)
    ))
}
