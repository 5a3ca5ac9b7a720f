//! Structs of other libraries, with one unsafe promise each: schemas, streams, and arrays together with their
//! field.

use super::abi::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use super::cuda_export;
use super::export::exported;
use super::schema::{self, Field};
use super::validate::broken;
use crate::error::{Error, Result};
use std::ptr;
use std::sync::Arc;

/// A struct of the interfaces that may be used safely: usmq filled it, or the code that took it guarantees
/// its contents.
///
/// Schemas and streams describe themselves. An array does not, so it is stored with the [`Field`] that
/// describes it: that of the column that usmq exported, that of the array's stream, or the argument of
/// [`take_array`](Self::take_array). Importing is therefore safe; taking another library's struct is the only
/// unsafe step.
///
/// ```
/// use usmq::Array;
/// use usmq::interop::arrow::{Column, SyncMode};
///
/// let column = Column::from_array("x", &Array::from_slice(&[1i64, 2, 3])?)?;
/// let exported = column.export_device(SyncMode::Event)?; // an ArrowDeviceArray that carries the column's field
/// let back = Column::import_device(exported.into(), Default::default())?;
/// assert_eq!(back.field(), column.field());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// ```compile_fail,E0133
/// use usmq::interop::arrow::{ArrowArray, Field, ForeignStruct};
///
/// let field = std::sync::Arc::new(Field::new("x", "l")?);
/// let mut array = ArrowArray::empty(); // as another library filled it
/// let foreign = ForeignStruct::take_array(&field, &mut array); // needs `unsafe`
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug)]
pub struct ForeignStruct<T: FfiStruct> {
    pub(super) inner: T,
    pub(super) about: T::About,
}

/// The structs of the interfaces, which may be moved.
pub trait FfiStruct: sealed::Sealed {
    #[doc(hidden)]
    type About: std::fmt::Debug;
    #[doc(hidden)]
    const EMPTY: Self;
}

/// The structs that hold an array: [`ArrowArray`] and [`ArrowDeviceArray`].
pub trait ArrayStruct: FfiStruct<About = About> + Sized {
    #[doc(hidden)]
    fn array(&self) -> &ArrowArray;
}

/// Information on an array beside its struct.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct About {
    /// `None` for an array of another library that was converted as usmq's own.
    pub(super) field: Option<Arc<Field>>,
    /// Whether no safe handle can write to the memory.
    pub(super) is_frozen: bool,
    /// Whether the data is known to be valid.
    pub(super) is_valid: bool,
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! movable {
    ($($type:ident),*) => { $(
        impl sealed::Sealed for $type {}
        impl FfiStruct for $type {
            type About = ();
            const EMPTY: Self = Self::empty();
        }
        impl From<$type> for ForeignStruct<$type> {
            fn from(inner: $type) -> Self {
                Self { inner, about: () }
            }
        }
    )* };
}

movable!(ArrowSchema, ArrowArrayStream, ArrowDeviceArrayStream);

macro_rules! movable_array {
    ($($type:ident $array:expr),*) => { $(
        impl sealed::Sealed for $type {}
        impl FfiStruct for $type {
            type About = About;
            const EMPTY: Self = Self::empty();
        }
        impl ArrayStruct for $type {
            fn array(&self) -> &ArrowArray {
                let array: fn(&Self) -> &ArrowArray = $array;
                array(self)
            }
        }
        impl From<$type> for ForeignStruct<$type> {
            /// Converts an array that usmq exported, with the field of its column. An array that another
            /// library filled has no field, and its import is an error; use [`ForeignStruct::take_array`] for
            /// those.
            fn from(inner: $type) -> Self {
                let about = about(inner.array());
                Self { inner, about }
            }
        }
    )* };
}

movable_array!(ArrowArray | own | own, ArrowDeviceArray | own | &own.array);

