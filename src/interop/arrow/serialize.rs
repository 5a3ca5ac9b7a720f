//! Serializes columns and tables to a header and host memory, and back: for pickles, files and networks.

use super::abi::{ArrowArray, Heap};
use super::buffer_source::Buffer;
use super::column::{Column, Data};
use super::foreign::ForeignStruct;
use super::import::ImportOptions;
use super::layout::{Layout, Part};
use super::schema::Field;
use super::serialize_header::{Reader, Writer, broken};
use super::table::Table;
use super::validate_full::Contents;
use crate::array::{Array, DType};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::runtime::interrupt::uninterruptible;
use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// The version of the header.
const FORMAT: u64 = 1;

/// A serialized column or table: its header and its buffers.
///
/// ```
/// use usmq::{Array, interop::arrow::{Column}};
///
/// let column = Column::from_array("x", &Array::from_slice(&[1i32, 2])?)?;
/// let packed = column.pack()?;
/// let bytes = packed.buffers.iter().map(Array::to_bytes).collect::<usmq::Result<Vec<_>>>()?;
/// let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
/// let back = Column::unpack(&packed.header, &bytes, column.queue())?; // for example in another process
/// assert_eq!(back.values()?.to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Packed {
    /// The type, the lengths, and the list of existing buffers.
    pub header: Vec<u8>,
    /// The buffers, as bytes that the host can read after a wait.
    pub buffers: Vec<Array>,
}

impl Column {
    /// Serializes the column to a header and host memory. Host and shared USM is shared; device memory is
    /// copied, and so is a slice, to include only its own values. The text before a slice of text is
    /// included.
    ///
    /// # Errors
    /// [`Error::Allocation`] when memory is short; [`Error::Sycl`] with what the work reported.
    pub fn pack(&self) -> Result<Packed> {
        packed(self.field(), std::slice::from_ref(self), false, Target::Host)
    }

    /// As [`pack`](Self::pack), but device memory stays in place. The caller copies each buffer to its final place.
    ///
    /// # Errors
    /// As there.
    pub fn pack_in_place(&self) -> Result<Packed> {
        packed(self.field(), std::slice::from_ref(self), false, Target::InPlace)
    }

    /// Restores a column of [`pack`](Self::pack), on `queue` and in memory of its original kind. Waits for
    /// the copies.
    ///
    /// # Errors
    /// [`Error::Interop`] for data that visibly is not from `pack`; [`Error::Allocation`] if memory is short.
    pub fn unpack(header: &[u8], buffers: &[&[u8]], queue: &Queue) -> Result<Self> {
        Self::unpacked(Unpacking::new(header, buffers, queue, None)?)
    }

    /// As [`unpack`](Self::unpack), but `queue`'s device uses the buffers in place. `owner` is dropped after the
    /// last use.
    ///
    /// # Safety
    /// The buffers stay allocated while `owner` lives, and nothing writes to them.
    ///
    /// # Errors
    /// [`Error::Interop`] for data that visibly is not from `pack`; [`Error::Value`] if the device does not reach
    /// system memory, or for a buffer that is not aligned.
    pub unsafe fn unpack_in_place(
        header: &[u8],
        buffers: &[&[u8]],
        queue: &Queue,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        Self::unpacked(Unpacking::new(header, buffers, queue, Some(owner))?)
    }

    fn unpacked(mut unpacking: Unpacking<'_>) -> Result<Self> {
        let field = Arc::new(unpacking.reader.field()?);
        let column = unpacking.column(&field)?;
        unpacking.end()?;
        Ok(column)
    }

    fn write(&self, writer: &mut Writer, buffers: &mut Vec<Array>, target: Target) -> Result<()> {
        if target == Target::InPlace {
            let part = if self.is_tight() { self.clone() } else { self.trimmed()? };
            return part.describe(writer, buffers);
        }
        let host = self.to_host()?;
        let host = if host.is_tight() {
            host
        } else {
            // An import copies only the values of a slice.
            let placed =
                ImportOptions { queue: Some(host.queue()), kind: Some(UsmKind::Host), columns: None };
            Self::import(host.export_host()?.into(), placed)?
        };
        host.describe(writer, buffers)
    }

