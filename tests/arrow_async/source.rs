//! A producer written against the C structs: it makes the calls that a test requests and records those it gets.

use crate::arrow_c::{
    CDeviceArray, CHandler, CProducer, CSchema, CTask, empty_array, host_device_array, number_field, release,
};
use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use usmq::Result;
use usmq::interop::arrow::{ArrowAsyncDeviceStreamHandler, ArrowSchema};

/// The action of a task when it is extracted.
#[derive(Clone)]
pub enum Give {
    Values(Vec<i64>),
    /// An array with this device type.
    Device(i32),
    /// No array and this status; Arrow C++ gives 0 when its export fails.
    Nothing(c_int),
    /// Junk in the place of the array, and this status.
    Junk(c_int),
}

struct Offered {
    give: Give,
    extracted: AtomicUsize,
    discarded: AtomicUsize,
}

#[derive(Default)]
struct Said {
    requests: Vec<i64>,
    cancels: usize,
    /// Inside a callback that must not call the producer, or after the release.
    silent: bool,
    broken: Vec<String>,
}

type Hook = Box<dyn Fn(&Source) + Send + Sync>;

pub struct Source {
    producer: CProducer,
    handler: *mut CHandler,
    release: Option<unsafe extern "C" fn(*mut CHandler)>,
    said: Mutex<Said>,
    tasks: Mutex<Vec<Arc<Offered>>>,
    /// Runs inside `cancel`.
    on_cancel: Hook,
}

// SAFETY: the pointers are used as the interface allows.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Source {
    /// A producer of host arrays for `handler`.
    pub fn new(handler: *mut ArrowAsyncDeviceStreamHandler) -> Arc<Self> {
        Self::with_hook(handler, |_| {})
    }

    pub fn with_hook(
        handler: *mut ArrowAsyncDeviceStreamHandler,
        on_cancel: impl Fn(&Self) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let handler = handler.cast::<CHandler>();
        let own = Arc::new_cyclic(|own: &std::sync::Weak<Self>| Self {
            producer: CProducer {
                device_type: 1,
                request: Some(request),
                cancel: Some(cancel),
                additional_metadata: ptr::null(),
                private_data: own.as_ptr().cast_mut().cast(),
            },
            handler,
            // SAFETY: the handler is not released.
            release: unsafe { (*handler).release },
            said: Mutex::default(),
            tasks: Mutex::default(),
            on_cancel: Box::new(on_cancel),
        });
        // SAFETY: the handler is not released.
        unsafe { (*handler).producer = ptr::from_ref(&own.producer).cast_mut() };
        own
    }

    fn handler(&self) -> &CHandler {
        // SAFETY: tests use the handler after its release only on purpose.
        unsafe { &*self.handler }
    }

    /// As a producer that breaks rule A1.
    pub fn forget_producer(&self) {
        // SAFETY: as above.
        unsafe { (*self.handler).producer = ptr::null_mut() };
    }

    pub fn requests(&self) -> Vec<i64> {
        lock(&self.said).requests.clone()
    }

    pub fn cancels(&self) -> usize {
        lock(&self.said).cancels
    }

    /// `on_schema` with this, which the consumer must move or release.
    pub fn schema_of(&self, mut schema: ArrowSchema) -> c_int {
        let place = (&raw mut schema).cast::<CSchema>();
        // SAFETY: the callback of a handler that is not released.
        let status = self.handler().on_schema.map_or(-1, |call| unsafe { call(self.handler, place) });
        if !schema.is_released() {
            lock(&self.said).broken.push("the schema was left".to_owned());
        }
        status
    }

    pub fn schema(&self) -> Result<c_int> {
        Ok(self.schema_of(number_field()?.export()?))
    }

    pub fn offer(&self, give: Give) -> c_int {
        let task = Arc::new(Offered { give, extracted: 0.into(), discarded: 0.into() });
        let data = Arc::as_ptr(&task).cast_mut().cast();
        let mut raw = Box::new(CTask { extract_data: Some(extract_data), private_data: data });
        lock(&self.tasks).push(task);
        // Rule A21: the place of the task is valid during the call only.
        self.next_task(&mut *raw)
    }

    pub fn values(&self, values: &[i64]) -> c_int {
        self.offer(Give::Values(values.to_vec()))
    }

    pub fn end(&self) -> c_int {
        self.next_task(ptr::null_mut())
    }

    fn next_task(&self, task: *mut CTask) -> c_int {
        // SAFETY: as above.
        self.handler().on_next_task.map_or(-1, |call| unsafe { call(self.handler, task, ptr::null()) })
    }

    pub fn error(&self, code: c_int, message: Option<&CStr>) {
        let before = std::mem::replace(&mut lock(&self.said).silent, true);
        let message = message.map_or(ptr::null(), CStr::as_ptr);
        if let Some(call) = self.handler().on_error {
            // SAFETY: as above.
            unsafe { call(self.handler, code, message, ptr::null()) };
        }
        lock(&self.said).silent = before;
    }

    pub fn release(&self) {
        lock(&self.said).silent = true;
        if let Some(release) = self.release {
            // SAFETY: as above. A second call is one of the things that tests do while the stream is there.
            unsafe { release(self.handler) };
        }
    }

    /// The numbers of extracted and of discarded tasks; each task is exactly one of them, once.
    pub fn check(&self) -> (usize, usize) {
        let said = lock(&self.said);
        assert!(said.broken.is_empty(), "{:?}", said.broken);
        let mut sums = (0, 0);
        for (number, task) in lock(&self.tasks).iter().enumerate() {
            let (given, dropped) =
                (task.extracted.load(Ordering::Acquire), task.discarded.load(Ordering::Acquire));
            assert_eq!(given + dropped, 1, "task {number}: extracted {given}, discarded {dropped} times");
            sums = (sums.0 + given, sums.1 + dropped);
        }
        sums
    }
}