impl<T: FfiStruct> ForeignStruct<T> {
    /// Returns the struct unchanged.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: FfiStruct<About = ()>> ForeignStruct<T> {
    /// Moves a schema or stream, as the interfaces define: copies it, and marks the source released.
    ///
    /// # Safety
    /// `source` points to a struct that is released or valid by the interface, and that no other code uses
    /// meanwhile. The arrays of a stream have its type and meet the conditions of
    /// [`take_array`](Self::take_array).
    pub unsafe fn take(source: *mut T) -> Self {
        // SAFETY: the caller's promise. `replace` moves, so nothing is released.
        Self { inner: unsafe { ptr::replace(source, T::EMPTY) }, about: () }
    }
}

impl<T: ArrayStruct> ForeignStruct<T> {
    /// Moves an array, as the interfaces define: copies it, and marks the source released. The import checks
    /// what it can: the numbers, null pointers, the offsets in host memory.
    ///
    /// # Safety
    /// - `source` points to a struct that is released or valid by the interface, and that no other code uses meanwhile.
    /// - It is an array of the type that `field` says: its buffers have the number and sizes, and its children the types,
    ///   that the format asks for.
    /// - Its memory lives until the release, and nothing writes to it while columns or their derived objects use it.
    /// - The event of a device array, if there is one, is a live object of the kind that its device type asks for.
    pub unsafe fn take_array(field: &Arc<Field>, source: *mut T) -> Self {
        // SAFETY: the caller's promise. `replace` moves, so nothing is released.
        Self::described(field.clone(), unsafe { ptr::replace(source, T::EMPTY) })
    }

    /// An array that its caller guarantees.
    pub(super) fn described(field: Arc<Field>, inner: T) -> Self {
        let about = about(inner.array());
        // A column of usmq has more information on its memory than the caller.
        let is_own = about.field.is_some();
        let is_valid = about.is_valid && about.field.as_ref() == Some(&field);
        let about = About { field: Some(field), is_frozen: about.is_frozen || !is_own, is_valid };
        Self { inner, about }
    }

    /// Marks the data of the array as valid.
    pub(super) fn known_valid(mut self) -> Self {
        self.about.is_valid = true;
        self
    }
}

/// The information on an array that usmq exported; without a field for another library's array.
fn about(array: &ArrowArray) -> About {
    if let Some(column) = exported(array) {
        let field = Some(column.field().clone());
        return About { field, is_frozen: column.is_frozen(), is_valid: column.is_known_valid() };
    }
    // CUDA memory is copied on import.
    About { field: cuda_export::exported(array), is_frozen: false, is_valid: false }
}

impl Field {
    /// Reads another library's struct without changing it.
    ///
    /// # Errors
    /// [`Error::Interop`] for every visible violation of the interface.
    pub fn import(schema: &ForeignStruct<ArrowSchema>) -> Result<Self> {
        // SAFETY: the creator of a `ForeignStruct` guarantees its pointers.
        unsafe { schema::import(&schema.inner, 0, &mut 0) }
    }

    /// As [`import`](Self::import), without a copy of a field that usmq exported.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn import_shared(schema: &ForeignStruct<ArrowSchema>) -> Result<Arc<Self>> {
        schema::shared(&schema.inner).map_or_else(|| Self::import(schema).map(Arc::new), Ok)
    }
}

impl About {
    pub(super) fn released(&self) -> Error {
        match &self.field {
            Some(field) => broken(field, "it is released"),
            None => Error::interop("the ArrowArray is not valid: it is released"),
        }
    }

    /// The field of an array, checked against usmq's own information.
    pub(super) fn describing(&self, array: &ArrowArray) -> Result<&Arc<Field>> {
        let Some(field) = &self.field else {
            return Err(Error::interop(
                "the Arrow array has no field, and usmq did not export it; call ForeignStruct::take_array, \
                 which takes the field",
            ));
        };
        match exported(array) {
            Some(own) if !Arc::ptr_eq(own.field(), field) && !own.field().same_type(field) => {
                Err(Error::interop(format!(
                    "the Arrow array is {own}, exported by usmq, but is imported as {}; import it with its own \
                 field",
                    own.field().difference(field)
                )))
            }
            _ => Ok(field),
        }
    }
}
