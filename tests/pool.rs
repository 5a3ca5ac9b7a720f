//! Memory pools: stream-ordered reuse, limits, and bounded pool size.

mod common;
#[path = "common/memory.rs"]
mod memory;

use common::{Work, advanced, default_queue, four_queues, queues_elsewhere, states, states_of};
use memory::{MIB, bytes, exclusive, kind_stats};
use std::process::Command;
use usmq::memory::{set_limit, stats, trim};
use usmq::{Array, DType, Error, Queue, Result, UsmKind, explain};

/// Steps of a command that runs long enough for a test to observe it.
const LONG: u32 = 100_000_000;

#[test]
fn an_in_order_queue_reuses_its_memory_at_once() -> Result<()> {
    let _guard = exclusive()?;
    for queue in &four_queues(default_queue()?.device(), None)?[..2] {
        let work = Work::new(queue)?;
        for kind in UsmKind::ALL {
            let x = Array::uninit([1000], DType::U32, kind, queue)?;
            x.fill(1u32)?;
            let event = work.advance(queue, &x, LONG / 100)?;
            let address = x.address();
            drop(x);
            let before = kind_stats(kind, queue.device())?;
            let y = Array::uninit([1000], DType::U32, kind, queue)?;
            assert!(!event.done()?, "the test needs work in flight here");
            if kind.is_host_accessible() {
                assert_ne!(y.address(), address, "the host may write to {kind} USM, so it is idle");
            } else {
                assert_eq!(y.address(), address, "{kind} USM of {queue}");
                let after = kind_stats(kind, queue.device())?;
                assert_eq!((after.misses, after.hits), (before.misses, before.hits + 1));
            }
            // The next use follows the last one of the former owner.
            y.fill(2u32)?;
            work.advance(queue, &y, 3)?;
            assert_eq!(y.to_vec::<u32>()?, [advanced(2, 3); 1000]);
        }
    }
    Ok(())
}

#[test]
fn every_allocation_is_aligned_to_64_bytes_and_overlaps_no_other() -> Result<()> {
    let _guard = exclusive()?;
    let queue = default_queue()?;
    for kind in UsmKind::ALL {
        let sizes = (0..600).chain([1000, 2080, 5000, 20_000, 32 << 10, (32 << 10) + 1, 100_000]);
        let mut arrays = sizes
            .flat_map(|bytes| [bytes; 3])
            .map(|bytes| Array::uninit([bytes], DType::U8, kind, &queue))
            .collect::<Result<Vec<_>>>()?;
        arrays.sort_by_key(Array::address);
        assert!(arrays.iter().all(|array| array.address() % 64 == 0));
        let end = |array: &Array| array.address() + array.nbytes().max(1);
        assert!(arrays.windows(2).all(|pair| end(&pair[0]) <= pair[1].address()), "{kind} USM");
    }
    Ok(())
}

#[test]
fn memory_in_use_is_not_given_to_another_queue_before_completion() -> Result<()> {
    let _guard = exclusive()?;
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    // An out-of-order queue gets its own memory back no sooner than another queue.
    for (user, next) in [(0, 1), (0, 2), (2, 0), (2, 2), (1, 3), (3, 3)] {
        let (user, next) = (&queues[user], &queues[next]);
        let x = states_of(&[7; 1000], user)?;
        let y = states(1000, user)?;
        let event = work.advance(user, &x, LONG / 100)?;
        work.advance_into(user, &x, &y, 1)?;
        let address = x.address();
        drop(x);
        // Writes here must not reach the kernel that still runs.
        let mut others = Vec::new();
        for _ in 0..40 {
            let other = states(1000, next)?;
            if event.done()? {
                break;
            }
            assert_ne!(other.address(), address, "memory in use on {user} given to {next}");
            other.fill(u32::MAX)?;
            others.push(other);
        }
        assert!(!others.is_empty(), "the test needs work in flight here");
        assert_eq!(y.to_vec::<u32>()?, [advanced(7, LONG / 100 + 1); 1000]);
        let most = kind_stats(UsmKind::Device, user.device())?.reserved;
        let count = others.len() + 2;
        drop((others, y));
        user.wait()?;
        next.wait()?;
        // After the kernel, any queue can get the memory.
        let again = (0..count).map(|_| states(1000, next)).collect::<Result<Vec<_>>>()?;
        let now = kind_stats(UsmKind::Device, user.device())?.reserved;
        assert!(now <= most, "{now} bytes, although {most} suffice");
        drop(again);
    }
    Ok(())
}

