//! Commands, queues and memory of other libraries, as the runtime's trace reports them.

use super::log;
use super::record::{Completion, DeviceHandle, Kind, QueueHandle, Reason, Site, TracedDevice, TracedQueue};
use super::recorder::{Label, record_at};
use super::ur::{self, Handle, Place};
use crate::runtime::{Interned, exit};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};

/// A device as the runtime knows it.
struct Device {
    name: String,
    native: Option<usize>,
}

impl TracedDevice for Device {
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn filter_and_parent(&self) -> (&str, Option<usize>) {
        ("device of another library", None)
    }

    fn foreign_native(&self) -> Option<usize> {
        self.native
    }
}

pub(super) struct Queue {
    info: ur::QueueInfo,
    device: DeviceHandle,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue of another library on {}", self.device.name())
    }
}

impl TracedQueue for Queue {
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn in_order(&self) -> bool {
        self.info.in_order
    }

    fn device(&self) -> DeviceHandle {
        self.device.clone()
    }

    fn keeps_timestamps(&self) -> bool {
        self.info.keeps_timestamps
    }
}

/// A command of another library.
struct Command {
    queue: Arc<Queue>,
    /// None if its submitter did not ask for an event: its end is unknown.
    event: Option<ur::Event>,
    record: AtomicU64,
}

/// The numbers of the records of commands whose events are kept, by event.
static RECORDS: LazyLock<Mutex<HashMap<Handle, u64>>> = LazyLock::new(Mutex::default);

impl Drop for Command {
    fn drop(&mut self) {
        // In a forked child a thread that it lacks may hold the lock.
        if let Some(event) = self.event.as_ref().filter(|_| ur::is_usable()) {
            RECORDS.lock().remove(&event.handle());
        }
    }
}

impl Completion for Command {
    fn queue_handle(&self) -> QueueHandle {
        Interned::Counted(self.queue.clone())
    }

    fn record(&self) -> &AtomicU64 {
        &self.record
    }

    fn is_over(&self) -> bool {
        self.event.as_ref().is_none_or(ur::Event::is_over)
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn recorded_timestamps(&self) -> Option<[u64; 3]> {
        self.event.as_ref().filter(|_| self.queue.info.keeps_timestamps)?.times()
    }
}

#[derive(Clone)]
struct Memory {
    /// None for host USM.
    device: Option<DeviceHandle>,
    usm: &'static str,
    bytes: usize,
    /// As [`log::sessions`] at the allocation.
    sessions: u64,
}

/// The runtime's objects that are known, by handle.
#[derive(Default)]
struct Known {
    devices: HashMap<Handle, Arc<Device>>,
    queues: HashMap<Handle, Arc<Queue>>,
    /// By address.
    memory: HashMap<usize, Memory>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// The device of a handle.
fn device(handle: Handle) -> Arc<Device> {
    let known = KNOWN.lock().devices.get(&handle).cloned();
    known.unwrap_or_else(|| {
        // Without the lock: the runtime may wait for another thread, which may need it.
        // SAFETY: the device of a call that is active.
        let (name, native) = unsafe { ur::describe_device(handle) };
        let device = Arc::new(Device { name: name.unwrap_or_else(|| "unknown device".to_owned()), native });
        KNOWN.lock().devices.entry(handle).or_insert(device).clone()
    })
}

/// The queue of a handle; None if the runtime does not describe it.
///
/// # Safety
/// The handle is that of a live queue.
pub(super) unsafe fn queue(handle: Handle) -> Option<Arc<Queue>> {
    if let Some(queue) = KNOWN.lock().queues.get(&handle) {
        return Some(queue.clone());
    }
    // SAFETY: the caller's promise.
    let info = unsafe { ur::describe_queue(handle) }?;
    let queue = Arc::new(Queue { device: device(info.device), info });
    Some(KNOWN.lock().queues.entry(handle).or_insert(queue).clone())
}

/// The handle may belong to another queue soon.
pub(super) fn forget_queue(handle: Handle) {
    KNOWN.lock().queues.remove(&handle);
}

/// The reason of a copy between these addresses, and the address of ordinary host memory, or 0.
pub(super) fn direction(queue: &Queue, to: usize, from: usize) -> (Reason, usize) {
    // SAFETY: the queue of a call that is active, which keeps its context.
    let place = |address| unsafe { ur::place(queue.info.context, address) };
    match (place(to), place(from)) {
        (Place::Device, Place::Ordinary) => (Reason::HostWrite, from),
        (Place::Ordinary | Place::HostUsm, Place::Device) => (Reason::HostRead, to),
        _ => (Reason::Explicit, 0),
    }
}

/// The line of the program that calls, and whether a thread of the program calls, not one of the runtime's.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub line: fn() -> Option<Site>,
    pub is_its_thread: fn() -> bool,
}

static PROGRAM: OnceCell<Program> = OnceCell::new();

/// Tells how to find the program's lines. Both functions are called inside of calls of the runtime: they may not run the
/// program's code.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn find_lines(program: Program) {
    let _ = PROGRAM.set(program);
}

