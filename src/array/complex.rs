//! The parts of complex arrays, as views.

use super::{Array, DType, Layout};
use crate::error::{Error, Result};

impl Array {
    /// The real parts: a view of a complex array, and the array itself if its elements are real.
    ///
    /// ```
    /// use usmq::num_complex::Complex;
    /// use usmq::Array;
    ///
    /// let z = Array::from_slice(&[Complex::new(1f32, 2.0), Complex::new(3.0, 4.0)])?;
    /// assert_eq!(z.real()?.to_vec::<f32>()?, [1.0, 3.0]);
    /// z.imag()?.fill(0f32)?;
    /// assert_eq!(z.to_vec::<Complex<f32>>()?[1], Complex::new(3.0, 0.0));
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Value`] if the strides leave the address space.
    pub fn real(&self) -> Result<Self> {
        self.part(0).unwrap_or_else(|| Ok(self.clone()))
    }

    /// The imaginary parts of a complex array, as a view.
    ///
    /// # Errors
    /// [`Error::Type`] for an array of real numbers; as [`Array::real`].
    pub fn imag(&self) -> Result<Self> {
        self.part(1).unwrap_or_else(|| {
            let message = format!("{self} has real elements, without imaginary parts");
            Err(Error::type_mismatch(DType::C64, self.dtype, message))
        })
    }

    /// The first or the second half of each complex number; `None` for other elements.
    fn part(&self, which: usize) -> Option<Result<Self>> {
        let dtype = match self.dtype {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            _ => return None,
        };
        let strides: Vec<isize> = self.strides().iter().map(|stride| stride.wrapping_mul(2)).collect();
        let first = self.layout.offset() * 2 + which;
        let layout = Layout::foreign(self.shape(), Some(&strides), first, dtype.itemsize());
        Some(layout.map(|layout| Self { layout, dtype, ..self.clone() }))
    }
}