#[test]
fn memory_used_on_two_queues_waits_for_both() -> Result<()> {
    let _guard = exclusive()?;
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let x = states_of(&[1; 16], &queues[0])?;
    let seen = [states(16, &queues[0])?, states(16, &queues[1])?];
    let event = work.advance_into(&queues[1], &x, &seen[1], LONG)?;
    work.advance_into(&queues[0], &x, &seen[0], 1)?;
    let address = x.address();
    drop(x);
    let y = states(16, &queues[0])?;
    assert!(!event.done()?, "the test needs work in flight here");
    assert_ne!(y.address(), address, "the other queue still reads it");
    y.fill(0u32)?;
    assert_eq!(seen[1].to_vec::<u32>()?, [advanced(1, LONG); 16]);
    Ok(())
}

#[test]
fn statistics_count_what_arrays_hold() -> Result<()> {
    let _guard = exclusive()?;
    let queue = default_queue()?;
    for kind in UsmKind::ALL {
        let before = kind_stats(kind, queue.device())?;
        let kept = [bytes(3 * MIB, kind, &queue)?, bytes(100, kind, &queue)?];
        let view = kept[0].reshape([3, -1])?;
        let empty = [bytes(0, kind, &queue)?, bytes(0, kind, &queue)?];
        assert_ne!(empty[0].address(), empty[1].address(), "each array has its own memory");
        let now = kind_stats(kind, queue.device())?;
        assert_eq!(now.used, before.used + 3 * MIB as u64 + 100);
        assert_eq!(now.live, before.live + 4);
        assert!(now.reserved >= now.used && now.peak >= now.used, "{now:?}");
        drop((kept, empty));
        assert_eq!(
            kind_stats(kind, queue.device())?.used,
            before.used + 3 * MIB as u64,
            "the view keeps its memory"
        );
        drop(view);
        let after = kind_stats(kind, queue.device())?;
        assert_eq!((after.used, after.live), (before.used, before.live));
        assert!(after.peak >= now.used);
    }
    // A plan allocates no memory.
    let x = bytes(MIB, UsmKind::Device, &queue)?;
    let elsewhere = queues_elsewhere(&queue)?;
    let before = stats(None)?;
    for away in &elsewhere {
        explain(&[&x], Some(away))?;
    }
    assert_eq!(stats(None)?, before);
    Ok(())
}

#[test]
fn exceeding_a_limit_is_a_recoverable_error_with_sizes() -> Result<()> {
    let _guard = exclusive()?;
    let queue = default_queue()?;
    for kind in UsmKind::ALL {
        let start = kind_stats(kind, queue.device())?;
        let limit = start.reserved + 64 * MIB as u64;
        set_limit(Some(limit), None, Some(kind))?;
        assert_eq!(kind_stats(kind, queue.device())?.limit, Some(limit));
        let held = bytes(40 * MIB, kind, &queue)?;
        let error = bytes(48 * MIB, kind, &queue).expect_err("88 MiB of 64");
        let text = error.to_string();
        let Error::Allocation { asked, used, reserved, limit: told, total, kind: named, ref device, .. } =
            error
        else {
            panic!("{text}")
        };
        assert_eq!((asked, used, told), (48 * MIB as u64, start.used + 40 * MIB as u64, Some(limit)));
        assert!(reserved >= used && reserved <= limit, "{text}");
        assert_eq!((named, total), (kind.name(), queue.device().global_mem_size()));
        for part in ["48.0 MiB", "in use", "limit", kind.name(), device] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        let now = kind_stats(kind, queue.device())?;
        assert_eq!((now.used, now.live), (used, start.live + 1), "a refused allocation must not be counted");
        // The remainder can be allocated, and all of it after the first array is dropped.
        bytes(8 * MIB, kind, &queue)?.fill(1u8)?;
        drop(held);
        bytes(48 * MIB, kind, &queue)?.fill(1u8)?;
        set_limit(None, None, Some(kind))?;
        assert_eq!(kind_stats(kind, queue.device())?.limit, None);
        assert_eq!(bytes(100 * MIB, kind, &queue)?.size(), 100 * MIB);
    }
    Ok(())
}

