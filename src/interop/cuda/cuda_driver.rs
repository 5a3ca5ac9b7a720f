//! The NVIDIA driver, loaded at run time through cudarc.
//!
//! cudarc panics for a missing library or function, so both are checked before the first call.

use super::driver::{Driver, Handle, Location};
use crate::error::{Error, Result};
use cudarc::driver::sys::{self, CUpointer_attribute as Attribute, CUresult};
use once_cell::sync::OnceCell;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The oldest driver API with all functions used here: CUDA 12.0.
const OLDEST: i32 = 12000;

/// All functions called here.
const FUNCTIONS: [&str; 26] = [
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyAsync",
    "cuPointerGetAttribute",
    "cuStreamCreate",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
];

/// The driver, after all functions were found.
pub(super) struct CudaDriver(());

/// Number of devices, at least one.
static COUNT: OnceCell<usize> = OnceCell::new();

/// Opens the driver and counts its devices. A failure is not cached: a driver may be loaded later.
pub(super) fn open() -> Result<(Arc<dyn Driver>, usize)> {
    let count = *COUNT.get_or_try_init(start)?;
    Ok((Arc::new(CudaDriver(())), count))
}

fn start() -> Result<usize> {
    let missing = |what: String| Error::runtime_not_found(what);
    // SAFETY: opens the library by its name, which runs its initialisers as any use of it would.
    if !unsafe { sys::is_culib_present() } {
        return Err(missing(
            "the CUDA driver library libcuda.so.1 is not found; install the NVIDIA driver, or put the \
             library's folder \
             on LD_LIBRARY_PATH"
                .to_owned(),
        ));
    }
    // SAFETY: present, as just checked.
    let library = unsafe { sys::culib() };
    for name in FUNCTIONS {
        // SAFETY: the symbol is looked up and not called.
        if unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
            return Err(missing(format!(
                "the CUDA driver library has no function {name}; install a driver for CUDA 12.0 or newer"
            )));
        }
    }
    let mut version = 0;
    // SAFETY: writes one number. It may be called before cuInit.
    check("asking for the driver's version", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
    if version < OLDEST {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return Err(missing(format!(
            "the CUDA driver is for CUDA {major}.{minor}; install one for CUDA 12.0 or newer"
        )));
    }
    // SAFETY: takes no pointers.
    let started = unsafe { sys::cuInit(0) };
    if started != CUresult::CUDA_SUCCESS {
        return Err(missing(format!("the CUDA driver does not start: {}", name_of(started))));
    }
    let mut count = 0;
    // SAFETY: writes one number.
    check("counting CUDA devices", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    match usize::try_from(count) {
        Ok(count @ 1..) => Ok(count),
        _ => Err(missing("the CUDA driver is installed but finds no device; run nvidia-smi".to_owned())),
    }
}

/// `CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected`.
fn name_of(code: CUresult) -> String {
    let read = |ask: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: writes the address of a static string, or null.
        let _ = unsafe { ask(code, &raw mut text) };
        // SAFETY: as above.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    match (read(sys::cuGetErrorName), read(sys::cuGetErrorString)) {
        (Some(name), Some(text)) => format!("{name}: {text}"),
        _ => format!("CUDA error {}", code as u32),
    }
}

fn check(doing: &str, code: CUresult) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Error::interop(format!("{doing} failed in the CUDA driver: {}", name_of(code))))
}

fn stream_of(handle: Handle) -> sys::CUstream {
    handle as sys::CUstream
}

/// Makes a context this thread's current one while it lives.
struct Current(());

impl Current {
    fn enter(context: Handle) -> Result<Self> {
        // SAFETY: a context from the driver.
        check("entering a context", unsafe { sys::cuCtxPushCurrent_v2(context as sys::CUcontext) })?;
        Ok(Self(()))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut context = std::ptr::null_mut();
        // SAFETY: takes back what `enter` pushed.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut context) };
    }
}

