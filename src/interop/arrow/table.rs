//! Tables: named columns of equal length, in one or more batches.

use super::buffer_source::Buffer;
use super::column::{Column, Data, Node};
use super::schema::Field;
use super::validate::check_rows;
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use smallvec::smallvec;
use std::fmt;
use std::sync::Arc;

/// Columns of one schema in unified shared memory, on one device; rows are in one or more batches, as in a
/// stream.
///
/// ```
/// use usmq::{Array, interop::arrow::{Column, Table}};
///
/// let (ids, weights) = (Array::from_slice(&[1i32, 2, 3])?, Array::from_slice(&[0.5f32, 1.0, 1.5])?);
/// let table = Table::new(vec![Column::from_array("id", &ids)?, Column::from_array("weight", &weights)?])?;
/// assert_eq!((table.num_rows(), table.names().collect::<Vec<_>>()), (3, vec!["id", "weight"]));
/// assert_eq!(table.slice(1, 2)?.column("id")?.values()?.to_vec::<i32>()?, [2, 3]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Clone)]
pub struct Table {
    schema: Arc<Field>,
    batches: Vec<Column>,
    queue: Queue,
}

impl Table {
    /// Creates a table of one batch with the columns' names.
    ///
    /// # Errors
    /// [`Error::Value`] without columns or for columns of different lengths; [`Error::Placement`] if they are
    /// on different queues, which `collocate` fixes.
    pub fn new(columns: Vec<Column>) -> Result<Self> {
        let Some(first) = columns.first() else {
            return Err(Error::value("a table needs at least one column"));
        };
        let (length, queue) = (first.len(), first.queue().clone());
        for column in &columns {
            if column.len() != length {
                return Err(Error::value(format!("{first} and {column} have different lengths")));
            }
            if *column.queue() != queue {
                let message = format!("{first} and {column} are on different queues; collocate them first");
                let queues = columns.iter().map(|column| column.queue().to_string()).collect();
                return Err(Error::placement(message, queues, None));
            }
        }
        let schema = Arc::new(Field::record(columns.iter().map(|column| column.field().clone()).collect())?);
        let batch = record(&schema, columns, length, &queue);
        Ok(Self { schema, batches: vec![batch], queue })
    }

    /// Creates a table of structs without nulls, as from streams.
    pub(super) fn of_batches(schema: Arc<Field>, batches: Vec<Column>, queue: Queue) -> Result<Self> {
        check_rows(batches.iter().map(Column::len))?;
        let schema = if schema.is_record() { schema } else { Arc::new(schema.not_null()) };
        let batches = batches.into_iter().map(|batch| flat(&schema, batch)).collect::<Result<_>>()?;
        Ok(Self { schema, batches, queue })
    }

    /// Creates a table whose rows are a column of structs without nulls.
    ///
    /// # Errors
    /// [`Error::Type`] for other columns.
    pub fn from_structs(column: Column) -> Result<Self> {
        let (schema, queue) = (column.field().clone(), column.queue().clone());
        if column.layout() != super::layout::Layout::Struct {
            return Err(Error::wrong_type(format!("{column} does not hold structs, so it is not a table")));
        }
        Self::of_batches(schema, vec![column], queue)
    }

    /// A table of other rows with this schema, on this queue.
    pub(super) fn with_batches(&self, batches: Vec<Column>) -> Self {
        Self { batches, ..self.clone() }
    }

    /// A struct of the columns' fields.
    #[must_use]
    pub fn schema(&self) -> &Arc<Field> {
        &self.schema
    }

