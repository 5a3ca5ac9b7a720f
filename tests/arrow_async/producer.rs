//! Our producer with a consumer written against the C structs: order and number of callbacks.

use crate::arrow_c::{Balance, empty_array, extract, host_values, number_field, numbers, release};
use crate::common::{Random, Work, default_queue, states_of};
use crate::recorder::{Call, Recorder};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use usmq::interop::arrow::{AsyncExport, Batches, Column, StreamEnd};
use usmq::{Result, UsmKind};

/// Batch `number` has as many values, all different.
pub fn values_of(number: usize) -> Vec<i64> {
    (0..number % 7).map(|value| (number * 10 + value) as i64).collect()
}

fn batch(number: usize) -> Result<Column> {
    numbers(&values_of(number), UsmKind::Shared)
}

/// Batches created on demand, whose number the producer knows.
pub fn known(count: usize) -> Batches {
    Box::new((0..count).map(batch))
}

/// As [`known`], but the producer needs another request to find the end.
pub fn unknown(count: usize) -> Batches {
    let mut number = 0;
    Box::new(std::iter::from_fn(move || {
        number += 1;
        (number <= count).then(|| batch(number - 1))
    }))
}

pub fn all_values(count: usize) -> Vec<i64> {
    (0..count).flat_map(values_of).collect()
}

pub fn start(recorder: &Arc<Recorder>, batches: Batches) -> Result<AsyncExport> {
    // SAFETY: the handler is the recorder's, which the test keeps until the stream is over.
    unsafe { AsyncExport::start_on_host(recorder.raw(), number_field()?, batches) }
}

pub fn schema() -> Call {
    Call::Schema("l".to_owned())
}

#[test]
fn a1_a2_a3_producer_is_set_then_schema_comes_first_and_release_last() -> Result<()> {
    let balance = Balance::new()?;
    let recorder = Recorder::new(|own, call| {
        if let Call::Schema(_) = call {
            own.request(10);
        }
        0
    });
    let producing = start(&recorder, known(3))?;
    let calls = recorder.calls();
    assert_eq!(calls, [schema(), Call::Task, Call::Task, Call::Task, Call::End, Call::Release]);
    assert!(matches!(producing.wait(), StreamEnd::Complete));
    assert_eq!(recorder.extract_all(), all_values(3));
    balance.check()
}

#[test]
fn a4_no_batch_is_pulled_or_delivered_beyond_the_requested_count() -> Result<()> {
    let balance = Balance::new()?;
    let recorder = Recorder::silent();
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let batches = (0..).map(move |number| {
        count.fetch_add(1, Ordering::AcqRel);
        batch(number)
    });
    let producing = start(&recorder, Box::new(batches))?;
    recorder.until(|log| log.calls.len() == 1);
    let mut given = 0;
    for more in [1, 1, 5, 2, 30] {
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((recorder.count(&Call::Task), made.load(Ordering::Acquire)), (given, given));
        recorder.request(more as i64);
        given += more;
        recorder.until(|log| log.calls.len() == 1 + given);
    }
    assert!(!producing.is_finished());
    recorder.cancel();
    assert_eq!(recorder.calls().len(), 1 + given + 1);
    assert!(matches!(producing.wait(), StreamEnd::Cancelled));
    assert_eq!(recorder.extract_all(), all_values(given));
    balance.check()
}

#[test]
fn a4_a_known_end_needs_no_credit_and_an_unknown_one_a_request() -> Result<()> {
    let balance = Balance::new()?;
    for (batches, seen) in [(known(0), 1), (unknown(0), 0)] {
        let recorder = Recorder::silent();
        start(&recorder, batches)?;
        recorder.until(|log| !log.calls.is_empty());
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(recorder.count(&Call::End), seen);
        if seen == 0 {
            recorder.request(1);
        }
        assert_eq!(recorder.calls(), [schema(), Call::End, Call::Release]);
    }
    let recorder = Recorder::silent();
    start(&recorder, known(4))?;
    recorder.until(|log| !log.calls.is_empty());
    recorder.request(4);
    assert_eq!(recorder.calls().len(), 1 + 4 + 2);
    assert_eq!(recorder.extract_all(), all_values(4));
    balance.check()
}

