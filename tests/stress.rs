//! 64 threads with separate scopes and shared arrays: no operation is lost and all memory is freed.
//!
//! Runs for at most half a minute; `USMQ_STRESS_SECONDS` sets another duration.

mod common;

use common::{
    IN_ORDER, LOOSE_PROFILING, PROFILING, Random, Work, advanced, default_queue, other_root, states_of,
};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use usmq::{Array, Queue, Result, collocate, current_queue, memory, with_queue};

const THREADS: u64 = 64;
const SHARED: usize = 16;
/// Number of rounds of each thread, if no duration is set.
const ROUNDS: u64 = 40;

/// Two in-order queues and an out-of-order one on each of two devices, or on one if there is only one.
fn queues() -> Result<Vec<Queue>> {
    let first = default_queue()?;
    let mut devices = vec![first.device().clone()];
    devices.extend(other_root(&first)?);
    let mut queues = Vec::new();
    for device in &devices {
        for properties in [IN_ORDER, PROFILING, LOOSE_PROFILING] {
            queues.push(Queue::new(device, None, properties)?);
        }
    }
    Ok(queues)
}

/// The shared arrays, and the number of steps that each has been advanced so far. The result does not depend on the order
/// of the steps, but a step that is lost, repeated or torn changes it.
struct Common {
    queues: Vec<Queue>,
    works: Vec<Work>,
    arrays: Vec<Array>,
    steps: Vec<AtomicU32>,
    operations: AtomicU64,
}

impl Common {
    fn new() -> Result<Self> {
        let queues = queues()?;
        let works = queues.iter().map(Work::new).collect::<Result<_>>()?;
        let arrays =
            (0..SHARED).map(|number| states_of(&[number as u32; 32], &queues[0])).collect::<Result<_>>()?;
        let steps = (0..SHARED).map(|_| AtomicU32::new(0)).collect();
        Ok(Self { queues, works, arrays, steps, operations: AtomicU64::new(0) })
    }

    /// Advances a shared array on a queue that reaches it.
    fn send(&self, number: usize, place: usize, steps: u32) -> Result<()> {
        self.works[place].advance(&self.queues[place], &self.arrays[number], steps)?;
        self.steps[number].fetch_add(steps, Ordering::Relaxed);
        Ok(())
    }

    fn round(&self, random: &mut Random) -> Result<()> {
        let (number, place) = (random.below(SHARED), random.below(self.queues.len()));
        let steps = random.below(2000) as u32;
        let queue = &self.queues[place];
        let reaches = queue.context() == self.arrays[number].context();
        with_queue(queue, || -> Result<()> {
            assert_eq!(&current_queue()?, queue);
            match random.below(6) {
                0 | 1 if reaches => self.send(number, place, steps)?,
                // Every element has the same state of the chain; otherwise a write was torn.
                2 => {
                    let seen = collocate(&self.arrays[number], queue)?.copy()?.to_vec::<u32>()?;
                    assert!(seen.iter().all(|state| *state == seen[0]), "torn: {seen:?}");
                }
                3 => {
                    let own = states_of(&[steps; 8], queue)?;
                    self.works[place].advance(queue, &own, steps)?;
                    // Sometimes the array is dropped while work on it is in flight.
                    if steps.is_multiple_of(2) {
                        assert_eq!(own.to_vec::<u32>()?, [advanced(steps, steps); 8]);
                    }
                }
                4 => {
                    let inner = &self.queues[(place + 1) % self.queues.len()];
                    with_queue(inner, || -> Result<()> {
                        assert_eq!(&current_queue()?, inner);
                        Array::zeros::<u32>([random.below(100)])?.wait()
                    })?;
                }
                _ => self.arrays[number].wait()?,
            }
            assert_eq!(&current_queue()?, queue);
            Ok(())
        })?;
        self.operations.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn many_threads_with_scopes_and_shared_arrays_lose_nothing() -> Result<()> {
    let seconds = std::env::var("USMQ_STRESS_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let common = Common::new()?;
    let before = live()?;
    let begun = Instant::now();
    let limit = seconds.map(Duration::from_secs);
    std::thread::scope(|threads| {
        let common = &common;
        let storm = |seed| {
            move || -> Result<()> {
                let mut random = Random::new(seed);
                let mut round = 0;
                while limit.map_or(round < ROUNDS, |limit| begun.elapsed() < limit) {
                    common.round(&mut random)?;
                    round += 1;
                }
                Ok(())
            }
        };
        let running: Vec<_> = (1..=THREADS).map(|seed| threads.spawn(storm(seed))).collect();
        running.into_iter().for_each(|thread| thread.join().expect("no panic").expect("no error"));
    });
    for (number, array) in common.arrays.iter().enumerate() {
        let steps = common.steps[number].load(Ordering::Relaxed);
        assert_eq!(array.to_vec::<u32>()?, [advanced(number as u32, steps); 32], "array {number}");
    }
    for queue in &common.queues {
        queue.wait()?;
    }
    assert_eq!(live()?, before, "arrays were leaked");
    println!("{} operations in {:.0?}", common.operations.load(Ordering::Relaxed), begun.elapsed());
    Ok(())
}

/// The number of live arrays on all devices.
fn live() -> Result<u64> {
    Ok(memory::stats(None)?.iter().map(|(_, stats)| stats.live).sum())
}
