//! Our producer with our consumer, over columns in USM.

use crate::arrow_c::{Balance, number_field, numbers};
use crate::common::Random;
use crate::producer::{unknown, values_of};
use futures::StreamExt;
use futures::executor::block_on;
use usmq::interop::arrow::{
    ArrowDeviceArray, AsyncExport, AsyncStreamReader, Batches, Column, ForeignStruct, ImportOptions,
    StreamEnd,
};
use usmq::{Error, Result, UsmKind};

/// Both ends of a stream of int64 columns.
fn pair(ahead: usize, on_host: bool, batches: Batches) -> Result<(AsyncStreamReader, AsyncExport)> {
    let (stream, handler) = AsyncStreamReader::new(ahead);
    let start = if on_host { AsyncExport::start_on_host } else { AsyncExport::start };
    // SAFETY: only this producer gets the handler.
    Ok((stream, unsafe { start(handler.into_raw(), number_field()?, batches) }?))
}

fn values(array: ForeignStruct<ArrowDeviceArray>) -> Result<Vec<i64>> {
    Column::import_device(array, ImportOptions::default())?.values()?.to_vec()
}

#[test]
fn a1_to_a12_columns_of_every_kind_arrive_in_order_without_a_copy() -> Result<()> {
    let balance = Balance::new()?;
    for kind in UsmKind::ALL {
        let columns = (0..20).map(|number| numbers(&values_of(number), kind)).collect::<Result<Vec<_>>>()?;
        let given = columns.clone();
        let (mut stream, producing) = pair(3, false, Box::new(given.into_iter().map(Ok)))?;
        block_on(async {
            assert_eq!(stream.field().await?, number_field()?);
            for column in &columns {
                let Some(array) = stream.next().await else { panic!("{column} is missing") };
                let array = array?;
                let came = Column::import_device(array, ImportOptions::default())?;
                assert_eq!(came.values()?.to_vec::<i64>()?, column.values()?.to_vec::<i64>()?);
                if !column.is_empty() {
                    assert_eq!(came.values()?.address(), column.values()?.address());
                    assert_eq!(came.values()?.usm_kind(), Some(kind));
                }
            }
            assert!(stream.next().await.is_none());
            Ok::<_, Error>(())
        })?;
        assert!(matches!(producing.wait(), StreamEnd::Complete));
    }
    balance.check()
}

#[test]
fn a3_a4_thousands_of_batches_pass_short_and_long_queues() -> Result<()> {
    const BATCHES: usize = 1500;
    let balance = Balance::new()?;
    for (ahead, on_host) in [(1, true), (1, false), (7, false), (1000, true), (usize::MAX, true)] {
        let (mut stream, producing) = pair(ahead, on_host, unknown(BATCHES))?;
        let mut random = Random::new(ahead as u64);
        let mut number = 0;
        while let Some(array) = block_on(stream.next()) {
            assert_eq!(values(array?)?, values_of(number), "batch {number} of {ahead}");
            number += 1;
            if random.below(50) == 0 {
                std::thread::sleep(std::time::Duration::from_micros(random.below(500) as u64));
            }
        }
        assert_eq!(number, BATCHES);
        assert!(matches!(producing.wait(), StreamEnd::Complete));
    }
    balance.check()
}

#[test]
fn a10_batches_before_a_failure_are_kept_and_its_reason_reported() -> Result<()> {
    let balance = Balance::new()?;
    for at in [0, 1, 5] {
        let batches = (0..9).map(move |number| {
            if number == at {
                return Err(Error::value("the disk is gone"));
            }
            numbers(&values_of(number), UsmKind::Device)
        });
        let (mut stream, producing) = pair(2, false, Box::new(batches))?;
        let came: Vec<_> = block_on(stream.by_ref().collect());
        assert_eq!(came.len(), at + 1);
        for (number, array) in came.into_iter().enumerate() {
            match array {
                Ok(array) => assert_eq!(values(array)?, values_of(number)),
                Err(error) => assert!(error.to_string().contains("the disk is gone"), "{error}"),
            }
        }
        assert!(matches!(producing.wait(), StreamEnd::Failed(Error::Value { .. })));
    }
    // A producer that aborts while the consumer waits.
    let (mut stream, producing) = pair(2, false, Box::new(std::iter::empty()))?;
    drop(block_on(stream.next()));
    producing.stop();
    assert!(matches!(producing.wait(), StreamEnd::Complete));
    balance.check()
}

#[test]
fn a8_a20_a_stream_dropped_on_another_thread_at_any_moment_ends_its_producer() -> Result<()> {
    let balance = Balance::new()?;
    let mut random = Random::new(20);
    for round in 0..200 {
        let (mut stream, producing) = pair(1 + random.below(5), round % 2 == 0, unknown(usize::MAX))?;
        let (wanted, pause) = (random.below(6), random.below(400) as u64);
        let taker = std::thread::spawn(move || {
            let mut kept = Vec::new();
            for _ in 0..wanted {
                kept.extend(block_on(stream.next()));
            }
            std::thread::sleep(std::time::Duration::from_micros(pause));
            drop(stream);
            kept
        });
        let kept = taker.join().expect("no panic");
        assert!(matches!(producing.wait(), StreamEnd::Cancelled | StreamEnd::Refused(_)));
        // Imported columns outlive both sides.
        assert_eq!(kept.len(), wanted);
        for (number, array) in kept.into_iter().enumerate() {
            assert_eq!(values(array?)?, values_of(number));
        }
    }
    balance.check()
}

#[test]
fn a5_a22_a_producer_inside_the_consumers_polls_does_not_deadlock() -> Result<()> {
    let balance = Balance::new()?;
    // The batches of one stream are those of another, and so on.
    let mut streams = vec![pair(1, true, unknown(100))?];
    for _ in 0..4 {
        let (mut inner, producing) = streams.pop().expect("one was pushed");
        let batches = std::iter::from_fn(move || {
            let array = block_on(inner.next())?;
            Some(array.and_then(|array| {
                let placed = ImportOptions { queue: None, kind: Some(UsmKind::Shared), columns: None };
                Column::import_device(array, placed)
            }))
        });
        streams.push(pair(2, true, Box::new(batches))?);
        drop(producing);
    }
    let (mut stream, producing) = streams.pop().expect("one was pushed");
    for number in 0..100 {
        let array = block_on(stream.next()).expect("a hundred");
        assert_eq!(values(array?)?, values_of(number));
    }
    assert!(block_on(stream.next()).is_none());
    assert!(matches!(producing.wait(), StreamEnd::Complete));
    balance.check()
}