fn line() -> Option<Site> {
    PROGRAM.get().and_then(|program| (program.line)())
}

fn is_of_program() -> bool {
    PROGRAM.get().is_none_or(|program| (program.is_its_thread)())
}

/// Records a submitted command that waits for these events, with its reason and, of a copy, the address of the host's memory.
///
/// # Safety
/// The event is null or that of a live event.
pub(super) unsafe fn submitted(
    queue: Arc<Queue>,
    label: Label<'_>,
    (reason, host): (Reason, usize),
    called: (u64, u64),
    (handle, after): (Handle, &[Handle]),
) {
    // SAFETY: the caller's promise.
    let event = if handle == 0 { None } else { unsafe { ur::Event::retain(handle) } };
    let command = Arc::new(Command { queue, event, record: AtomicU64::new(0) });
    let mut record = record_at(line(), label, Some(command.queue_handle()), called);
    (record.reason, record.host) = (reason, host);
    {
        let records = RECORDS.lock();
        record.waited_for = after.iter().filter_map(|event| records.get(event)).copied().collect();
    }
    if let Some(id) = log::push(record) {
        if command.event.is_some() {
            RECORDS.lock().insert(handle, id);
        }
        log::add(id, command);
    }
}

/// Records memory that another library allocated.
pub(super) fn allocated(
    address: usize,
    (of, usm): (Option<Handle>, &'static str),
    bytes: usize,
    called: (u64, u64),
) {
    let device = of.map(|handle| -> DeviceHandle { device(handle) });
    let memory = Memory { device, usm, bytes, sessions: log::sessions() };
    KNOWN.lock().memory.insert(address, memory.clone());
    memory_changed(Kind::Allocate, memory, called);
}

/// Records that another library frees this memory, if its allocation was recorded. Call it before the runtime frees it: the
/// address may be another allocation's at once.
pub(super) fn freed(address: usize, now: u64) {
    let memory = KNOWN.lock().memory.remove(&address);
    if let Some(memory) = memory.filter(|memory| log::on() && memory.sessions == log::sessions()) {
        memory_changed(Kind::Free, memory, (now, now));
    }
}

fn memory_changed(kind: Kind, memory: Memory, called: (u64, u64)) {
    let mut record = record_at(line(), Label::new(kind, memory.bytes), None, called);
    (record.device, record.usm, record.seen) = (memory.device, Some(memory.usm), called.1);
    log::push(record);
}

/// Records a build; the device is that of the handle, if the call has one.
pub(super) fn built(of: Option<Handle>, called: (u64, u64)) {
    let name: Arc<str> = "program".into();
    let label = Label { kind: Kind::Build, name: Some(&name), bytes: 0 };
    let mut record = record_at(line(), label, None, called);
    record.device = of.map(|handle| -> DeviceHandle { device(handle) });
    record.seen = called.1;
    log::push(record);
}

/// Records a wait, unless a thread of the runtime waits.
pub(super) fn waited(called: (u64, u64)) {
    if !is_of_program() || exit::is_helper() {
        return;
    }
    let mut record = record_at(line(), Label::new(Kind::Wait, 0), None, called);
    record.seen = called.1;
    log::push(record);
}
