//! A consumer written against the C structs: callbacks that record the producer's calls and act as the test requests.

use crate::arrow_c::{CHandler, CSchema, CTask, empty_array, extract, host_values, release};
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use usmq::interop::arrow::ArrowAsyncDeviceStreamHandler;

/// One call of the producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Schema(String),
    Task,
    End,
    Error(c_int, String),
    Release,
}

#[derive(Default)]
pub struct Log {
    pub calls: Vec<Call>,
    pub tasks: Vec<CTask>,
    /// Violations of the rules by the producer.
    pub broken: Vec<String>,
    pub requested: i64,
}

type Act = Box<dyn Fn(&Recorder, &Call) -> c_int + Send + Sync>;

pub struct Recorder {
    handler: Mutex<CHandler>,
    log: Mutex<Log>,
    changed: Condvar,
    inside: AtomicUsize,
    /// A test holds this lock to delay the release.
    gate: Mutex<()>,
    act: Act,
}

// SAFETY: the pointers of the handler are used as the interface allows.
unsafe impl Send for Recorder {}
// SAFETY: as above.
unsafe impl Sync for Recorder {}

impl Recorder {
    /// `act` runs inside each callback, after the call was recorded; the producer gets its return value.
    pub fn new(act: impl Fn(&Self, &Call) -> c_int + Send + Sync + 'static) -> Arc<Self> {
        let handler = CHandler {
            on_schema: Some(on_schema),
            on_next_task: Some(on_next_task),
            on_error: Some(on_error),
            release: Some(on_release),
            producer: ptr::null_mut(),
            private_data: ptr::null_mut(),
        };
        let own = Arc::new(Self {
            handler: Mutex::new(handler),
            log: Mutex::default(),
            changed: Condvar::new(),
            inside: AtomicUsize::new(0),
            gate: Mutex::default(),
            act: Box::new(act),
        });
        own.handler().private_data = Arc::as_ptr(&own).cast_mut().cast();
        own
    }

    /// A consumer that only records.
    pub fn silent() -> Arc<Self> {
        Self::new(|_, _| 0)
    }

    fn handler(&self) -> MutexGuard<'_, CHandler> {
        self.handler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Valid as long as this recorder.
    pub fn raw(&self) -> *mut ArrowAsyncDeviceStreamHandler {
        ptr::from_mut(&mut *self.handler()).cast()
    }

    pub fn request(&self, count: i64) {
        let producer = self.handler().producer;
        {
            let mut log = self.log();
            log.requested = log.requested.saturating_add(count.max(0));
        }
        // SAFETY: tests call this between the first callback and the release.
        if let Some(request) = unsafe { (*producer).request } {
            // SAFETY: as above.
            unsafe { request(producer, count) };
        }
    }

    pub fn cancel(&self) {
        let producer = self.handler().producer;
        // SAFETY: as above.
        if let Some(cancel) = unsafe { (*producer).cancel } {
            // SAFETY: as above.
            unsafe { cancel(producer) };
        }
    }