/// One attribute of an address; `None` if the driver does not know the address.
///
/// # Safety
/// The attribute is of type `T`.
unsafe fn attribute<T: Copy>(pointer: usize, which: Attribute) -> Result<Option<T>> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: writes a value of the attribute's type; any address is allowed.
    let code =
        unsafe { sys::cuPointerGetAttribute(value.as_mut_ptr().cast(), which, pointer as sys::CUdeviceptr) };
    if code == CUresult::CUDA_ERROR_INVALID_VALUE {
        return Ok(None);
    }
    check("asking for an address", code)?;
    // SAFETY: written by the driver; zeroed before.
    Ok(Some(unsafe { value.assume_init() }))
}

impl Driver for CudaDriver {
    fn name(&self, device: usize) -> Result<String> {
        let mut text = [0 as c_char; 256];
        // SAFETY: writes at most this many bytes, with a final zero.
        check("asking for a device's name", unsafe {
            sys::cuDeviceGetName(text.as_mut_ptr(), text.len() as i32, number_of(device)?)
        })?;
        // SAFETY: as above.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    fn primary_context(&self, device: usize) -> Result<Handle> {
        let mut context = std::ptr::null_mut();
        let device = number_of(device)?;
        // SAFETY: writes one handle. The reference is never released.
        check("retaining the primary context", unsafe {
            sys::cuDevicePrimaryCtxRetain(&raw mut context, device)
        })?;
        Ok(context as Handle)
    }

    fn locate(&self, pointer: usize) -> Result<Option<Location>> {
        // SAFETY: an int.
        let device = unsafe { attribute::<i32>(pointer, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) }?;
        let Some(device) = device.and_then(|device| usize::try_from(device).ok()) else { return Ok(None) };
        // SAFETY: a CUcontext.
        let context = unsafe { attribute::<Handle>(pointer, Attribute::CU_POINTER_ATTRIBUTE_CONTEXT) }?;
        Ok(Some(Location { device, context: context.unwrap_or(0) }))
    }

    fn new_stream(&self, context: Handle) -> Result<Handle> {
        let _current = Current::enter(context)?;
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: writes one handle.
        check("making a stream", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        Ok(stream as Handle)
    }

    fn allocate(&self, context: Handle, stream: Handle, bytes: usize) -> Result<usize> {
        let _current = Current::enter(context)?;
        let mut pointer = 0;
        // SAFETY: writes one address.
        let code = unsafe { sys::cuMemAllocAsync(&raw mut pointer, bytes, stream_of(stream)) };
        if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(out_of_memory(bytes));
        }
        check("allocating memory", code)?;
        Ok(pointer as usize)
    }

    fn free(&self, context: Handle, stream: Handle, pointer: usize) -> Result<()> {
        let _current = Current::enter(context)?;
        // SAFETY: the address came from `allocate`, and its owner was dropped.
        let code = unsafe { sys::cuMemFreeAsync(pointer as sys::CUdeviceptr, stream_of(stream)) };
        check("freeing memory", code)
    }

    fn record(&self, context: Handle, stream: Handle) -> Result<Handle> {
        let _current = Current::enter(context)?;
        let mut event = std::ptr::null_mut();
        // A thread that waits for the event sleeps.
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint
            | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as c_uint;
        // SAFETY: writes one handle.
        check("making an event", unsafe { sys::cuEventCreate(&raw mut event, flags) })?;
        // SAFETY: both are of this context; 1 and 2 stand for its default streams.
        let recorded = unsafe { sys::cuEventRecord(event, stream_of(stream)) };
        if let Err(error) = check("recording an event", recorded) {
            self.forget(event as Handle);
            return Err(error);
        }
        Ok(event as Handle)
    }

    fn forget(&self, event: Handle) {
        // SAFETY: an event of `record`, destroyed once.
        let _ = unsafe { sys::cuEventDestroy_v2(event as sys::CUevent) };
    }

