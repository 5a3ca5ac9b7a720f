//! Views with more or fewer axes.

use super::{Array, Index};
use crate::error::{Error, Result};

impl Array {
    /// A view without the axes of extent 1.
    ///
    /// ```
    /// let x = usmq::Array::zeros::<f32>([1, 3, 1])?;
    /// assert_eq!(x.squeeze().shape(), [3]);
    /// assert_eq!(x.squeeze_axes([-1])?.shape(), [1, 3]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    #[must_use]
    pub fn squeeze(&self) -> Self {
        let parts = self.shape().iter().map(|extent| if *extent == 1 { Index::At(0) } else { Index::ALL });
        // Position 0 of an axis of extent 1 exists.
        self.index(parts.collect::<Vec<_>>()).unwrap_or_else(|_| self.clone())
    }

    /// A view without these axes, which count from the end if negative.
    ///
    /// # Errors
    /// [`Error::Index`] for an axis that does not exist, [`Error::Value`] for one of another extent than 1, or given
    /// twice.
    pub fn squeeze_axes(&self, axes: impl AsRef<[isize]>) -> Result<Self> {
        let axes = positions(axes.as_ref(), self.ndim(), self.shape())?;
        if let Some(axis) = axes.iter().find(|axis| self.shape()[**axis] != 1) {
            return Err(Error::value(format!(
                "cannot remove axis {axis} of shape {:?}: its extent is {}, not 1; index the axis instead",
                self.shape(),
                self.shape()[*axis]
            )));
        }
        let parts = (0..self.ndim()).map(|axis| if axes.contains(&axis) { Index::At(0) } else { Index::ALL });
        self.index(parts.collect::<Vec<_>>())
    }

    /// A view with new axes of extent 1 at these positions of the result, counted from the end if negative.
    ///
    /// ```
    /// let x = usmq::Array::zeros::<f32>([2, 3])?;
    /// assert_eq!(x.expand_dims([0])?.shape(), [1, 2, 3]);
    /// assert_eq!(x.expand_dims([1, -1])?.shape(), [2, 1, 3, 1]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Index`] for a position outside the result, [`Error::Value`] for one that is given twice.
    pub fn expand_dims(&self, axes: impl AsRef<[isize]>) -> Result<Self> {
        let ndim = self.ndim() + axes.as_ref().len();
        let axes = positions(axes.as_ref(), ndim, self.shape())?;
        let parts = (0..ndim).map(|axis| if axes.contains(&axis) { Index::NewAxis } else { Index::ALL });
        self.index(parts.collect::<Vec<_>>())
    }

    /// The elements in C order on one axis: a view if they are contiguous, else a copy.
    ///
    /// # Errors
    /// [`Error::Allocation`] when a copy is needed and memory is short.
    pub fn ravel(&self) -> Result<Self> {
        // Not -1, which is ambiguous for an empty array.
        self.reshape([self.size() as isize])
    }
}

/// Axis numbers from 0, each once. `shape` is for the error.
fn positions(axes: &[isize], ndim: usize, shape: &[usize]) -> Result<Vec<usize>> {
    let mut found = Vec::with_capacity(axes.len());
    for axis in axes {
        let at = axis_position(*axis, ndim).ok_or_else(|| Error::no_axis(*axis, shape))?;
        if found.contains(&at) {
            return Err(Error::value(format!("axis {axis} is given twice in {axes:?}")));
        }
        found.push(at);
    }
    Ok(found)
}

/// The axis of this number, counted from the end if negative; `None` if it does not exist.
pub(crate) fn axis_position(axis: isize, ndim: usize) -> Option<usize> {
    let from_start = if axis < 0 { axis.checked_add_unsigned(ndim)? } else { axis };
    usize::try_from(from_start).ok().filter(|at| *at < ndim)
}
