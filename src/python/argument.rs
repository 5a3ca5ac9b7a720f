//! Converts Python arguments to Rust types. The error for a wrong argument names the parameter, the accepted
//! values and the given value.

use super::classes::Array;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::type_object::PyTypeCheck;
use pyo3::types::{PyBool, PyBytes, PySequence, PyString};
use std::path::PathBuf;

/// The reason why an argument is refused.
pub(super) enum Misfit {
    /// It is of another type: a TypeError.
    Type,
    /// It is a number outside the range: a ValueError.
    Range,
    /// Python code of the argument raised this.
    Raised(PyErr),
}

impl From<PyErr> for Misfit {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<crate::Error> for Misfit {
    fn from(error: crate::Error) -> Self {
        Self::Raised(error.into())
    }
}

impl Misfit {
    /// The exception for an argument; `wanted` completes "must be".
    pub(super) fn into_error(self, object: &Bound<'_, PyAny>, name: &str, wanted: &str) -> PyErr {
        let text = || format!("{name} must be {wanted}, not {}", found(object));
        match self {
            Self::Type => PyTypeError::new_err(text()),
            Self::Range => PyValueError::new_err(text()),
            Self::Raised(error) => error,
        }
    }
}

/// The TypeError for an argument; `wanted` completes "must be".
pub(super) fn wrong_type(object: &Bound<'_, PyAny>, name: &str, wanted: &str) -> PyErr {
    Misfit::Type.into_error(object, name, wanted)
}

/// The argument's representation, cut where it is long.
pub(super) fn found(object: &Bound<'_, PyAny>) -> String {
    const LONGEST: usize = 100;
    // The text of its elements would wait for the device.
    if let Ok(array) = object.cast::<Array>() {
        return array.get().array.to_string();
    }
    let Ok(text) = object.repr() else {
        return class_name(object);
    };
    let text = text.to_string_lossy();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// The name of an object's class, for errors.
pub(super) fn class_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "that".to_owned(), |name| name.to_string())
}

/// What an argument can be converted to.
pub(super) trait Given<'a, 'py>: Sized {
    fn read(object: &'a Bound<'py, PyAny>) -> Result<Self, Misfit>;
}

/// Converts an argument; `wanted` completes "must be" in the error.
pub(super) fn given<'a, 'py, T: Given<'a, 'py>>(
    object: &'a Bound<'py, PyAny>,
    name: &str,
    wanted: &str,
) -> PyResult<T> {
    T::read(object).map_err(|misfit| misfit.into_error(object, name, wanted))
}

/// Functions for `#[pyo3(from_py_with = argument::NAME)]`, one for each name of a parameter, with the values that a
/// parameter of this name takes.
macro_rules! parameters {
    ($($name:ident: $wanted:expr),* $(,)?) => { $(
        pub(super) fn $name<'a, 'py, T: Given<'a, 'py>>(object: &'a Bound<'py, PyAny>) -> PyResult<T> {
            given(object, stringify!($name).trim_start_matches("r#"), $wanted)
        }
    )* };
}

const FLAG: &str = "True, False or None";
const KIND: &str = "\"device\", \"shared\" or \"host\"";
const ADDRESS: &str = "an address returned by allocate()";
const NAME: &str = "a str";

parameters! {
    address: ADDRESS,
    advice: "a whole number; 0 takes earlier advice back",
    array: "a usmq.Array",
    axis: "a whole number",
    aspects: "a sequence of str, as [\"fp64\"]",
    backend: "a str, as \"opencl\"",
    combine: "a str, the expression of a and b, as \"a + b\"",
    copy: FLAG,
    debug: "True or False",
    deterministic: FLAG,
    device_type: "a str, as \"gpu\"",
    dl_device: "a pair of whole numbers, as (1, 0), or None",
    enabled: "True or False",
    excluded_aspects: "a sequence of str, as [\"fp64\"]",
    identity: "a str, an expression such as \"0\"",
    in_order: FLAG,
    keepdims: FLAG,
    kind: KIND,
    map: "a str, the expression for element i, as \"x[i]\"",
    max_version: "a pair of whole numbers from 0, as (1, 0), or None",
    module: "bytes, the SPIR-V module",
    name: NAME,
    nbytes: "a whole number from 0 to 2**64 - 1",
    operation: "a str, the statement for element i, as \"y[i] = x[i]\"",
    options: "a sequence of str, as [\"-DN=3\"]",
    params: "a str, as \"float a, const float *x, float *y\"",
    path: "a str or a path object",
    post: "a str, an expression of a, as \"sqrt(a)\"",
    preamble: "a str, C++ text before the kernel",
    priority: "\"high\", \"normal\" or \"low\"",
    profiling: FLAG,
    ptr: "a whole number from 0 to 2**64 - 1",
    result: "a str, a type such as \"float\"",
    size: "a whole number from 0 or None",
    source: "a str, the text of the kernel (of a file: Path(...).read_text())",
    stream: "a whole number or None",
    timeout: "a number of seconds",
    r#type: "a str, the name of an Arrow type, as \"string\"",
    usm_type: KIND,
    wait: FLAG,
}

