//! Shapes as callers write them: a number, a tuple, an array, a slice, a vector.

/// A shape, or the range of a launch: `3`, `(2, 3)`, `[2, 3]`, `&[2, 3]`, a slice, a vector; `()` for no axes.
///
/// ```
/// use usmq::Array;
///
/// assert_eq!(Array::zeros::<f32>(3)?.shape(), [3]);
/// assert_eq!(Array::zeros::<f32>((2, 3))?.shape(), [2, 3]);
/// assert_eq!(Array::zeros::<f32>([2, 3])?.shape(), [2, 3]);
/// let like = Array::zeros::<f32>(Array::zeros::<i8>([4, 5])?.shape())?;
/// assert_eq!(like.shape(), [4, 5]);
/// # Ok::<(), usmq::Error>(())
/// ```
pub trait IntoShape {
    /// The extents as they are stored.
    type Extents: AsRef<[usize]>;

    /// The extents, outermost first.
    fn into_shape(self) -> Self::Extents;
}

impl IntoShape for usize {
    type Extents = [usize; 1];

    fn into_shape(self) -> [usize; 1] {
        [self]
    }
}

impl<const N: usize> IntoShape for [usize; N] {
    type Extents = Self;

    fn into_shape(self) -> Self {
        self
    }
}

/// Types that hold extents already.
macro_rules! shapes {
    ($([$($generic:tt)*] $type:ty;)*) => {$(
        impl<$($generic)*> IntoShape for $type {
            type Extents = Self;

            fn into_shape(self) -> Self {
                self
            }
        }
    )*};
}

shapes! {
    ['a] &'a [usize];
    ['a, const N: usize] &'a [usize; N];
    [] Vec<usize>;
    ['a] &'a Vec<usize>;
    [] Box<[usize]>;
}

/// An extent that may be -1: a signed or unsigned integer.
///
/// ```
/// use usmq::{Array, Extent, IntoNewShape};
///
/// fn matrix<E: Extent>(array: &Array, columns: E) -> usmq::Result<Array>
/// where
///     [E; 1]: IntoNewShape,
/// {
///     array.reshape([columns])
/// }
///
/// assert_eq!(matrix(&Array::zeros::<i8>((2, 2))?, 4u32)?.shape(), [4]);
/// # Ok::<(), usmq::Error>(())
/// ```
pub trait Extent: Copy + private::Sealed {
    /// The extent; one beyond the address space becomes the largest number.
    #[doc(hidden)]
    fn to_isize(self) -> isize;
}

mod private {
    pub trait Sealed {}
}

/// A shape for [`Array::reshape`](crate::Array::reshape), in which one extent may be -1: as [`IntoShape`], with any
/// integers.
///
/// ```
/// let x = usmq::Array::zeros::<f32>(12)?;
/// let rows: usize = 3;
/// assert_eq!(x.reshape([rows, 4])?.shape(), [3, 4]);
/// assert_eq!(x.reshape((3, -1))?.shape(), [3, 4]);
/// assert_eq!(x.reshape((3, -1))?.reshape(x.shape())?.shape(), [12]);
/// assert_eq!(x.reshape(-1)?.shape(), [12]);
/// # Ok::<(), usmq::Error>(())
/// ```
pub trait IntoNewShape {
    /// The extents, outermost first.
    fn into_new_shape(self) -> Vec<isize>;
}

macro_rules! extents {
    ($($type:ty)*) => {$(
        impl private::Sealed for $type {}

        impl Extent for $type {
            fn to_isize(self) -> isize {
                isize::try_from(self).unwrap_or(isize::MAX)
            }
        }
    )*};
}
// `i32` is the type of a literal without another one.
extents! { i32 i64 isize u32 u64 usize }

impl<E: Extent> IntoNewShape for E {
    fn into_new_shape(self) -> Vec<isize> {
        vec![self.to_isize()]
    }
}

impl<E: Extent> IntoNewShape for &[E] {
    fn into_new_shape(self) -> Vec<isize> {
        self.iter().map(|extent| extent.to_isize()).collect()
    }
}

macro_rules! new_shapes {
    ($([$($generic:tt)*] $type:ty;)*) => {$(
        impl<E: Extent, $($generic)*> IntoNewShape for $type {
            fn into_new_shape(self) -> Vec<isize> {
                self[..].into_new_shape()
            }
        }
    )*};
}

new_shapes! {
    [const N: usize] [E; N];
    [const N: usize] &[E; N];
    [] Vec<E>;
    [] &Vec<E>;
    [] Box<[E]>;
}

macro_rules! usize_for {
    ($name:ident) => {
        usize
    };
}

/// Tuples, for both traits.
macro_rules! implement {
    ($($name:ident)*) => {
        impl IntoShape for ($(usize_for!($name),)*) {
            type Extents = [usize; { let names: &[&str] = &[$(stringify!($name)),*]; names.len() }];

            fn into_shape(self) -> Self::Extents {
                let ($($name,)*) = self;
                [$($name),*]
            }
        }

        impl<$($name: Extent),*> IntoNewShape for ($($name,)*) {
            fn into_new_shape(self) -> Vec<isize> {
                let ($($name,)*) = self;
                vec![$($name.to_isize()),*]
            }
        }
    };
}

#[allow(non_camel_case_types, reason = "one name stands for the value and its type")]
mod of_tuples {
    use super::{Extent, IntoNewShape, IntoShape};
    use crate::array::tuples;

    tuples!(implement: () a b c d e f);
}