#[test]
fn a5_a_request_inside_a_callback_makes_no_nested_callback() -> Result<()> {
    let balance = Balance::new()?;
    // The recorder sees calls inside calls. Credit comes from within callbacks only, sometimes in parts.
    let recorder = Recorder::new(|own, call| {
        let tasks = own.log().tasks.len();
        let credit = match call {
            Call::Schema(_) => 2,
            Call::Task => [1, 1, 2][tasks % 3],
            _ => 0,
        };
        (0..credit).for_each(|_| own.request(1));
        0
    });
    start(&recorder, unknown(500))?;
    assert_eq!(recorder.calls().len(), 1 + 500 + 2);
    assert_eq!(recorder.extract_all(), all_values(500));
    balance.check()
}

#[test]
fn a4_credit_of_any_size_accumulates_without_wrapping() -> Result<()> {
    let balance = Balance::new()?;
    let recorder = Recorder::silent();
    let held = recorder.hold_release();
    start(&recorder, unknown(100))?;
    recorder.until(|log| !log.calls.is_empty());
    for _ in 0..3 {
        recorder.request(i64::MAX);
    }
    drop(held);
    assert_eq!(recorder.calls().len(), 1 + 100 + 2);
    assert_eq!(recorder.extract_all(), all_values(100));
    balance.check()
}

#[test]
fn a3_a4_random_credit_from_several_threads_loses_no_wakeup() -> Result<()> {
    const BATCHES: usize = 4000;
    let balance = Balance::new()?;
    // Each task is extracted at once, half of them inside the callback.
    let sum = Arc::new(AtomicUsize::new(0));
    let inside = sum.clone();
    let recorder = Recorder::new(move |own, call| {
        let tasks = std::mem::take(&mut own.log().tasks);
        for (number, mut task) in tasks.into_iter().enumerate() {
            let mut array = empty_array();
            if (own.count(call) + number) % 2 == 0 && extract(&mut task, &mut array) == 0 {
                inside.fetch_add(host_values(&array).iter().sum::<i64>() as usize, Ordering::AcqRel);
                release(&mut array);
            } else {
                own.log().tasks.push(task);
            }
        }
        0
    });
    // The last requests may come after the last task.
    let held = recorder.hold_release();
    let producing = start(&recorder, unknown(BATCHES))?;
    recorder.until(|log| !log.calls.is_empty());
    std::thread::scope(|threads| {
        for seed in 0..3 {
            let recorder = &recorder;
            threads.spawn(move || {
                let mut random = Random::new(seed);
                let mut credit = 0;
                // One more than the batches, to reach the end; the last requests one by one.
                while credit < BATCHES / 3 + 1 {
                    let more = 1 + random.below(6);
                    credit += more;
                    recorder.request(more as i64);
                    if random.below(4) == 0 {
                        std::thread::sleep(Duration::from_micros(random.below(300) as u64));
                    }
                }
            });
        }
    });
    drop(held);
    let calls = recorder.calls();
    assert_eq!(calls.len(), 1 + BATCHES + 2);
    let outside: i64 = recorder.extract_all().iter().sum();
    let expected: i64 = all_values(BATCHES).iter().sum();
    assert_eq!(outside + sum.load(Ordering::Acquire) as i64, expected);
    assert!(matches!(producing.wait(), StreamEnd::Complete));
    balance.check()
}

