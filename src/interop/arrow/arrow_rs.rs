//! Converts columns and tables from and to arrow-rs, which also joins the batches of a host stream.

use super::abi::{ArrowArray, ArrowSchema, FLAG_NULLABLE};
use super::column::Column;
use super::dictionaries::{refused, unified};
use super::export::exported;
use super::foreign::ForeignStruct;
use super::import::ImportOptions;
use super::join_limits::check_fit;
use super::layout::Layout;
use super::schema::Field;
use super::soundness::Changes;
use super::table::Table;
use super::validate::{check, check_rows, in_batch};
use crate::device::UsmKind;
use crate::error::{Error, Result};
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, make_array};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Schema};
use arrow_select::concat::concat;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl Column {
    /// Copies an arrow-rs array to USM. Returns before the copy is complete.
    ///
    /// # Errors
    /// [`Error::Interop`] for a type that the C data interface cannot express; as [`Column::import`].
    pub fn from_arrow(name: &str, array: &dyn Array, placed: ImportOptions<'_>) -> Result<Self> {
        let (array, schema) = to_ffi(&array.to_data()).map_err(refused)?;
        let field = Field::import(&theirs_schema(schema))?;
        // A type of arrow-rs has no nullability; converted to a schema it would be non-nullable.
        let field = Arc::new(field.named(name).as_nullable());
        // An array of arrow-rs is valid by its own rules, and the field describes it.
        Self::import(theirs(&field, array).known_valid(), placed)
    }

    /// Returns this column as an arrow-rs array. Waits for it.
    ///
    /// The array shares the memory if the host can read it and no handle can write to it: for a column that
    /// usmq imported, or the last handle to an array's memory. Otherwise it is a copy: of device memory, and
    /// of a column from [`from_array`](Self::from_array) while the array, or another handle to its memory,
    /// lives. [`to_arrow_in_place`](Self::to_arrow_in_place) never copies host-readable memory.
    ///
    /// ```
    /// use usmq::{Array, DType, UsmKind, current_queue, interop::arrow::Column};
    ///
    /// let x = Array::arange(0, 4, 1, DType::I32, UsmKind::Shared, &current_queue()?)?;
    /// let column = Column::from_array("x", &x)?;
    /// let before = column.to_arrow()?; // a copy, since x can be written
    /// x.fill(7i32)?;
    /// drop(x);
    /// let after = column.to_arrow()?; // in place: only the column has the memory
    /// assert_ne!(&before, &after);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Interop`] for a type that arrow-rs lacks, and for invalid data
    /// ([`validate_full`](Self::validate_full)); [`Error::Allocation`] if a copy is needed and memory is
    /// short; [`Error::Sycl`] with errors of the submitted work.
    pub fn to_arrow(&self) -> Result<ArrayRef> {
        readable(self.field(), &self.to_host()?.frozen(Changes::None)?)
    }

    /// As [`to_arrow`](Self::to_arrow), but shares the memory whenever the host can read it.
    ///
    /// # Errors
    /// As [`to_arrow`](Self::to_arrow).
    ///
    /// # Safety
    /// Nothing writes to the column's memory while the array, or a copy of it, lives: no array that shares the memory,
    /// no kernel, no other library.
    pub unsafe fn to_arrow_in_place(&self) -> Result<ArrayRef> {
        readable(self.field(), &self.to_host()?)
    }
}

impl Field {
    /// The same field, whose values may be null.
    fn as_nullable(&self) -> Self {
        Self { flags: self.flags | FLAG_NULLABLE, ..self.clone() }
    }

    /// The same field with non-nullable run ends, as arrow-rs requires; other libraries accept both.
    fn with_sound_run_ends(&self) -> Self {
        let mut children: Vec<_> =
            self.children.iter().map(|child| Arc::new(child.with_sound_run_ends())).collect();
        if let (Layout::RunEnds, Some(ends)) = (self.layout, children.first_mut()) {
            *ends = Arc::new(ends.not_null());
        }
        let dictionary = self.dictionary.as_ref().map(|values| Arc::new(values.with_sound_run_ends()));
        Self { children, dictionary, ..self.clone() }
    }

    /// The same types and names without metadata.
    fn without_metadata(&self) -> Self {
        let bare = |field: &Arc<Self>| Arc::new(field.without_metadata());
        let children = self.children.iter().map(bare).collect();
        let dictionary = self.dictionary.as_ref().map(bare);
        Self { metadata: None, children, dictionary, ..self.clone() }
    }
}

