//! Our consumer with a producer written against the C structs: release and drop at any time.

use crate::arrow_c::Balance;
use crate::consumer::{pair, poll};
use crate::source::Source;
use futures::StreamExt;
use futures::executor::block_on;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use usmq::Result;
use usmq::interop::arrow::AsyncStreamReader;

#[test]
fn a3_a23_a_cancellation_may_call_error_and_release_at_once() -> Result<()> {
    let balance = Balance::new()?;
    let (stream, handler) = AsyncStreamReader::new(2);
    let source = Source::with_hook(handler.into_raw(), |source| {
        source.error(libc::ECANCELED, None);
        source.release();
    });
    source.schema()?;
    source.values(&[1]);
    drop(stream);
    assert_eq!((source.check(), source.cancels()), ((0, 1), 1));
    balance.check()
}

#[test]
fn a3_a_release_waits_for_a_producer_call_in_progress() -> Result<()> {
    let balance = Balance::new()?;
    let (stream, handler) = AsyncStreamReader::new(2);
    let steps = Arc::new(AtomicUsize::new(0));
    let inside = steps.clone();
    let source = Source::with_hook(handler.into_raw(), move |_| {
        inside.store(1, Ordering::Release);
        std::thread::sleep(std::time::Duration::from_millis(100));
        inside.store(2, Ordering::Release);
    });
    source.schema()?;
    let dropper = std::thread::spawn(move || drop(stream));
    while steps.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    source.release();
    // From here on a producer may be freed.
    assert_eq!(steps.load(Ordering::Acquire), 2);
    dropper.join().expect("no panic");
    balance.check()
}

#[test]
fn a3_the_stream_may_be_dropped_at_any_stage() -> Result<()> {
    let balance = Balance::new()?;
    // The stream is dropped after this many steps; then the producer continues to its end.
    let steps: [fn(&Source); 6] = [
        |source| drop(source.schema()),
        |source| assert_eq!(source.values(&[1]), 0),
        |source| assert_eq!(source.values(&[2]), 0),
        |source| assert_eq!(source.end(), 0),
        |source| source.error(5, None),
        Source::release,
    ];
    for stage in 0..=steps.len() {
        for polled in [false, true] {
            let (stream, source) = pair(2);
            let mut stream = Some(stream);
            for (number, step) in steps.iter().enumerate() {
                if number == stage {
                    stream.take();
                }
                step(&source);
                if let Some(stream) = stream.as_mut().filter(|_| polled) {
                    drop(poll(stream));
                }
            }
            drop(stream);
            source.check();
            assert!(source.cancels() <= 1);
        }
    }
    // Handlers that no producer gets, dropped in both orders, and one that a producer returns.
    let (stream, handler) = AsyncStreamReader::new(1);
    drop(stream);
    drop(handler);
    let (stream, handler) = AsyncStreamReader::new(1);
    let raw = handler.into_raw();
    // SAFETY: no producer got the handler.
    drop(unsafe { usmq::interop::arrow::AsyncHandler::from_raw(raw) });
    drop(stream);
    balance.check()
}

#[test]
fn a20_a_drop_at_any_moment_leaks_nothing_of_a_threaded_producer() -> Result<()> {
    let balance = Balance::new()?;
    for round in 0..300usize {
        let (mut stream, source) = pair(4);
        let wanted = round % 12;
        let producer = source.clone();
        let thread = std::thread::spawn(move || {
            let refused = !matches!(producer.schema(), Ok(0));
            // The producer obeys the credit, and sees the cancellation late.
            for number in 0.. {
                if refused {
                    break;
                }
                while producer.requests().iter().sum::<i64>() <= number && producer.cancels() == 0 {
                    std::thread::yield_now();
                }
                if producer.requests().iter().sum::<i64>() <= number {
                    break;
                }
                producer.values(&[number]);
            }
            producer.release();
        });
        block_on(async {
            for number in 0..wanted {
                let array = pin!(&mut stream).next().await;
                let Some(Ok(array)) = array else { panic!("{number} of {wanted}: {array:?}") };
                drop(array);
            }
        });
        drop(stream);
        thread.join().expect("no panic");
        let (given, dropped) = source.check();
        assert_eq!(given, wanted);
        assert!(dropped <= 4, "{dropped}");
    }
    balance.check()
}
