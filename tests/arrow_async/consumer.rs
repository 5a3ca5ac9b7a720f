//! Our consumer with a producer written against the C structs, conforming or faulty.

use crate::arrow_c::{Balance, number_field};
use crate::source::{Give, Source};
use futures::StreamExt;
use futures::executor::block_on;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use usmq::Result;
use usmq::interop::arrow::{ArrowSchema, AsyncStreamReader, Column, Field, ImportOptions};

/// A stream, and a producer that has its handler.
pub fn pair(ahead: usize) -> (AsyncStreamReader, Arc<Source>) {
    let (stream, handler) = AsyncStreamReader::new(ahead);
    (stream, Source::new(handler.into_raw()))
}

fn poll_with(stream: &mut AsyncStreamReader, waker: &Waker) -> Poll<Option<Result<Vec<i64>>>> {
    let next = stream.poll_next_unpin(&mut Context::from_waker(waker));
    next.map(|next| {
        next.map(|array| {
            let column = Column::import_device(array?, ImportOptions::default())?;
            column.values()?.to_vec::<i64>()
        })
    })
}

pub fn poll(stream: &mut AsyncStreamReader) -> Poll<Option<Result<Vec<i64>>>> {
    poll_with(stream, Waker::noop())
}

/// The next values, which must exist.
fn next(stream: &mut AsyncStreamReader) -> Vec<i64> {
    let next = poll(stream);
    assert!(matches!(next, Poll::Ready(Some(Ok(_)))), "{next:?}");
    if let Poll::Ready(Some(Ok(values))) = next { values } else { Vec::new() }
}

/// The text of the error that must come next; after it the stream has ended.
fn next_error(stream: &mut AsyncStreamReader) -> String {
    let next = poll(stream);
    assert!(matches!(next, Poll::Ready(Some(Err(_)))), "{next:?}");
    assert!(is_over(stream));
    format!("{next:?}")
}

fn is_over(stream: &mut AsyncStreamReader) -> bool {
    matches!(poll(stream), Poll::Ready(None)) && matches!(poll(stream), Poll::Ready(None))
}

