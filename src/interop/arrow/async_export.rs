//! The producer side of the asynchronous C Device stream interface: passes batches to a consumer on request.

use super::abi::{
    ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask, ArrowDeviceArray, ArrowSchema,
    DEVICE_CPU, DEVICE_ONEAPI,
};
use super::column::Column;
use super::export::SyncMode;
use super::schema::Field;
use super::stream_export::{Batches, check_type, errno};
use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

/// A running stream. Its own thread requests the batches and calls the consumer's handler.
///
/// Dropping this does not stop the stream: the consumer controls its pace, and ends it with `cancel`. Call
/// [`stop`](Self::stop) for a consumer that does not cancel.
///
/// ```
/// use usmq::interop::arrow::{AsyncStreamReader, Column, StreamEnd, AsyncExport, Table};
///
/// let column = Column::from_array("x", &usmq::Array::from_slice(&[1i64, 2, 3])?)?;
/// let table = Table::new(vec![column])?;
/// let (arrays, handler) = AsyncStreamReader::new(4); // any consumer of the interface; here usmq's own
///
/// let batches = Box::new(table.batches().to_vec().into_iter().map(Ok));
/// // SAFETY: the handler is whole, and no other producer has it.
/// let producing = unsafe { AsyncExport::start(handler.into_raw(), table.schema().clone(), batches) }?;
/// drop(arrays); // the consumer has had enough
/// assert!(!matches!(producing.wait(), StreamEnd::Failed(_)));
/// # Ok::<(), usmq::Error>(())
/// ```
pub struct AsyncExport {
    shared: Arc<ProducerState>,
    thread: JoinHandle<StreamEnd>,
}

/// How a stream ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StreamEnd {
    /// The consumer got every batch.
    Complete,
    /// The consumer cancelled.
    Cancelled,
    /// A callback of the consumer returned this.
    Refused(c_int),
    /// [`AsyncExport::stop`] was called; the consumer got an error.
    Stopped,
    /// This error occurred; the consumer received it, unless it had cancelled.
    Failed(Error),
}

impl AsyncExport {
    /// Starts a stream of device arrays of type `ARROW_DEVICE_ONEAPI`, each with its event.
    ///
    /// The stream's thread, which has no scope of a current queue, calls `batches` only while the consumer
    /// has requested more arrays than it received, and not again after its end or an error. The end is
    /// signalled with the last batch if `batches` knows its length, else on the next request. Arrays are
    /// exported before they are offered, so a task neither fails nor blocks.
    ///
    /// Source: the Arrow C Device data interface, "Async Device Stream Interface"; the structs as in `abi.h`.
    ///
    /// # Errors
    /// [`Error::Interop`] for a handler that lacks callbacks, [`Error::Thread`] if no thread could be started. The caller
    /// then still owns the handler, and no callback was called.
    ///
    /// # Safety
    /// `handler` points to a valid handler of the interface, which no other producer has, and which does not
    /// move until its release.
    pub unsafe fn start(
        handler: *mut ArrowAsyncDeviceStreamHandler,
        field: Arc<Field>,
        batches: Batches,
    ) -> Result<Self> {
        let export = |column: &Column| column.export_device(SyncMode::Event);
        // SAFETY: the caller's promise.
        unsafe { Self::begin(handler, field, batches, DEVICE_ONEAPI, export) }
    }

    /// As [`start`](Self::start), with host-readable arrays of type `ARROW_DEVICE_CPU`, only for host and
    /// shared USM. The stream's thread waits for the work on each batch.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub unsafe fn start_on_host(
        handler: *mut ArrowAsyncDeviceStreamHandler,
        field: Arc<Field>,
        batches: Batches,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::begin(handler, field, batches, DEVICE_CPU, Column::export_host_device) }
    }

    /// # Safety
    /// As [`start`](Self::start).
    unsafe fn begin(
        handler: *mut ArrowAsyncDeviceStreamHandler,
        field: Arc<Field>,
        batches: Batches,
        device_type: i32,
        export: Export,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        let consumer = unsafe { Consumer::read(handler) }?;
        let shared = ProducerState::new(device_type);
        // SAFETY: as above. The consumer only reads what is behind the pointer.
        unsafe { (*handler).producer = ptr::from_ref(&shared.producer).cast_mut() };
        let worker = Worker::new(consumer, shared.clone(), field, batches, export);
        const NAME: &str = "usmq-arrow";
        let named = thread::Builder::new().name(NAME.to_owned());
        match named.spawn(move || worker.run()) {
            Ok(thread) => Ok(Self { shared, thread }),
            Err(error) => {
                // SAFETY: as above; nothing runs that could call the handler.
                unsafe { (*handler).producer = ptr::null_mut() };
                Err(Error::no_thread(NAME, &error))
            }
        }
    }

    /// Stops the stream: the consumer gets an error instead of further batches, unless the stream has ended
    /// or was cancelled. Returns immediately.
    pub fn stop(&self) {
        self.shared.tell(|demand| demand.stopped = true);
    }

    /// Whether the handler was released.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Blocks until the handler is released, which requires that the consumer requests all batches, refuses
    /// one, or cancels. Do not call it in a callback of the handler.
    #[must_use]
    pub fn wait(self) -> StreamEnd {
        self.thread.join().unwrap_or_else(|_| StreamEnd::Failed(panicked()))
    }
}

