//! Columns and tables from and to arrow-rs, which also puts the batches of a host stream together.

use super::abi::{ArrowArray, ArrowSchema, Foreign};
use super::check::check;
use super::column::Column;
use super::import::Placed;
use super::schema::Field;
use super::table::Table;
use crate::error::{Error, Result};
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, make_array};
use arrow_schema::Schema;
use arrow_select::concat::concat;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl Column {
    /// A copy of an arrow-rs array in USM. Returns before it is complete.
    ///
    /// # Errors
    /// [`Error::Interop`] for a type that the C data interface cannot say; as [`Column::import`].
    pub fn from_arrow(name: &str, array: &dyn Array, placed: Placed<'_>) -> Result<Self> {
        let (array, schema) = to_ffi(&array.to_data()).map_err(refused)?;
        let field = Field::import(&theirs_schema(schema))?;
        // A type of arrow-rs does not say whether there are nulls, and as a schema it would say that there are none.
        let field = Arc::new(field.named(name).as_nullable());
        Self::import(&field, theirs(array), placed)
    }

    /// This column as an arrow-rs array: of the same memory when the host can read it, else a copy. Waits for it.
    ///
    /// # Errors
    /// [`Error::Interop`] for a type that arrow-rs does not have; [`Error::Sycl`] with what the work reported.
    pub fn to_arrow(&self) -> Result<ArrayRef> {
        let host = self.to_host()?;
        read(self.field(), host.export_host()?)
    }
}

impl Table {
    /// A copy of a record batch in USM. Returns before it is complete.
    ///
    /// # Errors
    /// As [`Column::from_arrow`].
    pub fn from_arrow(batch: &RecordBatch, placed: Placed<'_>) -> Result<Self> {
        let structs = Column::from_arrow("", &StructArray::from(batch.clone()), placed)?;
        let schema = FFI_ArrowSchema::try_from(batch.schema().as_ref()).map_err(refused)?;
        let schema = Arc::new(Field::import(&theirs_schema(schema))?);
        let queue = structs.queue().clone();
        Self::of_batches(schema, vec![structs], queue)
    }

    /// The batches as record batches of arrow-rs. Waits for them.
    ///
    /// # Errors
    /// As [`Column::to_arrow`].
    pub fn to_arrow(&self) -> Result<Vec<RecordBatch>> {
        // Of its own metadata the struct in which a batch crosses says nothing.
        let schema = Arc::new(Schema::try_from(&ours_schema(self.schema().export()?)).map_err(refused)?);
        let batch = |batch: &Column| {
            RecordBatch::from(structs(&batch.to_arrow()?)?).with_schema(schema.clone()).map_err(refused)
        };
        self.batches().iter().map(batch).collect()
    }
}

fn structs(array: &ArrayRef) -> Result<&StructArray> {
    let structs = array.as_any().downcast_ref::<StructArray>();
    structs.ok_or_else(|| Error::Interop(format!("{} is no struct", array.data_type())))
}

/// The values of several arrays as those of one.
///
/// # Errors
/// [`Error::Interop`] for arrays that are not valid, or that arrow-rs cannot join.
pub(super) fn joined(field: &Field, arrays: Vec<Foreign<ArrowArray>>) -> Result<Vec<Foreign<ArrowArray>>> {
    for array in &arrays {
        // SAFETY: whoever made a `Foreign` vouched for its pointers.
        unsafe { check(field, &array.0) }?;
    }
    // It is made for sound input, and says no to some of the other with a panic.
    let join = || -> Result<_> {
        let arrays: Vec<_> = arrays.into_iter().map(|array| read(field, array.0)).collect::<Result<_>>()?;
        let parts: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let (array, _) = to_ffi(&concat(&parts).map_err(refused)?.to_data()).map_err(refused)?;
        Ok(vec![theirs(array)])
    };
    catch_unwind(AssertUnwindSafe(join)).unwrap_or_else(|_| {
        Err(Error::Interop(format!("arrow-rs could not join batches of {:?}", field.format())))
    })
}

fn read(field: &Field, array: ArrowArray) -> Result<ArrayRef> {
    let schema = ours_schema(field.export()?);
    // SAFETY: the struct is ours, or was checked by the caller as far as that is possible.
    let data = unsafe { from_ffi(ours(array), &schema) }.map_err(refused)?;
    Ok(make_array(data))
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Interop(format!("arrow-rs: {error}"))
}

// Both libraries' structs are the one of the C interface; arrow-rs moves out what it is shown.

fn ours(mut array: ArrowArray) -> FFI_ArrowArray {
    // SAFETY: one layout; it is moved out, so that dropping `array` releases nothing.
    unsafe { FFI_ArrowArray::from_raw(std::ptr::from_mut(&mut array).cast()) }
}

fn ours_schema(mut schema: ArrowSchema) -> FFI_ArrowSchema {
    // SAFETY: as above.
    unsafe { FFI_ArrowSchema::from_raw(std::ptr::from_mut(&mut schema).cast()) }
}

fn theirs(mut array: FFI_ArrowArray) -> Foreign<ArrowArray> {
    // SAFETY: one layout, filled by arrow-rs.
    unsafe { Foreign::take(std::ptr::from_mut(&mut array).cast()) }
}

fn theirs_schema(mut schema: FFI_ArrowSchema) -> Foreign<ArrowSchema> {
    // SAFETY: as above.
    unsafe { Foreign::take(std::ptr::from_mut(&mut schema).cast()) }
}
