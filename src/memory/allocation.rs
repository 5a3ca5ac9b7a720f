//! An allocation: a range of USM with an owner and a log of who uses it.

use super::access::{Access, AccessLog, Tracked};
use super::pool::Pool;
use super::retire::{self, Foreign};
use crate::device::record::because;
use crate::device::{Context, Device, Event, Queue, Reason, UsmKind};
use crate::error::{Error, Result};
use crate::runtime::{Held, Lock};
use once_cell::sync::OnceCell;
use smallvec::SmallVec;
use std::sync::Arc;

impl Tracked for Event {
    fn in_order_queue(&self) -> Option<usize> {
        Self::in_order_queue(self).map(Queue::id)
    }

    fn is_complete(&self) -> bool {
        Self::is_complete(self)
    }
}

/// Lets go of some of what nobody may come back to.
fn reap() {
    retire::reap();
    Pool::reap_lonely();
}

enum Owner {
    /// From one of our pools; returned when its last use is complete.
    Ours(Held<Pool>),
    /// Another library's; never freed by us. Nothing is kept any more while the allocation is being dropped.
    Foreign { keep: Option<Foreign>, context: Context, device: Device },
}

/// Why memory does not have what it was to be filled with, once that is known; shared by all that look at the memory.
pub(crate) type Failure = Arc<OnceCell<Error>>;

/// A range of USM. Arrays share it; kernels in flight are safe because the range outlives their events, not because
/// anyone waits for them.
pub(crate) struct Allocation {
    pointer: usize,
    bytes: usize,
    kind: UsmKind,
    owner: Owner,
    log: Lock<Log>,
    /// Made for what fills the memory beyond the runtime's view.
    failure: OnceCell<Failure>,
}

/// The access log, and the queues through which another library may use the memory unseen by it.
pub(super) struct Log {
    pub(super) access: AccessLog<Event>,
    pub(super) shared_on: SmallVec<[Queue; 1]>,
}

impl Allocation {
    /// Uninitialised memory for use on `queue`. Zero bytes are valid and have an address of their own.
    pub(crate) fn new(bytes: usize, kind: UsmKind, queue: &Queue) -> Result<Self> {
        reap();
        let pool = Pool::of(queue, kind, bytes)?;
        let (pointer, last_use) = pool.allocate(bytes, queue)?;
        let access = AccessLog::after(last_use);
        Ok(Self {
            pointer,
            bytes,
            kind,
            owner: Owner::Ours(pool),
            log: Lock::new(Log { access, shared_on: SmallVec::new() }),
            failure: OnceCell::new(),
        })
    }

    /// Another library's memory. `pointer` and the `bytes` after it are USM of `kind` in `context`, as the runtime
    /// said, and stay so while `owner` lives. `shared_on` is the queue of the library's own work, if it named
    /// one; `ready` is complete when the memory may be used.
    pub(crate) fn foreign(
        (pointer, bytes, kind): (usize, usize, UsmKind),
        context: &Context,
        device: &Device,
        shared_on: Option<Queue>,
        ready: Option<Event>,
        owner: Foreign,
    ) -> Self {
        reap();
        let log = Log { access: AccessLog::after(ready), shared_on: shared_on.into_iter().collect() };
        Self {
            pointer,
            bytes,
            kind,
            owner: Owner::Foreign { keep: Some(owner), context: context.clone(), device: device.clone() },
            log: Lock::new(log),
            failure: OnceCell::new(),
        }
    }

    pub(crate) fn pointer(&self) -> usize {
        self.pointer
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn kind(&self) -> UsmKind {
        self.kind
    }

    pub(crate) fn context(&self) -> &Context {
        match &self.owner {
            Owner::Ours(pool) => &pool.context,
            Owner::Foreign { context, .. } => context,
        }
    }

    pub(crate) fn device(&self) -> &Device {
        match &self.owner {
            Owner::Ours(pool) => &pool.device,
            Owner::Foreign { device, .. } => device,
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.owner, Owner::Ours(_))
    }

    pub(super) fn log(&self) -> &Lock<Log> {
        &self.log
    }

    /// Where to put it when the memory cannot be filled.
    pub(crate) fn failure(&self) -> Failure {
        self.failure.get_or_init(Failure::default).clone()
    }

    /// The error for whoever reads what could not be filled, or writes on.
    pub(super) fn check(&self) -> Result<()> {
        let failed = self.failure.get().and_then(|failure| failure.get());
        failed.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// From now on another library may use the memory through `queue`, unseen by the log.
    pub(crate) fn share_on(&self, queue: &Queue) -> Result<()> {
        let mut log = self.log.lock()?;
        if !log.shared_on.contains(queue) {
            log.shared_on.push(queue.clone());
        }
        Ok(())
    }

    /// Whether a command elsewhere than on this in-order queue, or one of another library there, may still use the
    /// memory.
    pub(crate) fn used_off(&self, queue: &Queue) -> Result<bool> {
        let mut others = SmallVec::new();
        let log = self.log.lock()?;
        log.access.dependencies(Access::ReadWrite, Some(queue.id()), &mut others);
        Ok(!others.is_empty() || log.shared_on.iter().any(|other| other != queue))
    }

    /// Blocks until the host may access the memory in this way.
    pub(crate) fn wait_for_host(&self, access: Access) -> Result<()> {
        let (events, shared_on) = {
            let log = self.log.lock()?;
            (log.access.before_host(access), log.shared_on.clone())
        };
        for event in events {
            event.wait()?;
        }
        for queue in shared_on {
            queue.wait()?;
        }
        self.check()?;
        // Much of what was dropped before is complete now.
        if let Owner::Ours(pool) = &self.owner {
            pool.reap_some();
        }
        reap();
        Ok(())
    }

    /// Blocks until nothing uses the memory; errors of the work come out here.
    pub(crate) fn wait(&self) -> Result<()> {
        self.wait_for_host(Access::Write)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let log = self.log.get_mut();
        let mut pending = std::mem::take(&mut log.access).into_pending();
        match &mut self.owner {
            Owner::Ours(pool) => {
                let mut unseen = std::mem::take(&mut log.shared_on);
                // The other library let go of the memory, but its last work on it may still run.
                unseen.retain(|queue| {
                    let _why = because(Reason::Order);
                    queue.barrier(&[]).map(|event| pending.push(event)).is_err()
                });
                Pool::retire(pool, (self.pointer, self.bytes), pending, unseen);
            }
            Owner::Foreign { keep, .. } => {
                if let Some(keep) = keep.take() {
                    retire::keep_until(keep, pending);
                }
            }
        }
    }
}
