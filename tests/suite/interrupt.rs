//! Interrupted waits: they end soon, without side effects, and only where that is safe.

#![allow(clippy::panic, reason = "a helper that fails is a test that fails")]

use crate::common::{IN_ORDER, LOOSE, Work, advanced, default_queue, states_of};
use std::cell::Cell;
use std::time::{Duration, Instant};
use usmq::{Array, Error, Event, Queue, Result, with_interrupt};

/// A second of work on a quick machine, for one element.
const LONG: u32 = 400_000_000;

/// A delay that a person notices.
const SOON: Duration = Duration::from_millis(200);

/// Runs `wait`, requests its end after 50 ms, and returns the delay from the request to its end.
fn interrupted<T>(wait: impl FnOnce() -> Result<T>) -> Duration {
    let (begun, asked) = (Instant::now(), Cell::new(None));
    let check = || {
        let now = begun.elapsed() > Duration::from_millis(50);
        if now && asked.get().is_none() {
            asked.set(Some(Instant::now()));
        }
        now
    };
    match with_interrupt(check, wait) {
        Err(Error::Interrupted) => asked.get().map_or(Duration::MAX, |asked| asked.elapsed()),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the wait was not interrupted"),
    }
}

fn busy(queue: &Queue) -> Result<(Array, Event)> {
    let x = states_of(&[7], queue)?;
    let event = Work::new(queue)?.advance(queue, &x, LONG)?;
    Ok((x, event))
}

#[test]
fn every_wait_can_be_interrupted_and_the_work_continues() -> Result<()> {
    for properties in [IN_ORDER, LOOSE] {
        let queue = Queue::new(default_queue()?.device(), None, properties)?;
        type Wait = fn(&Array, &Event) -> Result<()>;
        let waits: [(&str, Wait); 4] = [
            ("array", |x, _| x.wait()),
            ("event", |_, event| event.wait()),
            ("queue", |_, event| event.queue().wait()),
            ("to_vec", |x, _| x.to_vec::<u32>().map(drop)),
        ];
        for (name, wait) in waits {
            let (x, event) = busy(&queue)?;
            let took = interrupted(|| wait(&x, &event));
            assert!(!event.done()?, "{name}: the kernel was too short");
            assert!(took < SOON, "{name} took {took:?}");
            assert_eq!(x.to_vec::<u32>()?, [advanced(7, LONG)], "{name}");
        }
    }
    Ok(())
}

#[test]
fn an_interrupted_copy_of_borrowed_memory_has_not_started() -> Result<()> {
    let queue = default_queue()?;
    let y = states_of(&[1, 2, 3], &queue)?;
    let (x, event) = busy(&queue)?;
    let values = vec![9u32; 3];
    // No array must wait for the kernel of the other one, but both are on one queue.
    interrupted(|| y.copy_from_slice(&values));
    drop(values);
    interrupted(|| y.to_vec::<u32>());
    assert!(!event.done()?);
    assert_eq!(y.to_vec::<u32>()?, [1, 2, 3]);
    assert_eq!(x.to_vec::<u32>()?, [advanced(7, LONG)]);
    Ok(())
}

#[test]
fn an_uninterrupted_wait_ends_with_its_command() -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let x = states_of(&[7], &queue)?;
    let mut steps = 0;
    // Kernels that end before the wait, during the first polls, and long after them.
    for more in [1, 1000, 30_000, 30_000_000] {
        steps += more;
        let event = work.advance(&queue, &x, more)?;
        with_interrupt(|| false, || event.wait())?;
        assert!(event.done()?);
        work.advance(&queue, &x, more)?;
        steps += more;
        with_interrupt(|| false, || queue.wait())?;
        assert_eq!(with_interrupt(|| false, || x.to_vec::<u32>())?, [advanced(7, steps)]);
    }
    Ok(())
}

#[test]
fn other_threads_are_not_interrupted() -> Result<()> {
    let queue = default_queue()?;
    let (x, event) = busy(&queue)?;
    let there = std::thread::spawn(move || event.wait());
    interrupted(|| x.wait());
    there.join().expect("no panic")?;
    assert_eq!(x.to_vec::<u32>()?, [advanced(7, LONG)]);
    Ok(())
}
