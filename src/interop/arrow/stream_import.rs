//! The consumer side of the C stream and C Device stream interfaces: reads batches in order, or a whole
//! stream as one column or table.

use super::abi::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema, DEVICE_CPU,
};
use super::column::Column;
use super::foreign::{ArrayStruct, FfiStruct, ForeignStruct};
use super::import::{ImportOptions, check_device};
use super::join::{Joined, join_plain};
use super::joined;
use super::schema::Field;
use super::stream_export;
use super::table::Table;
use super::validate::in_batch;
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result, spelled};
use crate::manager::current_queue;
use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The arrays of a stream, as structs with its field. The stream is released when this is dropped.
pub struct StreamReader<S: Stream> {
    stream: S,
    field: Arc<Field>,
    ended: bool,
}

/// A stream struct of either interface.
pub trait Stream: sealed::Calls + FfiStruct<About = ()> {}

impl Stream for ArrowArrayStream {}
impl Stream for ArrowDeviceArrayStream {}

impl<S: Stream> StreamReader<S> {
    /// Takes the stream and requests its schema.
    ///
    /// # Errors
    /// [`Error::Interop`] for a released stream, with the producer's text if it fails, and as
    /// [`Field::import`].
    pub fn new(stream: ForeignStruct<S>) -> Result<Self> {
        let mut stream = stream.inner;
        stream.check()?;
        // After an error the callback may have left anything in the struct, so it is not released.
        let mut schema = ManuallyDrop::new(ArrowSchema::empty());
        // SAFETY: the creator of a `ForeignStruct` guarantees the stream; it is not released.
        let status = unsafe { stream.schema(&mut schema) };
        // SAFETY: as above.
        unsafe { stream.done(status, "schema") }?;
        let field = Field::import_shared(&ManuallyDrop::into_inner(schema).into())?;
        Ok(Self { stream, field, ended: false })
    }

    /// The type of every array.
    pub fn field(&self) -> &Arc<Field> {
        &self.field
    }

    fn ask(&mut self) -> Result<Option<ForeignStruct<S::Array>>> {
        // The callback before may have released the stream.
        self.stream.check()?;
        // As for the schema.
        let mut array = ManuallyDrop::new(S::EMPTY_ARRAY);
        // SAFETY: as in `new`; `&mut self` keeps calls apart.
        let status = unsafe { self.stream.next(&mut array) };
        // SAFETY: as above.
        unsafe { self.stream.done(status, "next array") }?;
        let array = ManuallyDrop::into_inner(array);
        if !S::is_array(&array) {
            return Ok(None);
        }
        self.stream.accept(&array)?;
        // The guarantee for the stream includes the type of its arrays.
        Ok(Some(ForeignStruct::described(self.field.clone(), array)))
    }
}

impl<S: Stream> Iterator for StreamReader<S> {
    type Item = Result<ForeignStruct<S::Array>>;

    /// Returns the next array; does not call the stream again after the end or an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.ask().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

mod sealed {
    use super::*;

    /// The callbacks of a stream struct.
    #[allow(missing_docs)]
    pub trait Calls {
        type Array: ArrayStruct;
        const EMPTY_ARRAY: Self::Array;

        fn is_array(array: &Self::Array) -> bool;
        fn check(&self) -> Result<()>;
        fn accept(&self, array: &Self::Array) -> Result<()>;

        /// # Safety
        /// The struct is valid by the interface and not released, and no other call to it runs.
        unsafe fn schema(&mut self, out: &mut ArrowSchema) -> c_int;

        /// # Safety
        /// As [`schema`](Self::schema).
        unsafe fn next(&mut self, out: &mut Self::Array) -> c_int;

        /// Null after a callback that released the stream.
        ///
        /// # Safety
        /// The struct is valid by the interface, and no other call to it runs.
        unsafe fn last_error(&mut self) -> *const c_char;