    /// The column with views of its buffers that hold hardly more than its values. Waits for the last offset of texts and
    /// lists; the text or items before a slice are included.
    fn trimmed(&self) -> Result<Self> {
        let layout = self.layout();
        if matches!(layout, Layout::RunEnds | Layout::Null) {
            return Ok(self.clone());
        }
        // Bitmaps begin at whole bytes.
        let (first, end) = (self.offset() / 8 * 8, self.offset() + self.len());
        let mut node = (*self.0).clone();
        (node.offset, node.data) = (self.offset() - first, Data::Writable);
        let mut last = 0;
        for (number, part) in layout.parts().iter().enumerate() {
            let Some(bytes) = self.buffer(number)? else { continue };
            let bytes_of = |values| layout.bytes(*part, values).unwrap_or(last);
            let (start, stop) = match part {
                Part::Tail => (0, last),
                Part::Offsets(width) => (first * width, bytes_of(end)),
                _ => (bytes_of(first), bytes_of(end)),
            };
            if matches!(part, Part::Offsets(_)) {
                last = self.last_offset()?;
            }
            let stop = stop.min(bytes.nbytes());
            let view = bytes.index(start.min(stop)..stop)?;
            node.buffers[number] = if view.size() == 0 { Buffer::Absent } else { Buffer::Held(view) };
        }
        let part = |child: &Self, each: usize| {
            child.slice(first * each, (end - first) * each).and_then(|part| part.trimmed())
        };
        let children = node.children.iter();
        node.children = match layout {
            Layout::List { .. } => children
                .map(|child| child.slice(0, last.min(child.len()))?.trimmed())
                .collect::<Result<_>>()?,
            Layout::FixedList(width) => children.map(|child| part(child, width)).collect::<Result<_>>()?,
            Layout::Struct | Layout::Union { dense: false, .. } => {
                children.map(|child| part(child, 1)).collect::<Result<_>>()?
            }
            _ => node.children,
        };
        Ok(Self::from_node(node))
    }

    /// The end of the last text or list.
    fn last_offset(&self) -> Result<usize> {
        let last = self.offsets()?.index(-1)?;
        let last = match last.dtype() {
            DType::I32 => i64::from(last.to_vec::<i32>()?[0]),
            _ => last.to_vec::<i64>()?[0],
        };
        usize::try_from(last).map_err(|_| Error::interop(format!("{self} ends at the offset {last}")))
    }

    /// Whether the buffers hold hardly more values than the column.
    fn is_tight(&self) -> bool {
        let layout = self.layout();
        let end = self.offset() + self.len();
        let buffers = layout.parts().iter().zip(&self.0.buffers).all(|(part, buffer)| match buffer {
            // Producers pad up to 64 bytes.
            Buffer::Held(array) => layout.bytes(*part, end).is_none_or(|bytes| array.nbytes() <= bytes + 64),
            _ => true,
        });
        let most = match layout {
            Layout::Struct | Layout::Union { dense: false, .. } => end,
            Layout::FixedList(width) => end.saturating_mul(width),
            _ => usize::MAX,
        };
        let mut nested = self.0.children.iter().chain(self.dictionary());
        self.offset() < 8
            && buffers
            && self.0.children.iter().all(|child| child.len() <= most)
            && nested.all(Self::is_tight)
    }

    fn describe(&self, writer: &mut Writer, buffers: &mut Vec<Array>) -> Result<()> {
        writer.number(self.len() as u64);
        writer.number(self.offset() as u64);
        writer.number(self.0.null_count.map_or(0, |count| count as u64 + 1));
        writer.number(self.0.buffers.len() as u64);
        for number in 0..self.0.buffers.len() {
            let buffer = self.buffer(number)?;
            writer.number(u64::from(buffer.is_some()));
            buffers.extend(buffer);
        }
        self.0
            .children
            .iter()
            .chain(self.dictionary())
            .try_for_each(|nested| nested.describe(writer, buffers))
    }
}

impl Table {
    /// Serializes the table as [`Column::pack`], batch by batch.
    ///
    /// # Errors
    /// As there.
    pub fn pack(&self) -> Result<Packed> {
        packed(self.schema(), self.batches(), true, Target::Host)
    }

    /// As [`Column::pack_in_place`].
    ///
    /// # Errors
    /// As there.
    pub fn pack_in_place(&self) -> Result<Packed> {
        packed(self.schema(), self.batches(), true, Target::InPlace)
    }

    /// Restores a table of [`pack`](Self::pack), as [`Column::unpack`].
    ///
    /// # Errors
    /// As there.
    pub fn unpack(header: &[u8], buffers: &[&[u8]], queue: &Queue) -> Result<Self> {
        Self::unpacked(Unpacking::new(header, buffers, queue, None)?)
    }

    /// As [`Column::unpack_in_place`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn unpack_in_place(
        header: &[u8],
        buffers: &[&[u8]],
        queue: &Queue,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        Self::unpacked(Unpacking::new(header, buffers, queue, Some(owner))?)
    }

    fn unpacked(mut unpacking: Unpacking<'_>) -> Result<Self> {
        let queue = unpacking.queue;
        let schema = Arc::new(unpacking.reader.field()?);
        if schema.layout != Layout::Struct {
            return Err(broken("a table's schema is a struct"));
        }
        let mut batches = Vec::new();
        for _ in 0..unpacking.reader.count()? {
            batches.push(unpacking.column(&schema)?);
        }
        unpacking.end()?;
        Self::of_batches(schema, batches, queue.clone())
    }
}

