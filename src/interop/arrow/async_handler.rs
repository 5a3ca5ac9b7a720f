//! The handler of an asynchronous Arrow stream, which the producer calls, and the state shared with the
//! stream.
//!
//! The stream owns the state, and so does the handler until its producer releases it. Either may be dropped
//! first.

use super::abi::{ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask, ArrowSchema};
use super::foreign::ForeignStruct;
use super::schema::Field;
use crate::error::{Error, Result};
use parking_lot::{Mutex, ReentrantMutex};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

/// The side of an [`AsyncStreamReader`](super::AsyncStreamReader) that a producer gets.
pub struct AsyncHandler {
    pub(super) shared: Arc<ConsumerState>,
}

impl AsyncHandler {
    /// Returns the struct for a producer, which then owns it until it calls `release`.
    #[must_use = "without a producer to release it the handler is leaked"]
    pub fn into_raw(self) -> *mut ArrowAsyncDeviceStreamHandler {
        let handler = self.shared.handler.get();
        // The struct now owns the reference.
        std::mem::forget(self);
        handler
    }

    /// Takes back a struct that no producer received. The stream ends with an error when the handler is
    /// dropped, unless another producer gets it.
    ///
    /// # Safety
    /// `handler` came from [`into_raw`](Self::into_raw), and no producer has it.
    pub unsafe fn from_raw(handler: *mut ArrowAsyncDeviceStreamHandler) -> Self {
        // SAFETY: the caller's promise.
        let data = unsafe { (*handler).private_data };
        // SAFETY: as above; the reference that `into_raw` left.
        Self { shared: unsafe { Arc::from_raw(data.cast::<ConsumerState>().cast_const()) } }
    }
}

impl Drop for AsyncHandler {
    fn drop(&mut self) {
        self.shared.finish(Err(broken("its handler was dropped before a producer received it")));
    }
}

pub(super) struct ConsumerState {
    handler: UnsafeCell<ArrowAsyncDeviceStreamHandler>,
    /// The number of arrays that may be queued or requested.
    ahead: i64,
    /// Locked while the stream calls the producer, and by `release`, after which the producer no longer
    /// exists. Reentrant, because a producer might release the handler inside such a call.
    calls: ReentrantMutex<()>,
    pub(super) state: Mutex<State>,
}

// SAFETY: the targets of the pointers may be used from any thread, one call at a time: only the producer uses
// `handler`, a task is extracted by the thread that takes it from the queue, and `Producer` documents when it
// is called.
unsafe impl Send for ConsumerState {}
// SAFETY: as above.
unsafe impl Sync for ConsumerState {}

#[derive(Default)]
pub(super) struct State {
    /// The producer, until the stream ends, fails or is closed.
    producer: Option<Producer>,
    pub(super) device_type: i32,
    pub(super) field: Option<Arc<Field>>,
    /// Accepted tasks, each to be extracted exactly once.
    pub(super) tasks: VecDeque<ArrowAsyncTask>,
    /// Tasks requested and not yet received.
    credit: i64,
    /// The first end or error that the producer reported.
    pub(super) end: Option<Result<()>>,
    released: bool,
    waker: Option<Waker>,
}

/// The producer's callbacks. They may be called inside `on_schema` and `on_next_task`, and on other threads while
/// `calls` is held; never inside `on_error` and `release`.
#[derive(Clone, Copy)]
struct Producer {
    this: *mut ArrowAsyncProducer,
    request: unsafe extern "C" fn(*mut ArrowAsyncProducer, i64),
    cancel: unsafe extern "C" fn(*mut ArrowAsyncProducer),
}

impl ConsumerState {
    pub(super) fn new(ahead: i64) -> Arc<Self> {
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            handler: UnsafeCell::new(ArrowAsyncDeviceStreamHandler {
                on_schema: Some(on_schema),
                on_next_task: Some(on_next_task),
                on_error: Some(on_error),
                release: Some(release),
                producer: ptr::null_mut(),
                private_data: own.as_ptr().cast_mut().cast(),
            }),
            ahead,
            calls: ReentrantMutex::new(()),
            state: Mutex::default(),
        })
    }

    /// Returns the value that `ready` finds in the state; otherwise the waker is called on a change.
    pub(super) fn poll<T>(
        &self,
        context: &Context<'_>,
        ready: impl FnOnce(&mut State) -> Option<T>,
    ) -> Poll<T> {
        // Clone the waker, and drop the previous one, outside the lock: wakers are foreign code.
        let waker = context.waker().clone();
        let mut state = self.state.lock();
        if let Some(found) = ready(&mut state) {
            return Poll::Ready(found);
        }
        let before = state.waker.replace(waker);
        drop(state);
        drop(before);
        Poll::Pending
    }

    pub(super) fn request(&self, count: i64) {
        let _calls = self.calls.lock();
        let mut state = self.state.lock();
        let Some(producer) = state.producer else { return };
        state.credit += count;
        drop(state);
        // SAFETY: the producer lives at least until `release`, which waits for `calls`.
        unsafe { (producer.request)(producer.this, count) };
    }

    /// Cancels the stream, and discards queued and later tasks.
    pub(super) fn close(&self) {
        let calls = self.calls.lock();
        let mut state = self.state.lock();
        state.end = Some(Ok(()));
        let tasks = std::mem::take(&mut state.tasks);
        let (producer, waker) = (state.producer.take(), state.waker.take());
        drop(state);
        if let Some(producer) = producer {
            // SAFETY: as in `request`.
            unsafe { (producer.cancel)(producer.this) };
        }
        drop(calls);
        tasks.into_iter().for_each(discard);
        drop(waker);
    }

    /// Handles the schema; an error ends the stream.
    fn begin(&self, producer: *mut ArrowAsyncProducer, schema: &ForeignStruct<ArrowSchema>) -> Result<()> {
        // SAFETY: the interface: null is handled, else the producer lives until `release`.
        let given = unsafe { producer.as_ref() }.ok_or_else(|| broken("the handler's producer is null"))?;
        let (Some(request), Some(cancel)) = (given.request, given.cancel) else {
            return Err(broken("its producer lacks callbacks"));
        };
        let field = Field::import_shared(schema)?;
        let mut state = self.state.lock();
        if state.field.is_some() || state.end.is_some() {
            return Err(broken("the producer passed a schema twice, or after the end"));
        }
        (state.device_type, state.field, state.credit) = (given.device_type, Some(field), self.ahead);
        state.producer = Some(Producer { this: producer, request, cancel });
        let waker = state.waker.take();
        drop(state);
        wake(waker);
        // SAFETY: inside `on_schema` the producer lives, and takes requests.
        unsafe { request(producer, self.ahead) };
        Ok(())
    }

    /// Handles a task. A task that was not requested is discarded, not refused: producers differ in who frees
    /// a refused task.
    fn accept(&self, task: ArrowAsyncTask) {
        let mut state = self.state.lock();
        let unwanted = state.end.is_some();
        if unwanted || state.credit == 0 {
            let producer = state.producer;
            drop(state);
            discard(task);
            if !unwanted {
                if let Some(producer) = producer {
                    // SAFETY: inside `on_next_task` the producer lives.
                    unsafe { (producer.cancel)(producer.this) };
                }
                self.finish(Err(broken("it gave an array that was not requested")));
            }
            return;
        }
        state.credit -= 1;
        state.tasks.push_back(task);
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }

    /// Handles the end. Only the first report counts, and the producer is not called again.
    fn finish(&self, end: Result<()>) {
        let mut state = self.state.lock();
        state.producer = None;
        state.end.get_or_insert(end);
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }
}

