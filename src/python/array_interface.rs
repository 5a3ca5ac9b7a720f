//! Reads the entries of an array interface's dict, for every such interface.

use super::argument::{Given, Misfit, class_name};
use super::{dtype, index};
use crate::DType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;

/// A key in an error.
fn text(key: &Bound<'_, PyString>) -> String {
    key.to_string_lossy().into_owned()
}

/// A dict, and the name of its attribute for errors.
pub(super) struct Entries<'a, 'py> {
    name: &'static str,
    dict: &'a Bound<'py, PyDict>,
}

impl<'a, 'py> Entries<'a, 'py> {
    pub(super) fn new(name: &'static str, attribute: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        let dict = attribute.cast::<PyDict>().map_err(|_| {
            PyTypeError::new_err(format!("{name} must be a dict, not {}", class_name(attribute)))
        })?;
        Ok(Self { name, dict })
    }

    pub(super) fn py(&self) -> Python<'py> {
        self.dict.py()
    }

    pub(super) fn required(&self, key: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        let missing = || PyValueError::new_err(format!("{} has no entry {:?}", self.name, text(key)));
        self.dict.get_item(key)?.ok_or_else(missing)
    }

    /// An entry, unless it is missing or None.
    pub(super) fn optional(&self, key: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.dict.get_item(key)?.filter(|value| !value.is_none()))
    }

    pub(super) fn has(&self, key: &Bound<'py, PyString>) -> PyResult<bool> {
        self.dict.contains(key)
    }

    pub(super) fn whole(&self, key: &Bound<'py, PyString>) -> PyResult<isize> {
        let object = self.required(key)?;
        let wanted = "a whole number of 64 bits";
        isize::read(&object).map_err(|misfit| self.wrong(misfit, &object, &text(key), wanted))
    }

    /// Address and flag of `data`.
    pub(super) fn data(&self) -> PyResult<(usize, bool)> {
        let data = self.required(intern!(self.py(), "data"))?;
        if !data.is_instance_of::<PyTuple>() && !data.is_instance_of::<PyList>() {
            return Err(self.wrong(Misfit::Type, &data, "data", "a tuple of an address and a flag"));
        }
        let parts: SmallVec<[_; 2]> = data.try_iter()?.collect::<PyResult<_>>()?;
        let [pointer, flag] = &parts[..] else {
            return Err(self.wrong(Misfit::Range, &data, "data", "an address and a flag"));
        };
        let pointer = usize::read(pointer)
            .map_err(|misfit| self.wrong(misfit, &data, "data", "an address and a flag"))?;
        Ok((pointer, flag.is_truthy()?))
    }

    pub(super) fn shape(&self) -> PyResult<Vec<usize>> {
        let shape = self.required(intern!(self.py(), "shape"))?;
        index::sequence(&shape).map_err(|misfit| self.wrong(misfit, &shape, "shape", index::EXTENTS))
    }

    pub(super) fn strides(&self) -> PyResult<Option<Vec<isize>>> {
        let Some(strides) = self.optional(intern!(self.py(), "strides"))? else { return Ok(None) };
        let wanted = "None or a sequence of whole numbers of 64 bits";
        let steps = index::each(&strides).map_err(|misfit| self.wrong(misfit, &strides, "strides", wanted));
        steps.map(Some)
    }

    pub(super) fn dtype(&self) -> PyResult<DType> {
        let typestr = self.required(intern!(self.py(), "typestr"))?;
        let text = typestr
            .cast::<PyString>()
            .map_err(|_| self.wrong(Misfit::Type, &typestr, "typestr", "a str such as \"<f4\""))?;
        dtype::parse(text.as_any())
    }

    /// The exception for a wrong entry.
    pub(super) fn wrong(&self, misfit: Misfit, object: &Bound<'_, PyAny>, key: &str, wanted: &str) -> PyErr {
        misfit.into_error(object, &format!("{}[{key:?}]", self.name), wanted)
    }
}
