//! What commands, waits and allocations leave for a profile. While none is open, each costs one load of a flag.
//!
//! Why a command runs and which line asked for it is known further up; the layers above leave that in a place of the
//! thread, here.

use super::log::{self, now, on, push};
use super::record::{Kind, Reason, Record, Site};
use crate::device::{Device, Event, Queue, UsmKind};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::Level;

/// What the layers above leave for the commands of this thread.
struct Here {
    reason: Cell<Option<Reason>>,
    site: RefCell<Option<Site>>,
    /// Numbers the calls that have a line.
    call: Cell<u32>,
    /// Copies are made to fill something.
    fills: Cell<bool>,
    /// Calls of usmq into the runtime that are under way: what the runtime does then is not another library's doing.
    own: Cell<u32>,
    thread: Cell<u32>,
}

thread_local! {
    static HERE: Here = const {
        Here {
            reason: Cell::new(None),
            site: RefCell::new(None),
            call: Cell::new(0),
            fills: Cell::new(false),
            own: Cell::new(0),
            thread: Cell::new(0),
        }
    };
}

/// What `f` finds of this thread; nothing while the thread ends, when arrays may still be dropped.
fn here<T>(f: impl FnOnce(&Here) -> T) -> Option<T> {
    HERE.try_with(f).ok()
}

/// Restores the reason of this thread.
#[must_use = "the reason holds while the guard lives"]
pub(crate) struct ReasonGuard(Option<Option<Reason>>);

impl Drop for ReasonGuard {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            here(|here| here.reason.set(before));
        }
    }
}

/// Commands of this thread run for this reason while the guard lives. The innermost reason counts.
pub(crate) fn with_reason(reason: Reason) -> ReasonGuard {
    ReasonGuard(if on() { here(|here| here.reason.replace(Some(reason))) } else { None })
}

/// As [`with_reason`], where nothing further out has given a reason.
pub(crate) fn with_default_reason(reason: Reason) -> ReasonGuard {
    let said = if on() { here(|here| here.reason.get()).flatten() } else { None };
    with_reason(said.unwrap_or(reason))
}

/// Ends what [`as_fill`] began.
#[must_use = "copies are fills while the guard lives"]
pub(crate) struct FillGuard(());

impl Drop for FillGuard {
    fn drop(&mut self) {
        here(|here| here.fills.set(false));
    }
}

/// Copies of this thread count as fills while the guard lives.
pub(crate) fn as_fill() -> FillGuard {
    here(|here| here.fills.set(true));
    FillGuard(())
}

/// Restores the line of this thread.
#[must_use = "the line holds while the guard lives"]
pub(crate) struct SiteGuard(Option<Option<Site>>);

impl Drop for SiteGuard {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            here(|here| here.site.replace(before));
        }
    }
}

/// Commands of this thread come from this line while the guard lives; `find` is asked only when it matters.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn with_site(find: impl FnOnce() -> Option<Site>) -> SiteGuard {
    if !on() {
        return SiteGuard(None);
    }
    let site = find();
    SiteGuard(here(|here| {
        here.call.set(here.call.get().wrapping_add(1));
        here.site.replace(site)
    }))
}

/// A call into the runtime that is to be recorded.
pub(crate) struct Begun {
    at: u64,
}

impl Drop for Begun {
    fn drop(&mut self) {
        here(|here| here.own.set(here.own.get() - 1));
    }
}

/// None while nothing is recorded.
#[inline]
pub(crate) fn begin() -> Option<Begun> {
    on().then(started)
}

#[cold]
fn started() -> Begun {
    here(|here| here.own.set(here.own.get() + 1));
    Begun { at: now() }
}

/// What a command is, for people.
#[derive(Clone, Copy)]
pub(crate) struct Label<'a> {
    pub kind: Kind,
    pub name: Option<&'a Arc<str>>,
    pub bytes: usize,
}

impl Label<'_> {
    pub(crate) const fn new(kind: Kind, bytes: usize) -> Self {
        Self { kind, name: None, bytes }
    }
}

/// A command that was submitted.
#[inline]
pub(crate) fn command(begun: Option<Begun>, label: Label<'_>, event: &Event, after: &[Event]) {
    if tracing::level_enabled!(Level::DEBUG) {
        tell_of_command(label, event, after);
    }
    if let Some(begun) = begun {
        submitted(&begun, label, event, after);
    }
}

