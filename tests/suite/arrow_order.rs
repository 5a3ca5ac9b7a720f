//! Arrow: events order producer and consumer without host waits.

use crate::arrays::array;
use crate::common::{
    IN_ORDER, Random, Work, advanced, default_queue, four_queues, other_root, states, states_of,
};
use crate::structs::{
    count_host_releases, count_releases, eventually, foreign_array, foreign_device_array, without_leaks,
};
use arrow_schema::DataType;
use std::sync::Arc;
use usmq::interop::arrow::{
    ArrowDeviceArrayStream, Batches, Column, ColumnOrTable, Field, ImportOptions, StreamReader, SyncMode,
    Table,
};
use usmq::{Array, DType, Queue, Result, UsmKind};

/// Steps of a command that runs long enough for a test to observe it.
const LONG: u32 = 150_000_000;

const SIZE: usize = 16;

fn column_of(x: &Array) -> Result<(Arc<Field>, Column)> {
    let column = Column::from_array("x", x)?;
    Ok((column.field().clone(), column))
}

/// A kernel of `writer` is in flight when `x` is exported, and still when a kernel of `reader` is launched on it.
fn hand_over_in_flight(work: &Work, writer: &Queue, reader: &Queue, kind: UsmKind) -> Result<()> {
    let what = format!("{kind} USM from {writer} to {reader}");
    let x = Array::uninit([SIZE], DType::U32, kind, writer)?;
    x.fill(7u32)?;
    let y = states(SIZE, reader)?;
    let (field, column) = column_of(&x)?;
    let writing = work.advance(writer, &x, LONG)?;
    let (raw, releases) = count_releases(column.export_device(SyncMode::Event)?);
    assert!(!raw.sync_event.is_null(), "{what}");
    drop((x, column));
    let back = Column::import_device(
        foreign_device_array(&field, raw),
        ImportOptions { queue: Some(reader), kind: None, columns: None },
    )?;
    let reading = work.advance_into(reader, &back.values()?, &y, 1)?;
    drop(back);
    assert!(!writing.done()?, "the host waited, or the test needs longer work: {what}");
    assert!(!reading.done()? && releases.count() == 0, "{what}");
    assert_eq!(y.to_vec::<u32>()?, [advanced(7, LONG + 1); SIZE], "{what}");
    assert!(eventually(|| Ok(releases.count() == 1))?, "{what}: {} releases", releases.count());
    Ok(())
}

#[test]
fn a_consumer_on_any_queue_sees_the_writes_of_a_kernel_in_flight() -> Result<()> {
    without_leaks(|| {
        let queues = four_queues(default_queue()?.device(), None)?;
        let work = Work::new(&queues[0])?;
        for writer in &queues {
            for reader in &queues {
                hand_over_in_flight(&work, writer, reader, UsmKind::Device)?;
            }
        }
        for kind in [UsmKind::Shared, UsmKind::Host] {
            hand_over_in_flight(&work, &queues[0], &queues[1], kind)?;
        }
        Ok(())
    })
}

#[test]
fn the_event_covers_work_on_other_queues_than_the_arrays_own() -> Result<()> {
    without_leaks(|| {
        let [own, writer, reader, _] = four_queues(default_queue()?.device(), None)?;
        let work = Work::new(&own)?;
        let x = states_of(&[7; SIZE], &own)?;
        let y = states(SIZE, &reader)?;
        let (_, column) = column_of(&x)?;
        let writing = work.advance(&writer, &x, LONG)?;
        let export = column.export_device(SyncMode::Event)?;
        let placed = ImportOptions { queue: Some(&reader), kind: None, columns: None };
        let back = Column::import_device(export.into(), placed)?;
        work.advance_into(&reader, &back.values()?, &y, 1)?;
        assert!(!writing.done()?, "the host waited, or the test needs longer work");
        assert_eq!(y.to_vec::<u32>()?, [advanced(7, LONG + 1); SIZE]);
        Ok(())
    })
}