#[test]
fn a11_a_task_extracts_its_array_once_and_null_discards_it() -> Result<()> {
    let balance = Balance::new()?;
    let recorder = Recorder::silent();
    start(&recorder, known(6))?;
    recorder.until(|log| !log.calls.is_empty());
    recorder.request(6);
    recorder.calls();
    let mut tasks = std::mem::take(&mut recorder.log().tasks);
    // The arrays outlive the handler, the producer and the stream.
    drop(recorder);
    for task in &mut tasks[..3] {
        assert_eq!(extract(task, ptr::null_mut()), 0);
        assert_ne!(extract(task, ptr::null_mut()), 0, "a second time");
        let mut array = empty_array();
        assert_ne!(extract(task, &mut array), 0, "a second time");
        assert!(array.array.release.is_none());
    }
    let mut arrays = Vec::new();
    for task in &mut tasks[3..] {
        // The consumer's memory may hold anything.
        let mut array = empty_array();
        (array.reserved, array.device_id) = ([0xabab; 3], 77);
        assert_eq!(extract(task, &mut array), 0);
        assert_eq!((array.device_id, array.reserved), (-1, [0; 3]));
        arrays.push(array);
    }
    let values: Vec<_> = arrays.iter().flat_map(host_values).collect();
    assert_eq!(values, (3..6).flat_map(values_of).collect::<Vec<_>>());
    arrays.iter_mut().for_each(release);
    balance.check()
}

#[test]
fn a11_a_device_task_names_its_device_and_event() -> Result<()> {
    let balance = Balance::new()?;
    let queue = default_queue()?;
    let (work, states) = (Work::new(&queue)?, states_of(&[7; 16], &queue)?);
    let recorder = Recorder::silent();
    let batches = Box::new((0..2).map(move |_| {
        // Complete work needs no event.
        work.advance(&queue, &states, 100_000_000)?;
        usmq::with_queue(&queue, || numbers(&[1, 2, 3], UsmKind::Device))
    }));
    // SAFETY: as in `start`.
    let producing = unsafe { AsyncExport::start(recorder.raw(), number_field()?, batches) }?;
    recorder.until(|log| !log.calls.is_empty());
    recorder.request(2);
    recorder.calls();
    for mut task in std::mem::take(&mut recorder.log().tasks) {
        let mut array = empty_array();
        assert_eq!(extract(&mut task, &mut array), 0);
        let ordinal = usmq::current_queue()?.device().ordinal() as i64;
        assert_eq!((array.device_type, array.device_id), (14, ordinal));
        assert!(!array.sync_event.is_null());
        release(&mut array);
    }
    assert!(matches!(producing.wait(), StreamEnd::Complete));
    balance.check()
}

#[test]
fn a12_extracting_a_batch_with_pending_work_does_not_wait() -> Result<()> {
    let balance = Balance::new()?;
    let queue = default_queue()?;
    let (work, states) = (Work::new(&queue)?, states_of(&[7; 16], &queue)?);
    let recorder = Recorder::silent();
    let (tell, told) = mpsc::channel();
    let busy = (queue.clone(), states.clone());
    let batches = Box::new((0..1).map(move |_| {
        // On the same in-order queue, so the column's copy waits for it.
        let event = work.advance(&busy.0, &busy.1, 100_000_000)?;
        tell.send(event).expect("the test listens");
        usmq::with_queue(&busy.0, || numbers(&[1, 2, 3], UsmKind::Device))
    }));
    // SAFETY: as in `start`.
    let producing = unsafe { AsyncExport::start(recorder.raw(), number_field()?, batches) }?;
    recorder.until(|log| !log.calls.is_empty());
    recorder.request(1);
    recorder.calls();
    let mut task = recorder.log().tasks.pop().expect("a task came");
    let mut array = empty_array();
    assert_eq!(extract(&mut task, &mut array), 0);
    let event = told.recv().expect("the batch was made");
    assert!(!event.done()?, "the test needs work in flight here");
    event.wait()?;
    release(&mut array);
    assert!(matches!(producing.wait(), StreamEnd::Complete));
    drop(states);
    balance.check()
}
