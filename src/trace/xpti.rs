//! Traces calls of other libraries into the SYCL runtime by XPTI, the runtime's tracing framework.
//!
//! Source: `xpti_trace_framework.h` and `ur_api.h`. The framework reports each call of Unified Runtime before
//! and after, on the calling thread, with pointers to its arguments.

use super::foreign;
use super::recorder::{self, Label};
use super::{Kind, Reason, log, ur};
use crate::error::{Error, Result, spelled};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// A traced call: the numbers are those of its arguments in `ur_api.h`.
enum Traced {
    /// A command; the queue is argument 0.
    Command(Shape),
    Wait,
    /// The argument that is an array of devices, if the call has one.
    Build(Option<usize>),
    /// The arguments that are the device, the size and the place of the address.
    Allocate(&'static str, Option<usize>, usize, usize),
    /// The argument that is the place of the new queue.
    NewQueue(usize),
    /// The argument that is the place of the new kernel; whether its name is the one before.
    NewKernel(usize, bool),
}

/// The arguments of a call that submits a command.
struct Shape {
    kind: Kind,
    title: Option<&'static str>,
    kernel: Option<usize>,
    /// Factors of the number of bytes.
    bytes: &'static [usize],
    copied: Direction,
    event: usize,
}

enum Direction {
    /// The arguments that are destination and source.
    ByAddress(usize, usize),
    /// The argument that is the host's memory.
    FromHost(usize),
    ToHost(usize),
    Unknown,
}

fn traced(function: &str) -> Option<Traced> {
    use Direction::{ByAddress, FromHost, ToHost, Unknown};
    let kernel = |event| Shape {
        kind: Kind::Kernel,
        title: None,
        kernel: Some(1),
        bytes: &[],
        copied: Unknown,
        event,
    };
    let moved = |kind, bytes, copied, event| Shape { kind, title: None, kernel: None, bytes, copied, event };
    let graph = Shape { title: Some("command buffer"), kernel: None, ..kernel(4) };
    Some(match function {
        "urEnqueueKernelLaunch" => Traced::Command(kernel(9)),
        "urEnqueueKernelLaunchWithArgsExp" => Traced::Command(kernel(11)),
        "urEnqueueCommandBufferExp" => Traced::Command(graph),
        "urEnqueueUSMMemcpy" => Traced::Command(moved(Kind::Copy, &[4], ByAddress(2, 3), 7)),
        "urEnqueueUSMMemcpy2D" => Traced::Command(moved(Kind::Copy, &[6, 7], ByAddress(2, 4), 10)),
        "urEnqueueMemBufferRead" => Traced::Command(moved(Kind::Copy, &[4], ToHost(5), 8)),
        "urEnqueueMemBufferWrite" => Traced::Command(moved(Kind::Copy, &[4], FromHost(5), 8)),
        "urEnqueueMemBufferCopy" => Traced::Command(moved(Kind::Copy, &[5], Unknown, 8)),
        "urEnqueueUSMFill" => Traced::Command(moved(Kind::Fill, &[4], Unknown, 7)),
        "urEnqueueUSMFill2D" => Traced::Command(moved(Kind::Fill, &[5, 6], Unknown, 9)),
        "urEnqueueEventsWait" | "urEnqueueEventsWaitWithBarrier" => {
            Traced::Command(moved(Kind::Barrier, &[], Unknown, 3))
        }
        "urEnqueueEventsWaitWithBarrierExt" => Traced::Command(moved(Kind::Barrier, &[], Unknown, 4)),
        "urUSMDeviceAlloc" => Traced::Allocate("device", Some(1), 4, 5),
        "urUSMSharedAlloc" => Traced::Allocate("shared", Some(1), 4, 5),
        "urUSMHostAlloc" => Traced::Allocate("host", None, 3, 4),
        "urEventWait" | "urQueueFinish" => Traced::Wait,
        "urProgramBuild" | "urProgramCompile" | "urProgramLink" => Traced::Build(None),
        "urProgramBuildExp" | "urProgramCompileExp" | "urProgramLinkExp" => Traced::Build(Some(2)),
        "urQueueCreate" => Traced::NewQueue(3),
        "urQueueCreateWithNativeHandle" => Traced::NewQueue(4),
        "urKernelCreate" => Traced::NewKernel(2, true),
        "urKernelCreateWithNativeHandle" => Traced::NewKernel(4, false),
        _ => return None,
    })
}

/// Kernel names by handle.
static KERNELS: Mutex<Option<HashMap<usize, Arc<str>>>> = Mutex::new(None);

/// The process that subscribed.
static PROCESS: AtomicU32 = AtomicU32::new(0);

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
    if !ur::is_usable() {
        return Err(refuse("libur_loader.so.0 is not loaded, or lacks a function that reports on commands"));
    }
    PROCESS.store(std::process::id(), Ordering::Relaxed);
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

/// Called by the runtime. Nothing here may panic, run code of Python, or hold a lock while it calls the runtime.
extern "C" fn called(moment: u16, _: *const c_void, _: *const c_void, _: u64, call: *const Call) {
    // SAFETY: the framework passes the type of its header, or null.
    let Some(call) = (unsafe { call.as_ref() }) else { return };
    // Another thread may have held a lock when this child was forked.
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
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
    if call.name.is_null() {
        return;
    }
    // SAFETY: a C string of the runtime.
    let Ok(function) = (unsafe { CStr::from_ptr(call.name) }).to_str() else { return };
    // SAFETY: a call that is active.
    let arguments = unsafe { Arguments::new(call) };
    if moment == BEGIN {
        match function {
            "urQueueRelease" => arguments.value(0).into_iter().for_each(foreign::forget_queue),
            "urUSMFree" if !recorder::is_own() => {
                arguments.value(1).into_iter().for_each(|address| foreign::freed(address, now));
            }
            _ => {}
        }
        return;
    }
    let Ok(Some(begun)) = begun else { return };
    let Some(traced) = traced(function) else { return };
    if !call.succeeded() {
        return;
    }
    match traced {
        Traced::NewQueue(place) => arguments.pointee(place).into_iter().for_each(foreign::forget_queue),
        Traced::NewKernel(place, is_named) => remember_kernel(&arguments, place, is_named),
        _ if !log::on() || recorder::is_own() => {}
        Traced::Command(shape) => command(&arguments, &shape, (begun, now)),
        Traced::Wait => foreign::waited((begun, now)),
        Traced::Build(devices) => {
            foreign::built(devices.and_then(|number| arguments.pointee(number)), (begun, now));
        }
        Traced::Allocate(usm, device, bytes, place) => {
            let device = device.and_then(|number| arguments.value(number));
            if let (Some(bytes), Some(address)) = (arguments.value(bytes), arguments.pointee(place)) {
                foreign::allocated(address, (device, usm), bytes, (begun, now));
            }
        }
    }
}

impl Call {
    /// `UR_RESULT_SUCCESS`.
    fn succeeded(&self) -> bool {
        // SAFETY: the framework passes the address of an `ur_result_t`, or null.
        unsafe { self.result.cast::<c_int>().as_ref() }.is_none_or(|result| *result == 0)
    }
}

/// The arguments of an active call. The numbers below are those of its function in `ur_api.h`.
struct Arguments<'a>(&'a Call);

