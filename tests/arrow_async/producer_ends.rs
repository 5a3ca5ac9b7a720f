//! Our producer with a consumer written against the C structs: every way in which a stream ends.

use crate::arrow_c::{Balance, extract_into, host_values, number_field, numbers, release};
use crate::common::Random;
use crate::producer::{all_values, known, schema, start, unknown, values_of};
use crate::recorder::{Call, Recorder};
use std::ptr;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use usmq::interop::arrow::{AsyncExport, Batches, Column, StreamEnd};
use usmq::{Error, Result, UsmKind};

#[test]
fn a6_a_request_below_one_causes_a_later_error_then_the_release() -> Result<()> {
    let balance = Balance::new()?;
    for count in [0, -1, i64::MIN] {
        for after in [0, 2] {
            let recorder = Recorder::new(move |own, call| {
                if matches!(call, Call::Schema(_)) && after > 0 {
                    own.request(after as i64);
                }
                let asks = matches!(call, Call::Schema(_) | Call::Task);
                if asks && own.log().tasks.len() == after {
                    own.request(count);
                    own.request(5);
                }
                0
            });
            let producing = start(&recorder, known(9))?;
            let mut calls = recorder.calls();
            let Some(Call::Error(code, text)) = calls.get(1 + after).cloned() else { panic!("{calls:?}") };
            assert_eq!(code, libc::EINVAL);
            assert!(text.contains(&format!("requested {count} arrays")), "{text}");
            calls.remove(1 + after);
            assert_eq!(calls.len(), 1 + after + 1, "{calls:?}");
            assert!(matches!(producing.wait(), StreamEnd::Failed(Error::Interop { .. })));
            assert_eq!(recorder.extract_all(), all_values(after));
        }
    }
    balance.check()
}

#[test]
fn a7_a_request_after_the_cancellation_does_nothing() -> Result<()> {
    let balance = Balance::new()?;
    let recorder = Recorder::new(|own, _| {
        own.cancel();
        own.request(5);
        own.request(-5);
        0
    });
    let producing = start(&recorder, known(5))?;
    assert_eq!(recorder.calls(), [schema(), Call::Release]);
    assert!(matches!(producing.wait(), StreamEnd::Cancelled));
    balance.check()
}

#[test]
fn a8_a_cancellation_inside_any_callback_ends_the_stream_without_an_error() -> Result<()> {
    let balance = Balance::new()?;
    for at in 0..4 {
        let recorder = Recorder::new(move |own, call| {
            if matches!(call, Call::Schema(_)) {
                own.request(100);
            }
            if own.log().tasks.len() == at {
                own.cancel();
                own.cancel();
            }
            0
        });
        let producing = start(&recorder, unknown(50))?;
        let calls = recorder.calls();
        assert_eq!(calls.len(), 1 + at + 1, "{calls:?}");
        assert!(matches!(producing.wait(), StreamEnd::Cancelled));
        assert_eq!(recorder.extract_all(), all_values(at));
    }
    balance.check()
}

#[test]
fn a8_cancellations_by_several_threads_count_as_one() -> Result<()> {
    let balance = Balance::new()?;
    let mut random = Random::new(8);
    for round in 0..150 {
        // The batches never end by themselves; without credit the stream waits.
        let credit = [0, 3, i64::MAX / 2][round % 3];
        let recorder = Recorder::new(move |own, call| {
            if matches!(call, Call::Schema(_)) && credit > 0 {
                own.request(credit);
            }
            0
        });
        let together = Barrier::new(3);
        let producing = start(&recorder, unknown(usize::MAX))?;
        let pause = Duration::from_micros(random.below(2000) as u64);
        recorder.until(|log| !log.calls.is_empty());
        if round % 2 == 0 {
            // With several requests, the producer must live until the last one. With one request, the release may
            // happen before its call returns.
            let held = recorder.hold_release();
            std::thread::scope(|threads| {
                for _ in 0..3 {
                    threads.spawn(|| {
                        together.wait();
                        std::thread::sleep(pause);
                        recorder.cancel();
                        recorder.cancel();
                    });
                }
            });
            drop(held);
        } else {
            std::thread::sleep(pause);
            recorder.cancel();
        }
        let calls = recorder.calls();
        assert!(!calls.iter().any(|call| matches!(call, Call::Error(..) | Call::End)), "{calls:?}");
        assert!(matches!(producing.wait(), StreamEnd::Cancelled));
        let tasks = recorder.count(&Call::Task);
        assert_eq!(recorder.extract_all(), all_values(tasks), "round {round}");
    }
    balance.check()
}

#[test]
fn a8_an_error_after_the_cancellation_is_not_reported() -> Result<()> {
    let balance = Balance::new()?;
    let recorder = Recorder::silent();
    let own = recorder.clone();
    let batches = std::iter::from_fn(move || {
        own.cancel();
        Some(Err(Error::value("too late")))
    });
    let producing = start(&recorder, Box::new(batches))?;
    recorder.until(|log| !log.calls.is_empty());
    recorder.request(1);
    assert_eq!(recorder.calls(), [schema(), Call::Release]);
    assert!(matches!(producing.wait(), StreamEnd::Failed(Error::Value { .. })));
    balance.check()
}