#[cold]
fn tell_of_command(label: Label<'_>, event: &Event, after: &[Event]) {
    tracing::debug!(
        target: "usmq",
        kind = label.kind.name(),
        name = label.name.map(|name| &**name),
        bytes = label.bytes,
        queue = %event.queue(),
        waits_for = after.len(),
        "submitted"
    );
}

#[cold]
fn submitted(begun: &Begun, label: Label<'_>, event: &Event, after: &[Event]) {
    let waited_for = after.iter().map(|event| event.record().load(Ordering::Relaxed)).filter(|id| *id != 0);
    let mut record = record(label, Some(event.queue()), (begun.at, now()));
    record.waited_for = waited_for.collect();
    if let Some(id) = push(record) {
        event.record().store(id, Ordering::Relaxed);
        log::add(id, event);
    }
}

/// The host has waited: for one event, or for all of a queue.
#[inline]
pub(crate) fn waited(begun: Option<Begun>, queue: &Queue, of: Option<&Event>) {
    if let Some(begun) = begun {
        host_waited(&begun, queue, of);
    }
}

#[cold]
fn host_waited(begun: &Begun, queue: &Queue, of: Option<&Event>) {
    let mut record = record(Label::new(Kind::Wait, 0), Some(queue), (begun.at, now()));
    record.waited_for = of.map(|event| event.record().load(Ordering::Relaxed)).into_iter().collect();
    record.waited_for.retain(|id| *id != 0);
    record.seen = record.called.1;
    // A moment at which ends can be seen without anyone looking.
    log::poll(0);
    push(record);
}

/// The host has built a kernel.
pub(crate) fn built(begun: Option<Begun>, name: &Arc<str>, device: &Device) {
    if let Some(begun) = begun {
        let label = Label { kind: Kind::Build, name: Some(name), bytes: 0 };
        let mut record = record(label, None, (begun.at, now()));
        (record.device, record.seen) = (Some(device.clone()), record.called.1);
        push(record);
    }
}

/// Memory of a device was taken from a pool, or given back.
#[inline]
pub(crate) fn memory(begun: Option<Begun>, kind: Kind, bytes: usize, hit: bool, place: (&Device, UsmKind)) {
    if tracing::level_enabled!(Level::TRACE) {
        tell_of_memory(kind, bytes, place);
    }
    if let Some(begun) = begun {
        used(&begun, kind, bytes, hit, place);
    }
}

#[cold]
fn tell_of_memory(kind: Kind, bytes: usize, (device, usm): (&Device, UsmKind)) {
    tracing::trace!(target: "usmq", kind = kind.name(), bytes, usm = usm.name(), %device, "memory");
}

#[cold]
fn used(begun: &Begun, kind: Kind, bytes: usize, hit: bool, (device, usm): (&Device, UsmKind)) {
    let mut record = record(Label::new(kind, bytes), None, (begun.at, now()));
    (record.device, record.usm, record.hit) = (Some(device.clone()), Some(usm), hit);
    record.seen = record.called.1;
    push(record);
}

fn record(label: Label<'_>, queue: Option<&Queue>, called: (u64, u64)) -> Record {
    let known = here(|here| {
        let site = here.site.try_borrow().ok().and_then(|site| site.clone());
        (here.reason.get(), site, here.fills.get(), thread_number(here), here.call.get())
    });
    let (reason, site, fills, thread, call) = known.unwrap_or_default();
    Record {
        id: 0,
        kind: if fills && label.kind == Kind::Copy { Kind::Fill } else { label.kind },
        reason: reason.unwrap_or(Reason::Explicit),
        queue: queue.cloned(),
        device: queue.map(|queue| queue.device().clone()),
        name: label.name.cloned(),
        bytes: label.bytes as u64,
        usm: None,
        hit: false,
        site,
        call,
        thread,
        called,
        stamps: None,
        seen: 0,
        waited_for: SmallVec::new(),
    }
}

/// Threads are numbered in the order of their first record.
fn thread_number(here: &Here) -> u32 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    if here.thread.get() == 0 {
        here.thread.set(LAST.fetch_add(1, Ordering::Relaxed) as u32 + 1);
    }
    here.thread.get()
}

/// Whether a call into the runtime on this thread is one of usmq.
pub(crate) fn is_own() -> bool {
    here(|here| here.own.get() != 0).unwrap_or(true)
}

/// A call of another library into the runtime.
pub(crate) fn foreign_call(name: Arc<str>, bytes: usize, called: (u64, u64)) {
    if on() {
        let mut record = record(Label { kind: Kind::Call, name: Some(&name), bytes }, None, called);
        (record.seen, record.reason) = (called.1, Reason::Explicit);
        push(record);
    }
}
