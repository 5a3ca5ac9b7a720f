//! The end of a process: `exit` in code that usmq calls, code that does not return, and uses of usmq after its exit handler.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]
#![allow(clippy::panic, reason = "a child without its case is a test that fails")]

#[path = "common/leaks.rs"]
mod leaks;

#[path = "common/gate.rs"]
mod gate;

use gate::Gate;
use std::ffi::c_void;
use std::future::IntoFuture;
use std::process::{Command, Output, exit};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};
use usmq::interop::arrow::{ArrowDeviceArray, ArrowSchema, Column, SyncMode};
use usmq::interop::dlpack::{
    DLManagedTensorVersioned, Export, ExportedTensor, ForeignTensor, Import, export, import,
};
use usmq::{Array, DType, Elementwise, Error, Event, Queue, Result, UsmKind, current_queue, devices};

const CASE: &str = "USMQ_TEST_EXIT_CASE";

/// Runs a case in a process of its own; none may take longer than its limit.
fn run(case: &str) -> Output {
    let child = Command::new("timeout")
        .arg("60")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CASE, case)
        .env("ASAN_OPTIONS", leaks::without_leaks())
        .output()
        .unwrap();
    println!("{case}: {}\n{}", child.status, String::from_utf8_lossy(&child.stderr));
    child
}

fn exits_with(case: &str, status: i32) -> String {
    let output = run(case);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{case}: {text}");
    text
}

/// The body of each child.
#[test]
fn child() -> Result<()> {
    match std::env::var(CASE).as_deref() {
        Err(_) => Ok(()),
        Ok("exit in a callback") => exit_in_a_callback(false),
        Ok("exit in a callback of work in flight") => exit_in_a_callback(true),
        Ok("exit in an owner") => exit_in_an_owner(),
        Ok("exit in a waker") => exit_in_a_waker(),
        Ok("exit beside a callback that sleeps") => exit_beside_a_callback(Then::Sleeps),
        Ok("exit beside a callback that calls usmq") => exit_beside_a_callback(Then::CallsUsmq),
        Ok("exit beside a callback that waits") => exit_beside_a_callback(Then::Waits),
        Ok("exit beside a callback that exits") => exit_beside_a_callback(Then::Exits),
        Ok("exit beside an owner that sleeps") => exit_beside_an_owner(),
        Ok("uses after the handler") => uses_after_the_handler(),
        Ok(other) => panic!("no case {other:?}"),
    }
}

/// Runs for about as many milliseconds, on a slow machine longer.
fn work(milliseconds: u32) -> Result<(Array, Event)> {
    let x = Array::zeros::<u32>(4)?;
    let steps = 300_000 * milliseconds;
    let text = format!("for (unsigned k = 0; k < {steps}u; ++k) x[i] = x[i] * 1664525u + 1013904223u;");
    // SAFETY: work-item i touches element i of x only.
    let spin = unsafe { Elementwise::new("unsigned *x", &text) }?;
    let event = spin.launch((&x,))?;
    Ok((x, event))
}

/// Until another thread ends the process.
fn sleep() -> ! {
    std::thread::sleep(Duration::from_secs(30));
    exit(99)
}

fn exit_in_a_callback(in_flight: bool) -> Result<()> {
    let gate = Gate::new(&current_queue()?)?;
    if !in_flight {
        gate.open();
        gate.event.wait()?;
    }
    gate.event.on_complete(|| exit(7));
    gate.open();
    sleep()
}

/// An owner of host memory that ends the process, or sleeps, where it is dropped.
struct Owner(Sender<()>, fn());

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
        (self.1)();
    }
}

/// A DLPack tensor of the host, with an owner.
#[repr(C)]
struct HostTensor {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut HostTensor)>,
    flags: u64,
    data: *mut c_void,
    device: [i32; 2],
    dimensions: i32,
    code: [u8; 4],
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

static MEMORY: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

unsafe extern "C" fn delete_host(tensor: *mut HostTensor) {
    // SAFETY: made by `host_tensor`, deleted once.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(tensor.context.cast::<Owner>()) });
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(tensor.shape) });
}

