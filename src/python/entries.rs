//! The entries of an array interface's dict, whichever interface it is.

use super::{dtype, index};
use crate::DType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString, PyTuple};

/// A dict, and the attribute that it came from, for errors.
pub(super) struct Entries<'a, 'py> {
    name: &'static str,
    dict: &'a Bound<'py, PyDict>,
}

impl<'a, 'py> Entries<'a, 'py> {
    pub(super) fn of(name: &'static str, attribute: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        let dict = attribute.cast::<PyDict>().map_err(|_| {
            let found =
                attribute.get_type().name().map_or_else(|_| "that".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!("{name} is a dict, not {found}"))
        })?;
        Ok(Self { name, dict })
    }

    pub(super) fn required(&self, key: &str) -> PyResult<Bound<'py, PyAny>> {
        let missing = || PyValueError::new_err(format!("{} has no entry {key:?}", self.name));
        self.dict.get_item(key)?.ok_or_else(missing)
    }

    /// An entry that is there and not None.
    pub(super) fn optional(&self, key: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.dict.get_item(key)?.filter(|value| !value.is_none()))
    }

    pub(super) fn has(&self, key: &str) -> PyResult<bool> {
        self.dict.contains(key)
    }

    pub(super) fn whole(&self, key: &str) -> PyResult<isize> {
        self.named(key, index::whole(&self.required(key)?))
    }

    /// Address and flag of `data`.
    pub(super) fn data(&self) -> PyResult<(usize, bool)> {
        let data = self.required("data")?;
        if !data.is_instance_of::<PyTuple>() && !data.is_instance_of::<PyList>() {
            return Err(PyTypeError::new_err(format!(
                "data is a tuple of an address and a flag, not {}",
                data.repr()?
            )));
        }
        let parts: Vec<_> = data.try_iter()?.collect::<PyResult<_>>()?;
        let [pointer, flag] = &parts[..] else {
            return Err(PyValueError::new_err(format!(
                "data has an address and a flag, not {} entries",
                parts.len()
            )));
        };
        Ok((self.named("data", address(pointer))?, flag.is_truthy()?))
    }

    pub(super) fn shape(&self) -> PyResult<Vec<usize>> {
        self.named("shape", index::extents(&self.required("shape")?))
    }

    pub(super) fn strides(&self) -> PyResult<Option<Vec<isize>>> {
        let Some(strides) = self.optional("strides")? else { return Ok(None) };
        let numbers = strides.try_iter()?.map(|stride| index::whole(&stride?)).collect::<PyResult<Vec<_>>>();
        self.named("strides", numbers).map(Some)
    }

    pub(super) fn dtype(&self) -> PyResult<DType> {
        let typestr = self.required("typestr")?;
        let typestr =
            typestr.cast::<PyString>().map_err(|_| PyTypeError::new_err("typestr is a string as \"<f4\""))?;
        dtype::parse(typestr.as_any())
    }

    /// Names the entry that is wrong; the exception keeps its class.
    pub(super) fn named<T>(&self, key: &str, value: PyResult<T>) -> PyResult<T> {
        value.map_err(|error| {
            let py = self.dict.py();
            let text = format!("{}[{key:?}]: {}", self.name, error.value(py));
            PyErr::from_type(error.get_type(py), (text,))
        })
    }
}

fn address(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    if object.is_instance_of::<PyFloat>() || object.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("data[0] is an address, not {}", object.repr()?)));
    }
    object.extract()
}