unsafe fn own<'a>(producer: *mut CProducer) -> &'a Source {
    // SAFETY: the tests keep their sources until all is over.
    let data = unsafe { (*producer).private_data };
    // SAFETY: as above.
    unsafe { &*data.cast::<Source>() }
}

unsafe extern "C" fn request(producer: *mut CProducer, count: i64) {
    // SAFETY: as documented at `own`.
    let own = unsafe { own(producer) };
    let mut said = lock(&own.said);
    said.requests.push(count);
    if said.silent {
        said.broken.push(format!("request({count}) where none is allowed"));
    }
}

unsafe extern "C" fn cancel(producer: *mut CProducer) {
    // SAFETY: as above.
    let own = unsafe { own(producer) };
    let mut said = lock(&own.said);
    said.cancels += 1;
    if said.silent {
        said.broken.push("cancel where none is allowed".to_owned());
    }
    drop(said);
    (own.on_cancel)(own);
}

unsafe extern "C" fn extract_data(task: *mut CTask, out: *mut CDeviceArray) -> c_int {
    // SAFETY: the consumer passes a task of `Source::offer`, maybe in another place.
    let data = unsafe { (*task).private_data };
    // SAFETY: the source keeps the tasks that it offered.
    let offered = unsafe { &*data.cast::<Offered>() };
    let mut array = match &offered.give {
        Give::Values(values) => host_device_array(values),
        Give::Device(device_type) => CDeviceArray { device_type: *device_type, ..host_device_array(&[1]) },
        Give::Nothing(_) | Give::Junk(_) => empty_array(),
    };
    // SAFETY: null, or a place for an array.
    if let Some(out) = unsafe { out.as_mut() } {
        offered.extracted.fetch_add(1, Ordering::AcqRel);
        match offered.give {
            Give::Nothing(_) => {}
            // SAFETY: all bytes are valid for the numbers and pointers of the struct; a consumer must not use them.
            Give::Junk(_) => unsafe { ptr::write_bytes(out, 0x5a, 1) },
            _ => *out = array,
        }
    } else {
        offered.discarded.fetch_add(1, Ordering::AcqRel);
        release(&mut array);
    }
    match offered.give {
        Give::Nothing(status) | Give::Junk(status) => status,
        _ => 0,
    }
}
