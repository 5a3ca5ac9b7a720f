//! Imports another library's arrays as columns: host memory is copied to USM, or on request used in place;
//! device memory is used in place.

use super::abi::{
    ArrowArray, ArrowDeviceArray, DEVICE_CPU, DEVICE_CUDA, DEVICE_CUDA_HOST, DEVICE_CUDA_MANAGED,
    DEVICE_ONEAPI,
};
use super::buffer_source::{Buffer, BufferSource, HostSource, SystemSource, UsmSource};
use super::column::{Column, Data, Node};
use super::cuda::CudaSource;
use super::export::{exported, is_logged_event};
use super::foreign::{About, ForeignStruct};
use super::layout::{Layout, Part};
use super::schema::Field;
use super::validate::{Checked, broken, check, offsets};
use super::validate_contents::check_contents;
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::manager::current_queue;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;

/// The target of an import, as requested by the caller.
///
/// ```
/// use usmq::{Queue, UsmKind, interop::arrow::ImportOptions};
///
/// let queue = Queue::get("cpu")?;
/// let names = ["id".to_owned()];
/// let options = ImportOptions { queue: Some(&queue), kind: Some(UsmKind::Shared), columns: Some(&names) };
/// assert!(options.columns.is_some());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportOptions<'a> {
    /// The queue; by default the current one for host data, for device data a queue that can use it in place.
    pub queue: Option<&'a Queue>,
    /// The USM kind; by default device memory for host data, the existing kind for device data.
    pub kind: Option<UsmKind>,
    /// Only these columns of a record batch, in this order; others are not copied.
    pub columns: Option<&'a [String]>,
}

/// The selected columns of a record batch.
struct Wanted {
    field: Arc<Field>,
    numbers: Vec<usize>,
}

impl ImportOptions<'_> {
    /// The field of the result of an import of `field`.
    pub(super) fn field(&self, field: &Arc<Field>) -> Result<Arc<Field>> {
        self.wanted(field).map(|wanted| wanted.field)
    }

    /// The positions of the selected columns of a record batch, or of all children.
    pub(super) fn numbers(&self, field: &Arc<Field>) -> Result<Vec<usize>> {
        self.wanted(field).map(|wanted| wanted.numbers)
    }

    fn wanted(&self, field: &Arc<Field>) -> Result<Wanted> {
        let Some(names) = self.columns else {
            return Ok(Wanted { field: field.clone(), numbers: (0..field.children().len()).collect() });
        };
        if !field.is_struct() {
            let format = field.format();
            return Err(Error::wrong_type(format!("an array of format {format:?} has no columns to select")));
        }
        let numbers = names.iter().map(|name| field.child(name)).collect::<Result<Vec<_>>>()?;
        Ok(Wanted { field: Arc::new(field.selected(&numbers)), numbers })
    }
}

impl Column {
    /// Imports an array on any device type that usmq supports. USM is used in place, and the queue, not the
    /// host, waits for its event. Host memory is copied, and so is CUDA memory, after its event. The array is
    /// released after the last command that uses it, or soon after an error.
    ///
    /// Source: the Arrow C Device data interface, "The ArrowDeviceArray structure".
    ///
    /// # Errors
    /// [`Error::Interop`] for a struct that visibly breaks the rules, memory that is not USM, or an unknown
    /// device type; [`Error::Allocation`] if a copy is needed and memory is short.
    pub fn import_device(array: ForeignStruct<ArrowDeviceArray>, placed: ImportOptions<'_>) -> Result<Self> {
        let _span = tracing::debug_span!(target: "usmq", "import", protocol = "Arrow").entered();
        let about = array.about;
        let ArrowDeviceArray { array, device_id, device_type, sync_event, .. } = array.inner;
        if array.is_released() {
            return Err(about.released());
        }
        check_device(device_type)?;
        let event = sync_event as usize;
        let column = match device_type {
            DEVICE_CPU => return Self::import(ForeignStruct { inner: array, about }, placed),
            // SAFETY: the promise for the struct includes its event.
            DEVICE_ONEAPI => unsafe { import_usm(array, &about, device_id, event, placed) }?,
            // SAFETY: as above.
            _ => return unsafe { import_cuda(array, &about, device_id, event, placed) },
        };
        column.to(placed.kind, placed.queue)
    }

