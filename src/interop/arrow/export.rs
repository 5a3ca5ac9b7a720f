//! Exports columns through the Arrow interfaces, without a copy.

use super::abi::{ArrowArray, ArrowDeviceArray, ArrowSchema, DEVICE_CPU, DEVICE_ONEAPI, Heap};
use super::column::Column;
use crate::array::Array;
use crate::device::recording::suspend;
use crate::device::{Event, MemoryKind, UsmKind};
use crate::error::{Error, Result, spelled};
use crate::interop::device_ordinal::check_nameable;
use crate::memory::{Access, Operand, after_writes};
use crate::runtime::checks::InDestructor;
use crate::trace::{Reason, with_default_reason, with_reason};
use smallvec::SmallVec;
use std::ffi::c_void;
use std::ptr;

/// How a consumer synchronizes with the data.
///
/// ```
/// use usmq::{Array, interop::arrow::{Column, SyncMode}};
///
/// let column = Column::from_array("x", &Array::zeros::<f32>(2)?)?;
/// let exported = column.export_device(SyncMode::Event)?; // without a wait: the consumer waits for its event
/// let complete = column.export_device(SyncMode::Now)?; // waits for the work on the column
/// # drop((exported, complete));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// It waits for an event on its device.
    #[default]
    Event,
    /// The export waits and sets no event.
    Now,
}

impl Column {
    /// Exports the type of this column.
    ///
    /// # Errors
    /// [`Error::Value`] for a name that contains NUL.
    pub fn export_schema(&self) -> Result<ArrowSchema> {
        self.field().export_shared()
    }

    /// Exports this column as an array on its oneAPI root device. Its event completes after all work
    /// submitted so far on any of its buffers, on any queue. It has none if the buffers may be read already and no other
    /// library works on them or on the queue. A column with system memory is exported as
    /// [`export_host_device`](Self::export_host_device) does, after a wait.
    ///
    /// The consumer owns the struct and releases it, on any thread, after its work on the data; the memory
    /// lives until then. Neither side may change the data.
    ///
    /// Source: the Arrow C Device data interface; `ARROW_DEVICE_ONEAPI` is for devices that are not sub-devices.
    ///
    /// # Errors
    /// [`Error::Interop`] for memory of a sub-device or of a context that is not its platform's default,
    /// which the interface cannot express; `collocate` to the root device fixes that. [`Error::Sycl`] with
    /// what the work reported.
    pub fn export_device(&self, ready: SyncMode) -> Result<ArrowDeviceArray> {
        let _span = tracing::debug_span!(target: "usmq", "export", protocol = "Arrow").entered();
        let _why = with_reason(Reason::Export);
        if self.is_system() {
            return self.settled()?.export_host_device();
        }
        let device = self.queue().device();
        check_nameable(self.queue())?;
        let event = match ready {
            SyncMode::Event => self.joined()?,
            SyncMode::Now => {
                self.wait_for_writes()?;
                None
            }
        };
        let sync_event = event.as_ref().map_or(Ok(ptr::null_mut()), Event::address)?;
        Ok(ArrowDeviceArray {
            array: export(self, event),
            device_id: device.ordinal() as i64,
            device_type: DEVICE_ONEAPI,
            sync_event,
            reserved: [0; 3],
        })
    }

    /// Checks whether [`export_device`](Self::export_device) can express the location of the memory.
    ///
    /// # Errors
    /// [`Error::Interop`] as there.
    pub fn check_exportable(&self) -> Result<()> {
        if self.is_system() { self.check_readable() } else { check_nameable(self.queue()) }
    }

    /// Whether some memory is system memory, which no oneAPI device number names.
    pub fn is_system(&self) -> bool {
        let mut system = false;
        self.each_held(&mut |array| system |= array.memory_kind() == MemoryKind::System);
        system
    }

    /// An error unless the host can read all memory.
    fn check_readable(&self) -> Result<()> {
        let arrays = self.arrays()?;
        let Some(array) = arrays.iter().find(|array| !array.memory_kind().is_host_accessible()) else {
            return Ok(());
        };
        let (kind, copies) = (array.memory_kind().title(), spelled("to_arrow", "to_host"));
        let why = if self.is_system() {
            format!("is in system memory and in {kind}, which no Arrow device type names together")
        } else {
            format!("is in {kind}, which the host cannot read")
        };
        Err(Error::interop(format!("{self} {why}; {copies}() copies it")))
    }

    /// Exports this column as a host-readable array without a copy; only for host and shared USM. Waits for
    /// the work on it.
    ///
    /// # Errors
    /// [`Error::Interop`] for device memory; [`to_host`](Self::to_host) copies it. [`Error::Sycl`] with what the work
    /// reported.
    pub fn export_host(&self) -> Result<ArrowArray> {
        self.check_readable()?;
        self.wait_for_writes()?;
        Ok(export(self, None))
    }