impl<'a> Arguments<'a> {
    /// # Safety
    /// The call is active; the framework has filled it in.
    unsafe fn new(call: &'a Call) -> Self {
        Self(call)
    }

    /// The place of an argument; null without one.
    fn place(&self, number: usize) -> *const c_void {
        if self.0.arguments.is_null() {
            return std::ptr::null();
        }
        // SAFETY: the function has this argument; each entry points to one.
        let entry = unsafe { self.0.arguments.add(number) };
        // SAFETY: as above.
        unsafe { *entry }
    }

    /// A handle, an address or a size.
    fn value(&self, number: usize) -> Option<usize> {
        // SAFETY: the framework passes the addresses of arguments of this size, or null.
        unsafe { self.place(number).cast::<usize>().as_ref() }.copied()
    }

    /// The first value in the array that an argument points to; None for a null pointer.
    fn pointee(&self, number: usize) -> Option<usize> {
        let place = std::ptr::with_exposed_provenance::<usize>(self.value(number)?);
        // SAFETY: this argument is an array of handles or addresses, or null.
        unsafe { place.as_ref() }.copied()
    }

    /// The array of handles whose `uint32_t` length is the argument before it.
    fn array(&self, number: usize) -> &[usize] {
        // SAFETY: as for values, for an argument of this type.
        let length = unsafe { self.place(number - 1).cast::<u32>().as_ref() }.copied().unwrap_or(0);
        let place = std::ptr::with_exposed_provenance::<usize>(self.value(number).unwrap_or(0));
        if place.is_null() {
            return &[];
        }
        // SAFETY: this argument is an array of that length, which lives as long as the call is active.
        unsafe { std::slice::from_raw_parts(place, length as usize) }
    }

    fn text(&self, number: usize) -> Option<&CStr> {
        let text = std::ptr::with_exposed_provenance::<c_char>(self.value(number)?);
        // SAFETY: this argument is a C string, or null.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
    }
}

fn command(arguments: &Arguments<'_>, shape: &Shape, called: (u64, u64)) {
    // SAFETY: the first argument is the queue, which is alive during the call.
    let queue = arguments.value(0).and_then(|queue| unsafe { foreign::queue(queue) });
    let Some(queue) = queue else { return };
    let value = |number: usize| arguments.value(number).unwrap_or(0);
    let bytes = shape.bytes.iter().map(|number| value(*number)).reduce(|all, next| all.saturating_mul(next));
    let kernel = shape.kernel.and_then(|number| KERNELS.lock().as_ref()?.get(&value(number)).cloned());
    let name = kernel.or_else(|| shape.title.map(Arc::from));
    let (reason, host) = match shape.copied {
        Direction::FromHost(host) => (Reason::HostWrite, value(host)),
        Direction::ToHost(host) => (Reason::HostRead, value(host)),
        Direction::ByAddress(to, from) => foreign::direction(&queue, value(to), value(from)),
        Direction::Unknown => (Reason::Explicit, 0),
    };
    let label = Label { kind: shape.kind, name: name.as_ref(), bytes: bytes.unwrap_or(0) };
    // The list of events to wait for is the argument before the new event.
    let events = (arguments.pointee(shape.event).unwrap_or(0), arguments.array(shape.event - 1));
    // SAFETY: the place of the event has the new one, which the caller has not got yet, or is null.
    unsafe { foreign::submitted(queue, label, (reason, host), called, events) };
}

/// Records the name of a new kernel, or forgets that of an earlier one with this handle.
fn remember_kernel(arguments: &Arguments<'_>, place: usize, is_named: bool) {
    let Some(handle) = arguments.pointee(place) else { return };
    let name = arguments.text(place - 1).filter(|_| is_named).map(|name| Arc::from(readable(name)));
    let mut kernels = KERNELS.lock();
    let kernels = kernels.get_or_insert_with(HashMap::new);
    match name {
        Some(name) => kernels.insert(handle, name),
        None => kernels.remove(&handle),
    };
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
