//! The producer side of the C stream and C Device stream interfaces: returns batches in order.

use super::abi::{ArrowArray, ArrowArrayStream};
use super::abi::{ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema, DEVICE_CPU, DEVICE_ONEAPI};
use super::column::Column;
use super::export::SyncMode;
use super::schema::Field;
use crate::error::{Error, Result};
use crate::runtime::without_python_lock;
use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

/// Columns of one type, created on request.
pub type Batches = Box<dyn Iterator<Item = Result<Column>> + Send>;

thread_local! {
    /// Whether the last error of usmq's streams on this thread was an interrupt.
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the interrupt behind the status that a usmq stream just returned: a consumer in this process gets
/// the original error, not its text.
pub(super) fn interrupt(status: c_int) -> Result<()> {
    if status == libc::EINTR && INTERRUPTED.take() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The target of a stream's `private_data`.
struct ExportedStream {
    field: Arc<Field>,
    batches: Batches,
    /// Valid until the next call.
    error: Option<CString>,
    ended: bool,
    /// Number of batches so far.
    given: usize,
}

impl ArrowDeviceArrayStream {
    /// Creates a stream of device arrays of type `ARROW_DEVICE_ONEAPI`, each with its event. `batches` is
    /// called on the thread that calls the stream, and not again after its end or an error.
    ///
    /// Source: the Arrow C Device data interface, "The ArrowDeviceArrayStream structure".
    #[must_use]
    pub fn new(field: Arc<Field>, batches: Batches) -> Self {
        Self {
            device_type: DEVICE_ONEAPI,
            get_schema: Some(device::get_schema),
            get_next: Some(device::get_next),
            get_last_error: Some(device::get_last_error),
            release: Some(device::release),
            private_data: ExportedStream::boxed(field, batches),
        }
    }

    /// Creates a stream of host-readable arrays of type `ARROW_DEVICE_CPU`, only for host and shared USM.
    #[must_use]
    pub fn of_host(field: Arc<Field>, batches: Batches) -> Self {
        let mut stream = Self::new(field, batches);
        stream.device_type = DEVICE_CPU;
        stream.get_next = Some(device::get_next_on_host);
        stream
    }
}

impl ArrowArrayStream {
    /// Creates a stream of host-readable arrays, only for host and shared USM.
    ///
    /// Source: the Arrow C stream interface.
    #[must_use]
    pub fn new(field: Arc<Field>, batches: Batches) -> Self {
        Self {
            get_schema: Some(host::get_schema),
            get_next: Some(host::get_next),
            get_last_error: Some(host::get_last_error),
            release: Some(host::release),
            private_data: ExportedStream::boxed(field, batches),
        }
    }
}

impl ExportedStream {
    fn boxed(field: Arc<Field>, batches: Batches) -> *mut std::ffi::c_void {
        Box::into_raw(Box::new(Self { field, batches, error: None, ended: false, given: 0 })).cast()
    }

    /// Runs a callback, writes its result to `out`, and stores its error for `get_last_error`. Does not
    /// unwind into C.
    ///
    /// # Safety
    /// `out` is valid to be written, and holds nothing that needs a release.
    unsafe fn answer<T>(&mut self, out: *mut T, make: impl FnOnce(&mut Self) -> Result<T>) -> c_int {
        self.error = None;
        let result = catch_unwind(AssertUnwindSafe(|| without_python_lock(|| make(self))))
            .unwrap_or_else(|_| Err(Error::interop("the producer of the stream panicked")));
        match result {
            Ok(value) => {
                // SAFETY: the caller's promise.
                unsafe { ptr::write(out, value) };
                0
            }
            Err(error) => {
                INTERRUPTED.set(matches!(error, Error::Interrupted));
                let mut text = error.to_string();
                text.retain(|c| c != '\0');
                self.error = CString::new(text).ok();
                self.ended = true;
                errno(&error)
            }
        }
    }

    fn next(&mut self) -> Result<Option<Column>> {
        if self.ended {
            return Ok(None);
        }
        let Some(batch) = self.batches.next().transpose()? else {
            self.ended = true;
            return Ok(None);
        };
        check_type(&self.field, &batch, self.given)?;
        self.given += 1;
        Ok(Some(batch))
    }

    fn last_error(&self) -> *const c_char {
        self.error.as_ref().map_or(ptr::null(), |text| text.as_ptr())
    }
}

/// Checks that a batch has the type of its stream, and its structs the same fields; `number` counts from 0.
pub(super) fn check_type(field: &Field, batch: &Column, number: usize) -> Result<()> {
    let other = batch.field();
    let types = || (!other.same_type(field)).then(|| field.difference(other));
    let Some(difference) = field.other_names(other).or_else(types) else { return Ok(()) };
    Err(Error::interop(format!(
        "a stream has one type, but its batch {} is {difference}: {batch}; use one schema for all batches",
        number + 1
    )))
}

/// The error numbers that Arrow C++ maps to its error classes.
pub(super) fn errno(error: &Error) -> c_int {
    match error {
        Error::Allocation { .. } | Error::HostMemory { .. } => libc::ENOMEM,
        Error::Sycl { .. } => libc::EIO,
        Error::Interrupted => libc::EINTR,
        _ => libc::EINVAL,
    }
}

macro_rules! callbacks {
    ($module:ident, $stream:ident, $array:ident, { $($name:ident => $export:expr),* }) => {
        mod $module {
            use super::*;

            /// # Safety
            /// `stream` is one of ours and not released, and no other call to it runs.
            unsafe fn own<'a>(stream: *mut $stream) -> &'a mut ExportedStream {
                // SAFETY: the caller's promise.
                let data = unsafe { (*stream).private_data };
                // SAFETY: as above; `boxed` made it.
                unsafe { &mut *data.cast::<ExportedStream>() }
            }

            pub(super) unsafe extern "C" fn get_schema(stream: *mut $stream, out: *mut ArrowSchema) -> c_int {
                // SAFETY: the consumer keeps the rules of the interface.
                let own = unsafe { own(stream) };
                // SAFETY: as above.
                unsafe { own.answer(out, |own| own.field.export()) }
            }

            $(
                pub(super) unsafe extern "C" fn $name(stream: *mut $stream, out: *mut $array) -> c_int {
                    // SAFETY: as above.
                    let own = unsafe { own(stream) };
                    let next = |own: &mut ExportedStream| match own.next()? {
                        Some(column) => $export(&column),
                        None => Ok($array::empty()),
                    };
                    // SAFETY: as above.
                    unsafe { own.answer(out, next) }
                }
            )*

            pub(super) unsafe extern "C" fn get_last_error(stream: *mut $stream) -> *const c_char {
                // SAFETY: as above.
                unsafe { own(stream) }.last_error()
            }

            pub(super) unsafe extern "C" fn release(stream: *mut $stream) {
                // SAFETY: as above.
                let stream = unsafe { &mut *stream };
                stream.release = None;
                // SAFETY: made by `boxed`, and taken once: `release` is gone.
                let own = unsafe { Box::from_raw(stream.private_data.cast::<ExportedStream>()) };
                // The iterator is the caller's code.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(own)));
            }
        }
    };
}

callbacks!(device, ArrowDeviceArrayStream, ArrowDeviceArray, {
    get_next => |column: &Column| column.export_device(SyncMode::Event),
    get_next_on_host => Column::export_host_device
});
callbacks!(host, ArrowArrayStream, ArrowArray, { get_next => Column::export_host });