impl Field {
    /// The field as bytes, for [`from_bytes`](Self::from_bytes).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.number(FORMAT);
        writer.field(self);
        writer.0
    }

    /// Reads a field of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// [`Error::Interop`] for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        check_format(&mut reader)?;
        let field = reader.field()?;
        reader.end()?;
        Ok(field)
    }
}

/// The memory of packed buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Host,
    InPlace,
}

/// `has_count`: a table has any number of batches, a column is one.
fn packed(field: &Field, batches: &[Column], has_count: bool, target: Target) -> Result<Packed> {
    let (mut writer, mut buffers) = (Writer::default(), Vec::new());
    writer.number(FORMAT);
    writer.number(match batches.iter().find_map(Column::usm_kind) {
        None | Some(UsmKind::Device) => 0,
        Some(UsmKind::Shared) => 1,
        Some(UsmKind::Host) => 2,
    });
    writer.field(field);
    if has_count {
        writer.number(batches.len() as u64);
    }
    for batch in batches {
        batch.write(&mut writer, &mut buffers, target)?;
    }
    Ok(Packed { header: writer.0, buffers })
}

fn check_format(reader: &mut Reader<'_>) -> Result<()> {
    match reader.number()? {
        FORMAT => Ok(()),
        other => Err(Error::interop(format!(
            "packed data has format {other}, and this usmq reads format {FORMAT}; use the same usmq on both \
             sides"
        ))),
    }
}

/// The data being read, and its target.
struct Unpacking<'a> {
    reader: Reader<'a>,
    frames: std::slice::Iter<'a, &'a [u8]>,
    kind: UsmKind,
    queue: &'a Queue,
    /// Keeps the frames, which then are used in place.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl<'a> Unpacking<'a> {
    fn new(
        header: &'a [u8],
        frames: &'a [&'a [u8]],
        queue: &'a Queue,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self> {
        let mut reader = Reader(header);
        check_format(&mut reader)?;
        let kind = match reader.number()? {
            0 => UsmKind::Device,
            1 => UsmKind::Shared,
            2 => UsmKind::Host,
            other => return Err(broken(format_args!("{other} is not a USM kind"))),
        };
        Ok(Self { reader, frames: frames.iter(), kind, queue, owner })
    }

    fn end(&self) -> Result<()> {
        self.reader.end()?;
        match self.frames.len() {
            0 => Ok(()),
            more => Err(broken(format_args!("{more} buffers are left over"))),
        }
    }

    fn column(&mut self, field: &Arc<Field>) -> Result<Column> {
        let (array, contents) = self.array(field)?;
        let is_valid = contents.validate_valid_values()?.is_none();
        let described = ForeignStruct::described(field.clone(), array);
        let described = if is_valid { described.known_valid() } else { described };
        if self.owner.is_some() {
            return Column::import_in_place(described, Some(self.queue));
        }
        let placed = ImportOptions { queue: Some(self.queue), kind: Some(self.kind), columns: None };
        self.queue.wait_interruptible()?;
        let column = Column::import(described, placed)?;
        // The frames are only borrowed.
        uninterruptible(|| column.wait()).inspect_err(|_| {
            self.queue.drain();
        })?;
        Ok(column)
    }

    /// Creates the struct of an array after checking the lengths of its buffers; the import checks the rest.
    fn array<'f>(&mut self, field: &'f Field) -> Result<(ArrowArray, Contents<'f>)>
    where
        'a: 'f,
    {
        let (length, offset) = (self.reader.count()?, self.reader.count()?);
        let null_count = self.reader.count()? as i64 - 1;
        let end = length.checked_add(offset).ok_or_else(|| broken("a column is too long"))?;
        let count = self.reader.count()?;
        let mut buffers: Vec<Option<&[u8]>> = Vec::new();
        for _ in 0..count {
            buffers.push(if self.reader.flag()? { Some(self.frame()?) } else { None });
        }
        check_lengths(field, &buffers, end, self.owner.is_some())?;
        if field.layout == Layout::Views {
            cut_to_sizes(&mut buffers[field.layout.parts().len()..]);
        }
        let nested = field.children().iter().map(|child| self.array(child)).collect::<Result<Vec<_>>>()?;
        let (children, seen): (Vec<_>, Vec<_>) = nested.into_iter().unzip();
        let dictionary = field.dictionary().map(|values| self.array(values)).transpose()?;
        let (dictionary, values) = dictionary.unzip();
        let contents = Contents {
            field,
            length,
            offset,
            null_count: usize::try_from(null_count).ok(),
            buffers: buffers.clone(),
            children: seen,
            dictionary: values.map(Box::new),
            is_valid: false,
        };
        let buffers = buffers.iter().map(|frame| frame.map_or(ptr::null(), |frame| frame.as_ptr().cast()));
        let children = children.into_iter().map(Heap::new).collect();
        let dictionary = dictionary.map(Heap::new);
        let mut owned = Box::new(Unpacked {
            buffers: buffers.collect(),
            children,
            dictionary,
            _owner: self.owner.clone(),
        });
        let mut array = ArrowArray::empty();
        (array.length, array.offset, array.null_count) = (length as i64, offset as i64, null_count);
        array.n_buffers = owned.buffers.len() as i64;
        array.buffers = owned.buffers.as_mut_ptr();
        array.n_children = owned.children.len() as i64;
        array.children = Heap::list(&mut owned.children);
        array.dictionary = owned.dictionary.as_ref().map_or(ptr::null_mut(), Heap::as_ptr);
        array.release = Some(release);
        array.private_data = Box::into_raw(owned).cast();
        Ok((array, contents))
    }

    fn frame(&mut self) -> Result<&'a [u8]> {
        self.frames.next().copied().ok_or_else(|| broken("it has fewer buffers than it describes"))
    }
}

