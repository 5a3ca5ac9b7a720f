//! Structs of other libraries, vouched for once: schemas and streams as they are, arrays together with their field.

use super::abi::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use super::export::{self, exported};
use super::schema::Field;
use super::validate::broken;
use crate::error::{Error, Result};
use std::ptr;
use std::sync::Arc;

/// A struct of the interfaces that may be used safely: usmq filled it, or whoever took it vouched for it.
///
/// Schemas and streams say themselves what they are. An array does not, so it comes with the [`Field`] that describes it:
/// that of the column that usmq exported, that of the stream that gave the array, or the one that
/// [`take_array`](Self::take_array) was called with. Importing is safe therefore; taking another library's struct is the
/// one unsafe step.
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

/// The structs of the interfaces that may be moved out of their place.
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

/// What is known of an array beside its struct.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct About {
    /// `None` for an array that says usmq's own and is another library's.
    pub(super) field: Option<Arc<Field>>,
    /// Whether no safe handle can write to the memory.
    pub(super) is_frozen: bool,
    /// Whether the contents are known to keep the rules of the format.
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
            /// An array that usmq exported, with the field of its column. One that unsafe code had another library fill
            /// has none, and its import is an error; [`ForeignStruct::take_array`] is for those.
            fn from(inner: $type) -> Self {
                let about = export::about(inner.array());
                Self { inner, about }
            }
        }
    )* };
}

movable_array!(ArrowArray | own | own, ArrowDeviceArray | own | &own.array);

impl<T: FfiStruct> ForeignStruct<T> {
    /// The struct itself, still as it was filled.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: FfiStruct<About = ()>> ForeignStruct<T> {
    /// Moves a schema or stream out of its place, as the interfaces say: copied, and the source marked released.
    ///
    /// # Safety
    /// `source` points to a struct that is released or as the interface says, and that no one else uses meanwhile. The
    /// arrays that a stream gives are of the type that it says, and as [`take_array`](Self::take_array) asks.
    pub unsafe fn take(source: *mut T) -> Self {
        // SAFETY: the caller's promise. `replace` moves, so nothing is released.
        Self { inner: unsafe { ptr::replace(source, T::EMPTY) }, about: () }
    }
}

impl<T: ArrayStruct> ForeignStruct<T> {
    /// Moves an array out of its place, as the interfaces say: copied, and the source marked released. The import
    /// checks what can be seen: the numbers, which pointers are null, the offsets in host memory.
    ///
    /// # Safety
    /// - `source` points to a struct that is released or as the interface says, and that no one else uses meanwhile.
    /// - It is an array of the type that `field` says: its buffers have the number and sizes, and its children the types,
    ///   that the format asks for.
    /// - Its memory lives until the release, and no one writes to it as long as columns, or what is made of them, use it.
    /// - The event of a device array, if there is one, is a live object of the kind that its device type asks for.
    pub unsafe fn take_array(field: &Arc<Field>, source: *mut T) -> Self {
        // SAFETY: the caller's promise. `replace` moves, so nothing is released.
        Self::described(field.clone(), unsafe { ptr::replace(source, T::EMPTY) })
    }

    /// An array that someone vouched for.
    pub(super) fn described(field: Arc<Field>, inner: T) -> Self {
        let about = export::about(inner.array());
        // A column of usmq's own knows more of its memory than a stranger says.
        let is_own = about.field.is_some();
        let is_valid = about.is_valid && about.field.as_ref() == Some(&field);
        let about = About { field: Some(field), is_frozen: about.is_frozen || !is_own, is_valid };
        Self { inner, about }
    }

    /// The same array, whose contents are known to keep the rules of the format.
    pub(super) fn known_valid(mut self) -> Self {
        self.about.is_valid = true;
        self
    }
}

impl About {
    pub(super) fn released(&self) -> Error {
        match &self.field {
            Some(field) => broken(field, "it is released"),
            None => Error::Interop("the ArrowArray is not valid: it is released".to_owned()),
        }
    }

    /// The field of an array, checked where usmq knows better.
    pub(super) fn describing(&self, array: &ArrowArray) -> Result<&Arc<Field>> {
        let Some(field) = &self.field else {
            return Err(Error::Interop(
                "the Arrow array has no field, and usmq did not export it; call ForeignStruct::take_array, \
                 which takes the field"
                    .to_owned(),
            ));
        };
        match exported(array) {
            Some(own) if !own.field().same_type(field) => Err(Error::Interop(format!(
                "the Arrow array is {own}, exported by usmq, but is imported as {}; import it with its own \
                 field",
                own.field().difference(field)
            ))),
            _ => Ok(field),
        }
    }
}