    /// As [`export_host`](Self::export_host), as a device array of type `ARROW_DEVICE_CPU`.
    ///
    /// # Errors
    /// As [`export_host`](Self::export_host).
    pub fn export_host_device(&self) -> Result<ArrowDeviceArray> {
        Ok(ArrowDeviceArray {
            array: self.export_host()?,
            device_id: -1,
            device_type: DEVICE_CPU,
            sync_event: ptr::null_mut(),
            reserved: [0; 3],
        })
    }

    /// Copies the column to host USM; returns it unchanged if the host can read it.
    ///
    /// # Errors
    /// [`Error::Allocation`] when memory is short.
    pub fn to_host(&self) -> Result<Self> {
        if self.arrays()?.iter().all(|array| array.memory_kind().is_host_accessible()) {
            return Ok(self.clone());
        }
        let _why = with_default_reason(Reason::HostRead);
        self.to(Some(UsmKind::Host), None)
    }

    /// An event that completes after every write to the column so far; `None` if all are complete.
    fn joined(&self) -> Result<Option<Event>> {
        let arrays = self.hand_over()?;
        // The consumer may wait for the event at once.
        let _direct = suspend();
        let operands: SmallVec<[Operand<'_>; 16]> =
            arrays.iter().map(|array| (array.allocation(), Access::Read)).collect();
        after_writes(self.queue(), &operands)
    }

    /// Prepares for memory that the consumer passes back, and returns its arrays.
    fn hand_over(&self) -> Result<SmallVec<[&Array; 16]>> {
        let mut arrays: SmallVec<[&Array; 16]> = SmallVec::new();
        self.each_held(&mut |array| arrays.push(array));
        for array in &arrays {
            array.allocation().check_capture(|| format!("an Arrow export of {array}"))?;
        }
        arrays.iter().try_for_each(|array| array.allocation().hand_over())?;
        Ok(arrays)
    }

    pub(super) fn wait_for_writes(&self) -> Result<()> {
        self.hand_over()?.iter().try_for_each(|array| array.allocation().wait_for_host(Access::Read))
    }
}

/// The target of an exported struct's `private_data`. It never points back to the struct, which may move.
struct ExportedArray {
    column: Column,
    buffers: SmallVec<[*const c_void; 3]>,
    children: Vec<Heap<ArrowArray>>,
    dictionary: Option<Heap<ArrowArray>>,
    /// The target of the root's `sync_event`.
    event: Option<Event>,
}

fn export(column: &Column, event: Option<Event>) -> ArrowArray {
    let nested = |column: &Column| Heap::new(export(column, None));
    let mut owned = Box::new(ExportedArray {
        buffers: column.0.buffers.iter().map(|buffer| buffer.address() as *const c_void).collect(),
        children: column.0.children.iter().map(nested).collect(),
        dictionary: column.dictionary().map(nested),
        column: column.clone(),
        event,
    });
    let mut array = ArrowArray::empty();
    array.length = column.len() as i64;
    array.null_count = column.0.null_count.map_or(-1, |count| count as i64);
    array.offset = column.offset() as i64;
    array.n_buffers = owned.buffers.len() as i64;
    array.buffers = if owned.buffers.is_empty() { ptr::null_mut() } else { owned.buffers.as_mut_ptr() };
    array.n_children = owned.children.len() as i64;
    array.children = Heap::list(&mut owned.children);
    array.dictionary = owned.dictionary.as_ref().map_or(ptr::null_mut(), Heap::as_ptr);
    array.release = Some(release);
    array.private_data = Box::into_raw(owned).cast();
    array
}

/// The column of an array from [`export`], identified by its unique callback.
pub(super) fn exported(array: &ArrowArray) -> Option<&Column> {
    own(array).map(|own| &own.column)
}

/// Whether `event` is the event of an array from [`export`] whose work the logs of its memory know: no other library works
/// on its queue.
pub(super) fn is_logged_event(array: &ArrowArray, event: usize) -> bool {
    let own = own(array).filter(|own| !own.column.queue().is_exposed());
    own.and_then(|own| own.event.as_ref()?.address().ok()).is_some_and(|own| own.addr() == event)
}

fn own(array: &ArrowArray) -> Option<&ExportedArray> {
    let ours: unsafe extern "C" fn(*mut ArrowArray) = release;
    array.release.filter(|release| ptr::fn_addr_eq(*release, ours))?;
    // SAFETY: `export` made `private_data` for this callback, and it lives until the release.
    Some(unsafe { &*array.private_data.cast::<ExportedArray>() })
}

unsafe extern "C" fn release(array: *mut ArrowArray) {
    let _mark = InDestructor::enter();
    // SAFETY: the consumer passes a struct that `export` filled and that is not released.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: made from a box in `export`, and taken once: `release` is gone. Children that were moved out are
    // released structs by now, and drop as such. Dropping memory never waits, panics or needs Python's lock.
    drop(unsafe { Box::from_raw(array.private_data.cast::<ExportedArray>()) });
}
