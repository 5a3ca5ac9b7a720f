//! Records commands, waits and allocations for a profile. While no profile is open, each costs one load of a
//! flag.
//!
//! The reason of a command and its source line are known to higher layers, which store them in thread-local
//! state here.

use super::log::{self, now, on, push};
use super::record::{Completion, DeviceHandle, Kind, QueueHandle, Reason, Record, Site};
use super::tell;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tracing::Level;

/// Thread-local state that higher layers set for the commands of this thread.
struct Here {
    reason: Cell<Option<Reason>>,
    site: RefCell<Option<Site>>,
    /// Numbers the calls that have a line.
    call: Cell<u32>,
    /// Copies count as fills.
    fills: Cell<bool>,
    /// Commands continue the one before them.
    continues: Cell<bool>,
    /// Active calls of usmq into the runtime: calls that the runtime makes meanwhile are not another
    /// library's.
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
            continues: Cell::new(false),
            own: Cell::new(0),
            thread: Cell::new(0),
        }
    };
}

/// Runs `f` with this thread's state; None while the thread ends, when arrays may still be dropped.
fn here<T>(f: impl FnOnce(&Here) -> T) -> Option<T> {
    HERE.try_with(f).ok()
}

/// Restores the previous reason of this thread.
#[must_use = "the reason holds while the guard lives"]
pub(crate) struct ReasonGuard(Option<Option<Reason>>);

impl Drop for ReasonGuard {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            here(|here| here.reason.set(before));
        }
    }
}

/// Sets the reason for commands of this thread while the guard lives. The innermost reason wins.
pub(crate) fn with_reason(reason: Reason) -> ReasonGuard {
    ReasonGuard(if on() { here(|here| here.reason.replace(Some(reason))) } else { None })
}

/// As [`with_reason`], unless an outer scope has set a reason.
pub(crate) fn with_default_reason(reason: Reason) -> ReasonGuard {
    let said = if on() { here(|here| here.reason.get()).flatten() } else { None };
    with_reason(said.unwrap_or(reason))
}

/// Clears a flag of this thread.
#[must_use = "the flag holds while the guard lives"]
pub(crate) struct FlagGuard(fn(&Here) -> &Cell<bool>);

impl FlagGuard {
    fn set(flag: fn(&Here) -> &Cell<bool>) -> Self {
        here(|here| flag(here).set(true));
        Self(flag)
    }
}

impl Drop for FlagGuard {
    fn drop(&mut self) {
        here(|here| (self.0)(here).set(false));
    }
}

/// Copies of this thread count as fills while the guard lives.
pub(crate) fn as_fill() -> FlagGuard {
    FlagGuard::set(|here| &here.fills)
}

/// Commands of this thread count as the rest of the command that they wait for, while the guard lives.
pub(crate) fn as_continuation() -> FlagGuard {
    FlagGuard::set(|here| &here.continues)
}

/// Restores the previous source line of this thread.
#[must_use = "the line holds while the guard lives"]
pub(crate) struct SiteGuard(Option<Option<Site>>);

impl Drop for SiteGuard {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            here(|here| here.site.replace(before));
        }
    }
}

/// Whether source lines are also needed without a profile.
static SITES: AtomicBool = AtomicBool::new(false);

/// Keeps source lines also while no profile is open, or ends that.
pub(crate) fn want_sites(wanted: bool) {
    SITES.store(wanted, Ordering::Relaxed);
}

/// The source line of this thread's call, if known.
pub(crate) fn site() -> Option<Site> {
    here(|here| here.site.try_borrow().ok().and_then(|site| site.clone())).flatten()
}

/// Sets the source line for commands of this thread while the guard lives; `find` is called only if needed.
#[cfg_attr(not(feature = "python"), expect(dead_code))]
pub(crate) fn with_site(find: impl FnOnce() -> Option<Site>) -> SiteGuard {
    if !on() && !SITES.load(Ordering::Relaxed) {
        return SiteGuard(None);
    }
    let site = find();
    SiteGuard(here(|here| {
        here.call.set(here.call.get().wrapping_add(1));
        here.site.replace(site)
    }))
}

/// A call into the runtime that will be recorded.
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

/// Description of a command.
#[derive(Clone, Copy)]
pub(crate) struct Label<'a> {
    pub kind: Kind,
    pub name: Option<&'a Arc<str>>,
    pub bytes: usize,
}

impl<'a> Label<'a> {
    pub(crate) const fn new(kind: Kind, bytes: usize) -> Self {
        Self { kind, name: None, bytes }
    }

    fn fields(&self) -> (Kind, Option<&'a Arc<str>>, usize) {
        (self.kind, self.name, self.bytes)
    }
}

