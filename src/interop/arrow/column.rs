//! Columns: Arrow arrays whose buffers are unified shared memory.

use super::buffer_source::Buffer;
use super::layout::{Layout as Physical, values_type};
use super::schema::Field;
use crate::array::{Array, DType, Index, Layout};
use crate::device::{MemoryKind, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::memory::is_capturing;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An Arrow array of any layout in unified shared memory. Cheap to clone; clones and slices share the memory.
///
/// Columns are immutable: Arrow data must not change after export. Kernels read the buffers as arrays.
///
/// ```
/// use usmq::{Array, interop::arrow::Column};
///
/// let x = Array::from_slice(&[1i64, 2, 3])?;
/// let column = Column::from_array("numbers", &x)?;
/// assert_eq!((column.len(), column.null_count()?), (3, 0));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Clone)]
pub struct Column(pub(super) Arc<Node>);

#[derive(Clone)]
pub(super) struct Node {
    pub(super) field: Arc<Field>,
    pub(super) length: usize,
    pub(super) offset: usize,
    /// `None` if not counted yet.
    pub(super) null_count: Option<usize>,
    pub(super) buffers: Buffers,
    pub(super) children: Vec<Column>,
    pub(super) dictionary: Option<Column>,
    pub(super) queue: Queue,
    pub(super) data: Data,
}

/// Whether the data may still change, and what is known of it.
#[derive(Clone)]
pub(super) enum Data {
    /// A safe handle may write to a buffer of the node or of one that it nests, so nothing is remembered.
    Writable,
    /// No safe handle can write to them: usmq created them for this column, or their producer guarantees it. Whether
    /// they are known to be valid is shared by all columns of the same data.
    Frozen(Arc<AtomicBool>),
}

impl Data {
    pub(super) fn frozen(is_valid: bool) -> Self {
        Self::Frozen(Arc::new(AtomicBool::new(is_valid)))
    }

    pub(super) fn frozen_if(is_frozen: bool, is_valid: bool) -> Self {
        if is_frozen { Self::frozen(is_valid) } else { Self::Writable }
    }

    pub(super) fn is_frozen(&self) -> bool {
        matches!(self, Self::Frozen(_))
    }

    pub(super) fn is_valid(&self) -> bool {
        matches!(self, Self::Frozen(is_valid) if is_valid.load(Ordering::Relaxed))
    }
}

/// Most columns have a validity bitmap and one more buffer.
pub(super) type Buffers = SmallVec<[Buffer; 2]>;

impl Column {
    /// The validity of a node depends on what it nests, so it is remembered only if no handle can write to any of it.
    pub(super) fn from_node(mut node: Node) -> Self {
        if node.children.iter().chain(&node.dictionary).any(|nested| !nested.0.data.is_frozen()) {
            node.data = Data::Writable;
        }
        Self(Arc::new(node))
    }

    /// The type, name and metadata.
    #[must_use]
    pub fn field(&self) -> &Arc<Field> {
        &self.0.field
    }

    /// Number of values, nulls included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether the column has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// Number of values in each buffer before the first of this column.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    /// The queue that runs the column's work. Kernels follow it.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// Bytes of all buffers, of children and dictionary too. Text whose size is stored in device memory does
    /// not count; a slice counts its complete buffers.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        let mut bytes = 0;
        self.each_held(&mut |array| bytes += array.nbytes());
        bytes
    }

    /// The USM kind of the first existing buffer; `None` without memory, and for system memory.
    #[must_use]
    pub fn usm_kind(&self) -> Option<UsmKind> {
        self.memory_kind().and_then(MemoryKind::usm)
    }

    /// The kind of the first existing buffer's memory; `None` without memory.
    #[must_use]
    pub fn memory_kind(&self) -> Option<MemoryKind> {
        let mut first = None;
        self.each_held(&mut |array| first = first.or(Some(array.memory_kind())));
        first
    }

    /// The columns that this one nests: the fields of a struct, the items of a list. Those of structs and
    /// fixed-size lists start at this column's first value; offsets of this column point into the others.
    #[must_use]
    pub fn children(&self) -> Vec<Self> {
        let each = match self.layout() {
            Physical::Struct | Physical::Union { dense: false, .. } => 1,
            Physical::FixedList(width) => width,
            _ => return self.0.children.clone(),
        };
        let part = |child: &Self| match (self.0.offset * each, self.0.length * each) {
            (0, length) if length > 0 && length == child.len() => child.clone(),
            (start, length) => child.part(start, length),
        };
        self.0.children.iter().map(part).collect()
    }

    /// The values of the dictionary that this column indexes.
    #[must_use]
    pub fn dictionary(&self) -> Option<&Self> {
        self.0.dictionary.as_ref()
    }

    /// Number of nulls. If the producer did not count them, waits for the validity bitmap and counts.
    ///
    /// # Errors
    /// [`Error::Sycl`] with what the work reported.
    pub fn null_count(&self) -> Result<usize> {
        if let Some(count) = self.0.null_count {
            return Ok(count);
        }
        let Some(bitmap) = self.validity()? else { return Ok(0) };
        let (bytes, first) = (bitmap.to_vec::<u8>()?, self.bit_offset());
        let valid = (first..first + self.len()).filter(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1).count();
        Ok(self.len() - valid)
    }

    /// Position of the first value's bit in [`validity`](Self::validity) and in the values of a boolean column.
    #[must_use]
    pub fn bit_offset(&self) -> usize {
        self.0.offset % 8
    }

    /// The validity bitmap, least significant bit first, from [`bit_offset`](Self::bit_offset); `None`
    /// without nulls.
    ///
    /// # Errors
    /// [`Error::Sycl`] for an error of the runtime.
    pub fn validity(&self) -> Result<Option<Array>> {
        if !self.layout().has_validity() || matches!(self.0.buffers[0], Buffer::Absent) {
            return Ok(None);
        }
        self.bits(0).map(Some)
    }

    /// Returns the values as an array for kernels: numbers, times and decimals as integers or floats (a
    /// second axis holds the parts of wide ones), booleans as a bitmap from [`bit_offset`](Self::bit_offset),
    /// text as its bytes, a dictionary's indices.
    ///
    /// # Errors
    /// [`Error::Type`] for nested and run-end encoded columns, whose children hold the values.
    pub fn values(&self) -> Result<Array> {
        let layout = self.layout();
        if layout == Physical::Bits {
            return self.bits(1);
        }
        if let Physical::Bytes { .. } = layout {
            let Some(bytes) = self.buffer(2)? else { return self.nothing(DType::U8) };
            return Ok(bytes);
        }
        let Some((dtype, parts)) = values_type(self.field().format(), layout) else {
            let why = match layout {
                Physical::Null => "all are null",
                _ => "its children have them",
            };
            return Err(Error::wrong_type(format!("{self} has no values of its own; {why}")));
        };
        self.typed(1, dtype, parts, self.len())
    }

    /// Returns the offsets of texts or lists: the start of each, then the end of the last one. For a list
    /// view or a dense union, the start of each value.
    ///
    /// # Errors
    /// [`Error::Type`] for columns without offsets.
    pub fn offsets(&self) -> Result<Array> {
        let (dtype, extra) = match self.layout() {
            Physical::Bytes { large } | Physical::List { large } => (wide(large), 1),
            Physical::ListView { large } => (wide(large), 0),
            Physical::Union { dense: true, .. } => (DType::I32, 0),
            _ => return Err(Error::wrong_type(format!("{self} has no offsets"))),
        };
        self.typed(1, dtype, 1, self.len() + extra)
    }

    /// Returns the number of values of each list view.
    ///
    /// # Errors
    /// [`Error::Type`] for other columns.
    pub fn sizes(&self) -> Result<Array> {
        match self.layout() {
            Physical::ListView { large } => self.typed(2, wide(large), 1, self.len()),
            _ => Err(Error::wrong_type(format!("{self} has no sizes"))),
        }
    }

    /// Returns the type id of each value of a union, which selects its child.
    ///
    /// # Errors
    /// [`Error::Type`] for other columns.
    pub fn type_ids(&self) -> Result<Array> {
        match self.layout() {
            Physical::Union { .. } => self.typed(0, DType::I8, 1, self.len()),
            _ => Err(Error::wrong_type(format!("{self} has no type ids"))),
        }
    }

    /// Returns a slice of the column, which shares its memory.
    ///
    /// ```
    /// use usmq::{Array, interop::arrow::Column};
    ///
    /// let column = Column::from_array("x", &Array::from_slice(&[1i32, 2, 3])?)?;
    /// assert_eq!(column.slice(1, 2)?.values()?.to_vec::<i32>()?, [2, 3]);
    /// assert!(column.slice(2, 2).is_err());
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Index`] if the range exceeds the column.
    pub fn slice(&self, start: usize, length: usize) -> Result<Self> {
        if start.checked_add(length).is_none_or(|end| end > self.len()) {
            let message = format!("values {start} to {start} + {length} of {self}");
            return Err(Error::range_end(start.saturating_add(length), self.len(), message));
        }
        Ok(self.part(start, length))
    }

    /// As [`slice`](Self::slice), for a range inside the column.
    fn part(&self, start: usize, length: usize) -> Self {
        let null_count = match self.layout() {
            Physical::Null => Some(length),
            _ => self.0.null_count.filter(|count| *count == 0 || length == self.len()),
        };
        let offset = if length == 0 { 0 } else { self.0.offset + start };
        // Validity that is unknown for the whole is tracked separately for the part.
        let data = Data::frozen_if(self.0.data.is_frozen(), self.0.data.is_valid());
        Self::from_node(Node { length, offset, null_count, data, ..(*self.0).clone() })
    }

    /// Returns the column on `queue` and in memory of `kind`, if given; copies only buffers that the queue
    /// cannot use.
    ///
    /// # Errors
    /// [`Error::Allocation`] when a copy is needed and memory is short.
    pub fn to(&self, kind: Option<UsmKind>, queue: Option<&Queue>) -> Result<Self> {
        if kind.is_none() && queue.is_none_or(|queue| queue == self.queue()) {
            return Ok(self.clone());
        }
        let mut copied = true;
        let buffers = (0..self.0.buffers.len()).map(|number| match self.buffer(number)? {
            Some(array) => {
                let converted = array.to(None, kind, queue)?.as_readonly();
                copied &= !std::ptr::eq(converted.allocation(), array.allocation());
                Ok(Buffer::Held(converted))
            }
            None => Ok(Buffer::Absent),
        });
        let buffers = buffers.collect::<Result<_>>()?;
        let data = match &self.0.data {
            // Each replay of a capture runs the copies again.
            _ if is_capturing() => Data::Writable,
            Data::Writable if copied => Data::frozen(false),
            data => data.clone(),
        };
        let children = self.0.children.iter().map(|child| child.to(kind, queue));
        let children = children.collect::<Result<_>>()?;
        let dictionary = self.dictionary().map(|column| column.to(kind, queue)).transpose()?;
        let queue = queue.unwrap_or(self.queue()).clone();
        Ok(Self::from_node(Node { buffers, children, dictionary, queue, data, ..(*self.0).clone() }))
    }

    /// Blocks until the complete column may be read.
    ///
    /// # Errors
    /// [`Error::Sycl`] with what the work reported.
    pub fn wait(&self) -> Result<()> {
        self.arrays()?.iter().try_for_each(Array::wait)
    }

    /// Whether usmq owns all memory, so that an imported column is a copy.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        let mut ours = true;
        self.each_held(&mut |array| ours &= array.allocation().is_ours());
        ours
    }

    /// Every buffer of the column, its children and its dictionary.
    pub(super) fn arrays(&self) -> Result<Vec<Array>> {
        let mut all = Vec::new();
        for number in 0..self.0.buffers.len() {
            all.extend(self.buffer(number)?);
        }
        for nested in self.nested() {
            all.extend(nested.arrays()?);
        }
        Ok(all)
    }

    /// As [`arrays`](Self::arrays), without buffers whose size is still unknown and without a wait: they
    /// belong to an import whose other buffers are included, and are ready at the same time.
    pub(crate) fn held(&self) -> Vec<Array> {
        let mut all = Vec::new();
        self.each_held(&mut |array| all.push(array.clone()));
        all
    }

    /// Passes the arrays of [`held`](Self::held).
    pub(super) fn each_held<'a>(&'a self, take: &mut dyn FnMut(&'a Array)) {
        self.0.buffers.iter().filter_map(Buffer::held).for_each(&mut *take);
        self.nested().for_each(|nested| nested.each_held(take));
    }

    /// The same column under another name.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        let field = Arc::new(self.field().named(name));
        Self::from_node(Node { field, ..(*self.0).clone() })
    }

    /// Returns one buffer as bytes. May wait for other buffers that contain its size.
    pub(super) fn buffer(&self, number: usize) -> Result<Option<Array>> {
        match &self.0.buffers[number] {
            Buffer::Absent => Ok(None),
            Buffer::Held(array) => Ok(Some(array.clone())),
            Buffer::Later(later) => later.array(|| self.size_of_later(number)),
        }
    }

    /// Bytes of a buffer whose size is stored in the data: the last offset, or an entry in the sizes of
    /// views.
    fn size_of_later(&self, number: usize) -> Result<usize> {
        let last = match self.layout() {
            Physical::Bytes { large } => {
                let offsets = self.typed(1, wide(large), 1, self.len() + 1)?;
                let last = offsets.index(&[Index::At(-1)])?;
                if large { last.to_vec::<i64>()?[0] } else { i64::from(last.to_vec::<i32>()?[0]) }
            }
            _ => {
                let sizes = self.0.buffers.len() - 1;
                let Some(sizes) = self.buffer(sizes)? else { return Ok(0) };
                retyped(&sizes, DType::I64, number - 2, &[1])?.to_vec::<i64>()?[0]
            }
        };
        usize::try_from(last).map_err(|_| Error::interop(format!("a buffer of {self} has {last} bytes")))
    }

    pub(super) fn layout(&self) -> Physical {
        self.0.field.layout
    }

    /// Values of a buffer from this column's offset on.
    fn typed(&self, buffer: usize, dtype: DType, parts: usize, count: usize) -> Result<Array> {
        let shape: &[usize] = if parts == 1 { &[count] } else { &[count, parts] };
        match self.buffer(buffer)? {
            Some(bytes) => retyped(&bytes, dtype, self.offset() * parts, shape),
            None if count == 0 || parts == 0 => {
                Array::uninit(shape, dtype, UsmKind::Device, self.queue()).map(|array| array.as_readonly())
            }
            None => Err(Error::interop(format!("buffer {buffer} of {self} is missing"))),
        }
    }

    /// The bytes of a bitmap that hold this column's bits.
    fn bits(&self, buffer: usize) -> Result<Array> {
        let Some(bytes) = self.buffer(buffer)? else { return self.nothing(DType::U8) };
        retyped(&bytes, DType::U8, self.offset() / 8, &[(self.bit_offset() + self.len()).div_ceil(8)])
    }

    fn nothing(&self, dtype: DType) -> Result<Array> {
        Array::uninit([0], dtype, UsmKind::Device, self.queue())
    }
}

const fn wide(large: bool) -> DType {
    if large { DType::I64 } else { DType::I32 }
}

/// Bytes as elements of another type, from element `first` on.
fn retyped(bytes: &Array, dtype: DType, first: usize, shape: &[usize]) -> Result<Array> {
    let start = bytes.layout().offset();
    if !bytes.address().is_multiple_of(dtype.itemsize()) || !start.is_multiple_of(dtype.itemsize()) {
        return Err(Error::interop(format!(
            "address {:#x} is not a multiple of the {} bytes of {dtype}",
            bytes.address(),
            dtype.itemsize()
        )));
    }
    let layout = Layout::foreign(shape, None, start / dtype.itemsize() + first, dtype.itemsize())?;
    let needed = (first + layout.size()) * dtype.itemsize();
    if needed > bytes.nbytes() {
        return Err(Error::interop(format!(
            "a buffer has {} bytes, and {needed} are needed",
            bytes.nbytes()
        )));
    }
    Ok(Array::from_parts(bytes.shared_allocation(), layout, dtype, bytes.queue().clone(), true))
}

/// `column "miles" (double[1000], queue … on opencl:cpu:0 …)`.
impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, queue) = (self.field(), self.queue());
        write!(f, "column {:?} ({}[{}], {queue})", field.name(), field.type_name(), self.len())
    }
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