#[test]
fn one_event_covers_every_column_of_a_table() -> Result<()> {
    without_leaks(|| {
        let [own, first, second, reader] = four_queues(default_queue()?.device(), None)?;
        let work = Work::new(&own)?;
        let arrays = [states_of(&[1; SIZE], &own)?, states_of(&[2; SIZE], &own)?];
        let columns = arrays.iter().map(|x| Column::from_array("x", x)).collect::<Result<Vec<_>>>()?;
        let table = Table::new(columns)?;
        let digests = [1, 2].map(|value| states_of(&[value; SIZE], &reader));
        let digests = digests.into_iter().collect::<Result<Vec<_>>>()?;
        let writing = [work.advance(&first, &arrays[0], 10)?, work.advance(&second, &arrays[1], LONG)?];
        let export = table.batches()[0].export_device(SyncMode::Event)?;
        let placed = ImportOptions { queue: Some(&reader), kind: None, columns: None };
        let back = ColumnOrTable::from_column(Column::import_device(export.into(), placed)?)?;
        let ColumnOrTable::Table(back) = back else {
            panic!("a struct that is never null is a record batch")
        };
        for (column, digest) in back.columns()?.iter().zip(&digests) {
            work.mix(&reader, &column.values()?, digest)?;
        }
        assert!(!writing[1].done()?, "the host waited, or the test needs longer work");
        let expected = |value: u32, steps| value.wrapping_mul(31).wrapping_add(advanced(value, steps));
        assert_eq!(digests[0].to_vec::<u32>()?, [expected(1, 10); SIZE]);
        assert_eq!(digests[1].to_vec::<u32>()?, [expected(2, LONG); SIZE]);
        Ok(())
    })
}

#[test]
fn a_read_by_the_host_waits_for_the_event() -> Result<()> {
    without_leaks(|| {
        let [writer, reader, ..] = four_queues(default_queue()?.device(), None)?;
        let work = Work::new(&writer)?;
        for kind in UsmKind::ALL {
            let x = Array::uninit([SIZE], DType::U32, kind, &writer)?;
            x.fill(7u32)?;
            let (_, column) = column_of(&x)?;
            let writing = work.advance(&writer, &x, LONG)?;
            let export = column.export_device(SyncMode::Event)?;
            let placed = ImportOptions { queue: Some(&reader), kind: None, columns: None };
            let back = Column::import_device(export.into(), placed)?;
            assert!(!writing.done()?, "the host waited, or the test needs longer work");
            let host = back.to_arrow()?;
            let values = host.to_data().buffers()[0].typed_data::<u32>().to_vec();
            assert_eq!(values, [advanced(7, LONG); SIZE], "{kind}");
        }
        Ok(())
    })
}

#[test]
fn an_export_that_waits_has_no_event() -> Result<()> {
    without_leaks(|| {
        let [writer, ..] = four_queues(default_queue()?.device(), None)?;
        let work = Work::new(&writer)?;
        let x = Array::uninit([SIZE], DType::U32, UsmKind::Host, &writer)?;
        x.fill(7u32)?;
        let (_, column) = column_of(&x)?;
        let exports: [fn(&Column) -> Result<bool>; 3] = [
            |column| Ok(column.export_device(SyncMode::Now)?.sync_event().is_null()),
            |column| Ok(column.export_host_device()?.sync_event().is_null()),
            |column| column.export_host().map(|array| !array.is_released()),
        ];
        for export in exports {
            let writing = work.advance(&writer, &x, LONG)?;
            assert!(export(&column)?);
            assert!(writing.done()?, "exported before the work was complete");
        }
        Ok(())
    })
}

