//! An allocation: a range of USM or system memory with an owner and a log of its last uses.

use super::access_log::{Access, AccessLog};
use super::account::Share;
use super::deferred_drop::{ForeignOwner, Pending, drop_after, drop_after_uses};
use super::free_list::Block;
use super::ordered_submit::{Log, Logged, ordered};
use super::pool::{Pool, Reuse};
use super::recording::{refuse_if_written, touch};
use super::shared_on::SharedOn;
use super::system::{RangeLog, logs_of};
use super::views::ViewToken;
use crate::device::recording::suspend;
use crate::device::{Context, ContextKey, Device, Event, MemoryKind, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::runtime::checks::{self, InDestructor};
use crate::runtime::{ForkMutex, Interned, has_ended};
use once_cell::sync::{Lazy, OnceCell};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

enum AllocationOwner {
    /// From one of usmq's pools; returned when its last use is complete.
    Ours { pool: Interned<Pool>, block: Block, share: Mutex<Option<Share>> },
    /// Memory of another library, which usmq never frees. The owner is taken when the allocation is dropped.
    Foreign { owner: Option<ForeignOwner>, context: Context, device: Device },
    /// Memory of the host, which belongs to no context. Without an owner, the code that uses it outlives its uses.
    System { owner: Option<ForeignOwner> },
}

/// The error with which filling the memory failed, once it has. All readers of the memory share it.
pub(crate) type PoisonCell = Arc<OnceCell<Error>>;

/// A range of USM or system memory, shared by arrays. Kernels in flight are safe because the range outlives
/// their events, not because a thread waits for them.
pub(crate) struct Allocation {
    pointer: usize,
    bytes: usize,
    kind: MemoryKind,
    owner: AllocationOwner,
    log: LogOf,
    /// Whether memory of usmq was exported to another library, which may import it again.
    known: AtomicBool,
    /// Created if an operation that the runtime does not track fills the memory.
    poison: OnceCell<PoisonCell>,
}

enum LogOf {
    Own(ForkMutex<Log>),
    /// Shared by all imports of one foreign allocation.
    Shared(Arc<SharedLog>),
    /// Memory of usmq that was imported again.
    Ours(Arc<Allocation>),
    /// Shared by overlapping ranges of system memory.
    Range(Arc<RangeLog>),
    /// System memory that overlaps several ranges.
    Several(Vec<LogOf>),
}

impl LogOf {
    fn each<'a>(&'a self, take: &mut dyn FnMut(&'a ForkMutex<Log>)) {
        match self {
            Self::Own(log) => take(log),
            Self::Shared(shared) => take(&shared.log),
            Self::Ours(allocation) => allocation.log.each(take),
            Self::Range(range) => take(&range.log),
            Self::Several(all) => all.iter().for_each(|log| log.each(take)),
        }
    }

    /// Kind and device of the memory, if it is USM.
    fn usm(&self) -> Option<(UsmKind, Device)> {
        match self {
            Self::Shared(shared) => Some((shared.kind, shared.device.clone())),
            Self::Ours(ours) => Some((ours.kind.usm()?, ours.place()?.1.clone())),
            Self::Own(_) | Self::Range(_) | Self::Several(_) => None,
        }
    }

    fn check(&self) -> Result<()> {
        match self {
            Self::Ours(allocation) => allocation.check(),
            Self::Several(all) => all.iter().try_for_each(Self::check),
            _ => Ok(()),
        }
    }
}

/// An allocation and the command's access to it.
pub(crate) type Operand<'a> = (&'a Arc<Allocation>, Access);

/// Memory that another library exports to usmq.
pub(crate) struct Import<'a> {
    pub pointer: usize,
    pub bytes: usize,
    pub context: &'a Context,
    /// The result of [`Allocation::find`] for `pointer`.
    pub found: Found,
    /// The queue of the other library's work, if specified.
    pub shared_on: Option<&'a Queue>,
    /// Complete when the memory may be used; an event of `queue`.
    pub ready: Option<Event>,
    /// The queue on which usmq uses the memory first.
    pub queue: &'a Queue,
}

/// USM at an address.
pub(crate) struct Found {
    pub kind: UsmKind,
    pub device: Device,
    /// Start and end of the allocation; `None` if neither usmq nor the driver knows them.
    pub range: Option<(usize, usize)>,
    /// The log, if usmq uses the memory already.
    log: Option<LogOf>,
}

impl Found {
    /// Whether usmq owns it. It lives as long as an import of it.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.log, Some(LogOf::Ours(_)))
    }
}