#[test]
fn a9_only_the_release_follows_a_consumers_error() -> Result<()> {
    let balance = Balance::new()?;
    // At the schema, at a task, at the end.
    for at in [0, 1, 3, 4] {
        let recorder = Recorder::new(move |own, call| {
            if matches!(call, Call::Schema(_)) {
                own.request(10);
            }
            // The call is recorded after this.
            if own.log().calls.len() == at { 5 } else { 0 }
        });
        let producing = start(&recorder, unknown(3))?;
        let calls = recorder.calls();
        assert_eq!(calls.len(), at + 2, "{calls:?}");
        assert!(!calls.iter().any(|call| matches!(call, Call::Error(..))), "{calls:?}");
        assert!(matches!(producing.wait(), StreamEnd::Refused(5)));
        // The consumer did not extract the refused task, so the producer frees it.
        recorder.extract_all();
    }
    balance.check()
}

#[test]
fn a9_a_refused_but_extracted_task_is_freed_once() -> Result<()> {
    let balance = Balance::new()?;
    let recorder = Recorder::new(|own, call| {
        if matches!(call, Call::Schema(_)) {
            own.request(10);
        }
        let Some(mut task) = own.log().tasks.last().copied() else { return 0 };
        let mut array = extract_into(&mut task);
        let right = host_values(&array) == values_of(0);
        release(&mut array);
        if right { 7 } else { 8 }
    });
    let producing = start(&recorder, known(3))?;
    assert_eq!(recorder.calls(), [schema(), Call::Task, Call::Release]);
    assert!(matches!(producing.wait(), StreamEnd::Refused(7)));
    balance.check()
}

/// Batches in which `spoil` creates the one numbered `at`.
fn spoiled(at: usize, mut spoil: impl FnMut() -> Option<Result<Column>> + Send + 'static) -> Batches {
    let mut number = 0;
    Box::new(std::iter::from_fn(move || {
        number += 1;
        if number - 1 == at { spoil() } else { Some(numbers(&values_of(number - 1), UsmKind::Shared)) }
    }))
}

#[test]
fn a10_a_failure_is_reported_once_with_its_reason_then_the_release() -> Result<()> {
    let balance = Balance::new()?;
    for at in [0, 2] {
        let spoils: [(_, fn() -> Option<Result<Column>>, _); 4] = [
            ("a\0b", || Some(Err(Error::value("a\0b"))), libc::EINVAL),
            ("panicked", || panic!("as the test wants it"), libc::EINVAL),
            // Of another type.
            ("one type", || Some(numbers(&[1], UsmKind::Shared).and_then(other_type)), libc::EINVAL),
            // Device memory is not for the host.
            ("device USM", || Some(numbers(&[1], UsmKind::Device)), libc::EINVAL),
        ];
        for (word, spoil, expected) in spoils {
            let recorder = Recorder::new(|own, call| {
                if matches!(call, Call::Schema(_)) {
                    own.request(10);
                }
                0
            });
            let producing = start(&recorder, spoiled(at, spoil))?;
            let calls = recorder.calls();
            let [.., Call::Error(code, text), Call::Release] = &calls[..] else { panic!("{calls:?}") };
            assert_eq!(*code, expected);
            assert!(text.contains(&word.replace('\0', "")), "{text}");
            assert_eq!(calls.len(), 1 + at + 2, "{calls:?}");
            assert!(matches!(producing.wait(), StreamEnd::Failed(_)));
            assert_eq!(recorder.extract_all(), all_values(at));
        }
    }
    balance.check()
}

fn other_type(column: Column) -> Result<Column> {
    Ok(usmq::interop::arrow::Table::new(vec![column])?.batches()[0].clone())
}

#[test]
fn a10_batches_that_panic_on_drop_do_no_harm() -> Result<()> {
    struct Sulky;
    impl Iterator for Sulky {
        type Item = Result<Column>;
        fn next(&mut self) -> Option<Self::Item> {
            panic!("as the test wants it")
        }
    }
    impl Drop for Sulky {
        fn drop(&mut self) {
            panic!("as the test wants it, again")
        }
    }
    let balance = Balance::new()?;
    let recorder = Recorder::silent();
    let producing = start(&recorder, Box::new(Sulky))?;
    recorder.until(|log| !log.calls.is_empty());
    recorder.request(1);
    let calls = recorder.calls();
    assert!(matches!(calls[..], [Call::Schema(_), Call::Error(..), Call::Release]), "{calls:?}");
    assert!(matches!(producing.wait(), StreamEnd::Failed(_)));
    balance.check()
}

#[test]
fn a10_a_producer_that_aborts_reports_it_and_a_dropped_one_continues() -> Result<()> {
    let balance = Balance::new()?;
    let recorder = Recorder::silent();
    let producing = start(&recorder, known(3))?;
    recorder.until(|log| !log.calls.is_empty());
    producing.stop();
    producing.stop();
    let calls = recorder.calls();
    let [_, Call::Error(libc::ECANCELED, _), Call::Release] = &calls[..] else { panic!("{calls:?}") };
    assert!(matches!(producing.wait(), StreamEnd::Stopped));

    let recorder = Recorder::silent();
    drop(start(&recorder, known(3))?);
    recorder.until(|log| !log.calls.is_empty());
    recorder.request(3);
    assert_eq!(recorder.calls().len(), 1 + 3 + 2);
    assert_eq!(recorder.extract_all(), all_values(3));
    balance.check()
}

#[test]
fn a24_an_incomplete_handler_is_not_called() -> Result<()> {
    let balance = Balance::new()?;
    // SAFETY: null is refused.
    assert!(unsafe { AsyncExport::start(ptr::null_mut(), number_field()?, known(1)) }.is_err());
    let recorder: Arc<Recorder> = Recorder::silent();
    recorder.remove_on_error();
    let Err(error) = start(&recorder, known(1)) else { panic!("it started") };
    assert!(error.to_string().contains("lacks callbacks"), "{error}");
    assert!(recorder.log().calls.is_empty());
    balance.check()
}