        /// An error with the producer's text, unless `status` is 0.
        ///
        /// # Safety
        /// As [`last_error`](Self::last_error); right after the call that gave `status`.
        unsafe fn done(&mut self, status: c_int, what: &str) -> Result<()> {
            if status == 0 {
                return Ok(());
            }
            stream_export::interrupt(status)?;
            // SAFETY: the caller's promise.
            let text = unsafe { self.last_error() };
            // SAFETY: the interface: null, or a string that is valid until the next call.
            let text =
                (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
            let text = text.unwrap_or_else(|| std::io::Error::from_raw_os_error(status).to_string());
            Err(Error::interop(format!("the Arrow stream gave no {what}: {text}")))
        }
    }
}

macro_rules! calls {
    ($stream:ident, $array:ident, $accept:expr) => {
        impl sealed::Calls for $stream {
            type Array = $array;
            const EMPTY_ARRAY: $array = $array::empty();

            fn is_array(array: &$array) -> bool {
                !array.is_released()
            }

            fn check(&self) -> Result<()> {
                let whole = self.get_schema.is_some() && self.get_next.is_some();
                if self.is_released() || !whole {
                    return Err(Error::interop("the Arrow stream is released, or lacks callbacks"));
                }
                Ok(())
            }

            fn accept(&self, array: &$array) -> Result<()> {
                $accept(self, array)
            }

            unsafe fn schema(&mut self, out: &mut ArrowSchema) -> c_int {
                // SAFETY: the caller's promise.
                self.get_schema.map_or(libc::EINVAL, |get| unsafe { get(self, out) })
            }

            unsafe fn next(&mut self, out: &mut $array) -> c_int {
                // SAFETY: the caller's promise.
                self.get_next.map_or(libc::EINVAL, |get| unsafe { get(self, out) })
            }

            unsafe fn last_error(&mut self) -> *const c_char {
                let get = self.get_last_error.filter(|_| !self.is_released());
                // SAFETY: the caller's promise, and the struct is not released.
                get.map_or(std::ptr::null(), |get| unsafe { get(self) })
            }
        }
    };
}

calls!(ArrowArrayStream, ArrowArray, |_, _| Ok(()));
calls!(
    ArrowDeviceArrayStream,
    ArrowDeviceArray,
    |stream: &ArrowDeviceArrayStream, array: &ArrowDeviceArray| {
        if array.device_type == stream.device_type {
            return Ok(());
        }
        Err(Error::interop(format!(
            "the Arrow stream is of device type {}, but gave an array of type {}",
            stream.device_type, array.device_type
        )))
    }
);

impl Column {
    /// Imports the only array of a host stream in place, as [`Column::import_in_place`]. Ignores arrays
    /// without values, except if all are.
    ///
    /// # Errors
    /// [`Error::Value`] for several arrays, which are not contiguous in memory; as [`Column::import_in_place`] and
    /// [`ColumnOrTable::from_stream`].
    pub fn import_stream_in_place(
        stream: ForeignStruct<ArrowArrayStream>,
        queue: Option<&Queue>,
    ) -> Result<Self> {
        only(StreamReader::new(stream)?, queue, |array| Self::import_in_place(array, queue))
    }

    /// As [`Column::import_stream_in_place`], for a stream on any device; USM is used in place as well.
    ///
    /// # Errors
    /// As there, and as [`Column::import_device_in_place`].
    pub fn import_device_stream_in_place(
        stream: ForeignStruct<ArrowDeviceArrayStream>,
        queue: Option<&Queue>,
    ) -> Result<Self> {
        check_device(stream.inner.device_type)?;
        only(StreamReader::new(stream)?, queue, |array| Self::import_device_in_place(array, queue))
    }
}

fn some_null(columns: &[Column]) -> Result<bool> {
    columns.iter().try_fold(false, |found, column| Ok(found || column.null_count()? > 0))
}

/// Imports the only array of a stream that has values.
fn only<S: Stream>(
    mut arrays: StreamReader<S>,
    queue: Option<&Queue>,
    import: impl FnOnce(ForeignStruct<S::Array>) -> Result<Column>,
) -> Result<Column> {
    let mut found = None;
    for (number, array) in arrays.by_ref().enumerate() {
        let array = array?;
        let length = |array: &ForeignStruct<S::Array>| array.inner.array().length;
        match &found {
            Some((first, one)) if length(one) != 0 && length(&array) != 0 => {
                return Err(Error::value(format!(
                    "chunks {first} and {number} of the stream have values, which are not contiguous in memory, so one \
                     array needs a copy; {}",
                    spelled(
                        "pass copy=None, one of the chunks, or combine_chunks() of pyarrow",
                        "import it with ColumnOrTable::from_stream, or each of its arrays"
                    )
                )));
            }
            Some((_, one)) if length(one) != 0 => {}
            _ => found = Some((number, array)),
        }
    }
    match found {
        Some((_, array)) => import(array),
        None => Column::empty(arrays.field(), &queue.cloned().map_or_else(current_queue, Ok)?),
    }
}

/// The contents of an array or stream: top-level structs without nulls are the rows of a table, whether or
/// not their schema is nullable. All other data, also structs with nulls or of an extension type, is a
/// column.
///
/// ```
/// use usmq::{Array, interop::arrow::{Column, ColumnOrTable}};
///
/// let column = Column::from_array("x", &Array::zeros::<f32>(2)?)?;
/// assert!(matches!(ColumnOrTable::from_column(column)?, ColumnOrTable::Column(_)));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub enum ColumnOrTable {
    /// Values of one type.
    Column(Column),
    /// Columns with names.
    Table(Table),
}

impl ColumnOrTable {
    /// Converts one array: structs without nulls become a table. Waits for the validity bitmap of nullable
    /// structs whose producer did not count the nulls.
    ///
    /// # Errors
    /// As [`Table::from_structs`].
    pub fn from_column(column: Column) -> Result<Self> {
        if column.field().is_record() || column.field().is_rows() && column.null_count()? == 0 {
            return Table::from_structs(column).map(Self::Table);
        }
        Ok(Self::Column(column))
    }