#[test]
fn under_pressure_unused_memory_is_freed_and_pending_work_awaited() -> Result<()> {
    let _guard = exclusive()?;
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let small = states_of(&[1], &queues[0])?;
    let limit = kind_stats(UsmKind::Device, queues[0].device())?.reserved + 64 * MIB as u64;
    set_limit(Some(limit), Some(queues[0].device()), Some(UsmKind::Device))?;
    for size in [48, 7, 60, 1, 30, 60, 15] {
        for _ in 0..2 {
            assert_eq!(bytes(size * MIB, UsmKind::Device, &queues[0])?.size(), size * MIB);
        }
    }
    for round in 0..5u32 {
        // All memory belongs to a pending command on another queue.
        let x = Array::uninit([12 * MIB], DType::U32, UsmKind::Device, &queues[0])?;
        let event = work.advance(&queues[0], &small, LONG)?;
        x.fill(5u32)?;
        let copy = x.index(&[usmq::Index::Slice { start: None, stop: Some(64), step: None }])?.copy()?;
        drop(x);
        assert!(!event.done()?, "the test needs work in flight here");
        let y = Array::uninit([12 * MIB], DType::U32, UsmKind::Device, &queues[1])?;
        assert!(event.done()?, "memory was reused while a command used it");
        y.fill(round)?;
        assert_eq!(copy.to_vec::<u32>()?, [5; 64]);
        assert!(kind_stats(UsmKind::Device, queues[0].device())?.reserved <= limit);
    }
    Ok(())
}

#[test]
fn a_device_limit_applies_to_all_its_contexts_only() -> Result<()> {
    let _guard = exclusive()?;
    let home = default_queue()?;
    let elsewhere = queues_elsewhere(&home)?;
    set_limit(Some(64 * MIB as u64), Some(home.device()), None)?;
    for kind in UsmKind::ALL {
        let _held = bytes(40 * MIB, kind, &home)?;
        for away in &elsewhere {
            let result = bytes(40 * MIB, kind, away);
            let is_same = away.device() == home.device();
            assert_eq!(result.is_err(), is_same, "{kind} on {away}, beside 40 of 64 MiB on {home}");
        }
    }
    Ok(())
}

#[test]
fn a_lowered_limit_applies_to_pooled_memory() -> Result<()> {
    let _guard = exclusive()?;
    let queue = default_queue()?;
    let blocks = || (0..4).map(|_| Array::zeros::<u8>([8 * MIB])).collect::<Result<Vec<_>>>();
    let large = blocks()?;
    let small = Array::zeros::<u8>([100])?;
    large.iter().try_for_each(Array::wait)?;
    drop(large);
    let held = kind_stats(UsmKind::Device, queue.device())?.used;
    set_limit(Some(held + MIB as u64), None, Some(UsmKind::Device))?;
    assert!(matches!(blocks().unwrap_err(), Error::Allocation { .. }));
    // The free rest of a slab in use does not serve an allocation beyond the limit either.
    set_limit(Some(held), None, Some(UsmKind::Device))?;
    assert!(matches!(Array::zeros::<u8>([1]).unwrap_err(), Error::Allocation { .. }));
    // One device has no limit, while each other device has one.
    set_limit(None, Some(queue.device()), Some(UsmKind::Device))?;
    assert_eq!(kind_stats(UsmKind::Device, queue.device())?.limit, None);
    blocks()?;
    set_limit(None, None, Some(UsmKind::Device))?;
    drop(small);
    Ok(())
}

#[test]
fn many_threads_at_the_limit_wait_for_each_other_and_none_fails() -> Result<()> {
    const THREADS: usize = 8;
    const SHARE: usize = 8 * MIB;
    let _guard = exclusive()?;
    let home = default_queue()?;
    let queues = &four_queues(home.device(), None)?[..2];
    // The limit suffices for the live arrays of all threads, but not for memory that waits for its release.
    let limit = kind_stats(UsmKind::Device, home.device())?.reserved + (THREADS * SHARE) as u64;
    set_limit(Some(limit), Some(home.device()), Some(UsmKind::Device))?;
    let run = |number: usize| -> Result<()> {
        for round in 0..200 {
            let queue = &queues[(number + round) % 2];
            // Sizes of different pool classes, so that a block freed by one thread does not fit the next.
            let size = SHARE >> ((number + round) % 3);
            let x = bytes(size, UsmKind::Device, queue)?;
            x.fill(number as u8)?;
            let states = x.index(&[usmq::Index::Slice { start: None, stop: Some(4096), step: None }])?;
            if round % 16 == 0 {
                assert_eq!(states.to_vec::<u8>()?, [number as u8; 4096]);
            }
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let all: Vec<_> = (0..THREADS).map(|number| threads.spawn(move || run(number))).collect();
        all.into_iter().for_each(|thread| thread.join().expect("no panic").expect("no error"));
    });
    assert!(kind_stats(UsmKind::Device, home.device())?.reserved <= limit);
    Ok(())
}

