//! Memory pressure: more threads than a limit allows, work in flight at the limit, a full device, and ten million
//! random sizes.

mod common;
#[path = "common/memory.rs"]
mod memory;

use common::{Random, Work, advanced, default_queue, four_queues, states_of};
use memory::{MIB, bytes, exclusive, kind_stats};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use usmq::memory::{set_limit, trim};
use usmq::{Array, DType, Error, Queue, Result, UsmKind};

#[test]
fn threads_beyond_the_limit_get_an_error_with_sizes_and_others_continue() -> Result<()> {
    const THREADS: usize = 16;
    const ROUNDS: usize = 100;
    let _guard = exclusive()?;
    let home = default_queue()?;
    let queues = &four_queues(home.device(), None)?[..2];
    // Each thread holds up to 8 MiB, and the limit allows half of that.
    let limit = (THREADS * 4 * MIB) as u64;
    set_limit(Some(limit), Some(home.device()), Some(UsmKind::Device))?;
    let (had, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = |number: usize| -> Result<()> {
        let mut random = Random::new(number as u64 + 1);
        let mut held = Vec::new();
        for round in 0..ROUNDS {
            let queue = random.pick(queues);
            match bytes(MIB * (1 + random.below(4)), UsmKind::Device, queue) {
                Ok(array) => {
                    had.fetch_add(1, Ordering::Relaxed);
                    array.fill(round as u8)?;
                    held.push((array, round as u8));
                }
                Err(Error::Allocation { limit: Some(told), reserved, .. }) => {
                    assert!(told == limit && reserved <= limit);
                    refused.fetch_add(1, Ordering::Relaxed);
                    held.clear();
                }
                Err(other) => return Err(other),
            }
            if held.len() > 3 {
                let (array, value) = held.swap_remove(random.below(held.len()));
                let first = array.index(&[usmq::Index::Slice { start: None, stop: Some(64), step: None }])?;
                assert_eq!(first.to_vec::<u8>()?, [value; 64]);
            }
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let run = &run;
        let all: Vec<_> = (0..THREADS).map(|number| threads.spawn(move || run(number))).collect();
        all.into_iter().for_each(|thread| thread.join().expect("no panic").expect("no other error"));
    });
    let (had, refused) = (had.into_inner(), refused.into_inner());
    println!("{THREADS} threads at a limit of {} MiB: {had} arrays, {refused} refusals", limit >> 20);
    assert!(had > 0 && refused > 0, "the test needs a limit that some meet: {had}, {refused}");
    queues.iter().try_for_each(Queue::wait)?;
    trim(None)?;
    let left = kind_stats(UsmKind::Device, home.device())?;
    assert_eq!((left.used, left.live, left.reserved), (0, 0, 0));
    Ok(())
}

#[test]
fn at_the_limit_every_thread_waits_for_blocks_with_pending_work() -> Result<()> {
    const THREADS: usize = 4;
    let _guard = exclusive()?;
    let home = default_queue()?;
    let queues = &four_queues(home.device(), None)?[..2];
    let work = Work::new(&queues[0])?;
    let small = states_of(&[1], &queues[0])?;
    trim(None)?;
    // Enough for the live arrays of the threads, but not for those dropped with pending commands.
    let share = 4 * MIB;
    let limit = kind_stats(UsmKind::Device, home.device())?.reserved + (THREADS * share) as u64;
    set_limit(Some(limit), Some(home.device()), Some(UsmKind::Device))?;
    let run = |number: usize| -> Result<()> {
        let queue = &queues[number % 2];
        for round in 0..20 {
            let x = Array::uninit([share / 4], DType::U32, UsmKind::Device, queue)?;
            x.fill(round)?;
            work.advance(queue, &x, 100)?;
            let part = x.index(&[usmq::Index::Slice { start: None, stop: Some(16), step: None }])?;
            assert_eq!(part.to_vec::<u32>()?, [advanced(round, 100); 16]);
            work.advance(queue, &x, 100)?;
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let run = &run;
        let all: Vec<_> = (0..THREADS).map(|number| threads.spawn(move || run(number))).collect();
        all.into_iter().for_each(|thread| thread.join().expect("no panic").expect("no error"));
    });
    assert!(kind_stats(UsmKind::Device, home.device())?.reserved <= limit);
    drop(small);
    Ok(())
}

#[test]
fn a_full_device_is_an_error_and_allocates_again_after_frees() -> Result<()> {
    let _guard = exclusive()?;
    let queue = default_queue()?;
    let device = queue.device();
    let (most, total) = (device.max_alloc_size(), device.global_mem_size());
    let error = bytes(most as usize + 1, UsmKind::Device, &queue).err();
    match &error {
        Some(Error::Allocation { note, .. }) => assert!(note.contains("largest single allocation"), "{note}"),
        other => println!("{device} gives more than its largest allocation: {other:?}"),
    }
    // The test does not touch this memory. A driver that counts allocations refuses twice the device memory.
    let mut held = Vec::new();
    let refusal = loop {
        let piece = (most / 2).min(total / 8) as usize;
        match bytes(piece, UsmKind::Device, &queue) {
            Ok(array) => held.push(array),
            Err(error) => break Some(error),
        }
        if held.len() * piece > 2 * total as usize {
            break None;
        }
    };
    match refusal {
        Some(Error::Allocation { used, total: told, .. }) => {
            println!("{device} is full with {} of {} MiB", used >> 20, told >> 20);
            assert_eq!((told, used), (total, held.iter().map(|array| array.nbytes() as u64).sum()));
        }
        Some(other) => return Err(other),
        None => println!("{device} gives more than twice the {} MiB that it has", total >> 20),
    }
    drop(held);
    let x = bytes(16 * MIB, UsmKind::Device, &queue)?;
    x.fill(3u8)?;
    assert!(x.to_vec::<u8>()?.iter().all(|byte| *byte == 3));
    drop(x);
    trim(None)?;
    assert_eq!(kind_stats(UsmKind::Device, device)?.reserved, 0);
    Ok(())
}

/// A random size; each power of two is equally likely: as many sizes are between 64 and 128 bytes as between 1 and 2 MiB.
fn size(random: &mut Random) -> usize {
    let power = 1usize << (6 + random.below(15));
    power + random.below(power)
}

/// This test measures, so it needs an optimised build: `tests/run test-pressure`.
#[test]
#[ignore = "a minute, optimised"]
fn ten_million_random_sizes_have_a_small_overhead() -> Result<()> {
    const LIVE: usize = 256 * MIB;
    let _guard = exclusive()?;
    let queue = default_queue()?;
    for (kind, count) in [(UsmKind::Device, 10_000_000), (UsmKind::Host, 1_000_000)] {
        let begun = Instant::now();
        let mut random = Random::new(7);
        let mut held: Vec<Array> = Vec::new();
        let (mut live, mut most_live, mut most_held) = (0, 0, 0);
        // A number of arrays that rises and falls leaves holes, which a constant number would fill.
        for number in 0..count {
            let room = LIVE / 2 + LIVE / 2 * (number / 100_000 % 2);
            let wanted = size(&mut random);
            while live + wanted > room {
                let array = held.swap_remove(random.below(held.len()));
                live -= array.nbytes();
            }
            held.push(bytes(wanted, kind, &queue)?);
            live += wanted;
            most_live = most_live.max(live);
            if number % 64 == 0 {
                most_held = most_held.max(kind_stats(kind, queue.device())?.reserved);
            }
        }
        let ratio = most_held as f64 / most_live as f64;
        let took = begun.elapsed();
        println!(
            "{kind}: {} allocations in {:.1} s, at most {} MiB held for {} MiB live: {ratio:.2}",
            count,
            took.as_secs_f64(),
            most_held >> 20,
            most_live >> 20
        );
        assert!(ratio <= 1.5, "{kind}: {ratio:.2} times what is live");
        assert!(took.as_secs() < 120, "{kind}: {took:?}");
        drop(held);
        trim(None)?;
        assert_eq!(kind_stats(kind, queue.device())?.reserved, 0);
    }
    Ok(())
}