/// Converts to a Python class, for a parameter of any name.
impl<'a, 'py, T: PyTypeCheck> Given<'a, 'py> for &'a Bound<'py, T> {
    fn read(object: &'a Bound<'py, PyAny>) -> Result<Self, Misfit> {
        object.cast().map_err(|_| Misfit::Type)
    }
}

impl<'a, 'py, T: Given<'a, 'py>> Given<'a, 'py> for Option<T> {
    fn read(object: &'a Bound<'py, PyAny>) -> Result<Self, Misfit> {
        if object.is_none() { Ok(None) } else { T::read(object).map(Some) }
    }
}

impl<'a> Given<'a, '_> for &'a str {
    fn read(object: &'a Bound<'_, PyAny>) -> Result<Self, Misfit> {
        Ok(object.cast::<PyString>().map_err(|_| Misfit::Type)?.to_str()?)
    }
}

impl Given<'_, '_> for String {
    fn read(object: &Bound<'_, PyAny>) -> Result<Self, Misfit> {
        <&str>::read(object).map(str::to_owned)
    }
}

/// A sequence of str. One str is refused: Python would iterate over its characters.
impl Given<'_, '_> for Vec<String> {
    fn read(object: &Bound<'_, PyAny>) -> Result<Self, Misfit> {
        if object.is_instance_of::<PyString>() || object.cast::<PySequence>().is_err() {
            return Err(Misfit::Type);
        }
        object.try_iter()?.map(|item| String::read(&item?)).collect()
    }
}

impl<'a> Given<'a, '_> for &'a [u8] {
    fn read(object: &'a Bound<'_, PyAny>) -> Result<Self, Misfit> {
        Ok(object.cast::<PyBytes>().map_err(|_| Misfit::Type)?.as_bytes())
    }
}

/// As `open` of Python takes it.
impl Given<'_, '_> for PathBuf {
    fn read(object: &Bound<'_, PyAny>) -> Result<Self, Misfit> {
        let py = object.py();
        let decoded =
            py.import("os")?.call_method1("fsdecode", (object,)).map_err(|error| misfit(py, error))?;
        Ok(decoded.extract()?)
    }
}

impl Given<'_, '_> for bool {
    fn read(object: &Bound<'_, PyAny>) -> Result<Self, Misfit> {
        object.extract().map_err(|error| misfit(object.py(), error))
    }
}

impl Given<'_, '_> for f64 {
    fn read(object: &Bound<'_, PyAny>) -> Result<Self, Misfit> {
        object.extract().map_err(|error| misfit(object.py(), error))
    }
}

macro_rules! whole_numbers {
    ($($type:ty),*) => { $(
        /// Accepts numpy integers too. Refuses True and False, although bool is a subclass of int in Python.
        impl Given<'_, '_> for $type {
            fn read(object: &Bound<'_, PyAny>) -> Result<Self, Misfit> {
                if object.is_instance_of::<PyBool>() {
                    return Err(Misfit::Type);
                }
                object.extract().map_err(|error| misfit(object.py(), error))
            }
        }
    )* };
}

whole_numbers!(i32, u32, u64, isize, usize);

macro_rules! pairs {
    ($($type:ty),*) => { $(
        impl Given<'_, '_> for ($type, $type) {
            fn read(object: &Bound<'_, PyAny>) -> Result<Self, Misfit> {
                let parts: (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                    object.extract().map_err(|_| Misfit::Type)?;
                Ok((Given::read(&parts.0)?, Given::read(&parts.1)?))
            }
        }
    )* };
}

pairs!(i32, u32);

/// A conversion of Python's or PyO3's that failed.
pub(super) fn misfit(py: Python<'_>, error: PyErr) -> Misfit {
    if error.is_instance_of::<PyTypeError>(py) {
        Misfit::Type
    } else if error.is_instance_of::<PyOverflowError>(py) {
        Misfit::Range
    } else {
        Misfit::Raised(error)
    }
}