impl Allocation {
    /// Finds USM of the context: memory that usmq uses already, else by a query of the driver. Any address is valid.
    pub(crate) fn find(context: &Context, pointer: usize, bytes: usize) -> Result<Option<Found>> {
        let (log, range) = find_in(&*KNOWN.lock()?, pointer, context.key()).unzip();
        let is_inside = |known: (_, usize)| pointer.checked_add(bytes).is_some_and(|end| end <= known.1);
        let inside = range.filter(|range| is_inside(*range)).and(log.as_ref());
        if let Some((kind, device)) = inside.and_then(LogOf::usm) {
            return Ok(Some(Found { kind, device, range, log }));
        }
        let Some(usm) = context.usm_at(pointer)? else { return Ok(None) };
        let device = context.device_of(pointer, &usm)?;
        // Memory of usmq ends with its array, also inside of a larger allocation of the driver.
        let range = if matches!(log, Some(LogOf::Ours(_))) { range } else { usm.range };
        Ok(Some(Found { kind: usm.kind, device, range, log }))
    }

    /// Uninitialised memory for use on `queue`. Zero bytes are valid and have a unique address. Memory that
    /// the host can access is idle; commands may still use other memory, which the log records.
    pub(crate) fn new(bytes: usize, kind: UsmKind, queue: &Queue) -> Result<Arc<Self>> {
        let reuse = if kind.is_host_accessible() { Reuse::Idle } else { Reuse::InOrder };
        Self::with(bytes, kind, queue, reuse)
    }

    /// As [`Allocation::new`], for memory of any kind that only commands access.
    pub(crate) fn for_commands(bytes: usize, kind: UsmKind, queue: &Queue) -> Result<Arc<Self>> {
        Self::with(bytes, kind, queue, Reuse::InOrder)
    }

    /// As [`Allocation::new`], if a pool has kept such memory: never blocks, and calls no runtime.
    pub(crate) fn kept(bytes: usize, kind: UsmKind, queue: &Queue) -> Option<Arc<Self>> {
        let pool = Pool::known(queue, kind)?;
        let block = pool.allocate_kept(bytes)?;
        Some(Self::ours(bytes, pool, block, None))
    }

    fn with(bytes: usize, kind: UsmKind, queue: &Queue, reuse: Reuse) -> Result<Arc<Self>> {
        let pool = Pool::for_request(queue, kind, bytes)?;
        let (block, last_use) = pool.allocate(bytes, queue, reuse)?;
        Ok(Self::ours(bytes, pool, block, last_use))
    }

    fn ours(bytes: usize, pool: Interned<Pool>, block: Block, last_use: Option<Event>) -> Arc<Self> {
        let (pointer, kind) = (block.pointer(), pool.source.kind.into());
        let log = LogOf::Own(ForkMutex::new(Log::after(last_use)));
        Self::made(
            (pointer, bytes),
            kind,
            AllocationOwner::Ours { pool, block, share: Mutex::default() },
            log,
        )
    }

