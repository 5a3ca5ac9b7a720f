//! `usmq.DType`, and the conversion of objects that name a dtype.

use super::errors::optional;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// The type of an array's elements.
///
/// Compares equal to every object that names the same type: ``"f4"``, ``"float32"``, ``numpy.dtype("f4")``,
/// ``numpy.float32``. ``numpy.dtype(x)`` accepts it.
///
/// Examples
/// --------
/// >>> import usmq
/// >>> usmq.DType("f4")
/// usmq.DType('float32')
/// >>> usmq.DType("float64").itemsize
/// 8
/// >>> usmq.DType("f4") == "float32"
/// True
#[pyclass(module = "usmq", frozen)]
#[derive(Clone)]
pub(super) struct DType(pub(super) crate::DType);

#[pymethods]
impl DType {
    #[new]
    #[pyo3(signature = (dtype, /))]
    fn new(dtype: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(parse(dtype)?))
    }

    /// numpy's name, as ``"float32"``.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.itemsize()
    }

    /// The type string, as ``"<f4"``; None for bfloat16.
    #[getter]
    fn str(&self) -> Option<&'static str> {
        self.0.typestr()
    }

    /// The numpy dtype; needs numpy.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy_dtype(py, self.0)
    }

    /// The numpy dtype, for ``numpy.dtype(x)`` and ``numpy.result_type(x, y)``.
    #[getter]
    fn __numpy_dtype__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy_dtype(py, self.0)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<Self>(), (self.0.name(),))
    }

    fn __repr__(&self) -> String {
        format!("usmq.DType('{}')", self.0.name())
    }

    fn __str__(&self) -> &'static str {
        self.0.name()
    }

    fn __hash__(&self) -> u64 {
        self.0 as u64
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let equal = parse(other).is_ok_and(|other| other == self.0);
        match op {
            CompareOp::Eq => Ok(equal.into_pyobject(py)?.to_owned().into_any().unbind()),
            CompareOp::Ne => Ok((!equal).into_pyobject(py)?.to_owned().into_any().unbind()),
            _ => Ok(py.NotImplemented()),
        }
    }
}

/// A dtype from a name, a DType, a numpy dtype or scalar type, or a Python type.
pub(super) fn parse(object: &Bound<'_, PyAny>) -> PyResult<crate::DType> {
    if let Ok(dtype) = object.cast::<DType>() {
        return Ok(dtype.get().0);
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(crate::DType::parse(text.to_str()?)?);
    }
    if let Ok(class) = object.cast::<PyType>() {
        let name = class.name()?;
        return Ok(crate::DType::parse(name.to_str()?.trim_end_matches('_'))?);
    }
    // A numpy dtype: `str` includes the byte order. For extension types, as bfloat16, it is "void" and a
    // size.
    let text = |attribute: &str| -> PyResult<Option<String>> {
        let text = object.getattr_opt(attribute)?;
        Ok(text.and_then(|text| text.extract().ok()))
    };
    let is_void = |typestr: &String| typestr.trim_start_matches(['<', '|', '=']).starts_with('V');
    if let Some(typestr) = text("str")?.filter(|typestr| !is_void(typestr)) {
        return Ok(crate::DType::parse(&typestr)?);
    }
    // Many objects have a name; one with a size is a type.
    if let Some(name) = text("name")?
        && let Some(size) = object.getattr_opt("itemsize")?
        && let Ok(dtype) = crate::DType::parse(&name)
        && size.extract::<usize>().is_ok_and(|size| size == dtype.itemsize())
    {
        return Ok(dtype);
    }
    let is_structure = object.getattr_opt("names")?.is_some_and(|names| !names.is_none());
    let fix = if is_structure { ", since an array has one type: pass each field, as x['name']" } else { "" };
    Err(PyTypeError::new_err(format!(
        "{} is not a dtype that usmq supports{fix}; supported: {}",
        object.repr()?,
        crate::DType::ALL.map(crate::DType::name).join(", ")
    )))
}

/// An argument `dtype=`; None stays None.
pub(super) fn parse_opt(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<crate::DType>> {
    object.map(parse).transpose()
}

/// The numpy dtype of a usmq dtype.
pub(super) fn numpy_dtype(py: Python<'_>, dtype: crate::DType) -> PyResult<Bound<'_, PyAny>> {
    let Some(typestr) = dtype.typestr() else {
        return Err(PyTypeError::new_err(format!("numpy has no {dtype}; astype(\"float32\") first")));
    };
    optional(py, "numpy", "a numpy dtype", "")?.getattr("dtype")?.call1((typestr,))
}