/// The state shared by the stream's thread and the consumer's calls.
struct ProducerState {
    /// The producer that the handler points to.
    producer: ArrowAsyncProducer,
    demand: Mutex<Demand>,
    changed: Condvar,
}

// SAFETY: the pointers in `producer` lead back to the same object and never change.
unsafe impl Send for ProducerState {}
// SAFETY: as above.
unsafe impl Sync for ProducerState {}

/// The requests to the stream so far.
#[derive(Default)]
struct Demand {
    /// Arrays requested and not yet offered.
    credit: i64,
    /// The first invalid request.
    wrong: Option<i64>,
    cancelled: bool,
    stopped: bool,
}

/// The next action of the stream's thread.
enum Turn {
    Give,
    Cancelled,
    Stopped,
    Wrong(i64),
}

impl ProducerState {
    fn new(device_type: i32) -> Arc<Self> {
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            producer: ArrowAsyncProducer {
                device_type,
                request: Some(request),
                cancel: Some(cancel),
                additional_metadata: ptr::null(),
                private_data: own.as_ptr().cast_mut().cast(),
            },
            demand: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn tell(&self, change: impl FnOnce(&mut Demand)) {
        change(&mut self.demand.lock());
        self.changed.notify_one();
    }

    /// Blocks until `price` can be taken from the credit, or another action is due.
    fn turn(&self, price: i64) -> Turn {
        let mut demand = self.demand.lock();
        loop {
            if demand.cancelled {
                return Turn::Cancelled;
            }
            if let Some(count) = demand.wrong {
                return Turn::Wrong(count);
            }
            if demand.stopped {
                return Turn::Stopped;
            }
            if demand.credit >= price {
                demand.credit -= price;
                return Turn::Give;
            }
            self.changed.wait(&mut demand);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.demand.lock().cancelled
    }
}

/// Returns a reference for the call: after the call has stored its request, the stream may be released before
/// the call returns.
///
/// # Safety
/// `producer` is one of ours, and its handler's release has not returned.
unsafe fn own(producer: *mut ArrowAsyncProducer) -> Arc<ProducerState> {
    // SAFETY: the caller's promise.
    let shared = unsafe { (*producer).private_data }.cast::<ProducerState>().cast_const();
    // SAFETY: as above; the stream's thread holds the object, which is in an `Arc`, until the release has returned.
    unsafe { Arc::increment_strong_count(shared) };
    // SAFETY: the reference that was just made.
    unsafe { Arc::from_raw(shared) }
}

unsafe extern "C" fn request(producer: *mut ArrowAsyncProducer, count: i64) {
    // SAFETY: the consumer keeps the rules of the interface.
    unsafe { own(producer) }.tell(|demand| match demand.wrong {
        None if count <= 0 => demand.wrong = Some(count),
        _ => demand.credit = demand.credit.saturating_add(count),
    });
}

unsafe extern "C" fn cancel(producer: *mut ArrowAsyncProducer) {
    // SAFETY: as above.
    unsafe { own(producer) }.tell(|demand| demand.cancelled = true);
}

/// Converts a column to the array of a task.
type Export = fn(&Column) -> Result<ArrowDeviceArray>;

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
struct Consumer {
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
    unsafe fn read(handler: *mut ArrowAsyncDeviceStreamHandler) -> Result<Self> {
        // SAFETY: the caller's promise.
        let Some(given) = (unsafe { handler.as_ref() }) else {
            return Err(Error::interop("the ArrowAsyncDeviceStreamHandler is null"));
        };
        let (Some(on_schema), Some(on_next_task), Some(on_error), Some(release)) =
            (given.on_schema, given.on_next_task, given.on_error, given.release)
        else {
            return Err(Error::interop("the ArrowAsyncDeviceStreamHandler is released, or lacks callbacks"));
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

/// The state of the stream's thread, which makes all calls to a consumer's handler, in order.
struct Worker {
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
    fn new(
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
    fn run(mut self) -> StreamEnd {
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
                    return Err(Error::interop(format!(
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

fn panicked() -> Error {
    Error::interop("the producer of the stream panicked")
}

impl std::fmt::Debug for AsyncExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncExport").finish_non_exhaustive()
    }
}
