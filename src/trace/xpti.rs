//! Traces calls of other libraries into the SYCL runtime by XPTI, the runtime's tracing framework.
//!
//! Source: `xpti_trace_framework.h` and `ur_api.h`. The framework reports each call of Unified Runtime before
//! and after, on the calling thread, with pointers to its arguments.

use super::{log, recorder};
use crate::error::{Error, Result, spelled};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::Arc;

/// Before and after a function with arguments.
const BEGIN: u16 = 28;
const END: u16 = 29;

type Callback = extern "C" fn(u16, *const c_void, *const c_void, u64, *const Call);
type RegisterStream = unsafe extern "C" fn(*const c_char) -> u8;
type RegisterCallback = unsafe extern "C" fn(u8, u16, Callback) -> i32;
type IsEnabled = unsafe extern "C" fn() -> bool;

/// `xpti::function_with_args_t`.
#[repr(C)]
struct Call {
    number: u32,
    name: *const c_char,
    /// A pointer to each argument, in order.
    arguments: *const *const c_void,
    result: *const c_void,
    reserved: *const c_void,
}

/// The traced properties of a call.
struct Shown {
    title: &'static str,
    /// The argument that is a number of bytes.
    bytes: Option<usize>,
    /// The argument that is a kernel.
    kernel: Option<usize>,
}

fn shown(function: &str) -> Option<Shown> {
    let of = |title, bytes, kernel| Some(Shown { title, bytes, kernel });
    match function {
        "urEnqueueKernelLaunch" | "urEnqueueKernelLaunchWithArgsExp" => of("launch", None, Some(1)),
        "urEnqueueUSMMemcpy" | "urEnqueueMemBufferRead" | "urEnqueueMemBufferWrite" => {
            of("copy", Some(4), None)
        }
        "urEnqueueMemBufferCopy" => of("copy", Some(5), None),
        "urEnqueueUSMFill" => of("fill", Some(4), None),
        "urEnqueueEventsWait" | "urEnqueueEventsWaitWithBarrier" | "urEnqueueEventsWaitWithBarrierExt" => {
            of("barrier", None, None)
        }
        "urUSMDeviceAlloc" => of("allocate device USM", Some(4), None),
        "urUSMSharedAlloc" => of("allocate shared USM", Some(4), None),
        "urUSMHostAlloc" => of("allocate host USM", Some(3), None),
        "urUSMFree" => of("free USM", None, None),
        "urEventWait" => of("wait for events", None, None),
        "urQueueFinish" => of("wait for a queue", None, None),
        "urProgramBuild"
        | "urProgramBuildExp"
        | "urProgramCompile"
        | "urProgramCompileExp"
        | "urProgramLink"
        | "urProgramLinkExp" => of("build", None, None),
        _ => None,
    }
}

/// Kernel names by handle.
static KERNELS: Mutex<Option<HashMap<usize, Arc<str>>>> = Mutex::new(None);

thread_local! {
    /// The begin times of active calls.
    static BEGUN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Subscribes to all calls, once.
pub(crate) fn watch() -> Result<()> {
    static DONE: OnceCell<()> = OnceCell::new();
    DONE.get_or_try_init(register).map(|_: &()| ())
}

fn register() -> Result<()> {
    let refuse = |why: &str| {
        Error::runtime_not_found(format!(
            "cannot trace calls of other libraries: {why}; start the process with {}",
            spelled("`python -m usmq trace`", "the variables that usmq::profile::watch_calls names")
        ))
    };
    let path = std::env::var("XPTI_FRAMEWORK_DISPATCHER")
        .map_err(|_| refuse("tracing is not enabled in the runtime"))?;
    let text = CString::new(path.clone()).map_err(|_| refuse("the tracing framework has no valid path"))?;
    // SAFETY: a C string. The runtime itself loads this library, and it is never closed.
    let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return Err(refuse(&format!("{path} cannot be loaded")));
    }
    let find = |name: &CStr| {
        // SAFETY: an open library and a C string.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if found.is_null() { Err(refuse(&format!("{path} has no {name:?}"))) } else { Ok(found) }
    };
    // SAFETY: the type is that of xpti_trace_framework.h.
    let is_enabled: IsEnabled = unsafe { transmute(find(c"xptiTraceEnabled")?) };
    // SAFETY: as above.
    let stream: RegisterStream = unsafe { transmute(find(c"xptiRegisterStream")?) };
    // SAFETY: as above.
    let callback: RegisterCallback = unsafe { transmute(find(c"xptiRegisterCallback")?) };
    // SAFETY: as above.
    if !unsafe { is_enabled() } {
        return Err(refuse("tracing needs XPTI_TRACE_ENABLE=1 and a subscriber in XPTI_SUBSCRIBERS"));
    }
    // SAFETY: as above, with a C string.
    let stream = unsafe { stream(c"ur.call".as_ptr()) };
    for moment in [BEGIN, END] {
        // SAFETY: as above; the function is never unloaded.
        if unsafe { callback(stream, moment, called) } != 0 {
            return Err(refuse("the tracing framework accepts no further subscriber"));
        }
    }
    Ok(())
}