    /// Imports an array in host memory as a copy in USM. Returns before the copies are complete; the array is
    /// released after them, or before an error is returned.
    ///
    /// Source: the Arrow C data interface, "The ArrowArray structure".
    ///
    /// # Errors
    /// As [`Column::import_device`].
    pub fn import(array: ForeignStruct<ArrowArray>, placed: ImportOptions<'_>) -> Result<Self> {
        let ForeignStruct { inner, about } = array.settled()?;
        let field = about.describing(&inner)?;
        let queue = placed.queue.cloned().map_or_else(current_queue, Ok)?;
        let array = SharedArray(inner);
        let mut source = HostSource::new(queue, placed.kind.unwrap_or(UsmKind::Device));
        let wanted = placed.wanted(field)?;
        // SAFETY: the creator of a `ForeignStruct` guarantees its pointers, and that the field describes it.
        let result = unsafe { column(field, &array.0, Rows::ALL, &wanted, &about, &mut source) };
        match result {
            Ok(column) => {
                source.finish(Box::new(array));
                Ok(column)
            }
            Err(error) => {
                source.abandon(Box::new(array));
                Err(error)
            }
        }
    }
}

impl Column {
    /// Imports an array in host memory in place, for a queue whose device reaches system memory, by default the current
    /// one. The array is released after the last command that uses it, or soon after an error.
    ///
    /// # Errors
    /// As [`Column::import`]; [`Error::Value`] if the device does not reach system memory.
    pub fn import_in_place(array: ForeignStruct<ArrowArray>, queue: Option<&Queue>) -> Result<Self> {
        let ForeignStruct { inner, about } = array.settled()?;
        let field = about.describing(&inner)?;
        let queue = queue.cloned().map_or_else(current_queue, Ok)?;
        let array = Arc::new(SharedArray(inner));
        let mut source = SystemSource::new(queue, array.clone());
        let wanted = ImportOptions::default().wanted(field)?;
        // SAFETY: the creator of a `ForeignStruct` guarantees its pointers, and that the field describes it.
        unsafe { column(field, &array.0, Rows::ALL, &wanted, &about, &mut source) }
    }

    /// As [`Column::import_in_place`], for an array on any device; USM is used in place as well.
    ///
    /// # Errors
    /// As there, and as [`Column::import_device`]; [`Error::Interop`] for CUDA memory, which needs a copy.
    pub fn import_device_in_place(
        array: ForeignStruct<ArrowDeviceArray>,
        queue: Option<&Queue>,
    ) -> Result<Self> {
        let about = &array.about;
        match array.inner.device_type {
            _ if array.inner.array.is_released() => Err(about.released()),
            DEVICE_CPU => {
                let ForeignStruct { inner, about } = array;
                Self::import_in_place(ForeignStruct { inner: inner.array, about }, queue)
            }
            DEVICE_CUDA | DEVICE_CUDA_HOST | DEVICE_CUDA_MANAGED => Err(Error::interop(
                "CUDA memory cannot become USM without a copy; import it with import_device",
            )),
            _ => Self::import_device(array, ImportOptions { queue, ..ImportOptions::default() }),
        }
    }
}

/// An error unless usmq supports this device type.
pub(super) fn check_device(device_type: i32) -> Result<()> {
    match device_type {
        DEVICE_CPU | DEVICE_ONEAPI | DEVICE_CUDA | DEVICE_CUDA_HOST | DEVICE_CUDA_MANAGED => Ok(()),
        other => Err(Error::interop(format!(
            "the Arrow data is on a device of type {other}; usmq supports type {DEVICE_CPU} (host), \
             {DEVICE_ONEAPI} \
             (oneAPI), and {DEVICE_CUDA}, {DEVICE_CUDA_HOST} and {DEVICE_CUDA_MANAGED} (CUDA)"
        ))),
    }
}

/// # Safety
/// The array's pointers are valid by the interface.
unsafe fn import_usm(
    array: ArrowArray,
    about: &About,
    device_id: i64,
    event: usize,
    placed: ImportOptions<'_>,
) -> Result<Column> {
    let field = about.describing(&array)?;
    let wanted = placed.wanted(field)?;
    // SAFETY: the caller's promise.
    let first = unsafe { first_pointer(field, &array) }?;
    let is_own = exported(&array).is_some();
    let event = if is_logged_event(&array, event) { 0 } else { event };
    let array = Arc::new(SharedArray(array));
    let owner: Arc<dyn Any + Send + Sync> = array.clone();
    // SAFETY: as above.
    let mut source = unsafe { UsmSource::new(first, device_id, event, owner) }?;
    source.is_own = is_own;
    // SAFETY: as above.
    unsafe { column(field, &array.0, Rows::ALL, &wanted, about, &mut source) }
}