    fn stream_wait_event(&self, context: Handle, stream: Handle, event: Handle) -> Result<()> {
        let _current = Current::enter(context)?;
        // SAFETY: live handles; the event may be of another context.
        let code = unsafe { sys::cuStreamWaitEvent(stream_of(stream), event as sys::CUevent, 0) };
        check("ordering a stream after an event", code)
    }

    fn allocate_words(&self, context: Handle, bytes: usize) -> Result<usize> {
        let _current = Current::enter(context)?;
        let mut words = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: writes one address.
        let code = unsafe { sys::cuMemHostAlloc(&raw mut words, bytes, flags) };
        check("allocating pinned memory", code)?;
        // SAFETY: just allocated, of this size.
        unsafe { words.cast::<u8>().write_bytes(0, bytes) };
        Ok(words as usize)
    }

    fn stream_wait_word(&self, context: Handle, stream: Handle, address: usize) -> Result<()> {
        let _current = Current::enter(context)?;
        let flags = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as c_uint;
        // SAFETY: memory of `allocate_words`, at the same address on all devices.
        let code =
            unsafe { sys::cuStreamWaitValue32_v2(stream_of(stream), address as sys::CUdeviceptr, 1, flags) };
        check("ordering a stream after work of SYCL", code)
    }

    fn stream_set_word(&self, context: Handle, stream: Handle, address: usize) -> Result<()> {
        let _current = Current::enter(context)?;
        let flags = sys::CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT as c_uint;
        // SAFETY: as above.
        let code =
            unsafe { sys::cuStreamWriteValue32_v2(stream_of(stream), address as sys::CUdeviceptr, 1, flags) };
        check("reporting the end of a copy", code)
    }

    fn wait(&self, event: Handle) -> Result<()> {
        // SAFETY: a live event.
        check("waiting for an event", unsafe { sys::cuEventSynchronize(event as sys::CUevent) })
    }

    unsafe fn copy(
        &self,
        context: Handle,
        stream: Handle,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> Result<()> {
        let _current = Current::enter(context)?;
        let (target, source) = (target as sys::CUdeviceptr, source as sys::CUdeviceptr);
        // SAFETY: the caller's promise.
        check("copying", unsafe { sys::cuMemcpyAsync(target, source, bytes, stream_of(stream)) })
    }

    unsafe fn register(&self, context: Handle, pointer: usize, bytes: usize) -> Result<bool> {
        let _current = Current::enter(context)?;
        // SAFETY: the caller's promise.
        let code = unsafe {
            sys::cuMemHostRegister_v2(pointer as *mut c_void, bytes, sys::CU_MEMHOSTREGISTER_PORTABLE)
        };
        match code {
            // SYCL may also use the device, and may have pinned its host memory already.
            CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED => Ok(false),
            code => check("pinning host memory", code).map(|()| true),
        }
    }

    fn unregister(&self, context: Handle, pointer: usize) {
        if let Ok(_current) = Current::enter(context) {
            // SAFETY: what `register` pinned.
            let _ = unsafe { sys::cuMemHostUnregister(pointer as *mut c_void) };
        }
    }
}

/// The error for an allocation beyond the memory of the current context's device.
fn out_of_memory(bytes: usize) -> Error {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two numbers, which stay 0 after an error.
    let _ = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    let used = total.saturating_sub(free) as u64;
    let (asked, total) = (bytes as u64, total as u64);
    Error::Allocation {
        asked,
        kind: "CUDA",
        device: "the CUDA device".to_owned(),
        used,
        reserved: used,
        limit: None,
        total,
        note: String::new(),
    }
}

fn number_of(device: usize) -> Result<sys::CUdevice> {
    let mut number = 0;
    let ordinal = i32::try_from(device).unwrap_or(i32::MAX);
    // SAFETY: writes one number.
    check("asking for a CUDA device", unsafe { sys::cuDeviceGet(&raw mut number, ordinal) })?;
    Ok(number)
}