#[test]
fn each_array_of_a_stream_has_the_event_of_its_own_work() -> Result<()> {
    without_leaks(|| {
        let [writer, reader, ..] = four_queues(default_queue()?.device(), None)?;
        let work = Arc::new(Work::new(&writer)?);
        let (field, _) = column_of(&states(SIZE, &writer)?)?;
        // Each batch is created on demand.
        let (worker, on) = (work.clone(), writer.clone());
        let begin = move |value: u32| {
            let x = states_of(&[value; SIZE], &on)?;
            worker.advance(&on, &x, LONG)?;
            Column::from_array("x", &x)
        };
        let batches: Batches = Box::new((1..=3).map(begin));
        let placed = ImportOptions { queue: Some(&reader), kind: None, columns: None };
        for (array, value) in
            StreamReader::new(ArrowDeviceArrayStream::new(field.clone(), batches).into())?.zip(1..)
        {
            let back = Column::import_device(array?, placed)?;
            let y = states(SIZE, &reader)?;
            let reading = work.advance_into(&reader, &back.values()?, &y, 1)?;
            assert!(!reading.done()?, "the host waited, or the test needs longer work");
            assert_eq!(y.to_vec::<u32>()?, [advanced(value, LONG + 1); SIZE]);
        }
        Ok(())
    })
}

#[test]
fn host_memory_is_released_only_after_its_copies_complete() -> Result<()> {
    without_leaks(|| {
        let queue = Queue::new(default_queue()?.device(), None, IN_ORDER)?;
        let work = Work::new(&queue)?;
        let host = array(&DataType::Utf8, 5000, true, &mut Random::new(1)).unwrap();
        let source = Column::from_arrow(
            "x",
            &host,
            ImportOptions { queue: None, kind: Some(UsmKind::Host), columns: None },
        )?;
        let (raw, releases) = count_host_releases(source.export_host()?);
        let x = states_of(&[7; SIZE], &queue)?;
        // The copies come after this.
        let running = work.advance(&queue, &x, LONG)?;
        let placed = ImportOptions { queue: Some(&queue), kind: None, columns: None };
        let copy = Column::import(foreign_array(source.field(), raw), placed)?;
        assert!(!running.done()?, "the host waited, or the test needs longer work");
        assert_eq!(releases.count(), 0);
        assert_eq!(&copy.to_arrow()?, &host);
        assert!(eventually(|| Ok(releases.count() == 1))?, "{} releases", releases.count());
        Ok(())
    })
}

#[test]
fn an_import_dropped_at_once_waits_for_nothing_and_is_released_later() -> Result<()> {
    without_leaks(|| {
        let [writer, reader, ..] = four_queues(default_queue()?.device(), None)?;
        let work = Work::new(&writer)?;
        let x = states_of(&[7; SIZE], &writer)?;
        let (field, column) = column_of(&x)?;
        let writing = work.advance(&writer, &x, LONG)?;
        let (raw, releases) = count_releases(column.export_device(SyncMode::Event)?);
        let placed = ImportOptions { queue: Some(&reader), kind: None, columns: None };
        drop(Column::import_device(foreign_device_array(&field, raw), placed)?);
        drop(column.export_device(SyncMode::Event)?);
        assert!(!writing.done()?, "the host waited, or the test needs longer work");
        assert!(eventually(|| Ok(releases.count() == 1))?, "{} releases", releases.count());
        assert_eq!(x.to_vec::<u32>()?, [advanced(7, LONG); SIZE]);
        Ok(())
    })
}

#[test]
fn work_in_flight_on_a_second_device_is_ordered_and_copied_from_it() -> Result<()> {
    without_leaks(|| {
        let here = default_queue()?;
        let Some(device) = other_root(&here)? else { return Ok(()) };
        let there = Queue::new(&device, None, IN_ORDER)?;
        let work = Work::new(&there)?;
        let x = states_of(&[7; SIZE], &there)?;
        let (_, column) = column_of(&x)?;
        for queue in [None, Some(&here)] {
            let before = x.to_vec::<u32>()?[0];
            work.advance(&there, &x, LONG)?;
            let export = column.export_device(SyncMode::Event)?;
            let back =
                Column::import_device(export.into(), ImportOptions { queue, kind: None, columns: None })?;
            assert_eq!(back.queue().device(), queue.map_or(&device, Queue::device));
            assert_eq!(back.values()?.to_vec::<u32>()?, [advanced(before, LONG); SIZE]);
        }
        Ok(())
    })
}
