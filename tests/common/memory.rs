//! Shared code of memory tests, which run one at a time and start with empty pools.

use crate::common::{default_queue, four_queues};
use parking_lot::{Mutex, MutexGuard};
use usmq::memory::{KindStats, set_limit, stats, trim};
use usmq::{Array, DType, Device, Queue, Result, UsmKind};

pub const MIB: usize = 1 << 20;

/// Statistics and limits are process-wide, so tests run one at a time, each from empty pools.
pub struct Exclusive(#[allow(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

pub fn exclusive() -> Result<Exclusive> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = Exclusive(ONE_AT_A_TIME.lock());
    for queue in four_queues(default_queue()?.device(), None)? {
        queue.wait()?;
    }
    trim(None)?;
    Ok(guard)
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        let _ = set_limit(None, None, None);
    }
}

pub fn kind_stats(kind: UsmKind, device: &Device) -> Result<KindStats> {
    let all = stats(Some(device))?;
    Ok(all.into_iter().find(|(of, _)| *of == kind).map(|(_, stats)| stats).unwrap_or_default())
}

pub fn bytes(count: usize, kind: UsmKind, queue: &Queue) -> Result<Array> {
    Array::uninit([count], DType::U8, kind, queue)
}
