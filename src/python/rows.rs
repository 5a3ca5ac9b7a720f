//! Iteration over the first axis of an array.

use super::array::Array;
use crate::Index;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What `iter` gives. Threads may share it: each view comes once. Python's own iterator over what has `__getitem__` lets
/// go of the array twice when two threads reach its end at once, where Python has no lock.
#[pyclass(module = "usmq._core", frozen)]
pub(super) struct Rows {
    array: Py<Array>,
    length: usize,
    next: AtomicUsize,
}

impl Rows {
    pub(super) fn new(array: &Bound<'_, Array>, length: usize) -> Self {
        Self { array: array.clone().unbind(), length, next: AtomicUsize::new(0) }
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self) -> PyResult<Option<Array>> {
        // Extents are no larger than isize, and once past the end it stays there.
        let next = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < self.length).then_some(next + 1)
        });
        match next {
            Ok(place) => Ok(Some(Array::new(self.array.get().array.index(&[Index::At(place as isize)])?))),
            Err(_) => Ok(None),
        }
    }

    fn __length_hint__(&self) -> usize {
        self.length - self.next.load(Ordering::Relaxed)
    }
}
