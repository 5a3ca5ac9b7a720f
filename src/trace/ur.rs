//! The functions of Unified Runtime that a trace of other libraries needs: states of events, descriptions of queues and devices.
//!
//! Source: `ur_api.h`. The library is the one that the SYCL runtime has opened; it is not opened here.

use super::recorder;
use once_cell::sync::OnceCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute_copy;

/// A handle of the runtime: of a queue, an event, a device or a context.
pub(super) type Handle = usize;

/// `ur_result_t`; 0 is success.
type Status = c_int;
type OfHandle = unsafe extern "C" fn(Handle) -> Status;
type GetInfo = unsafe extern "C" fn(Handle, c_int, usize, *mut c_void, *mut usize) -> Status;
type GetPointerInfo =
    unsafe extern "C" fn(Handle, *const c_void, c_int, usize, *mut c_void, *mut usize) -> Status;
type GetNative = unsafe extern "C" fn(Handle, *mut usize) -> Status;

/// `UR_EVENT_INFO_COMMAND_EXECUTION_STATUS`.
const EVENT_STATUS: c_int = 3;
/// `UR_EVENT_STATUS_RUNNING` to `UR_EVENT_STATUS_QUEUED`; other states are ends.
const NOT_OVER: std::ops::RangeInclusive<i32> = 1..=3;
/// `UR_PROFILING_INFO_COMMAND_…`.
const QUEUED: c_int = 0;
const START: c_int = 2;
const END: c_int = 3;
/// `UR_QUEUE_INFO_…`.
const QUEUE_CONTEXT: c_int = 0;
const QUEUE_DEVICE: c_int = 1;
const QUEUE_FLAGS: c_int = 3;
/// `UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE`.
const OUT_OF_ORDER: u32 = 1;
/// `UR_QUEUE_FLAG_PROFILING_ENABLE`.
const PROFILING: u32 = 2;
/// `UR_DEVICE_INFO_NAME`.
const DEVICE_NAME: c_int = 66;
/// `UR_USM_ALLOC_INFO_TYPE`.
const ALLOCATION_TYPE: c_int = 0;

struct Functions {
    /// A forked child has no driver: its objects are those of its parent.
    process: u32,
    retain_event: OfHandle,
    release_event: OfHandle,
    event_info: GetInfo,
    event_times: GetInfo,
    queue_info: GetInfo,
    device_info: GetInfo,
    device_native: GetNative,
    pointer_info: GetPointerInfo,
}

/// Whether the functions are there and can be called: not in a forked child.
pub(super) fn is_usable() -> bool {
    functions().is_some()
}

/// None if the runtime's library lacks one of them, and in a forked child.
fn functions() -> Option<&'static Functions> {
    static FOUND: OnceCell<Option<Functions>> = OnceCell::new();
    let found = FOUND.get_or_init(find_functions).as_ref();
    found.filter(|functions| functions.process == std::process::id())
}