/// As [`import_usm`], for CUDA memory, which is copied to the queue.
///
/// # Safety
/// As there, with a `cudaEvent_t`.
unsafe fn import_cuda(
    array: ArrowArray,
    about: &About,
    device_id: i64,
    event: usize,
    placed: ImportOptions<'_>,
) -> Result<Column> {
    let field = about.describing(&array)?;
    let wanted = placed.wanted(field)?;
    let queue = placed.queue.cloned().map_or_else(current_queue, Ok)?;
    let array = Arc::new(SharedArray(array));
    let kind = placed.kind.unwrap_or(UsmKind::Device);
    // SAFETY: the caller's promise.
    let mut source = unsafe { CudaSource::new(queue, kind, device_id, event, array.clone()) }?;
    // SAFETY: as above.
    unsafe { column(field, &array.0, Rows::ALL, &wanted, about, &mut source) }
}

/// An imported array, shared by several buffers.
pub(super) struct SharedArray(ArrowArray);

impl SharedArray {
    pub(super) fn new(array: ArrowArray) -> Self {
        Self(array)
    }
}

// SAFETY: after the import only its release accesses the struct.
unsafe impl Sync for SharedArray {}

/// The address of some buffer.
///
/// # Safety
/// As [`import_usm`].
unsafe fn first_pointer(field: &Field, array: &ArrowArray) -> Result<Option<usize>> {
    // SAFETY: the caller's promise.
    let Checked { buffers, children, dictionary, .. } = unsafe { check(field, array) }?;
    if let Some(pointer) = buffers.iter().find(|pointer| **pointer != 0) {
        return Ok(Some(*pointer));
    }
    let nested = children.into_iter().zip(field.children().iter().map(Arc::as_ref));
    for (array, field) in nested.chain(dictionary.into_iter().zip(field.dictionary())) {
        // SAFETY: as above.
        if let Some(pointer) = unsafe { first_pointer(field, array) }? {
            return Ok(Some(pointer));
        }
    }
    Ok(None)
}

/// The rows of a child that its parent uses.
#[derive(Clone, Copy)]
struct Rows {
    first: usize,
    count: usize,
}

impl Rows {
    const ALL: Self = Self { first: 0, count: usize::MAX };
}

/// # Safety
/// The array's pointers are valid by the interface.
unsafe fn column<S: BufferSource>(
    field: &Arc<Field>,
    array: &ArrowArray,
    rows: Rows,
    wanted: &Wanted,
    about: &About,
    source: &mut S,
) -> Result<Column> {
    // SAFETY: the caller's promise.
    let checked = unsafe { check(field, array) }?;
    // SAFETY: as above.
    unsafe { check_contents(field, &checked, source) }?;
    let layout = field.layout;
    let length = rows.count.min(checked.length - rows.first.min(checked.length));
    // An empty array starts at 0, because pyarrow fails on empty views with an offset.
    let first = if length == 0 { 0 } else { checked.offset + rows.first };
    // Whole bytes of bitmaps can be skipped, with the values before them.
    let cut = S::COPIES && !matches!(layout, Layout::RunEnds);
    let skip = if cut { first & !7 } else { 0 };
    let whole = length == checked.length;
    let span = Span { skip, end: first - skip + length };
    let mut node = Node {
        field: wanted.field.clone(),
        length,
        offset: first - skip,
        null_count: match layout {
            Layout::Null => Some(length),
            // Without values there is no bitmap.
            _ if length == 0 => Some(0),
            _ => checked.null_count.filter(|count| whole || *count == 0),
        },
        buffers: SmallVec::with_capacity(checked.buffers.len()),
        children: Vec::with_capacity(wanted.numbers.len()),
        dictionary: None,
        queue: source.queue().clone(),
        data: Data::Writable,
    };
    // SAFETY: as above.
    let extent = unsafe { buffers(&checked, &mut node, span, source) }?;
    node.data = Data::frozen_if(source.is_frozen(about.is_frozen), about.is_valid);
    for number in &wanted.numbers {
        let (child, field) = (checked.children[*number], &field.children()[*number]);
        let rows = match layout {
            Layout::Struct | Layout::Union { dense: false, .. } => Rows { first: skip, count: span.end },
            Layout::FixedList(width) => Rows { first: skip * width, count: span.end * width },
            Layout::List { .. } => Rows { first: 0, count: extent.unwrap_or(usize::MAX) },
            _ => Rows::ALL,
        };
        // SAFETY: as above.
        let child =
            unsafe { column(field, child, rows, &ImportOptions::default().wanted(field)?, about, source) };
        node.children.push(child.map_err(|error| within(error, field, *number))?);
    }
    if let (Some(array), Some(field)) = (checked.dictionary, &field.dictionary) {
        // SAFETY: as above.
        let values = unsafe {
            column(field, array, Rows::ALL, &ImportOptions::default().wanted(field)?, about, source)
        };
        node.dictionary = Some(values?);
    }
    Ok(Column::from_node(node))
}

/// The values copied from a producer's buffers.
#[derive(Clone, Copy)]
struct Span {
    /// Number of values skipped at the start.
    skip: usize,
    /// Number of values in the buffers after those.
    end: usize,
}