    /// Returns the data on another queue or in memory of another kind, if given.
    ///
    /// # Errors
    /// As [`Column::to`].
    pub fn to(&self, ImportOptions { queue, kind, columns }: ImportOptions<'_>) -> Result<Self> {
        match self {
            Self::Column(column) if columns.is_some() => {
                Err(Error::wrong_type(format!("{column} is not a table, so it has no columns to select")))
            }
            Self::Column(column) => column.to(kind, queue).map(Self::Column),
            Self::Table(table) => {
                let table = columns.map_or_else(|| Ok(table.clone()), |names| table.select(names))?;
                table.to(kind, queue).map(Self::Table)
            }
        }
    }

    /// Copies all arrays of a host stream to USM and joins them.
    ///
    /// # Errors
    /// [`Error::Interop`] with the producer's text if it fails; as [`Column::import`].
    pub fn from_stream(stream: ForeignStruct<ArrowArrayStream>, placed: ImportOptions<'_>) -> Result<Self> {
        let mut arrays = StreamReader::new(stream)?;
        let field = arrays.field().clone();
        let chunks = arrays.by_ref().collect::<Result<Vec<_>>>()?;
        Self::from_chunks(&field, chunks, placed)
    }

    /// Imports all arrays of a device stream. Arrays in USM stay in place: a table keeps them as batches. Several arrays
    /// that are not rows of a table are joined through the host, after a wait, in memory of the first one's kind.
    ///
    /// # Errors
    /// As [`from_stream`](Self::from_stream).
    pub fn from_device_stream(
        stream: ForeignStruct<ArrowDeviceArrayStream>,
        placed: ImportOptions<'_>,
    ) -> Result<Self> {
        let on_host = stream.inner.device_type == DEVICE_CPU;
        check_device(stream.inner.device_type)?;
        let mut arrays = StreamReader::new(stream)?;
        let field = arrays.field().clone();
        if on_host {
            let chunks = arrays.by_ref().map(|array| {
                array.map(|array| ForeignStruct { inner: array.inner.array, about: array.about })
            });
            let chunks = chunks.collect::<Result<Vec<_>>>()?;
            return Self::from_chunks(&field, chunks, placed);
        }
        let column = |(number, array): (usize, Result<_>)| {
            Column::import_device(array?, placed).map_err(|error| in_batch(error, number))
        };
        let columns = arrays.by_ref().enumerate().map(column).collect::<Result<Vec<_>>>()?;
        let [first, _, ..] = &columns[..] else { return Self::from_columns(field, columns, placed) };
        if field.is_record() || field.is_rows() && !some_null(&columns)? {
            return Self::from_columns(field, columns, placed);
        }
        let (kind, queue) = (placed.kind.or(first.usm_kind()), placed.queue.or(Some(first.queue())));
        let chunks = columns.iter().map(|column| column.to_host()?.export_host().map(ForeignStruct::from));
        Self::from_chunks(&field, chunks.collect::<Result<_>>()?, ImportOptions { queue, kind, ..placed })
    }

    fn from_chunks(
        field: &Arc<Field>,
        mut chunks: Vec<ForeignStruct<ArrowArray>>,
        placed: ImportOptions<'_>,
    ) -> Result<Self> {
        // Without values nothing needs joining, and several empty arrays equal one.
        if chunks.iter().any(|chunk| chunk.inner.length != 0) {
            chunks.retain(|chunk| chunk.inner.length != 0);
        } else {
            chunks.truncate(1);
        }
        if chunks.len() > 1 {
            chunks = match join_plain(field, chunks, placed)? {
                Joined::Column(column) => return Self::from_columns(field.clone(), vec![column], placed),
                Joined::Other(chunks) => joined(field, chunks)?,
            };
        }
        let columns = chunks.into_iter().map(|chunk| Column::import(chunk, placed));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Self::from_columns(field.clone(), columns, placed)
    }

    fn from_columns(field: Arc<Field>, mut columns: Vec<Column>, placed: ImportOptions<'_>) -> Result<Self> {
        if columns.is_empty() {
            let queue = placed.queue.cloned().map_or_else(current_queue, Ok)?;
            let kind = placed.kind.unwrap_or(UsmKind::Device);
            columns.push(Column::empty_of(&placed.field(&field)?, kind, &queue)?);
        }
        let field = columns[0].field().clone();
        let several = columns.len() > 1;
        if field.is_record() || field.is_rows() && (several || columns[0].null_count()? == 0) {
            let queue = columns[0].queue().clone();
            return Table::of_batches(field, columns, queue).map(Self::Table);
        }
        match (columns.pop(), columns.len()) {
            (Some(column), 0) => Ok(Self::Column(column)),
            (_, more) => Err(Error::interop(format!(
                "the stream has {} arrays of format {:?}, but a column needs exactly one; import them one by \
                 one",
                more + 1,
                field.format()
            ))),
        }
    }
}

impl<S: Stream> std::fmt::Debug for StreamReader<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamReader")
            .field("field", &self.field)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
