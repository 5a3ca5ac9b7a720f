//! Batches handed out as a consumer asks for them: the asynchronous C Device stream interface as a producer.

use super::abi::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, DEVICE_CPU, DEVICE_ONEAPI};
use super::async_worker::{Consumer, Export, Worker, panicked};
use super::column::Column;
use super::export::SyncMode;
use super::schema::Field;
use super::stream_export::Batches;
use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

/// A stream in progress. A thread of its own asks for the batches and calls the consumer's handler.
///
/// Dropping this leaves the stream running: the consumer sets its pace, and ends it with `cancel`. [`stop`](Self::stop)
/// is for a consumer that leaves without that.
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
    /// This went wrong; the consumer got it as an error, unless it had cancelled.
    Failed(Error),
}

impl AsyncExport {
    /// Starts a stream of device arrays of type `ARROW_DEVICE_ONEAPI`, each with its event.
    ///
    /// `batches` is asked on the stream's thread, which has no scope of a current queue, only while the consumer has
    /// requested more than it got, and not again after its end or an error. The end is told with the last batch when
    /// `batches` knows its length, else when one more was requested. Arrays are exported before they are offered, so
    /// a task cannot fail, and does not block.
    ///
    /// Source: the Arrow C Device data interface, "Async Device Stream Interface"; the structs as in `abi.h`.
    ///
    /// # Errors
    /// [`Error::Interop`] for a handler that lacks callbacks, or when no thread could be started. The handler is then
    /// still the caller's; nothing was called.
    ///
    /// # Safety
    /// `handler` points to a handler as the interface says, which no other producer has, and which stays where it is
    /// until its release.
    pub unsafe fn start(
        handler: *mut ArrowAsyncDeviceStreamHandler,
        field: Arc<Field>,
        batches: Batches,
    ) -> Result<Self> {
        let export = |column: &Column| column.export_device(SyncMode::Event);
        // SAFETY: the caller's promise.
        unsafe { Self::begin(handler, field, batches, DEVICE_ONEAPI, export) }
    }

    /// As [`start`](Self::start), with arrays that the host may read, of type `ARROW_DEVICE_CPU`: only for host and
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
        let named = thread::Builder::new().name("usmq-arrow".to_owned());
        match named.spawn(move || worker.run()) {
            Ok(thread) => Ok(Self { shared, thread }),
            Err(error) => {
                // SAFETY: as above; nothing runs that could call the handler.
                unsafe { (*handler).producer = ptr::null_mut() };
                Err(Error::Interop(format!("no thread could be started for the Arrow stream: {error}")))
            }
        }
    }

    /// Gives up: the consumer gets an error instead of further batches, unless the stream has ended or was cancelled.
    /// Returns at once.
    pub fn stop(&self) {
        self.shared.tell(|demand| demand.stopped = true);
    }

    /// Whether the handler was released.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Blocks until the handler was released: the consumer has got all it will, and has requested, refused or
    /// cancelled enough for that. Never to be called in a callback of the handler.
    #[must_use]
    pub fn wait(self) -> StreamEnd {
        self.thread.join().unwrap_or_else(|_| StreamEnd::Failed(panicked()))
    }
}

/// What the stream's thread and the consumer's calls share.
pub(super) struct ProducerState {
    /// What the handler points to.
    producer: ArrowAsyncProducer,
    demand: Mutex<Demand>,
    changed: Condvar,
}

// SAFETY: the pointers in `producer` lead back to the same object and never change.
unsafe impl Send for ProducerState {}
// SAFETY: as above.
unsafe impl Sync for ProducerState {}

/// What was asked of the stream so far.
#[derive(Default)]
struct Demand {
    /// Requested and not yet given.
    credit: i64,
    /// The first request that is none.
    wrong: Option<i64>,
    cancelled: bool,
    stopped: bool,
}

/// What the stream's thread is to do next.
pub(super) enum Turn {
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

    /// Blocks until there is `price` in credit, which is spent, or something else to do.
    pub(super) fn turn(&self, price: i64) -> Turn {
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

    pub(super) fn is_cancelled(&self) -> bool {
        self.demand.lock().cancelled
    }
}

/// A reference of the call's own: once it has said its word, the stream may be released before it returns.
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
