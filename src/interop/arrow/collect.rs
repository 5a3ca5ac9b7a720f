//! A whole stream becomes one column or table.

use super::abi::{ArrowArray, ArrowArrayStream, ArrowDeviceArrayStream, DEVICE_CPU};
use super::column::Column;
use super::consume::Arrays;
use super::foreign::Foreign;
use super::import::{Placed, check_device};
use super::joined;
use super::schema::Field;
use super::table::Table;
use crate::error::{Error, Result};
use crate::manager::current_queue;
use std::sync::Arc;

/// What an array or stream holds: structs at the top, none of them null, are the rows of a table, whether their schema
/// says nullable or not. Anything else, also structs of which some are null or that are of an extension type, is a column.
#[derive(Debug, Clone)]
pub enum Imported {
    /// Values of one type.
    Column(Column),
    /// Columns with names.
    Table(Table),
}

impl Imported {
    /// One array: structs without nulls become a table. Waits for the validity bitmap of nullable structs whose producer
    /// has not counted the nulls.
    ///
    /// # Errors
    /// As [`Table::from_structs`].
    pub fn of(column: Column) -> Result<Self> {
        if column.field().is_record() || column.field().is_rows() && column.null_count()? == 0 {
            return Table::from_structs(column).map(Self::Table);
        }
        Ok(Self::Column(column))
    }

    /// On another queue or in memory of another kind, as far as given.
    ///
    /// # Errors
    /// As [`Column::converted`].
    pub fn converted(&self, Placed { queue, kind, columns }: Placed<'_>) -> Result<Self> {
        match self {
            Self::Column(column) if columns.is_some() => {
                Err(Error::Type(format!("{column} is no table, so it has no columns to choose from")))
            }
            Self::Column(column) => column.converted(kind, queue).map(Self::Column),
            Self::Table(table) => {
                let table = columns.map_or_else(|| Ok(table.clone()), |names| table.select(names))?;
                table.converted(kind, queue).map(Self::Table)
            }
        }
    }

    /// All arrays of a host stream, copied to USM as one.
    ///
    /// # Errors
    /// [`Error::Interop`] with the producer's text when it fails; as [`Column::import`].
    pub fn from_stream(stream: Foreign<ArrowArrayStream>, placed: Placed<'_>) -> Result<Self> {
        let mut arrays = Arrays::new(stream)?;
        let field = arrays.field().clone();
        let chunks = arrays.by_ref().collect::<Result<Vec<_>>>()?;
        Self::from_chunks(&field, chunks, placed)
    }

    /// All arrays of a device stream. Those in USM stay where they are: a table keeps them as batches.
    ///
    /// # Errors
    /// As [`from_stream`](Self::from_stream); [`Error::Interop`] for several arrays that are no record batches.
    pub fn from_device_stream(stream: Foreign<ArrowDeviceArrayStream>, placed: Placed<'_>) -> Result<Self> {
        let on_host = stream.inner.device_type == DEVICE_CPU;
        check_device(stream.inner.device_type)?;
        let mut arrays = Arrays::new(stream)?;
        let field = arrays.field().clone();
        if on_host {
            let chunks = arrays
                .by_ref()
                .map(|array| array.map(|array| Foreign { inner: array.inner.array, about: array.about }));
            let chunks = chunks.collect::<Result<Vec<_>>>()?;
            return Self::from_chunks(&field, chunks, placed);
        }
        let column = |(number, array): (usize, Result<_>)| {
            Column::import_device(array?, placed).map_err(|error| in_batch(error, number))
        };
        let columns = arrays.by_ref().enumerate().map(column).collect::<Result<Vec<_>>>()?;
        Self::from_columns(field, columns, placed)
    }

    fn from_chunks(
        field: &Arc<Field>,
        mut chunks: Vec<Foreign<ArrowArray>>,
        placed: Placed<'_>,
    ) -> Result<Self> {
        // Without values there is nothing to join, and several such arrays are as good as one.
        if chunks.iter().any(|chunk| chunk.inner.length != 0) {
            chunks.retain(|chunk| chunk.inner.length != 0);
        } else {
            chunks.truncate(1);
        }
        if chunks.len() > 1 {
            chunks = joined(field, chunks)?;
        }
        let columns = chunks.into_iter().map(|chunk| Column::import(chunk, placed));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Self::from_columns(field.clone(), columns, placed)
    }

    fn from_columns(field: Arc<Field>, mut columns: Vec<Column>, placed: Placed<'_>) -> Result<Self> {
        if columns.is_empty() {
            let queue = placed.queue.cloned().map_or_else(current_queue, Ok)?;
            columns.push(Column::empty(&placed.field(&field)?, &queue)?);
        }
        let field = columns[0].field().clone();
        let several = columns.len() > 1;
        if field.is_record() || field.is_rows() && (several || columns[0].null_count()? == 0) {
            let queue = columns[0].queue().clone();
            return Table::of_batches(field, columns, queue).map(Self::Table);
        }
        match (columns.pop(), columns.len()) {
            (Some(column), 0) => Ok(Self::Column(column)),
            (_, more) => Err(Error::Interop(format!(
                "the stream has {} arrays of format {:?}, and a column is one; take them one by one",
                more + 1,
                field.format()
            ))),
        }
    }
}

/// Which batch of a stream it was that an error is about, counted from 1 as people do.
pub(super) fn in_batch(error: Error, number: usize) -> Error {
    match error {
        Error::Interop(why) => Error::Interop(format!("batch {} of the stream: {why}", number + 1)),
        other => other,
    }
}