/// Fills the buffers of `node`, and returns the end of the last value if offsets define it.
///
/// # Safety
/// As [`column`].
unsafe fn buffers<S: BufferSource>(
    checked: &Checked<'_>,
    node: &mut Node,
    Span { skip, end }: Span,
    source: &mut S,
) -> Result<Option<usize>> {
    let field = node.field.clone();
    let layout = field.layout;
    let mut extent = None;
    for (part, pointer) in layout.parts().iter().zip(checked.buffers) {
        let buffer = match *part {
            Part::Tail if *pointer == 0 => match extent {
                Some(1..) => {
                    return Err(broken(&field, "its data is null, but its offsets refer to data"));
                }
                _ => Buffer::Absent,
            },
            Part::Tail => match extent {
                Some(0) => Buffer::Absent,
                Some(bytes) => source.buffer(*pointer, bytes)?,
                None => source.later(*pointer)?,
            },
            // Without values even the first offset may be any number: it may belong to rows before them.
            Part::Offsets(width) if *pointer == 0 || (node.length == 0 && S::COPIES) => {
                extent = Some(0);
                zeros(width, source)?
            }
            _ => {
                let (Some(bytes), Some(before)) = (layout.bytes(*part, end), layout.bytes(*part, skip))
                else {
                    return Err(broken(&field, "its size is beyond the address space"));
                };
                let start = match *part {
                    Part::Offsets(width) => before - width,
                    _ => before,
                };
                if let Part::Offsets(width) = *part {
                    let most = child_length(&field, checked);
                    let range = (skip + node.offset, node.length + 1);
                    // SAFETY: the caller's promise: there is one offset more than values.
                    let found = unsafe { offsets(source, &field, (*pointer, width), range, most) }?;
                    extent = found.map(|extent| extent.end);
                }
                if *pointer == 0 || bytes == 0 {
                    Buffer::Absent
                } else {
                    source.buffer(*pointer + start, bytes)?
                }
            }
        };
        node.buffers.push(buffer);
    }
    if layout == Layout::Views {
        // SAFETY: as above.
        unsafe { views(checked, node, source) }?;
    }
    Ok(extent)
}

/// The data buffers of views, and the last buffer, which holds their sizes.
///
/// # Safety
/// As [`column`].
unsafe fn views<S: BufferSource>(checked: &Checked<'_>, node: &mut Node, source: &mut S) -> Result<()> {
    let Some((sizes, data)) = checked.buffers[2..].split_last() else { return Ok(()) };
    if data.is_empty() {
        node.buffers.push(Buffer::Absent);
        return Ok(());
    }
    if *sizes == 0 {
        return Err(broken(&node.field, "the sizes of its data buffers are null"));
    }
    // SAFETY: the interface puts one 64-bit size for each data buffer there.
    let known = unsafe { source.look::<i64>(*sizes, data.len()) }?.map(<[i64]>::to_vec);
    for (number, pointer) in data.iter().enumerate() {
        // The size decides whether the buffer exists: texts of up to 12 bytes are in the views, and need no
        // buffer.
        let buffer = match known.as_ref().map(|known| usize::try_from(known[number])) {
            None => source.later(*pointer)?,
            Some(Ok(0)) => Buffer::Absent,
            Some(Ok(bytes)) if *pointer == 0 => {
                let what = format!("data buffer {number} is null, and its size is {bytes} bytes");
                return Err(broken(&node.field, what));
            }
            Some(Ok(bytes)) => source.buffer(*pointer, bytes)?,
            Some(Err(_)) => return Err(broken(&node.field, "a data buffer has a negative size")),
        };
        node.buffers.push(buffer);
    }
    node.buffers.push(source.buffer(*sizes, data.len() * size_of::<i64>())?);
    Ok(())
}

/// The largest valid offset: the length of the only child, else unlimited.
fn child_length(field: &Field, checked: &Checked<'_>) -> usize {
    match (field.layout, &checked.children[..]) {
        (Layout::List { .. }, [child]) => usize::try_from(child.length).unwrap_or(0),
        _ => isize::MAX as usize,
    }
}

/// The single offset of an array without values, which its producer may have omitted.
fn zeros<S: BufferSource>(width: usize, source: &S) -> Result<Buffer> {
    let zeros = crate::array::Array::uninit([width], crate::array::DType::U8, source.kind(), source.queue())?;
    zeros.fill_bytes(&[0])?;
    Ok(Buffer::Held(zeros.as_readonly()))
}

fn within(error: Error, field: &Field, number: usize) -> Error {
    match error {
        Error::Interop { message: why, .. } => {
            Error::interop(format!("in child {number} {:?}: {why}", field.name()))
        }
        other => other,
    }
}
