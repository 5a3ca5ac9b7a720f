//! The structs of the Arrow C data, C stream and C Device data interfaces, as another library sees them.
//!
//! Source: Arrow columnar format, "The Arrow C data interface" and "The Arrow C Device data interface", and the header
//! `arrow/c/abi.h`. Where page and header differ this follows the header: its `ArrowAsyncProducer` has no `release`.
//!
//! Fields are private to `interop::arrow`. A struct whose `release` is null is released: it owns nothing.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;

/// `ARROW_DEVICE_CPU`.
pub(super) const DEVICE_CPU: i32 = 1;
/// `ARROW_DEVICE_CUDA`.
pub(super) const DEVICE_CUDA: i32 = 2;
/// `ARROW_DEVICE_CUDA_HOST`.
pub(super) const DEVICE_CUDA_HOST: i32 = 3;
/// `ARROW_DEVICE_CUDA_MANAGED`.
pub(super) const DEVICE_CUDA_MANAGED: i32 = 13;
/// `ARROW_DEVICE_ONEAPI`: USM of a oneAPI root device; its `sync_event` is the address of a `sycl::event`.
pub(super) const DEVICE_ONEAPI: i32 = 14;

/// `ARROW_FLAG_DICTIONARY_ORDERED`.
pub(super) const FLAG_DICTIONARY_ORDERED: i64 = 1;
/// `ARROW_FLAG_NULLABLE`.
pub(super) const FLAG_NULLABLE: i64 = 2;

/// The type of an array. What owns the memory is private to the producer and freed by `release`.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    pub(super) format: *const c_char,
    pub(super) name: *const c_char,
    pub(super) metadata: *const c_char,
    pub(super) flags: i64,
    pub(super) n_children: i64,
    pub(super) children: *mut *mut ArrowSchema,
    pub(super) dictionary: *mut ArrowSchema,
    pub(super) release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    pub(super) private_data: *mut c_void,
}

/// The buffers of an array.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    pub(super) length: i64,
    pub(super) null_count: i64,
    pub(super) offset: i64,
    pub(super) n_buffers: i64,
    pub(super) n_children: i64,
    pub(super) buffers: *mut *const c_void,
    pub(super) children: *mut *mut ArrowArray,
    pub(super) dictionary: *mut ArrowArray,
    pub(super) release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    pub(super) private_data: *mut c_void,
}

/// An array, the device its buffers are on, and the event after which they may be read.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArray {
    pub(super) array: ArrowArray,
    pub(super) device_id: i64,
    pub(super) device_type: i32,
    pub(super) sync_event: *mut c_void,
    pub(super) reserved: [i64; 3],
}

/// Arrays of one schema in host memory, one after another.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArrayStream {
    pub(super) get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    pub(super) get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    pub(super) get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    pub(super) release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    pub(super) private_data: *mut c_void,
}

/// Arrays of one schema on devices of one type, one after another.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArrayStream {
    pub(super) device_type: i32,
    pub(super) get_schema:
        Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowSchema) -> c_int>,
    pub(super) get_next:
        Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowDeviceArray) -> c_int>,
    pub(super) get_last_error: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream) -> *const c_char>,
    pub(super) release: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream)>,
    pub(super) private_data: *mut c_void,
}

/// One array of an asynchronous stream, to be extracted once.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ArrowAsyncTask {
    pub(super) extract_data:
        Option<unsafe extern "C" fn(*mut ArrowAsyncTask, *mut ArrowDeviceArray) -> c_int>,
    pub(super) private_data: *mut c_void,
}

/// The producer's side of an asynchronous stream.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowAsyncProducer {
    pub(super) device_type: i32,
    pub(super) request: Option<unsafe extern "C" fn(*mut ArrowAsyncProducer, i64)>,
    pub(super) cancel: Option<unsafe extern "C" fn(*mut ArrowAsyncProducer)>,
    pub(super) additional_metadata: *const c_char,
    pub(super) private_data: *mut c_void,
}

/// The consumer's side of an asynchronous stream, which the producer calls.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowAsyncDeviceStreamHandler {
    pub(super) on_schema:
        Option<unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler, *mut ArrowSchema) -> c_int>,
    pub(super) on_next_task: Option<
        unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler, *mut ArrowAsyncTask, *const c_char) -> c_int,
    >,
    pub(super) on_error:
        Option<unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler, c_int, *const c_char, *const c_char)>,
    pub(super) release: Option<unsafe extern "C" fn(*mut ArrowAsyncDeviceStreamHandler)>,
    pub(super) producer: *mut ArrowAsyncProducer,
    pub(super) private_data: *mut c_void,
}

