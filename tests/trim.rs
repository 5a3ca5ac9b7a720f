//! Trimming frees unused memory, and the pool still pools memory afterwards.

mod common;
#[path = "common/memory.rs"]
mod memory;

use common::default_queue;
use memory::{MIB, bytes, exclusive, kind_stats};
use usmq::memory::trim;
use usmq::{Result, UsmKind};

#[test]
fn trimming_frees_unused_memory() -> Result<()> {
    let _guard = exclusive()?;
    let queue = default_queue()?;
    for kind in UsmKind::ALL {
        let kept = bytes(1000, kind, &queue)?;
        kept.fill(7u8)?;
        let least = kind_stats(kind, queue.device())?.reserved;
        drop(bytes(64 * MIB, kind, &queue)?);
        trim(Some(queue.device()))?;
        assert!(kind_stats(kind, queue.device())?.reserved <= least, "{kind}");
        assert_eq!(kept.to_vec::<u8>()?, [7; 1000]);
    }
    Ok(())
}

/// After a trim beside allocations of other threads and live arrays, the pool keeps memory as before.
#[test]
fn a_trimmed_pool_keeps_pooling_memory() -> Result<()> {
    let _guard = exclusive()?;
    let queue = &default_queue()?;
    let sizes = [8, 32 << 10, (32 << 10) + 1, MIB];
    std::thread::scope(|scope| -> Result<()> {
        let others: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn(move || -> Result<()> {
                    for round in 0..300u32 {
                        let size = sizes[(round as usize + seed) % sizes.len()];
                        let held = (0..6)
                            .map(|of| {
                                let x = bytes(size, UsmKind::Device, queue)?;
                                x.fill((round + of) as u8)?;
                                Ok(x)
                            })
                            .collect::<Result<Vec<_>>>()?;
                        for (x, of) in held.iter().zip(0..) {
                            assert_eq!(x.to_vec::<u8>()?, vec![(round + of) as u8; size]);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        while others.iter().any(|other| !other.is_finished()) {
            trim(None)?;
        }
        others.into_iter().try_for_each(|other| other.join().expect("no panic"))
    })?;
    queue.wait()?;
    for size in sizes {
        let mut held = vec![bytes(size, UsmKind::Device, queue)?, bytes(size, UsmKind::Device, queue)?];
        held.truncate(1);
        trim(None)?;
        for _ in 0..2 {
            drop(bytes(size, UsmKind::Device, queue)?);
            let before = kind_stats(UsmKind::Device, queue.device())?;
            drop(bytes(size, UsmKind::Device, queue)?);
            let after = kind_stats(UsmKind::Device, queue.device())?;
            assert_eq!((after.misses, after.hits), (before.misses, before.hits + 1), "{size} bytes");
            held.clear();
            trim(None)?;
        }
    }
    Ok(())
}