fn host_tensor(owner: Owner) -> Result<Array> {
    let tensor = Box::new(HostTensor {
        major: 1,
        minor: 0,
        context: Box::into_raw(Box::new(owner)).cast(),
        deleter: Some(delete_host),
        flags: 0,
        data: MEMORY.as_ptr().cast_mut().cast(),
        device: [1, 0],
        dimensions: 1,
        code: [1, 32, 1, 0],
        shape: Box::into_raw(Box::new(64)),
        strides: std::ptr::null_mut(),
        offset: 0,
    });
    let raw = Box::into_raw(tensor).cast::<DLManagedTensorVersioned>();
    // SAFETY: a valid tensor of this layout, which no other code uses.
    import(unsafe { ForeignTensor::from_raw(raw) }?, Import { copy: Some(false), ..Import::default() })
}

fn dropped_owner(then: fn()) -> Result<Receiver<()>> {
    let (sender, dropped) = channel();
    drop(host_tensor(Owner(sender, then))?);
    Ok(dropped)
}

fn exit_in_an_owner() -> Result<()> {
    let _dropped = dropped_owner(|| exit(7))?;
    sleep()
}

struct Exits;

impl Wake for Exits {
    fn wake(self: Arc<Self>) {
        exit(7)
    }
}

fn exit_in_a_waker() -> Result<()> {
    let gate = Gate::new(&current_queue()?)?;
    let mut future = std::pin::pin!((&gate.event).into_future());
    let waker = Waker::from(Arc::new(Exits));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    gate.open();
    sleep()
}

#[derive(Clone, Copy)]
enum Then {
    Sleeps,
    CallsUsmq,
    Waits,
    Exits,
}

fn exit_beside_a_callback(then: Then) -> Result<()> {
    let (x, event) = work(1)?;
    let (sender, begun) = channel();
    let long = matches!(then, Then::Waits).then(|| work(1500)).transpose()?;
    event.on_complete(move || {
        sender.send(()).unwrap();
        match then {
            Then::Sleeps => std::thread::sleep(Duration::from_secs(30)),
            Then::CallsUsmq => loop {
                if let Err(error) = x.to_vec::<u32>() {
                    LATE_CALLBACK.store(true, Ordering::Release);
                    eprintln!("late callback: {error}");
                    std::thread::sleep(Duration::from_secs(30));
                }
            },
            Then::Exits => {
                std::thread::sleep(Duration::from_millis(300));
                // SAFETY: ends the process; Rust's `exit` would stop this thread before.
                unsafe { libc::exit(9) }
            }
            Then::Waits => {
                long.unwrap().1.wait().unwrap();
                eprintln!("waited");
            }
        }
    });
    begun.recv().unwrap();
    exit(7)
}

fn exit_beside_an_owner() -> Result<()> {
    let dropped = dropped_owner(|| std::thread::sleep(Duration::from_secs(30)))?;
    dropped.recv().unwrap();
    exit(7)
}

static LATE_CALLBACK: AtomicBool = AtomicBool::new(false);