impl Table {
    /// Copies a record batch to USM. Returns before the copy is complete.
    ///
    /// # Errors
    /// As [`Column::from_arrow`].
    pub fn from_arrow(batch: &RecordBatch, placed: ImportOptions<'_>) -> Result<Self> {
        let structs = Column::from_arrow("", &StructArray::from(batch.clone()), placed)?;
        let schema = FFI_ArrowSchema::try_from(batch.schema().as_ref()).map_err(refused)?;
        let schema = Field::import_shared(&theirs_schema(schema))?;
        let queue = structs.queue().clone();
        Self::of_batches(schema, vec![structs], queue)
    }

    /// Returns the batches as record batches of arrow-rs, in place or as copies, as [`Column::to_arrow`].
    /// Waits for them.
    ///
    /// # Errors
    /// As [`Column::to_arrow`]; [`Error::Interop`] for metadata that is not UTF-8, which arrow-rs cannot hold.
    pub fn to_arrow(&self) -> Result<Vec<RecordBatch>> {
        self.record_batches(Column::to_arrow)
    }

    /// As [`to_arrow`](Self::to_arrow), but shares the memory whenever the host can read it.
    ///
    /// # Errors
    /// As [`to_arrow`](Self::to_arrow).
    ///
    /// # Safety
    /// As [`Column::to_arrow_in_place`].
    pub unsafe fn to_arrow_in_place(&self) -> Result<Vec<RecordBatch>> {
        // SAFETY: the caller's promise.
        self.record_batches(|batch| unsafe { batch.to_arrow_in_place() })
    }

    fn record_batches(&self, array: impl Fn(&Column) -> Result<ArrayRef>) -> Result<Vec<RecordBatch>> {
        // The exported struct of a batch does not contain the schema's metadata.
        let schema = Arc::new(
            Schema::try_from(&ours_schema(self.schema().with_sound_run_ends().export()?)).map_err(refused)?,
        );
        let batch = |batch: &Column| {
            RecordBatch::from(structs(&array(batch)?)?).with_schema(schema.clone()).map_err(refused)
        };
        self.batches().iter().map(batch).collect()
    }
}

/// Returns a host column for arrow-rs after validation, as an array of `field`.
fn readable(field: &Field, host: &Column) -> Result<ArrayRef> {
    let zeroed = host.with_zeros()?;
    read(field, zeroed.as_ref().unwrap_or(host).export_host()?)
}

fn has_null_type(field: &Field) -> bool {
    let mut nested = field.children().iter().map(Arc::as_ref).chain(field.dictionary());
    field.layout == Layout::Null || nested.any(has_null_type)
}

fn structs(array: &ArrayRef) -> Result<&StructArray> {
    let structs = array.as_any().downcast_ref::<StructArray>();
    structs.ok_or_else(|| Error::interop(format!("{} is not a struct", array.data_type())))
}

/// Joins the values of several arrays.
///
/// # Errors
/// [`Error::Interop`] for arrays that are not valid, or that arrow-rs cannot join.
pub(super) fn joined(
    field: &Arc<Field>,
    arrays: Vec<ForeignStruct<ArrowArray>>,
) -> Result<Vec<ForeignStruct<ArrowArray>>> {
    // The field keeps the metadata, which need not be UTF-8; arrow-rs requires UTF-8.
    let plain = Arc::new(field.without_metadata());
    check_rows(arrays.iter().map(|array| usize::try_from(array.inner.length).unwrap_or(0)))?;
    let mut parts = Vec::with_capacity(arrays.len());
    for (number, array) in arrays.into_iter().enumerate() {
        // SAFETY: the caller that made the `ForeignStruct` guaranteed that its pointers are valid.
        unsafe { check(field, &array.inner) }.map_err(|error| in_batch(error, number))?;
        let array = match exported(&array.inner) {
            // arrow-rs reads values as slices, so nothing may write to the memory, and computes lengths from offsets.
            Some(own) => readable(&plain, &own.frozen(Changes::None)?),
            None if has_null_type(field) => {
                // arrow-rs refuses the buffer that polars counts for the type null.
                let placed = ImportOptions { kind: Some(UsmKind::Host), ..ImportOptions::default() };
                let copy = Column::import(array, placed).and_then(|copy| copy.export_host());
                copy.and_then(|copy| read_checked(&plain, copy))
            }
            None if array.about.is_valid => read(&plain, array.inner),
            None => read_checked(&plain, array.inner),
        };
        parts.push(array.map_err(|error| in_batch(error, number))?);
    }
    // arrow-rs expects valid input, and panics for some invalid input.
    let join = || {
        check_fit(field, field.name(), &parts)?;
        let parts = unified(field, &parts)?;
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        to_ffi(&concat(&parts).map_err(refused)?.to_data()).map_err(refused)
    };
    let joined = catch_unwind(AssertUnwindSafe(join));
    let (array, _) = joined
        .unwrap_or_else(|_| Err(refused(format!("batches of {:?} could not be joined", field.format()))))?;
    Ok(vec![theirs(field, array).known_valid()])
}

