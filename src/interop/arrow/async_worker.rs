//! The thread of an asynchronous Arrow stream: makes all calls to a consumer's handler, in order.

use super::abi::{ArrowAsyncDeviceStreamHandler, ArrowAsyncTask, ArrowDeviceArray, ArrowSchema};
use super::async_export::{ProducerState, StreamEnd, Turn};
use super::column::Column;
use super::schema::Field;
use super::stream_export::{Batches, check_type, errno};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

/// Converts a column to the array of a task.
pub(super) type Export = fn(&Column) -> Result<ArrowDeviceArray>;

/// The target of a task's `private_data`: the array until it is extracted. The consumer's task owns a
/// reference.
struct Offer(Mutex<Option<ArrowDeviceArray>>);

unsafe extern "C" fn extract_data(task: *mut ArrowAsyncTask, out: *mut ArrowDeviceArray) -> c_int {
    // SAFETY: the consumer passes a task of usmq, possibly moved.
    let task = unsafe { &mut *task };
    let data = std::mem::replace(&mut task.private_data, ptr::null_mut());
    if data.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: made by `Worker::offer` for this task, and taken once: the task has lost it.
    let offer = unsafe { Arc::from_raw(data.cast::<Offer>().cast_const()) };
    let array = offer.0.lock().take();
    match array {
        None => libc::EINVAL,
        Some(array) if out.is_null() => {
            drop(array);
            0
        }
        Some(array) => {
            // SAFETY: the consumer passes an output struct that owns nothing.
            unsafe { ptr::write(out, array) };
            0
        }
    }
}

/// A handler's callbacks, read once.
#[derive(Clone, Copy)]
pub(super) struct Consumer {
    handler: *mut ArrowAsyncDeviceStreamHandler,
    on_schema: unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler, *mut ArrowSchema) -> c_int,
    on_next_task:
        unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler, *mut ArrowAsyncTask, *const c_char) -> c_int,
    on_error: unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler, c_int, *const c_char, *const c_char),
    release: unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler),
}

// SAFETY: the interface lets a producer call a handler from any thread, one call at a time.
unsafe impl Send for Consumer {}

impl Consumer {
    /// # Safety
    /// `handler` is null or points to a handler.
    pub(super) unsafe fn read(handler: *mut ArrowAsyncDeviceStreamHandler) -> Result<Self> {
        // SAFETY: the caller's promise.
        let Some(given) = (unsafe { handler.as_ref() }) else {
            return Err(Error::Interop("the ArrowAsyncDeviceStreamHandler is null".to_owned()));
        };
        let (Some(on_schema), Some(on_next_task), Some(on_error), Some(release)) =
            (given.on_schema, given.on_next_task, given.on_error, given.release)
        else {
            return Err(Error::Interop(
                "the ArrowAsyncDeviceStreamHandler is released, or lacks callbacks".to_owned(),
            ));
        };
        Ok(Self { handler, on_schema, on_next_task, on_error, release })
    }

    fn error(&self, code: c_int, text: String) {
        let text = text.replace('\0', "");
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: the handler is not released, and only this thread calls it.
        unsafe { (self.on_error)(self.handler, code, text.as_ptr(), ptr::null()) };
    }
}

/// The state of the stream's thread.
pub(super) struct Worker {
    consumer: Consumer,
    shared: Arc<ProducerState>,
    field: Arc<Field>,
    batches: Option<Batches>,
    export: Export,
    /// Number of batches so far.
    given: usize,
    /// A task for which the consumer returned an error.
    refused: Option<Arc<Offer>>,
}

impl Worker {
    pub(super) fn new(
        consumer: Consumer,
        shared: Arc<ProducerState>,
        field: Arc<Field>,
        batches: Batches,
        export: Export,
    ) -> Self {
        Self { consumer, shared, field, batches: Some(batches), export, given: 0, refused: None }
    }

    /// Runs everything from the first callback to the release. Catches panics, because the batches are the
    /// caller's code.
    pub(super) fn run(mut self) -> StreamEnd {
        let talk = catch_unwind(AssertUnwindSafe(|| self.talk()));
        let ended = talk.unwrap_or_else(|_| Err(panicked())).unwrap_or_else(StreamEnd::Failed);
        let batches = self.batches.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(batches)));
        match &ended {
            // A consumer that cancelled gets no error.
            StreamEnd::Failed(_) | StreamEnd::Stopped if self.shared.is_cancelled() => {}
            StreamEnd::Failed(error) => self.consumer.error(errno(error), error.to_string()),
            StreamEnd::Stopped => self.consumer.error(libc::ECANCELED, "the producer stopped".to_owned()),
            _ => {}
        }
        // SAFETY: the last call to the handler; `self` keeps the producer alive beyond it.
        unsafe { (self.consumer.release)(self.consumer.handler) };
        // Drop it only now: a consumer might use the task that it refused.
        if let Some(offer) = self.refused.take() {
            take_back(&offer);
        }
        ended
    }

    fn talk(&mut self) -> Result<StreamEnd> {
        // A schema that the consumer does not move out is released here.
        let mut schema = self.field.export()?;
        // SAFETY: the handler is not released, and only this thread calls it.
        let status = unsafe { (self.consumer.on_schema)(self.consumer.handler, &mut schema) };
        if status != 0 {
            return Ok(StreamEnd::Refused(status));
        }
        loop {
            let at_end = self.batches.as_ref().is_none_or(|batches| batches.size_hint().1 == Some(0));
            match self.shared.turn(i64::from(!at_end)) {
                Turn::Give => {}
                Turn::Cancelled => return Ok(StreamEnd::Cancelled),
                Turn::Stopped => return Ok(StreamEnd::Stopped),
                Turn::Wrong(count) => {
                    return Err(Error::Interop(format!(
                        "the consumer of the Arrow stream requested {count} arrays; it must be 1 or more"
                    )));
                }
            }
            let array = if at_end { None } else { self.next()? };
            if self.shared.is_cancelled() {
                return Ok(StreamEnd::Cancelled);
            }
            let last = array.is_none();
            let status = self.offer(array);
            if status != 0 {
                return Ok(StreamEnd::Refused(status));
            }
            if last {
                return Ok(StreamEnd::Complete);
            }
        }
    }

    fn next(&mut self) -> Result<Option<ArrowDeviceArray>> {
        let next = self.batches.as_mut().and_then(Iterator::next).transpose()?;
        let Some(batch) = next else { return Ok(None) };
        check_type(&self.field, &batch, self.given)?;
        self.given += 1;
        (self.export)(&batch).map(Some)
    }

    /// Calls `on_next_task`; without an array it signals the end.
    fn offer(&mut self, array: Option<ArrowDeviceArray>) -> c_int {
        let offer = array.map(|array| Arc::new(Offer(Mutex::new(Some(array)))));
        let mut task = offer.as_ref().map(|offer| ArrowAsyncTask {
            extract_data: Some(extract_data),
            private_data: Arc::into_raw(offer.clone()).cast_mut().cast(),
        });
        let given = task.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: the handler is not released, and only this thread calls it.
        let status = unsafe { (self.consumer.on_next_task)(self.consumer.handler, given, ptr::null()) };
        if status != 0 {
            self.refused = offer;
        }
        status
    }
}

/// Drops the reference of a task that the consumer will not use again, unless the consumer has extracted it.
fn take_back(offer: &Arc<Offer>) {
    let array = offer.0.lock().take();
    if array.is_some() {
        // SAFETY: extracting the array drops the task's reference, and it was not extracted.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(offer)) };
    }
}

pub(super) fn panicked() -> Error {
    Error::Interop("the producer of the stream panicked".to_owned())
}