/// Records a submitted command.
#[inline]
pub(crate) fn command<C>(begun: Option<Begun>, label: Label<'_>, command: &C, after: &[C])
where
    C: Completion + Clone + 'static,
{
    if tracing::level_enabled!(Level::DEBUG) {
        tell::of_command(label.fields(), command.queue_handle(), after.len());
    }
    if let Some(begun) = begun {
        submitted(&begun, label, command, after);
    }
}

/// Records the work of a command that the host did before it returned.
#[inline]
pub(crate) fn done_by_host(begun: Option<Begun>, label: Label<'_>, queue: impl Into<QueueHandle>) {
    let is_told = tracing::level_enabled!(Level::DEBUG);
    if !is_told && begun.is_none() {
        return;
    }
    let queue = queue.into();
    if is_told {
        tell::of_command(label.fields(), queue.clone(), 0);
    }
    if let Some(begun) = begun {
        let mut record = record(label, Some(queue), (begun.at, now()));
        record.seen = record.called.1;
        push(record);
    }
}

#[cold]
fn submitted<C: Completion + Clone + 'static>(begun: &Begun, label: Label<'_>, command: &C, after: &[C]) {
    let mut record = record(label, Some(command.queue_handle()), (begun.at, now()));
    record.waited_for = numbers(after.iter().map(C::record));
    if let Some(id) = push(record) {
        command.record().store(id, Ordering::Relaxed);
        log::add(id, Arc::new(command.clone()));
    }
}

/// The numbers of the commands that have a record.
fn numbers<'a>(records: impl Iterator<Item = &'a AtomicU64>) -> SmallVec<[u64; 2]> {
    records.map(|record| record.load(Ordering::Relaxed)).filter(|id| *id != 0).collect()
}

/// Records a wait of the host: for the command of a record, or for a queue.
#[inline]
pub(crate) fn waited(begun: Option<Begun>, queue: impl Into<QueueHandle>, of: Option<&AtomicU64>) {
    if let Some(begun) = begun {
        host_waited(&begun, queue.into(), of);
    }
}

#[cold]
fn host_waited(begun: &Begun, queue: QueueHandle, of: Option<&AtomicU64>) {
    let mut record = record(Label::new(Kind::Wait, 0), Some(queue), (begun.at, now()));
    record.waited_for = numbers(of.into_iter());
    record.seen = record.called.1;
    // After a wait, ends can be detected without the poller.
    log::poll(0);
    push(record);
}

/// Records a kernel build on the host.
pub(crate) fn built(begun: Option<Begun>, name: &Arc<str>, device: impl Into<DeviceHandle>) {
    if let Some(begun) = begun {
        let label = Label { kind: Kind::Build, name: Some(name), bytes: 0 };
        let mut record = record(label, None, (begun.at, now()));
        (record.device, record.seen) = (Some(device.into()), record.called.1);
        push(record);
    }
}

/// Whether anything observes allocations and releases.
pub(crate) fn observes_memory() -> bool {
    on() || tracing::level_enabled!(Level::TRACE)
}

/// Records memory of a device that was taken from a pool or returned to it.
#[inline]
pub(crate) fn memory(
    begun: Option<Begun>,
    kind: Kind,
    bytes: usize,
    hit: bool,
    (device, usm): (impl fmt::Display + Into<DeviceHandle>, &'static str),
) {
    if tracing::level_enabled!(Level::TRACE) {
        tell::of_memory(kind, bytes, &device, usm);
    }
    if let Some(begun) = begun {
        used(&begun, kind, bytes, hit, (device.into(), usm));
    }
}

#[cold]
fn used(begun: &Begun, kind: Kind, bytes: usize, hit: bool, (device, usm): (DeviceHandle, &'static str)) {
    let mut record = record(Label::new(kind, bytes), None, (begun.at, now()));
    (record.device, record.usm, record.hit) = (Some(device), Some(usm), hit);
    record.seen = record.called.1;
    push(record);
}

pub(super) fn record(label: Label<'_>, queue: Option<QueueHandle>, called: (u64, u64)) -> Record {
    let known = here(|here| {
        let site = here.site.try_borrow().ok().and_then(|site| site.clone());
        let counted = (here.fills.get(), here.continues.get());
        (here.reason.get(), site, counted, thread_number(here), here.call.get())
    });
    let (reason, site, (fills, continues), thread, call) = known.unwrap_or_default();
    Record {
        id: 0,
        kind: if fills && label.kind == Kind::Copy { Kind::Fill } else { label.kind },
        reason: reason.unwrap_or(Reason::Explicit),
        device: queue.as_ref().map(|queue| queue.device()),
        queue,
        name: label.name.cloned(),
        bytes: label.bytes as u64,
        host: 0,
        continues,
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

/// Numbers threads in the order of their first record.
fn thread_number(here: &Here) -> u32 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    if here.thread.get() == 0 {
        here.thread.set(LAST.fetch_add(1, Ordering::Relaxed) as u32 + 1);
    }
    here.thread.get()
}

/// As [`record`], with the line of a call that usmq did not see begin.
pub(super) fn record_at(
    site: Option<Site>,
    label: Label<'_>,
    queue: Option<QueueHandle>,
    called: (u64, u64),
) -> Record {
    here(|here| here.call.set(here.call.get().wrapping_add(1)));
    let mut record = record(label, queue, called);
    (record.site, record.reason) = (site, Reason::Explicit);
    record
}

/// Whether usmq makes the current call into the runtime on this thread.
pub(crate) fn is_own() -> bool {
    here(|here| here.own.get() != 0).unwrap_or(true)
}

/// Ends [`own_call`].
#[must_use = "calls are usmq's own while the guard lives"]
pub(super) struct OwnCall(());

impl Drop for OwnCall {
    fn drop(&mut self) {
        here(|here| here.own.set(here.own.get() - 1));
    }
}

/// Calls of this thread into the runtime are usmq's own while the guard lives.
pub(super) fn own_call() -> Option<OwnCall> {
    here(|here| here.own.set(here.own.get() + 1)).map(OwnCall)
}