pub(super) fn broken(what: impl std::fmt::Display) -> Error {
    Error::interop(format!("the asynchronous Arrow stream is not valid: {what}"))
}

/// Calls a waker. Its executor may run any code, but must not unwind into a producer.
fn wake(waker: Option<Waker>) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.map(Waker::wake)));
}

fn discard(mut task: ArrowAsyncTask) {
    if let Some(extract) = task.extract_data {
        // SAFETY: as in `AsyncStreamReader::extract`; null discards the data, and an error changes nothing.
        unsafe { extract(&mut task, ptr::null_mut()) };
    }
}

/// # Safety
/// `handler` is one of ours and not released.
unsafe fn own<'a>(handler: *mut ArrowAsyncDeviceStreamHandler) -> &'a ConsumerState {
    // SAFETY: the caller's promise.
    let data = unsafe { (*handler).private_data };
    // SAFETY: as above; the handler owns a reference.
    unsafe { &*data.cast::<ConsumerState>() }
}

unsafe extern "C" fn on_schema(
    handler: *mut ArrowAsyncDeviceStreamHandler,
    schema: *mut ArrowSchema,
) -> c_int {
    // SAFETY: the producer keeps the rules of the interface.
    let own = unsafe { own(handler) };
    if schema.is_null() {
        own.finish(Err(broken("its schema is null")));
        return libc::EINVAL;
    }
    // SAFETY: as above; the handler now owns the schema, and releases it at the end of this call.
    let schema = unsafe { ForeignStruct::take(schema) };
    if own.state.lock().end.is_some() {
        return libc::ECANCELED;
    }
    // SAFETY: as above.
    let producer = unsafe { (*handler).producer };
    match own.begin(producer, &schema) {
        Ok(()) => 0,
        Err(error) => {
            own.finish(Err(error));
            libc::EINVAL
        }
    }
}

unsafe extern "C" fn on_next_task(
    handler: *mut ArrowAsyncDeviceStreamHandler,
    task: *mut ArrowAsyncTask,
    _metadata: *const c_char,
) -> c_int {
    // SAFETY: as above.
    let own = unsafe { own(handler) };
    // SAFETY: as above: null for the end, else a task that is valid during this call and may be copied.
    match unsafe { task.as_ref() } {
        Some(task) => own.accept(*task),
        None => own.finish(Ok(())),
    }
    0
}

unsafe extern "C" fn on_error(
    handler: *mut ArrowAsyncDeviceStreamHandler,
    code: c_int,
    message: *const c_char,
    _metadata: *const c_char,
) {
    // SAFETY: as above.
    let own = unsafe { own(handler) };
    let text = if message.is_null() {
        std::io::Error::from_raw_os_error(code).to_string()
    } else {
        // SAFETY: as above: a string that is valid during this call.
        unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
    };
    own.finish(Err(Error::interop(format!("the producer of the asynchronous Arrow stream failed: {text}"))));
}

unsafe extern "C" fn release(handler: *mut ArrowAsyncDeviceStreamHandler) {
    // SAFETY: as above.
    let own = unsafe { own(handler) };
    let calls = own.calls.lock();
    let mut state = own.state.lock();
    state.producer = None;
    let again = std::mem::replace(&mut state.released, true);
    drop(state);
    drop(calls);
    if again {
        return;
    }
    // SAFETY: as above; the producer does not use the struct any more.
    unsafe { (*handler).release = None };
    own.finish(Err(broken("its producer released the handler before the end")));
    // SAFETY: the handler's reference, from `into_raw`; `released` says that it is taken once.
    drop(unsafe { Arc::from_raw(ptr::from_ref(own)) });
}

impl std::fmt::Debug for AsyncHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncHandler").finish_non_exhaustive()
    }
}
