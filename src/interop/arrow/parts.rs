//! Columns from their parts: values, validity and offsets, as a kernel writes them.

use super::buffer_source::Buffer;
use super::column::{Buffers, Column, Data, Node};
use super::layout::{Layout, values_type};
use super::schema::Field;
use super::type_name::format_named;
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use smallvec::smallvec;
use std::sync::Arc;

impl Column {
    /// Creates a column from arrays that a kernel has written: `values`, the places of nulls, and for texts and lists
    /// the start of each value. It shares the memory of the arrays; do not write to them afterwards. `bool` arrays
    /// become bitmaps by a copy.
    ///
    /// - `type_name` says how to read the values, as `"timestamp[us, tz=UTC]"` for `int64` or `"string"` for `uint8` with
    ///   offsets; without it, the type is that of the array, and a list of them with offsets.
    /// - `validity` is `bool` with one element per value, or a bitmap of `uint8`, least significant bit first, in which
    ///   bit `i` is set if value `i` is not null. That of a slice starts at its
    ///   [`bit_offset`](Self::bit_offset), so it fits only where that is 0.
    /// - `offsets` is `int32`, or `int64` for the large types, with one more element than the column has values.
    ///
    /// ```
    /// use usmq::{Array, interop::arrow::Column};
    ///
    /// let (values, is_valid) = (Array::from_slice(&[1i32, 2, 3])?, Array::from_slice(&[true, false, true])?);
    /// let column = Column::from_parts("x", &values, Some(&is_valid), None, None)?;
    /// assert_eq!((column.len(), column.null_count()?), (3, 1));
    ///
    /// let (bytes, starts) = (Array::from_slice(b"helloyou")?, Array::from_slice(&[0i32, 5, 8])?);
    /// let column = Column::from_parts("words", &bytes, None, Some(&starts), Some("string"))?;
    /// assert_eq!((column.len(), column.field().type_name().as_str()), (2, "string"));
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Type`] for an unknown type name and for arrays of other dtypes, [`Error::Value`] for arrays of other
    /// lengths or with other axes, [`Error::Placement`] for arrays on different queues, [`Error::Interop`] for strided
    /// arrays and for element types that Arrow lacks.
    pub fn from_parts(
        name: &str,
        values: &Array,
        validity: Option<&Array>,
        offsets: Option<&Array>,
        type_name: Option<&str>,
    ) -> Result<Self> {
        let format = type_name.map(format_named).transpose()?;
        let column = match (format, offsets) {
            (None, None) if values.dtype() == DType::Bool => truths(name, values)?,
            (None, None) => Self::from_array(name, values)?,
            (Some(format), None) => typed(name, &format, values)?,
            (None, Some(offsets)) => {
                Self::from_parts("item", values, None, None, None)?.listed(name, offsets)?
            }
            (Some(format), Some(offsets)) => texts(name, &format, values, offsets)?,
        };
        validity.map_or(Ok(column.clone()), |validity| column.with_validity(validity))
    }

    /// A column of lists of this column's values; `offsets` as for [`from_parts`](Self::from_parts).
    ///
    /// # Errors
    /// As [`from_parts`](Self::from_parts).
    pub fn listed(&self, name: &str, offsets: &Array) -> Result<Self> {
        same_queue(self, offsets, "offsets")?;
        let (length, large) = starts(offsets)?;
        let item = self.named("item");
        let format = if large { "+L" } else { "+l" };
        let field = Field::nested(name, format, vec![item.field().clone()])?;
        Ok(node(&item, field, length, smallvec![Buffer::Absent, held(offsets)?], vec![item.clone()]))
    }

    /// The column with nulls where `validity`, as for [`from_parts`](Self::from_parts), has 0. Replaces other validity.
    ///
    /// # Errors
    /// As [`from_parts`](Self::from_parts); [`Error::Value`] for a slice that does not start with its buffers, and
    /// [`Error::Type`] for a type without validity.
    pub fn with_validity(&self, validity: &Array) -> Result<Self> {
        same_queue(self, validity, "validity")?;
        if !self.layout().has_validity() {
            return Err(Error::wrong_type(format!("{self} has no validity of its own")));
        }
        if self.offset() != 0 {
            return Err(Error::value(format!(
                "{self} is a slice from value {} of its buffers; set the validity before slicing",
                self.offset()
            )));
        }
        let length = self.len();
        let (wanted, is_flags) = match validity.dtype() {
            DType::Bool => (length, true),
            DType::U8 => (length.div_ceil(8), false),
            other => {
                let message = format!(
                    "validity must be a bool array, or a bitmap of uint8, not {other}; cast it to bool"
                );
                return Err(Error::type_mismatch("bool or uint8", other, message));
            }
        };
        if validity.shape() != [wanted] {
            let unit = if is_flags { "elements, one per value" } else { "bytes, one bit per value" };
            let hint = if validity.dtype() == DType::U8 && validity.shape() == [length] {
                "; for one element per value cast it to bool"
            } else {
                ""
            };
            return Err(Error::value(format!(
                "validity of {length} values must have {wanted} {unit}, not shape {:?}{hint}",
                validity.shape()
            )));
        }
        let bitmap = if is_flags { validity.packed_bits()? } else { validity.clone() };
        let mut changed = (*self.0).clone();
        changed.buffers[0] = held(&contiguous(&bitmap, "validity")?)?;
        changed.null_count = (length == 0).then_some(0);
        changed.data = Data::Writable;
        Ok(Self::from_node(changed))
    }
}

/// Booleans: Arrow stores them as bits.
fn truths(name: &str, values: &Array) -> Result<Column> {
    one_axis(values, "values of a bool column")?;
    let bits = values.packed_bits()?;
    let first = Column::from_array(name, &bits)?;
    let buffers = smallvec![Buffer::Absent, held(&bits)?];
    Ok(node(&first, Field::new(name, "b")?, values.size(), buffers, Vec::new()))
}

/// Values of a type that needs no offsets, as numbers of its width.
fn typed(name: &str, format: &str, values: &Array) -> Result<Column> {
    let field = Field::new(name, format)?;
    match field.layout {
        Layout::Bits if values.dtype() == DType::Bool => return truths(name, values),
        Layout::Bytes { .. } => {
            return Err(Error::value(format!(
                "a {} column needs offsets: the start of each text, then the end of the last one",
                field.type_name()
            )));
        }
        _ => {}
    }
    let wanted = match field.layout {
        Layout::Bits => Some((DType::Bool, 1)),
        Layout::Fixed(_) => values_type(format, field.layout),
        _ => None,
    };
    let Some((dtype, parts)) = wanted else {
        return Err(Error::wrong_type(format!(
            "a {} column cannot be made from one array",
            field.type_name()
        )));
    };
    if values.dtype() != dtype {
        let (name, found) = (field.type_name(), values.dtype());
        let message = format!("a {name} column needs values of {dtype}, not {found}");
        return Err(Error::type_mismatch(dtype, found, message));
    }
    let rows = match (values.shape(), parts) {
        ([rows], 1) => *rows,
        ([rows, inner], parts) if *inner == parts && parts != 1 => *rows,
        (shape, _) => {
            let axes = if parts == 1 { "one axis".to_owned() } else { format!("the shape [n, {parts}]") };
            return Err(Error::value(format!(
                "the values of a {} column must have {axes}, not shape {shape:?}",
                field.type_name()
            )));
        }
    };
    let buffers = smallvec![Buffer::Absent, held(&contiguous(values, "values")?)?];
    let flat = values.ravel()?;
    // Numbers of the same width, for queue and flags.
    let like = Column::from_array(name, &flat)?;
    let column = node(&like, field, rows, buffers, Vec::new());
    Ok(column)
}

fn texts(name: &str, format: &str, bytes: &Array, offsets: &Array) -> Result<Column> {
    let field = Field::new(name, format)?;
    let Layout::Bytes { large } = field.layout else {
        return Err(Error::wrong_type(format!(
            "a {} column has no offsets; offsets with type are for string, binary, large_string and large_binary, and \
             without type for lists",
            field.type_name()
        )));
    };
    if bytes.dtype() != DType::U8 {
        let (name, found) = (field.type_name(), bytes.dtype());
        let message = format!("the values of a {name} column are its bytes as uint8, not {found}");
        return Err(Error::type_mismatch(DType::U8, found, message));
    }
    one_axis(bytes, "the bytes of texts")?;
    let like = Column::from_array(name, bytes)?;
    same_queue(&like, offsets, "offsets")?;
    let (length, is_large) = starts(offsets)?;
    if large != is_large {
        let wanted = if large { DType::I64 } else { DType::I32 };
        let (name, found) = (field.type_name(), offsets.dtype());
        let message = format!("a {name} column needs offsets of {wanted}, not {found}");
        return Err(Error::type_mismatch(wanted, found, message));
    }
    Ok(node(&like, field, length, smallvec![Buffer::Absent, held(offsets)?, held(bytes)?], Vec::new()))
}

/// A column with the queue of another one, whose data is validated before the host reads it.
fn node(like: &Column, field: Field, length: usize, buffers: Buffers, children: Vec<Column>) -> Column {
    Column::from_node(Node {
        field: Arc::new(field),
        length,
        offset: 0,
        null_count: Some(0),
        buffers,
        children,
        dictionary: None,
        queue: like.queue().clone(),
        data: Data::Writable,
    })
}

/// Number of values, and whether the offsets have 64 bits.
fn starts(offsets: &Array) -> Result<(usize, bool)> {
    let large = match offsets.dtype() {
        DType::I32 => false,
        DType::I64 => true,
        other => {
            let message = format!("offsets must be int32 or int64, not {other}");
            return Err(Error::type_mismatch("int32 or int64", other, message));
        }
    };
    one_axis(offsets, "offsets")?;
    contiguous(offsets, "offsets")?;
    let length = offsets.size().checked_sub(1).ok_or_else(|| {
        Error::value("offsets must have one element more than the column has values, at least one")
    })?;
    Ok((length, large))
}

fn same_queue(column: &Column, array: &Array, what: &str) -> Result<()> {
    if column.queue() == array.queue() {
        return Ok(());
    }
    let (values, other) = (column.queue().to_string(), array.queue().to_string());
    let message =
        format!("the values are on {values}, but the {what} on {other}; collocate the arrays first");
    Err(Error::placement(message, vec![values, other], None))
}

fn one_axis(array: &Array, what: &str) -> Result<()> {
    match array.ndim() {
        1 => Ok(()),
        _ => Err(Error::value(format!("{what} must have one axis, not shape {:?}", array.shape()))),
    }
}

fn contiguous(array: &Array, what: &str) -> Result<Array> {
    if array.is_contiguous() {
        return Ok(array.clone());
    }
    Err(Error::interop(format!(
        "the {what} of a column must be contiguous, but {array} is strided; call copy()"
    )))
}

fn held(array: &Array) -> Result<Buffer> {
    let bytes = contiguous(array, "parts")?.as_bytes()?.as_readonly();
    Ok(if bytes.nbytes() == 0 { Buffer::Absent } else { Buffer::Held(bytes) })
}