    /// The bytes that a task counts for memory of usmq, until the allocation is dropped.
    pub(crate) fn counted(&self) -> Option<MutexGuard<'_, Option<Share>>> {
        if let AllocationOwner::Ours { share, .. } = &self.owner { Some(share.lock()) } else { None }
    }

    fn made(
        (pointer, bytes): (usize, usize),
        kind: MemoryKind,
        owner: AllocationOwner,
        log: LogOf,
    ) -> Arc<Self> {
        let (known, poison) = (AtomicBool::new(false), OnceCell::new());
        Arc::new(Self { pointer, bytes, kind, owner, log, known, poison })
    }

    /// Imports memory of another library and keeps `owner` alive; only memory of usmq needs none. All imports of one
    /// allocation share one access log; memory that usmq exported itself is imported with its existing log.
    pub(crate) fn import(import: Import<'_>, owner: Option<ForeignOwner>) -> Result<Arc<Self>> {
        // The other library's event completes once, so a capture does not record the wait for it.
        let _direct = suspend();
        let Import { pointer, bytes, context, found, shared_on, ready, queue } = import;
        let Found { kind, device, range, log } = found;
        let last = pointer.saturating_add(bytes);
        let (base, end) = range.unwrap_or((pointer, last));
        if last > end && bytes > 0 {
            return Err(Error::interop(format!(
                "{bytes} bytes from {pointer:#x} on are beyond their allocation of {kind} USM, which ends at {end:#x}"
            )));
        }
        let (log, fresh) = match log {
            Some(log) => (log, false),
            None => shared_log_of((base, end), context, (kind, &device))
                .map(|(log, fresh)| (LogOf::Shared(log), fresh))?,
        };
        let owner = AllocationOwner::Foreign { owner, context: context.clone(), device };
        let allocation = Self::made((pointer, bytes), kind.into(), owner, log);
        if let Some(queue) = shared_on {
            allocation.share(queue)?;
        }
        match ready {
            Some(ready) if fresh => {
                for mut log in allocation.locked()? {
                    log.access = AccessLog::after(Some(ready.clone()));
                }
            }
            Some(ready) if !ready.is_complete() => {
                let operand = (&allocation, Access::ReadWrite);
                ordered(queue, &[operand], |after| queue.barrier_now(&[after, &[ready]].concat()))?;
            }
            _ => {}
        }
        Ok(allocation)
    }

    /// Foreign memory of zero bytes: it needs no order, and its owner need not live.
    pub(crate) fn import_empty(
        pointer: usize,
        kind: UsmKind,
        (context, device): (&Context, &Device),
        owner: ForeignOwner,
    ) -> Arc<Self> {
        drop_after(owner, Pending::new());
        let owner =
            AllocationOwner::Foreign { owner: None, context: context.clone(), device: device.clone() };
        Self::made((pointer, 0), kind.into(), owner, LogOf::Own(ForkMutex::default()))
    }

    /// Memory of the host, used in place on devices that reach system memory. Overlapping ranges are ordered with each
    /// other, and with USM that usmq knows at these addresses. `owner` is kept until the last use is complete; without
    /// one, the caller keeps the memory and waits.
    pub(crate) fn system(pointer: usize, bytes: usize, owner: Option<ForeignOwner>) -> Result<Arc<Self>> {
        let end = pointer + bytes;
        let (log, owner) = if bytes == 0 {
            owner.into_iter().for_each(|owner| drop_after(owner, Pending::new()));
            (LogOf::Own(ForkMutex::default()), None)
        } else {
            let mut logs = known_between(pointer, end)?;
            logs.extend(logs_of(pointer, end)?.into_iter().map(LogOf::Range));
            (if logs.len() == 1 { logs.remove(0) } else { LogOf::Several(logs) }, owner)
        };
        Ok(Self::made((pointer, bytes), MemoryKind::System, AllocationOwner::System { owner }, log))
    }

    pub(crate) fn pointer(&self) -> usize {
        self.pointer
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The context and the device of USM; `None` for system memory, which has neither.
    pub(crate) fn place(&self) -> Option<(&Context, &Device)> {
        match &self.owner {
            AllocationOwner::Ours { pool, .. } => Some((&pool.source.context, &pool.source.device)),
            AllocationOwner::Foreign { context, device, .. } => Some((context, device)),
            AllocationOwner::System { .. } => None,
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.owner, AllocationOwner::Ours { .. })
    }

    /// Start and length of the runtime's allocation, if this is all of one that usmq frees.
    pub(crate) fn own_range(&self) -> Option<(usize, usize)> {
        match &self.owner {
            AllocationOwner::Ours { block, .. } => block.own_range(),
            _ => None,
        }
    }

    /// The logs, locked one after the other. A submitting thread holds these locks, so they must not be taken while
    /// holding the GIL.
    fn locked(&self) -> Result<impl Iterator<Item = MutexGuard<'_, Log>>> {
        checks::waits(|| false);
        // A fork forbids all of them or none.
        crate::runtime::not_forked()?;
        let mut logs: SmallVec<[&ForkMutex<Log>; 1]> = SmallVec::new();
        self.log.each(&mut |log| logs.push(log));
        Ok(logs.into_iter().filter_map(|log| log.lock().ok()))
    }

    /// The commands that may still use the memory.
    pub(crate) fn pending(&self) -> Result<Pending> {
        Ok(self.locked()?.flat_map(|log| log.access.pending()).collect())
    }

    /// The cell for the error if the memory cannot be filled.
    pub(crate) fn poison(&self) -> PoisonCell {
        self.poison.get_or_init(PoisonCell::default).clone()
    }

    /// Registers `queue`: another library may now use the memory on it without an entry in the log.
    pub(crate) fn share_on(self: &Arc<Self>, queue: &Queue) -> Result<()> {
        self.hand_over()?;
        self.share(queue)
    }

    /// An error inside a capture that writes the memory, for `call`, which uses it outside of the recorded commands.
    pub(crate) fn check_capture(&self, call: impl FnOnce() -> String) -> Result<()> {
        refuse_if_written(std::ptr::from_ref(self).addr(), call)
    }

    /// Records the addresses that a launch may use, inside a capture.
    pub(crate) fn touch(&self, range: Range<usize>) {
        touch(std::ptr::from_ref(self).addr(), range);
    }

    fn share(&self, queue: &Queue) -> Result<()> {
        self.each_shared(|shared| shared.add(queue))
    }

    pub(super) fn each_shared(&self, change: impl Fn(&mut SharedOn)) -> Result<()> {
        self.locked()?.for_each(|mut log| change(&mut log.shared_on));
        Ok(())
    }

    /// Registers memory that is about to be exported, so that a later import finds the same allocation, and that no
    /// host view begins. A live view is an error.
    pub(crate) fn hand_over(self: &Arc<Self>) -> Result<()> {
        self.check_capture(|| "an export of this array's memory".to_owned())?;
        if !self.is_ours() || self.known.load(Ordering::Acquire) {
            return Ok(());
        }
        for log in self.locked()? {
            // A consumer may write.
            log.views.check(Access::Write)?;
            if !self.known.swap(true, Ordering::AcqRel) {
                add_ours(self)?;
            }
        }
        Ok(())
    }

    /// Begins a host view, from which on conflicting commands are errors; `None` if another library may use the memory,
    /// or could.
    pub(crate) fn begin_view(
        &self,
        is_mutable: bool,
        array: &dyn std::fmt::Display,
    ) -> Result<Option<ViewToken>> {
        checks::waits(|| false);
        let (true, LogOf::Own(log)) = (self.is_ours(), &self.log) else { return Ok(None) };
        let mut log = log.lock()?;
        if self.known.load(Ordering::Acquire) || !log.shared_on.is_empty() {
            return Ok(None);
        }
        log.views.begin(is_mutable, array).map(Some)
    }

    /// Blocks until the host may access the memory through a view that has begun.
    pub(crate) fn wait_for_view(&self, is_mutable: bool) -> Result<()> {
        self.wait_for(if is_mutable { Access::Write } else { Access::Read })
    }

    /// Whether a command on another queue than this in-order one, from usmq or another library, may still use
    /// the memory.
    pub(crate) fn used_off(&self, queue: &Queue) -> Result<bool> {
        let mut others = SmallVec::new();
        let mut shared = false;
        for log in self.locked()? {
            log.access.dependencies(Access::ReadWrite, Some(queue.id()), &mut others);
            shared |= log.shared_on.queues().any(|other| other != queue);
        }
        Ok(shared || !others.is_empty())
    }

    /// Blocks until the host may make this access to the memory. A conflicting host view is an error.
    pub(crate) fn wait_for_host(&self, access: Access) -> Result<()> {
        for log in self.locked()? {
            log.views.check(access)?;
        }
        self.wait_for(access)
    }

    fn wait_for(&self, access: Access) -> Result<()> {
        self.check_capture(|| "a wait of the host for its memory".to_owned())?;
        let (mut events, mut shared_on) = (Pending::new(), SmallVec::<[Queue; 1]>::new());
        for log in self.locked()? {
            events.extend(log.access.before_host(access));
            shared_on.extend(log.shared_on.queues().cloned());
        }
        for event in events {
            event.wait()?;
        }
        for queue in shared_on {
            queue.wait()?;
        }
        self.check()
    }

    /// Blocks until no command uses the memory; raises errors of the work.
    pub(crate) fn wait(&self) -> Result<()> {
        self.wait_for(Access::Write)
    }
}