/// Runs after usmq's handler and after the static destructors of the SYCL runtime.
extern "C" fn at_the_very_end() {
    let begun = Instant::now();
    if std::env::var(CASE).is_ok_and(|case| case == "exit beside a callback that calls usmq") {
        while !LATE_CALLBACK.load(Ordering::Acquire) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    use_late("an ELF destructor");
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_VERY_END: extern "C" fn() = at_the_very_end;

/// Objects that code at the end of the process uses and drops.
struct Kept {
    queue: Queue,
    array: Array,
    host: Array,
    event: Event,
    others: Vec<Box<dyn Send>>,
}

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// Whether the drop of a foreign owner has run.
static RELEASED: AtomicBool = AtomicBool::new(false);

extern "C" fn after_the_handler() {
    use_late("atexit");
}

fn use_late(place: &str) {
    let Some(kept) = KEPT.lock().unwrap().pop() else { return };
    let results = [
        devices().map(drop),
        current_queue().map(drop),
        kept.queue.wait(),
        kept.array.to_vec::<u32>().map(drop),
        kept.host.to_vec::<u32>().map(drop),
        kept.array.copy().map(drop),
        kept.array.fill(1u32).map(drop),
        Array::uninit(4, DType::U32, UsmKind::Device, &kept.queue).map(drop),
        kept.queue.barrier(&[]).map(drop),
        kept.event.timestamps().map(drop),
        Column::from_array("x", &kept.array).and_then(|x| x.export_device(SyncMode::Now)).map(drop),
        export::<DLManagedTensorVersioned>(&kept.array, Export::default()).map(drop),
    ];
    for (number, result) in results.iter().enumerate() {
        match result {
            Err(Error::Exit | Error::Value { .. }) => {}
            other => eprintln!("{place}: use {number} gave {other:?}"),
        }
    }
    kept.event.on_complete(|| eprintln!("a callback ran"));
    drop(kept);
    eprintln!("{place}: done, released {}", RELEASED.swap(false, Ordering::AcqRel));
}

fn kept() -> Result<Kept> {
    let queue = current_queue()?;
    let array = Array::full(4, 3u32)?;
    let (sender, receiver) = channel();
    // It lives as long as the owner.
    std::mem::forget(receiver);
    let host = host_tensor(Owner(sender, || RELEASED.store(true, Ordering::Release)))?;
    // SAFETY: work-item i touches element i of x only.
    let kernel = unsafe { Elementwise::new("unsigned *x", "x[i] += 1") }?;
    let event = kernel.launch((&array,))?;
    let mut others: Vec<Box<dyn Send>> = Vec::new();
    for kind in UsmKind::ALL {
        let x = Array::uninit(100_000, DType::U32, kind, &queue)?;
        let column = Column::from_array("x", &x)?;
        let arrow: ArrowDeviceArray = column.export_device(SyncMode::Event)?;
        let schema: ArrowSchema = column.export_schema()?;
        let tensor: ExportedTensor<DLManagedTensorVersioned> = export(&x, Export::default())?;
        others.push(Box::new((arrow, schema, tensor, x.fill(0u32)?, column)));
    }
    let own = Queue::builder(queue.device()).profiling().build()?;
    let context = usmq::Context::new(&[queue.device().clone()])?;
    let elsewhere = Queue::new(queue.device(), Some(&context), Default::default())?;
    let there = Array::uninit(10, DType::U8, UsmKind::Shared, &elsewhere)?;
    others.push(Box::new((kernel, own, elsewhere, context, there, event.clone().into_future())));
    Ok(Kept { queue, array, host, event, others })
}

fn uses_after_the_handler() -> Result<()> {
    // Before the first use of a device, so that it runs after usmq's handler.
    // SAFETY: registers a function of this program.
    unsafe { libc::atexit(after_the_handler) };
    let both = [kept()?, kept()?];
    for kept in &both {
        kept.event.wait()?;
        assert_eq!(kept.others.len(), 4);
    }
    KEPT.lock().unwrap().extend(both);
    exit(7)
}

#[test]
fn exit_in_a_callback_a_waker_and_an_owner_ends_the_process_with_its_status() {
    for case in
        ["exit in a callback", "exit in a callback of work in flight", "exit in an owner", "exit in a waker"]
    {
        let text = exits_with(case, 7);
        assert!(!text.contains("usmq:"), "{case}: {text}");
    }
}

#[test]
fn a_process_ends_beside_foreign_code_that_does_not_return_and_says_so() {
    for case in [
        "exit beside a callback that sleeps",
        "exit beside a callback that exits",
        "exit beside an owner that sleeps",
    ] {
        let text = exits_with(case, 7);
        assert_eq!(text.matches("usmq: the process ends while a callback").count(), 1, "{case}: {text}");
    }
}

#[test]
fn a_late_callback_gets_an_error_from_each_call() {
    let text = exits_with("exit beside a callback that calls usmq", 7);
    assert!(text.contains("late callback: this process is exiting"), "{text}");
}

#[test]
fn a_callback_inside_a_wait_of_the_runtime_ends_before_the_process() {
    let text = exits_with("exit beside a callback that waits", 7);
    assert!(text.contains("waited"), "{text}");
}

#[test]
fn uses_after_the_exit_handler_are_errors_and_drops_touch_host_memory_only() {
    let text = exits_with("uses after the handler", 7);
    for place in ["atexit", "an ELF destructor"] {
        assert!(text.contains(&format!("{place}: done, released true")), "{text}");
    }
    assert!(!text.contains(" gave ") && !text.contains("a callback ran"), "{text}");
}