fn read(field: &Field, array: ArrowArray) -> Result<ArrayRef> {
    caught(field, || Ok(make_array(data(field, array)?)))
}

/// As [`read`], for an array of another library. If its values under nulls break a rule, the result is a copy with zeros
/// there.
fn read_checked(field: &Arc<Field>, array: ArrowArray) -> Result<ArrayRef> {
    let (data, checked) = caught(field, || {
        let data = data(field, array)?;
        let checked = data.validate_full();
        Ok((data, checked))
    })?;
    let Err(why) = checked else { return caught(field, || Ok(make_array(data))) };
    let again = caught(field, || to_ffi(&data).map_err(refused));
    let placed = ImportOptions { kind: Some(UsmKind::Host), ..ImportOptions::default() };
    match Column::import(theirs(field, again?.0), placed)?.with_zeros()? {
        Some(zeroed) => read(field, zeroed.export_host()?),
        None => Err(refused(why)),
    }
}

fn data(field: &Field, array: ArrowArray) -> Result<ArrayData> {
    let schema = ours_schema(field.with_sound_run_ends().export()?);
    // SAFETY: the struct is from usmq, or the caller checked it as far as possible.
    unsafe { from_ffi(ours(array), &schema) }.map(tidy).map_err(refused)
}

/// Returns an error if arrow-rs panics, as for some data that is not valid.
fn caught<T>(field: &Field, read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(Error::interop(format!("arrow-rs could not read an array of format {:?}", field.format())))
    })
}

/// Without values there is at most one offset. In a slice it may differ from 0, which arrow-rs expects.
fn tidy(data: ArrayData) -> ArrayData {
    use DataType::{Binary, LargeBinary, LargeList, LargeUtf8, List, Map, Utf8};
    let has_offsets = matches!(
        data.data_type(),
        Utf8 | LargeUtf8 | Binary | LargeBinary | List(_) | LargeList(_) | Map(..)
    );
    if data.is_empty() && has_offsets {
        return ArrayData::new_empty(data.data_type());
    }
    if data.child_data().is_empty() {
        return data;
    }
    let children = data.child_data().iter().cloned().map(tidy).collect();
    // SAFETY: the same array, with children of the same types, lengths and values.
    unsafe { data.into_builder().child_data(children).build_unchecked() }
}

// Both libraries use the struct of the C interface; arrow-rs moves the value out.

fn ours(mut array: ArrowArray) -> FFI_ArrowArray {
    // SAFETY: one layout; it is moved out, so that dropping `array` releases nothing.
    unsafe { FFI_ArrowArray::from_raw(std::ptr::from_mut(&mut array).cast()) }
}

fn ours_schema(mut schema: ArrowSchema) -> FFI_ArrowSchema {
    // SAFETY: as above.
    unsafe { FFI_ArrowSchema::from_raw(std::ptr::from_mut(&mut schema).cast()) }
}

fn theirs(field: &Arc<Field>, mut array: FFI_ArrowArray) -> ForeignStruct<ArrowArray> {
    // SAFETY: one layout, filled by arrow-rs for the type of the field; its buffers do not change.
    unsafe { ForeignStruct::take_array(field, std::ptr::from_mut(&mut array).cast()) }
}

fn theirs_schema(mut schema: FFI_ArrowSchema) -> ForeignStruct<ArrowSchema> {
    // SAFETY: as above.
    unsafe { ForeignStruct::take(std::ptr::from_mut(&mut schema).cast()) }
}