fn field_now(stream: &mut AsyncStreamReader) -> Poll<Result<Arc<Field>>> {
    stream.poll_field(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a20_a24_arrays_of_a_producer_arrive_in_order() -> Result<()> {
    let balance = Balance::new()?;
    let (mut stream, source) = pair(4);
    assert!(field_now(&mut stream).is_pending());
    assert!(poll(&mut stream).is_pending());
    assert_eq!(source.schema()?, 0);
    assert_eq!(block_on(stream.field())?, number_field()?);
    assert!(poll(&mut stream).is_pending());
    assert_eq!((source.values(&[1, 2]), source.values(&[]), source.values(&[3])), (0, 0, 0));
    assert_eq!((next(&mut stream), next(&mut stream)), (vec![1, 2], vec![]));
    assert_eq!(source.end(), 0);
    source.release();
    // Tasks accepted before the release are available after it.
    assert_eq!(next(&mut stream), [3]);
    assert!(is_over(&mut stream));
    drop(stream);
    assert_eq!((source.check(), source.cancels()), ((3, 0), 0));
    balance.check()
}

#[test]
fn a4_the_queue_capacity_is_requested_then_one_per_taken_array() -> Result<()> {
    let balance = Balance::new()?;
    for ahead in [0, 1, 3] {
        let (mut stream, source) = pair(ahead);
        assert!(source.requests().is_empty());
        source.schema()?;
        let ahead = ahead.max(1);
        assert_eq!(source.requests(), [ahead as i64]);
        for number in 0..ahead {
            source.values(&[number as i64]);
        }
        assert_eq!(source.requests().len(), 1);
        for number in 0..2 * ahead {
            assert_eq!(next(&mut stream), [number as i64]);
            assert_eq!(source.requests()[1..], vec![1; number + 1]);
            source.values(&[(number + ahead) as i64]);
        }
        drop(stream);
        source.release();
        assert_eq!((source.check(), source.cancels()), ((2 * ahead, ahead), 1));
    }
    balance.check()
}

#[test]
fn a20_a23_tasks_are_discarded_and_errors_ignored_after_the_drop() -> Result<()> {
    let balance = Balance::new()?;
    let (mut stream, source) = pair(3);
    source.schema()?;
    source.values(&[1]);
    source.values(&[2]);
    assert_eq!(next(&mut stream), [1]);
    drop(stream);
    assert_eq!((source.cancels(), source.check()), (1, (1, 1)));
    // As in Arrow C++: some tasks are in flight, then an error reports the cancellation.
    assert_eq!((source.values(&[3]), source.values(&[4])), (0, 0));
    source.error(libc::ECANCELED, Some(c"Consumer requested cancellation"));
    assert_eq!(source.values(&[5]), 0);
    source.release();
    assert_eq!(source.check(), (1, 4));
    balance.check()
}

#[test]
fn a20_tasks_before_an_error_are_delivered_before_it() -> Result<()> {
    let balance = Balance::new()?;
    for (text, expected) in [(Some(c"no more"), "no more"), (None, "No space left")] {
        let (mut stream, source) = pair(3);
        source.schema()?;
        source.values(&[1]);
        source.values(&[2]);
        source.error(libc::ENOSPC, text);
        source.error(libc::EIO, Some(c"a second one"));
        assert_eq!((next(&mut stream), next(&mut stream)), (vec![1], vec![2]));
        source.release();
        let text = next_error(&mut stream);
        assert!(text.contains(expected), "{text}");
        drop(stream);
        assert_eq!((source.check(), source.cancels()), ((2, 0), 0));
    }
    balance.check()
}

#[test]
fn a22_wakers_in_an_error_or_release_call_no_producer_method() -> Result<()> {
    /// Polls the stream, or drops it, while the producer is still inside its callback.
    struct Eager {
        stream: Mutex<Option<AsyncStreamReader>>,
        drops: bool,
        seen: AtomicUsize,
    }
    impl Wake for Eager {
        fn wake(self: Arc<Self>) {
            let mut stream = self.stream.lock().expect("no panic");
            if self.drops {
                stream.take();
            } else if let Some(stream) = &mut *stream
                && poll(stream).is_ready()
            {
                self.seen.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    let balance = Balance::new()?;
    for drops in [false, true] {
        let says: [fn(&Source); 4] = [
            |source| source.error(1, None),
            Source::release,
            |source| assert_eq!(source.end(), 0),
            |source| assert_eq!(source.values(&[1]), 0),
        ];
        for (number, say) in says.into_iter().enumerate() {
            let (mut stream, source) = pair(2);
            source.schema()?;
            let eager = Eager { stream: Mutex::default(), drops, seen: 0.into() };
            let eager = Arc::new(eager);
            assert!(poll_with(&mut stream, &eager.clone().into()).is_pending());
            *eager.stream.lock().expect("no panic") = Some(stream);
            say(&source);
            assert_eq!(eager.seen.load(Ordering::Relaxed), usize::from(!drops));
            if number != 1 {
                source.release();
            }
            eager.stream.lock().expect("no panic").take();
            source.check();
        }
    }
    balance.check()
}

#[test]
fn a3_a_waker_that_panics_does_not_unwind_into_the_producer() -> Result<()> {
    struct Sulky;
    impl Wake for Sulky {
        fn wake(self: Arc<Self>) {
            panic!("as the test wants it")
        }
    }
    let balance = Balance::new()?;
    let (mut stream, source) = pair(2);
    let waker = Arc::new(Sulky).into();
    let mut waits = |source: &Source, say: fn(&Source)| {
        assert!(poll_with(&mut stream, &waker).is_pending());
        say(source);
    };
    waits(&source, |source| assert!(matches!(source.schema(), Ok(0))));
    waits(&source, |source| assert_eq!(source.values(&[1]), 0));
    assert_eq!(next(&mut stream), [1]);
    assert!(poll_with(&mut stream, &waker).is_pending());
    source.release();
    assert!(next_error(&mut stream).contains("before the end"));
    assert_eq!(source.check(), (1, 0));
    balance.check()
}

#[test]
fn a25_an_invalid_stream_is_refused_with_an_error() -> Result<()> {
    let balance = Balance::new()?;
    let (mut stream, source) = pair(2);
    assert_ne!(source.schema_of(ArrowSchema::empty()), 0);
    source.release();
    assert!(matches!(field_now(&mut stream), Poll::Ready(Err(_))));
    assert!(next_error(&mut stream).contains("released"));

    // Two schemas.
    let (mut stream, source) = pair(2);
    assert_eq!(source.schema()?, 0);
    assert_ne!(source.schema()?, 0);
    source.release();
    assert!(next_error(&mut stream).contains("twice"));

    // No producer; one without callbacks.
    let (mut stream, handler) = AsyncStreamReader::new(2);
    let raw = handler.into_raw();
    let source = Source::new(raw);
    source.forget_producer();
    assert_ne!(source.schema()?, 0);
    source.release();
    assert!(next_error(&mut stream).contains("producer is null"));

    // A task that no one requested: before the schema, and beyond the credit.
    let (mut stream, source) = pair(2);
    assert_eq!(source.values(&[1]), 0);
    source.release();
    assert!(next_error(&mut stream).contains("not requested"));
    assert_eq!(source.check(), (0, 1));
    let (mut stream, source) = pair(2);
    source.schema()?;
    for number in 0..4 {
        assert_eq!(source.values(&[number]), 0);
    }
    assert_eq!(source.cancels(), 1);
    source.release();
    assert_eq!((next(&mut stream), next(&mut stream)), (vec![0], vec![1]));
    assert!(next_error(&mut stream).contains("not requested"));
    assert_eq!(source.check(), (2, 2));

    // The missing end, and a null producer.
    let (mut stream, source) = pair(2);
    source.schema()?;
    source.release();
    source.release();
    assert!(next_error(&mut stream).contains("before the end"));
    let (mut stream, handler) = AsyncStreamReader::new(2);
    drop(handler);
    assert!(next_error(&mut stream).contains("before a producer received it"));
    balance.check()
}

#[test]
fn a11_a_task_without_an_array_ends_the_stream_with_an_error() -> Result<()> {
    let balance = Balance::new()?;
    for (give, word) in [
        (Give::Nothing(libc::ENOMEM), "Cannot allocate"),
        (Give::Junk(libc::ENOMEM), "Cannot allocate"),
        (Give::Nothing(0), "released array"),
        (Give::Device(2), "type 2"),
    ] {
        let (mut stream, source) = pair(3);
        source.schema()?;
        source.values(&[1]);
        source.offer(give);
        source.values(&[2]);
        assert_eq!(next(&mut stream), [1]);
        let text = next_error(&mut stream);
        assert!(text.contains(word), "{text}");
        assert_eq!((source.cancels(), source.check()), (1, (2, 1)));
        // The error that a producer may send after this.
        source.error(1, None);
        source.release();
        drop(stream);
        assert_eq!(source.cancels(), 1);
    }
    balance.check()
}