#[test]
fn a_request_beyond_device_memory_is_an_allocation_error() -> Result<()> {
    let _guard = exclusive()?;
    let queue = default_queue()?;
    for kind in UsmKind::ALL {
        let before = kind_stats(kind, queue.device())?;
        let error = bytes(1 << 50, kind, &queue).expect_err("a pebibyte");
        let text = error.to_string();
        assert!(matches!(error, Error::Allocation { asked, limit: None, .. } if asked == 1 << 50), "{text}");
        assert!(text.contains("1.0 PiB") && text.contains("largest single allocation"), "{text}");
        let after = kind_stats(kind, queue.device())?;
        assert_eq!((after.used, after.live, after.reserved), (before.used, before.live, before.reserved));
    }
    assert!(matches!(
        Array::uninit([usize::MAX, 2], DType::F64, UsmKind::Host, &queue),
        Err(Error::Value { .. })
    ));
    Ok(())
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

#[test]
fn peak_memory_is_flat_over_100_000_rounds_of_allocate_launch_and_drop() -> Result<()> {
    let _guard = exclusive()?;
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    let device = queues[0].device();
    let mut reserved = 0;
    let mut before = 0;
    for round in 0..100_000usize {
        // As in most programs, memory is mostly used on one queue, and sometimes on two.
        let queue = &queues[if round % 10 == 9 { 1 + round / 10 % 3 } else { 0 }];
        let x = states([16, 256, 4096][round % 3], queue)?;
        work.advance(queue, &x, 1)?;
        if round % 50 == 0 {
            work.advance(&queues[0], &x, 1)?;
        }
        drop(x);
        if round % 500 == 0 {
            // Without this wait, the test would measure how far the host gets ahead of the device.
            queues.iter().try_for_each(Queue::wait)?;
        }
        if round == 2000 {
            (reserved, before) = (kind_stats(UsmKind::Device, device)?.reserved, resident());
        }
        if round > 2000 && round % 1000 == 0 {
            let now = kind_stats(UsmKind::Device, device)?.reserved;
            // Between two waits the host gets some blocks ahead of the device, a random number. One block lost in a
            // thousand rounds would be more than this.
            assert!(
                now <= reserved + MIB as u64,
                "{now} bytes reserved in round {round}, {reserved} in 2000"
            );
        }
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 * MIB, "the process grew by {grown} bytes");
    assert_eq!(kind_stats(UsmKind::Device, device)?.used, 0);
    Ok(())
}

#[test]
fn many_blocks_dropped_under_running_work_are_reused() -> Result<()> {
    let _guard = exclusive()?;
    let queues = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&queues[0])?;
    for queue in &queues {
        let x = states_of(&[1; 16], queue)?;
        // The thousand calls that follow take a fraction of this, on a busy machine too.
        let event = work.advance(queue, &x, 2 * LONG)?;
        let many = (0..500).map(|_| states(16, queue)).collect::<Result<Vec<_>>>()?;
        for y in &many {
            work.advance_into(queue, &x, y, 1)?;
        }
        drop(many);
        assert!(!event.done()?, "dropping waited for the work on {queue}");
        queue.wait()?;
        drop(x);
        trim(None)?;
        let left = kind_stats(UsmKind::Device, queue.device())?;
        assert_eq!((left.used, left.live), (0, 0));
        assert_eq!(left.reserved, 0, "blocks still wait for completed work on {queue}");
    }
    Ok(())
}

const OFF: &str = "USMQ_TEST_POOL_OFF";

#[test]
fn without_pooling_memory_returns_directly_to_the_runtime() -> Result<()> {
    let name = "without_pooling_memory_returns_directly_to_the_runtime";
    if std::env::var_os(OFF).is_none() {
        let program = std::env::current_exe().expect("a test binary has a path");
        let child =
            Command::new(program).args(["--exact", name]).env(OFF, "1").env("USMQ_POOL", "0").output();
        let output = child.expect("a test binary can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return Ok(());
    }
    let queue = default_queue()?;
    for kind in UsmKind::ALL {
        for size in [1, 100, MIB] {
            let x = bytes(size, kind, &queue)?;
            assert!(kind_stats(kind, queue.device())?.reserved >= size as u64);
            drop(x);
            // The release thread frees it.
            trim(None)?;
            assert_eq!(kind_stats(kind, queue.device())?.reserved, 0, "{size} bytes of {kind} USM");
        }
    }
    Ok(())
}