    /// The release does not return while this is held, so the producer lives.
    pub fn hold_release(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the handler invalid, so that a producer must refuse it.
    pub fn remove_on_error(&self) {
        self.handler().on_error = None;
    }

    /// Waits until `ready` accepts the log.
    pub fn until(&self, ready: impl Fn(&Log) -> bool) {
        let log = self.log();
        let wait = self.changed.wait_timeout_while(log, Duration::from_secs(20), |log| !ready(log));
        let (log, wait) = wait.unwrap_or_else(PoisonError::into_inner);
        assert!(!wait.timed_out(), "nothing came after {:?}", log.calls.last());
    }

    /// Every call, after the stream ended; fails if the producer violated a rule.
    pub fn calls(&self) -> Vec<Call> {
        self.until(|log| log.calls.last() == Some(&Call::Release));
        let log = self.log();
        assert!(log.broken.is_empty(), "{:?}", log.broken);
        log.calls.clone()
    }

    pub fn count(&self, call: &Call) -> usize {
        self.log().calls.iter().filter(|other| *other == call).count()
    }

    /// Extracts every task that was kept, in order: all values of arrays that the host can read.
    pub fn extract_all(&self) -> Vec<i64> {
        let tasks = std::mem::take(&mut self.log().tasks);
        let mut values = Vec::new();
        for mut task in tasks {
            let mut array = empty_array();
            assert_eq!(extract(&mut task, &mut array), 0);
            values.extend(host_values(&array));
            release(&mut array);
        }
        values
    }

    fn enter(&self, call: Call) -> c_int {
        let inside = self.inside.fetch_add(1, Ordering::AcqRel);
        let has_producer = !self.handler().producer.is_null();
        let mut guard = self.log();
        let log = &mut *guard;
        if inside != 0 {
            log.broken.push(format!("{call:?} inside another call"));
        }
        if !has_producer {
            log.broken.push(format!("{call:?} without a producer"));
        }
        if log.calls.contains(&Call::Release) {
            log.broken.push(format!("{call:?} after the release"));
        }
        if matches!(call, Call::Schema(_)) != log.calls.is_empty() && !matches!(call, Call::Error(..)) {
            log.broken.push(format!("{call:?} as call {}", log.calls.len()));
        }
        let tasks = log.calls.iter().filter(|call| **call == Call::Task).count() as i64;
        if call == Call::Task && tasks >= log.requested {
            log.broken.push(format!("task {tasks} of {} requested", log.requested));
        }
        drop(guard);
        let status = if call == Call::Release {
            drop(self.hold_release());
            0
        } else {
            (self.act)(self, &call)
        };
        self.inside.fetch_sub(1, Ordering::AcqRel);
        let mut log = self.log();
        log.calls.push(call);
        self.changed.notify_all();
        status
    }
}

unsafe fn own<'a>(handler: *mut CHandler) -> &'a Recorder {
    // SAFETY: the producer passes the handler of a recorder, which outlives the stream.
    let data = unsafe { (*handler).private_data };
    // SAFETY: as above.
    unsafe { &*data.cast::<Recorder>() }
}

fn text(pointer: *const c_char) -> String {
    // SAFETY: the producer passes a string.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn on_schema(handler: *mut CHandler, schema: *mut CSchema) -> c_int {
    // SAFETY: as documented at `own`, for each of these.
    let (own, schema) = (unsafe { own(handler) }, unsafe { &mut *schema });
    let format = text(schema.format);
    let release = schema.release;
    let status = own.enter(Call::Schema(format));
    // A consumer that refuses need not release the schema.
    if let Some(release) = release.filter(|_| status == 0) {
        // SAFETY: the schema is ours now.
        unsafe { release(schema) };
    }
    status
}

unsafe extern "C" fn on_next_task(
    handler: *mut CHandler,
    task: *mut CTask,
    metadata: *const c_char,
) -> c_int {
    // SAFETY: as above.
    let own = unsafe { own(handler) };
    assert!(metadata.is_null());
    // SAFETY: null, or a task that is valid during this call.
    match unsafe { task.as_mut() } {
        Some(task) => {
            own.log().tasks.push(*task);
            let status = own.enter(Call::Task);
            // The producer owns its memory and may overwrite it; a refused one does not belong to us.
            if status != 0 {
                own.log().tasks.pop();
            }
            status
        }
        None => own.enter(Call::End),
    }
}

unsafe extern "C" fn on_error(handler: *mut CHandler, code: c_int, message: *const c_char, _: *const c_char) {
    // SAFETY: as above.
    unsafe { own(handler) }.enter(Call::Error(code, text(message)));
}

unsafe extern "C" fn on_release(handler: *mut CHandler) {
    // SAFETY: as above.
    unsafe { own(handler) }.enter(Call::Release);
}