    /// The queue that runs the table's work.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Number of rows of all batches.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.batches.iter().map(Column::len).sum()
    }

    /// The batches: columns of structs, one child per column of the table.
    #[must_use]
    pub fn batches(&self) -> &[Column] {
        &self.batches
    }

    /// The columns' names, in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.schema.children().iter().map(|field| field.name())
    }

    /// The columns.
    ///
    /// # Errors
    /// [`Error::Value`] for a table of several batches: use the columns of its [`batches`](Self::batches).
    pub fn columns(&self) -> Result<&[Column]> {
        match &self.batches[..] {
            [batch] => Ok(&batch.0.children),
            batches => Err(Error::value(format!(
                "{self} has {} batches, so each column is in several parts; use the columns of its batches",
                batches.len()
            ))),
        }
    }

    /// The column of this name.
    ///
    /// # Errors
    /// [`Error::Index`] if the name matches no column, or more than one; as [`columns`](Self::columns).
    pub fn column(&self, name: &str) -> Result<&Column> {
        let number = self.schema.child(name)?;
        Ok(&self.columns()?[number])
    }

    /// Returns the table with only these columns, in this order.
    ///
    /// ```
    /// use usmq::{Array, interop::arrow::{Column, Table}};
    ///
    /// let x = Array::zeros::<f32>(2)?;
    /// let table = Table::new(vec![Column::from_array("a", &x)?, Column::from_array("b", &x)?])?;
    /// assert_eq!(table.select(&["b"])?.names().collect::<Vec<_>>(), ["b"]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Index`] as [`column`](Self::column).
    pub fn select(&self, names: &[impl AsRef<str>]) -> Result<Self> {
        let numbers =
            names.iter().map(|name| self.schema.child(name.as_ref())).collect::<Result<Vec<_>>>()?;
        let schema = Arc::new(self.schema.selected(&numbers));
        let batches = self.batches.iter().map(|batch| {
            let columns = numbers.iter().map(|number| batch.0.children[*number].clone()).collect();
            record(&schema, columns, batch.len(), &self.queue)
        });
        Ok(Self { batches: batches.collect(), schema: schema.clone(), queue: self.queue.clone() })
    }

    /// Returns rows `start` to `start + length` of the table; they share its memory.
    ///
    /// # Errors
    /// [`Error::Index`] if the range exceeds the table.
    pub fn slice(&self, start: usize, length: usize) -> Result<Self> {
        if start.checked_add(length).is_none_or(|end| end > self.num_rows()) {
            let message = format!("rows {start} to {start} + {length} of {self}");
            return Err(Error::range_end(start.saturating_add(length), self.num_rows(), message));
        }
        let (mut skip, mut rest, mut batches) = (start, length, Vec::new());
        for batch in &self.batches {
            let first = skip.min(batch.len());
            let count = rest.min(batch.len() - first);
            if count > 0 || (length == 0 && batches.is_empty()) {
                let columns = batch.slice(first, count)?.children();
                batches.push(record(&self.schema, columns, count, &self.queue));
            }
            (skip, rest) = (skip - first, rest - count);
        }
        Ok(self.with_batches(batches))
    }

    /// Returns the table on `queue` and in memory of `kind`, if given; copies only buffers that the queue
    /// cannot use.
    ///
    /// # Errors
    /// [`Error::Allocation`] when a copy is needed and memory is short.
    pub fn to(&self, kind: Option<UsmKind>, queue: Option<&Queue>) -> Result<Self> {
        let batches = self.batches.iter().map(|batch| batch.to(kind, queue));
        let queue = queue.unwrap_or(&self.queue).clone();
        Ok(Self { schema: self.schema.clone(), batches: batches.collect::<Result<_>>()?, queue })
    }

    /// Copies the table to host USM; returns it unchanged if the host can read it.
    ///
    /// # Errors
    /// [`Error::Allocation`] when memory is short.
    pub fn to_host(&self) -> Result<Self> {
        self.map(Column::to_host)
    }

    /// The table of each batch's result.
    pub(crate) fn map(&self, each: impl Fn(&Column) -> Result<Column>) -> Result<Self> {
        Ok(self.with_batches(self.batches.iter().map(each).collect::<Result<_>>()?))
    }
}

fn record(schema: &Arc<Field>, children: Vec<Column>, length: usize, queue: &Queue) -> Column {
    let data = Data::frozen(children.iter().all(Column::is_known_valid));
    Column::from_node(Node {
        field: schema.clone(),
        length,
        offset: 0,
        null_count: Some(0),
        buffers: smallvec![Buffer::Absent],
        children,
        dictionary: None,
        queue: queue.clone(),
        data,
    })
}

/// A struct column without offset, as record batches must be.
fn flat(schema: &Arc<Field>, batch: Column) -> Result<Column> {
    if batch.null_count()? > 0 {
        return Err(Error::interop(format!("{batch} has nulls, so it is not a record batch")));
    }
    Ok(record(schema, batch.children(), batch.len(), batch.queue()))
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table of {} rows and {} columns ({})", self.num_rows(), self.names().len(), self.queue)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
