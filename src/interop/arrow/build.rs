//! Columns from usmq arrays, and empty columns.

use super::buffer_source::Buffer;
use super::column::{Buffers, Column, Data, Node};
use super::layout::Part;
use super::schema::Field;
use crate::array::{Array, DType};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use smallvec::smallvec;
use std::sync::Arc;

impl Column {
    /// Creates a column without nulls that shares the memory of a contiguous array: one axis gives numbers,
    /// more axes give fixed-size lists. Do not write to the array afterwards, because readers of the column
    /// would see the writes. Where that would violate Rust's rules, as in [`to_arrow`](Self::to_arrow), usmq
    /// copies while the array, or another handle to its memory, lives.
    ///
    /// # Errors
    /// [`Error::Interop`] for element types that Arrow lacks, for a strided array, and for an array without
    /// axes.
    pub fn from_array(name: &str, array: &Array) -> Result<Self> {
        let refuse = |why: &str| Err(Error::interop(format!("cannot use {array} as an Arrow column: {why}")));
        let format = match format_of(array.dtype()) {
            Ok(format) => format,
            Err(why) => return refuse(why),
        };
        let Some((rows, inner)) = array.shape().split_first() else {
            return refuse("it has no axis; reshape it to (1,)");
        };
        if !array.is_contiguous() {
            return refuse("it is strided; call copy() for a contiguous array");
        }
        let mut column = plain(name, format, array)?;
        for extent in inner.iter().rev() {
            let length = if *extent == 0 { *rows } else { column.len() / extent };
            let item = column.named("item");
            let field = Field::nested(name, &format!("+w:{extent}"), vec![item.field().clone()])?;
            column = Self::from_node(Node {
                field: Arc::new(field),
                length,
                buffers: smallvec![Buffer::Absent],
                children: vec![item],
                ..(*column.0).clone()
            });
        }
        Ok(column)
    }

    /// Whether each value is one number of a [`DType`], as in an array. False for bits, texts, times,
    /// decimals and indices.
    #[must_use]
    pub fn is_numeric(&self) -> bool {
        let format = self.field().format();
        self.dictionary().is_none() && DType::find(|row| row.arrow == Some(format)).is_some()
    }

    /// A column of this type without values.
    ///
    /// # Errors
    /// [`Error::Allocation`] when memory is short.
    pub fn empty(field: &Arc<Field>, queue: &Queue) -> Result<Self> {
        Self::empty_of(field, UsmKind::Device, queue)
    }

    /// As [`Column::empty`], in USM of this kind.
    pub(super) fn empty_of(field: &Arc<Field>, kind: UsmKind, queue: &Queue) -> Result<Self> {
        let buffer = |part: &Part| match part {
            Part::Offsets(width) => {
                let zero = Array::uninit([*width], DType::U8, kind, queue)?;
                zero.fill_bytes(&[0])?;
                Ok(Buffer::Held(zero.as_readonly()))
            }
            _ => Ok(Buffer::Absent),
        };
        let mut buffers = field.layout.parts().iter().map(buffer).collect::<Result<Buffers>>()?;
        if field.layout == super::layout::Layout::Views {
            buffers.push(Buffer::Absent);
        }
        let children = field.children().iter().map(|field| Self::empty_of(field, kind, queue));
        let dictionary = field.dictionary.as_ref().map(|field| Self::empty_of(field, kind, queue));
        Ok(Self::from_node(Node {
            field: field.clone(),
            length: 0,
            offset: 0,
            null_count: Some(0),
            buffers,
            children: children.collect::<Result<_>>()?,
            dictionary: dictionary.transpose()?,
            queue: queue.clone(),
            data: Data::frozen(true),
        }))
    }
}

/// Arrow's format of an element type, or the reason why it has none.
pub(super) fn format_of(dtype: DType) -> std::result::Result<&'static str, &'static str> {
    dtype.row().arrow.ok_or(match dtype {
        DType::Bool => "Arrow's booleans are bits; cast it to uint8",
        _ => "Arrow has no such type; cast it",
    })
}

/// All elements of a contiguous array as one axis.
fn plain(name: &str, format: &str, array: &Array) -> Result<Column> {
    let bytes = array.as_bytes()?.as_readonly();
    Ok(Column::from_node(Node {
        field: Arc::new(Field::new(name, format)?),
        length: array.size(),
        offset: 0,
        null_count: Some(0),
        buffers: smallvec![
            Buffer::Absent,
            if bytes.nbytes() == 0 { Buffer::Absent } else { Buffer::Held(bytes) }
        ],
        children: Vec::new(),
        dictionary: None,
        queue: array.queue().clone(),
        // `array` can write to the same memory.
        data: Data::Writable,
    }))
}