/// Called by the runtime. Nothing here may panic or call the runtime.
extern "C" fn called(moment: u16, _: *const c_void, _: *const c_void, _: u64, call: *const Call) {
    // SAFETY: the framework passes the type of its header, or null.
    let Some(call) = (unsafe { call.as_ref() }) else { return };
    let now = log::now();
    // Ending threads may still call the runtime.
    let begun = BEGUN.try_with(|begun| {
        let mut begun = begun.try_borrow_mut().ok()?;
        if moment == BEGIN {
            begun.push(now);
            return None;
        }
        begun.pop()
    });
    let Ok(Some(begun)) = begun else { return };
    if call.name.is_null() {
        return;
    }
    // SAFETY: a C string of the runtime.
    let Ok(function) = (unsafe { CStr::from_ptr(call.name) }).to_str() else { return };
    if function == "urKernelCreate" {
        remember_kernel(call);
    }
    if !log::on() || recorder::is_own() {
        return;
    }
    let Some(shown) = shown(function) else { return };
    // SAFETY: the argument of this number is a size, by `ur_api.h`.
    let bytes = shown.bytes.and_then(|number| unsafe { argument::<usize>(call, number) });
    // SAFETY: the argument of this number is a handle, by `ur_api.h`.
    let kernel = shown.kernel.and_then(|number| unsafe { argument::<usize>(call, number) });
    let kernel = kernel.and_then(|kernel| KERNELS.lock().as_ref()?.get(&kernel).cloned());
    let name = kernel.unwrap_or_else(|| shown.title.into());
    recorder::foreign_call(name, bytes.unwrap_or(0), (begun, now));
}

/// # Safety
/// The call has an argument of this number, of type `T`.
unsafe fn argument<T: Copy>(call: &Call, number: usize) -> Option<T> {
    if call.arguments.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; each entry points to an argument.
    let entry = unsafe { call.arguments.add(number) };
    // SAFETY: as above.
    let place = unsafe { *entry }.cast::<T>();
    // SAFETY: as above.
    if place.is_null() { None } else { Some(unsafe { *place }) }
}

/// Records the name of a kernel after `urKernelCreate(program, name, &kernel)`.
fn remember_kernel(call: &Call) {
    // SAFETY: the second argument is a C string, by `ur_api.h`.
    let name = unsafe { argument::<*const c_char>(call, 1) };
    // SAFETY: the third argument points to the new handle.
    let place = unsafe { argument::<*const usize>(call, 2) };
    let (Some(name), Some(place)) = (name, place) else { return };
    if name.is_null() || place.is_null() {
        return;
    }
    // SAFETY: as above, and the call has returned.
    let (name, handle) = (unsafe { CStr::from_ptr(name) }, unsafe { *place });
    KERNELS.lock().get_or_insert_with(HashMap::new).insert(handle, readable(name).into());
}

/// The readable name of a C++ kernel, without its template arguments.
fn readable(mangled: &CStr) -> String {
    unsafe extern "C" {
        /// From the C++ library: the returned text is allocated by `malloc`.
        fn __cxa_demangle(
            name: *const c_char,
            buffer: *mut c_char,
            size: *mut usize,
            status: *mut c_int,
        ) -> *mut c_char;
    }
    let mut status = 0;
    // SAFETY: a C string; the other pointers may be null or are valid for writes.
    let text = unsafe {
        __cxa_demangle(mangled.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), &raw mut status)
    };
    if text.is_null() {
        return mangled.to_string_lossy().into_owned();
    }
    // SAFETY: a C string, as it is not null.
    let whole = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: allocated by `malloc`, and not used any more.
    unsafe { libc::free(text.cast()) };
    short(&whole)
}

/// `typeinfo name for a::b::sort<int, c::d>` becomes `sort`.
fn short(name: &str) -> String {
    let name = name.strip_prefix("typeinfo name for ").unwrap_or(name);
    let name = name.split('<').next().unwrap_or(name);
    let last = name.rsplit("::").find(|part| !part.is_empty()).unwrap_or(name);
    last.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_are_cut_to_what_people_call_them() {
        assert_eq!(short("typeinfo name for dpnp::kernels::sort<int, a::b>"), "sort");
        assert_eq!(short("axpy"), "axpy");
        assert_eq!(readable(c"_ZTSN4dpnp7kernels4sortIiEE"), "sort");
        assert_eq!(readable(c"plain_c_name"), "plain_c_name");
    }
}