macro_rules! released {
    ($type:ident { $($field:ident: $value:expr),* $(,)? }) => {
        impl $type {
            /// A struct that owns nothing, for a producer to fill.
            #[must_use]
            pub const fn empty() -> Self {
                Self { $($field: $value,)* release: None, private_data: ptr::null_mut() }
            }

            /// Whether the struct owns nothing any more, or never did.
            #[must_use]
            pub const fn is_released(&self) -> bool {
                self.release.is_none()
            }
        }

        impl Drop for $type {
            fn drop(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: the producer's callback for this struct, which is not released; it is called once,
                    // since a conforming callback clears `release`, and the next line does so for the others.
                    unsafe { release(self) };
                    self.release = None;
                }
            }
        }

        // SAFETY: both interfaces let a struct be moved to, and released on, any thread; reading fields is plain.
        unsafe impl Send for $type {}
    };
}

released!(ArrowSchema {
    format: ptr::null(),
    name: ptr::null(),
    metadata: ptr::null(),
    flags: 0,
    n_children: 0,
    children: ptr::null_mut(),
    dictionary: ptr::null_mut(),
});
released!(ArrowArray {
    length: 0,
    null_count: 0,
    offset: 0,
    n_buffers: 0,
    n_children: 0,
    buffers: ptr::null_mut(),
    children: ptr::null_mut(),
    dictionary: ptr::null_mut(),
});
released!(ArrowArrayStream { get_schema: None, get_next: None, get_last_error: None });
released!(ArrowDeviceArrayStream { device_type: 0, get_schema: None, get_next: None, get_last_error: None });

impl ArrowDeviceArray {
    /// A struct that owns nothing, for a producer to fill.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            array: ArrowArray::empty(),
            device_id: -1,
            device_type: 0,
            sync_event: ptr::null_mut(),
            reserved: [0; 3],
        }
    }

    /// Whether the struct owns nothing any more, or never did.
    #[must_use]
    pub const fn is_released(&self) -> bool {
        self.array.is_released()
    }

    /// The `ARROW_DEVICE_*` number: 14 for oneAPI, 1 for the host.
    #[must_use]
    pub const fn device_type(&self) -> i32 {
        self.device_type
    }

    /// Which device of that type; for oneAPI the ordinal of the root device, for the host -1.
    #[must_use]
    pub const fn device_id(&self) -> i64 {
        self.device_id
    }

    /// For oneAPI the address of a `sycl::event`, or null when the buffers may be read already.
    #[must_use]
    pub const fn sync_event(&self) -> *mut c_void {
        self.sync_event
    }
}

// SAFETY: as for `ArrowArray`; a `sycl::event` may be used from any thread.
unsafe impl Send for ArrowDeviceArray {}

/// A struct on the heap that another library reads, and may move out of, through a plain pointer.
#[repr(transparent)]
pub(super) struct Heap<T>(ptr::NonNull<T>);

impl<T> Heap<T> {
    pub(super) fn new(value: T) -> Self {
        Self(ptr::NonNull::from(Box::leak(Box::new(value))))
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// A list of these as the interfaces pass it: null when there are none.
    pub(super) fn list(all: &mut [Self]) -> *mut *mut T {
        if all.is_empty() { ptr::null_mut() } else { all.as_mut_ptr().cast() }
    }
}

impl<T> Drop for Heap<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box in `new` and is freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// LP64, as compiled from `abi.h`.
const _: () = {
    assert!(size_of::<ArrowSchema>() == 72);
    assert!(size_of::<ArrowArray>() == 80);
    assert!(size_of::<ArrowArrayStream>() == 40);
    assert!(size_of::<ArrowDeviceArray>() == 128);
    assert!(offset_of!(ArrowDeviceArray, device_id) == 80);
    assert!(offset_of!(ArrowDeviceArray, device_type) == 88);
    assert!(offset_of!(ArrowDeviceArray, sync_event) == 96);
    assert!(offset_of!(ArrowDeviceArray, reserved) == 104);
    assert!(size_of::<ArrowDeviceArrayStream>() == 48);
    assert!(size_of::<ArrowAsyncTask>() == 16);
    assert!(size_of::<ArrowAsyncProducer>() == 40);
    assert!(offset_of!(ArrowAsyncProducer, private_data) == 32);
    assert!(size_of::<ArrowAsyncDeviceStreamHandler>() == 48);
};