fn find_functions() -> Option<Functions> {
    // SAFETY: a C string. The library is never closed.
    let library = unsafe { libc::dlopen(c"libur_loader.so.0".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    Some(Functions {
        process: std::process::id(),
        // SAFETY: for each, an open library, and the function's type in `ur_api.h`.
        retain_event: unsafe { find(library, c"urEventRetain") }?,
        // SAFETY: as above.
        release_event: unsafe { find(library, c"urEventRelease") }?,
        // SAFETY: as above.
        event_info: unsafe { find(library, c"urEventGetInfo") }?,
        // SAFETY: as above.
        event_times: unsafe { find(library, c"urEventGetProfilingInfo") }?,
        // SAFETY: as above.
        queue_info: unsafe { find(library, c"urQueueGetInfo") }?,
        // SAFETY: as above.
        device_info: unsafe { find(library, c"urDeviceGetInfo") }?,
        // SAFETY: as above.
        device_native: unsafe { find(library, c"urDeviceGetNativeHandle") }?,
        // SAFETY: as above.
        pointer_info: unsafe { find(library, c"urUSMGetMemAllocInfo") }?,
    })
}

/// # Safety
/// The library is open, and `F` is the type of a pointer to this function.
unsafe fn find<F>(library: *mut c_void, name: &CStr) -> Option<F> {
    // SAFETY: a C string and an open library.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the caller's promise; pointers to functions have this size.
    (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
}

/// A fixed-size property of an object.
///
/// # Safety
/// The handle is a live one of the kind that the function takes, and `T` is the type of this property.
unsafe fn property<T: Default>(get: GetInfo, handle: Handle, name: c_int) -> Option<T> {
    let _own = recorder::own_call();
    let mut value = T::default();
    let size = size_of::<T>();
    // SAFETY: the caller's promise; the value has the given size.
    let status = unsafe { get(handle, name, size, (&raw mut value).cast(), std::ptr::null_mut()) };
    (status == 0).then_some(value)
}

/// A reference to an event.
pub(super) struct Event(Handle);

impl Event {
    /// None if the runtime cannot share it.
    ///
    /// # Safety
    /// The handle is that of a live event.
    pub(super) unsafe fn retain(handle: Handle) -> Option<Self> {
        let functions = functions()?;
        let _own = recorder::own_call();
        // SAFETY: the caller's promise.
        (unsafe { (functions.retain_event)(handle) } == 0).then_some(Self(handle))
    }

    pub(super) fn handle(&self) -> Handle {
        self.0
    }

    /// Whether its command has ended; true if it cannot be queried.
    pub(super) fn is_over(&self) -> bool {
        let Some(functions) = functions() else { return true };
        // SAFETY: this reference keeps the event alive; the property is an `int32_t`.
        let status: Option<i32> = unsafe { property(functions.event_info, self.0, EVENT_STATUS) };
        status.is_none_or(|status| !NOT_OVER.contains(&status))
    }

    /// The device's times of a complete command: queued, start and end.
    pub(super) fn times(&self) -> Option<[u64; 3]> {
        let get = functions()?.event_times;
        // SAFETY: this reference keeps the event alive; the properties are `uint64_t`.
        let time = |name| unsafe { property(get, self.0, name) };
        Some([time(QUEUED)?, time(START)?, time(END)?])
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Some(functions) = functions() else { return };
        let _own = recorder::own_call();
        // SAFETY: the reference of this object, which ends.
        unsafe { (functions.release_event)(self.0) };
    }
}

pub(super) struct QueueInfo {
    pub context: Handle,
    pub device: Handle,
    pub in_order: bool,
    pub keeps_timestamps: bool,
}

/// # Safety
/// The handle is that of a live queue.
pub(super) unsafe fn describe_queue(queue: Handle) -> Option<QueueInfo> {
    let get = functions()?.queue_info;
    // SAFETY: for all, the caller's promise and the types of `ur_api.h`.
    let flags: u32 = unsafe { property(get, queue, QUEUE_FLAGS) }?;
    // SAFETY: as above.
    let context = unsafe { property(get, queue, QUEUE_CONTEXT) }?;
    // SAFETY: as above.
    let device = unsafe { property(get, queue, QUEUE_DEVICE) }?;
    let (in_order, keeps_timestamps) = (flags & OUT_OF_ORDER == 0, flags & PROFILING != 0);
    Some(QueueInfo { context, device, in_order, keeps_timestamps })
}

/// The name of a device, and the driver's own handle of it.
///
/// # Safety
/// The handle is that of a device.
pub(super) unsafe fn describe_device(device: Handle) -> (Option<String>, Option<usize>) {
    let Some(functions) = functions() else { return (None, None) };
    let _own = recorder::own_call();
    let mut text = [0_u8; 256];
    let place = text.as_mut_ptr().cast();
    // SAFETY: the caller's promise; the array has the given size.
    let status =
        unsafe { (functions.device_info)(device, DEVICE_NAME, text.len(), place, std::ptr::null_mut()) };
    let name = CStr::from_bytes_until_nul(&text).ok().map(|name| name.to_string_lossy().into_owned());
    let mut native = 0;
    // SAFETY: the caller's promise; the place is valid for writes.
    let found = unsafe { (functions.device_native)(device, &raw mut native) } == 0;
    (name.filter(|_| status == 0), found.then_some(native))
}

/// The memory at an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Not USM of the context.
    Ordinary,
    HostUsm,
    /// Device or shared USM.
    Device,
}

/// The memory of the context at an address.
///
/// # Safety
/// The handle is that of a live context.
pub(super) unsafe fn place(context: Handle, address: usize) -> Place {
    let Some(functions) = functions() else { return Place::Ordinary };
    let _own = recorder::own_call();
    let mut kind = 0_u32;
    let (value, pointer) = ((&raw mut kind).cast(), std::ptr::without_provenance(address));
    let size = size_of::<u32>();
    // SAFETY: the caller's promise; the function reads no memory at the address.
    let status = unsafe {
        (functions.pointer_info)(context, pointer, ALLOCATION_TYPE, size, value, std::ptr::null_mut())
    };
    // `ur_usm_type_t`.
    match kind {
        1 if status == 0 => Place::HostUsm,
        2 | 3 if status == 0 => Place::Device,
        _ => Place::Ordinary,
    }
}