impl Logged for Allocation {
    fn range(&self) -> Range<usize> {
        self.pointer..self.pointer + self.bytes
    }

    fn each_log<'a>(&'a self, take: &mut dyn FnMut(&'a ForkMutex<Log>)) {
        self.log.each(take);
    }

    fn check(&self) -> Result<()> {
        match self.poison.get().and_then(|poison| poison.get()) {
            Some(error) => Err(error.clone()),
            None => self.log.check(),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let _held = crate::trace::tell::hold_back();
        let _mark = InDestructor::enter();
        if *self.known.get_mut() {
            remove_ours(self.pointer);
        }
        match (&mut self.owner, &mut self.log) {
            (AllocationOwner::Ours { pool, block, .. }, LogOf::Own(log)) => {
                Pool::retire(pool, block.take(), self.bytes, log.get_mut());
            }
            // No thread drops owners any more, but a library may count on the release of its host memory.
            (AllocationOwner::System { owner }, _) if has_ended() => drop(owner.take()),
            (AllocationOwner::Foreign { owner, .. } | AllocationOwner::System { owner }, LogOf::Own(log)) => {
                let pending = log.get_mut().access.pending();
                owner.take().into_iter().for_each(|owner| drop_after(owner, pending.clone()));
            }
            (AllocationOwner::Foreign { owner, .. } | AllocationOwner::System { owner }, log) => {
                let Some(owner) = owner.take() else { return };
                // A submitting thread may hold the log for the duration of a host task, and this drop may be part of that
                // host task, so it does not wait for the log.
                let log = std::mem::replace(log, LogOf::Own(ForkMutex::default()));
                drop_after_uses(owner, move || {
                    let (mut all, mut locked) = (Pending::new(), true);
                    log.each(&mut |log| match log.try_lock() {
                        Some(log) => all.extend(log.access.pending()),
                        None => locked = false,
                    });
                    locked.then_some(all)
                });
            }
            // Memory of usmq has its own log.
            (AllocationOwner::Ours { .. }, _) => {}
        }
    }
}

/// Memory that other libraries may pass to usmq again, by first address: each allocation has one access log, however
/// often and by any protocol it is imported.
///
/// Memory of usmq is registered from its first export until it is freed, and is imported as the same allocation. Foreign
/// memory is registered by the runtime allocation that contains it, while an import of it lives.
/// Ranges do not overlap: an entry is removed before its memory is freed.
static KNOWN: Lazy<ForkMutex<BTreeMap<usize, KnownMemory>>> = Lazy::new(ForkMutex::default);

struct KnownMemory {
    end: usize,
    context: ContextKey,
    owner: KnownOwner,
}

enum KnownOwner {
    Ours(Weak<Allocation>),
    Foreign(Weak<SharedLog>),
}

impl KnownMemory {
    /// `None` if the memory is being freed.
    fn log(&self) -> Option<LogOf> {
        match &self.owner {
            KnownOwner::Ours(allocation) => allocation.upgrade().map(LogOf::Ours),
            KnownOwner::Foreign(log) => log.upgrade().map(LogOf::Shared),
        }
    }
}

/// The log shared by all imports of one foreign allocation.
struct SharedLog {
    base: usize,
    kind: UsmKind,
    device: Device,
    log: ForkMutex<Log>,
}

impl Drop for SharedLog {
    fn drop(&mut self) {
        let Ok(mut known) = KNOWN.lock() else { return };
        let gone =
            |entry: &KnownMemory| matches!(&entry.owner, KnownOwner::Foreign(log) if log.strong_count() == 0);
        if known.get(&self.base).is_some_and(gone) {
            known.remove(&self.base);
        }
    }
}

/// The log of the registered memory at `pointer` in this context, and its start and end.
fn find_in(
    known: &BTreeMap<usize, KnownMemory>,
    pointer: usize,
    context: ContextKey,
) -> Option<(LogOf, (usize, usize))> {
    let (start, entry) = known.range(..=pointer).next_back()?;
    if pointer >= entry.end || entry.context != context {
        return None;
    }
    Some((entry.log()?, (*start, entry.end)))
}

/// The logs of registered memory of any context between two addresses.
fn known_between(start: usize, end: usize) -> Result<Vec<LogOf>> {
    let known = KNOWN.lock()?;
    let near = known.range(..end).rev().take_while(|(_, entry)| entry.end > start);
    let logs = near.filter_map(|(_, entry)| entry.log()).collect();
    drop(known);
    Ok(logs)
}

/// Registers memory of usmq before it is exported.
fn add_ours(allocation: &Arc<Allocation>) -> Result<()> {
    let owner = KnownOwner::Ours(Arc::downgrade(allocation));
    let (start, bytes) = (allocation.pointer(), allocation.bytes().max(1));
    let Some((context, _)) = allocation.place() else { return Ok(()) };
    let entry = KnownMemory { end: start + bytes, context: context.key(), owner };
    KNOWN.lock()?.insert(start, entry);
    Ok(())
}

/// Removes memory of usmq before it is freed.
fn remove_ours(pointer: usize) {
    // In a forked child the entry is not used any more.
    if let Ok(mut known) = KNOWN.lock() {
        known.remove(&pointer);
    }
}

/// The log of the foreign allocation from `base` to `end`, and whether it is new.
fn shared_log_of(
    (base, end): (usize, usize),
    context: &Context,
    (kind, device): (UsmKind, &Device),
) -> Result<(Arc<SharedLog>, bool)> {
    let fresh = Arc::new(SharedLog { base, kind, device: device.clone(), log: ForkMutex::default() });
    let mut known = KNOWN.lock()?;
    let found = find_in(&known, base, context.key());
    if let Some((LogOf::Shared(log), _)) = found {
        drop(known);
        return Ok((log, false));
    }
    let entry =
        KnownMemory { end, context: context.key(), owner: KnownOwner::Foreign(Arc::downgrade(&fresh)) };
    known.insert(base, entry);
    // Drops the found values outside the lock.
    drop(known);
    drop(found);
    Ok((fresh, true))
}