/// The target of pointers in a struct of [`Unpacking::array`], except the frames.
struct Unpacked {
    buffers: Vec<*const c_void>,
    children: Vec<Heap<ArrowArray>>,
    dictionary: Option<Heap<ArrowArray>>,
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

unsafe extern "C" fn release(array: *mut ArrowArray) {
    // SAFETY: called with a struct that `array` filled and that is not released.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: made from a box in `array`, and taken once: `release` is gone.
    drop(unsafe { Box::from_raw(array.private_data.cast::<Unpacked>()) });
}

/// An error unless each buffer is as long as the values, offsets and sizes before it require. Checked here,
/// because the interface that the import reads has no buffer lengths. A column whose parent shows none of its rows ends
/// `in_place` at its first offset.
fn check_lengths(field: &Field, buffers: &[Option<&[u8]>], end: usize, in_place: bool) -> Result<()> {
    let layout = field.layout;
    let wrong =
        |number: usize| broken(format_args!("buffer {number} of column {:?} is too short", field.name()));
    let parts = layout.parts();
    let fits =
        if layout == Layout::Views { buffers.len() > parts.len() } else { buffers.len() == parts.len() };
    if !fits {
        return Err(broken(format_args!("column {:?} has {} buffers", field.name(), buffers.len())));
    }
    let mut last = Some(0);
    for (number, (part, buffer)) in parts.iter().zip(buffers).enumerate() {
        let needed = match part {
            Part::Tail => last.ok_or_else(|| wrong(number - 1))?,
            _ => layout.bytes(*part, end).ok_or_else(|| wrong(number))?,
        };
        let bytes = buffer.unwrap_or_default();
        // The import checks which buffers may be missing; text that offsets point to must exist.
        if bytes.len() < needed && (buffer.is_some() || *part == Part::Tail) {
            return Err(wrong(number));
        }
        if let (Part::Offsets(width), Some(bytes)) = (part, buffer) {
            let first = if in_place { word(bytes, 0, *width) } else { Some(0) };
            last = first.and_then(|first| word(bytes, end, *width).map(|last| last.max(first)));
        }
    }
    if layout == Layout::Views {
        let (sizes, data) = buffers[parts.len()..].split_last().ok_or_else(|| wrong(parts.len()))?;
        for (number, data) in data.iter().enumerate() {
            let size = word(sizes.unwrap_or_default(), number, 8);
            if size.is_none_or(|size| size > data.unwrap_or_default().len()) {
                return Err(wrong(parts.len() + number));
            }
        }
    }
    Ok(())
}

/// Cuts the data of views to its size, which the last buffer has: the import takes no more of it.
fn cut_to_sizes(buffers: &mut [Option<&[u8]>]) {
    let Some((sizes, data)) = buffers.split_last_mut() else { return };
    for (number, data) in data.iter_mut().enumerate() {
        let size = word(sizes.unwrap_or_default(), number, 8).unwrap_or(0);
        *data = data.and_then(|data| data.get(..size));
    }
}

/// Number `index` among numbers of `width` bytes; `None` if it does not exist or is negative.
fn word(bytes: &[u8], index: usize, width: usize) -> Option<usize> {
    let bytes = bytes.get(index.checked_mul(width)?..)?;
    if width == 4 {
        usize::try_from(i32::from_ne_bytes(*bytes.first_chunk()?)).ok()
    } else {
        usize::try_from(i64::from_ne_bytes(*bytes.first_chunk()?)).ok()
    }
}
