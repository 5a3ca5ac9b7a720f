//! Arrow: streams of arrays, as producer and consumer, compared with arrow-rs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use crate::arrays::array;
use crate::common::{Random, default_queue, two_sub_devices};
use crate::structs::{CPU, ONEAPI, raw_device_array, take, without_leaks};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array as _, RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, DataType, Field as ArrowField, Schema};
use arrow_select::concat::concat;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use usmq::interop::arrow::{
    ArrowArrayStream, ArrowDeviceArrayStream, Batches, Column, ColumnOrTable, Field, ForeignStruct,
    ImportOptions, StreamReader, Table,
};
use usmq::{Error, Queue, Result, UsmKind, with_queue};

const HOST: ImportOptions<'_> = ImportOptions { queue: None, kind: Some(UsmKind::Host), columns: None };

fn batches(rows: &[usize]) -> Vec<RecordBatch> {
    let types = [DataType::Int64, DataType::Utf8View];
    let fields = types.clone().into_iter().zip(["a", "b"]).map(|(of, name)| ArrowField::new(name, of, true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut random = Random::new(1);
    let mut columns = |rows| types.iter().map(|of| array(of, rows, true, &mut random).unwrap()).collect();
    rows.iter().map(|rows| RecordBatch::try_new(schema.clone(), columns(*rows)).unwrap()).collect()
}

/// The columns of structs that a stream of these batches gives.
fn on_device(batches: &[RecordBatch], placed: ImportOptions<'_>) -> Result<(Arc<Field>, Vec<Column>)> {
    let tables = batches.iter().map(|batch| Table::from_arrow(batch, placed)).collect::<Result<Vec<_>>>()?;
    Ok((tables[0].schema().clone(), tables.iter().map(|table| table.batches()[0].clone()).collect()))
}

fn all(columns: Vec<Column>) -> Batches {
    Box::new(columns.into_iter().map(Ok))
}

fn table(imported: ColumnOrTable) -> Table {
    match imported {
        ColumnOrTable::Table(table) => table,
        ColumnOrTable::Column(column) => panic!("{column} is not a table"),
    }
}

fn failure<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Interop { message: text, .. }) => text,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

#[test]
fn a_table_keeps_the_batches_and_the_memory_of_a_device_stream() -> Result<()> {
    without_leaks(|| {
        let batches = batches(&[5, 0, 70]);
        let (schema, columns) = on_device(&batches, ImportOptions::default())?;
        let addresses = |columns: &[Column]| -> Result<Vec<_>> {
            columns.iter().map(|column| Ok(column.children()[0].values()?.address())).collect()
        };
        let before = addresses(&columns)?;
        let stream = ArrowDeviceArrayStream::new(schema, all(columns));
        let table = table(ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default())?);
        let after = addresses(table.batches())?;
        assert_eq!((after[0], after[2]), (before[0], before[2]));
        assert_eq!((table.num_rows(), table.to_arrow()?), (75, batches));
        let several = table.columns().unwrap_err();
        assert!(
            matches!(&several, Error::Value { message: text, .. } if text.contains("3 batches")),
            "{several}"
        );
        Ok(())
    })
}

#[test]
fn arrays_outlive_their_stream_and_batches_are_made_on_demand() -> Result<()> {
    without_leaks(|| {
        let batches = batches(&[5, 6, 7]);
        let (schema, columns) = on_device(&batches, ImportOptions::default())?;
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let made = columns.into_iter().map(Ok).inspect(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let stream = ArrowDeviceArrayStream::new(schema, Box::new(made));
        let mut arrays = StreamReader::new(stream.into())?;
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        let first = arrays.next().unwrap()?;
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        drop(arrays);
        // The iterator was dropped with the stream, with its remaining batches.
        assert_eq!(Arc::strong_count(&asked), 1);
        let column = Column::import_device(first, ImportOptions::default())?;
        assert_eq!(Table::from_structs(column)?.to_arrow()?, batches[..1]);
        Ok(())
    })
}

#[test]
fn a_finished_stream_stays_finished() -> Result<()> {
    without_leaks(|| {
        let (schema, columns) = on_device(&batches(&[5]), ImportOptions::default())?;
        let mut arrays = StreamReader::new(ArrowDeviceArrayStream::new(schema, all(columns)).into())?;
        assert!(arrays.next().unwrap().is_ok());
        assert!(arrays.next().is_none() && arrays.next().is_none());
        Ok(())
    })
}

#[test]
fn a_stream_without_arrays_has_a_type() -> Result<()> {
    without_leaks(|| {
        let (schema, _) = on_device(&batches(&[1]), ImportOptions::default())?;
        let stream = ArrowDeviceArrayStream::new(schema.clone(), all(Vec::new()));
        let nothing = table(ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default())?);
        assert_eq!((nothing.num_rows(), nothing.schema()), (0, &schema));
        let host = ArrowArrayStream::new(schema.clone(), all(Vec::new()));
        let nothing = table(ColumnOrTable::from_stream(host.into(), ImportOptions::default())?);
        assert_eq!((nothing.num_rows(), nothing.schema()), (0, &schema));
        Ok(())
    })
}

#[test]
fn arrays_of_numbers_are_one_column_in_memory_of_their_kind() -> Result<()> {
    without_leaks(|| {
        let numbers = array(&DataType::Int32, 9, true, &mut Random::new(2)).unwrap();
        let column = Column::from_arrow("x", &numbers, ImportOptions::default())?;
        let streams = |count| {
            let columns = vec![column.clone(); count];
            let stream = ArrowDeviceArrayStream::new(column.field().clone(), all(columns));
            ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default())
        };
        let ColumnOrTable::Column(one) = streams(1)? else { panic!("numbers are not a table") };
        assert_eq!(&one.to_arrow()?, &numbers);
        assert_eq!(one.values()?.address(), column.values()?.address());
        let ColumnOrTable::Column(both) = streams(2)? else { panic!("numbers are not a table") };
        assert_eq!(&both.to_arrow()?, &concat(&[&numbers, &numbers]).unwrap());
        assert_eq!((both.usm_kind(), both.queue()), (column.usm_kind(), column.queue()));
        Ok(())
    })
}

#[test]
fn the_producers_error_reaches_the_consumer_once() -> Result<()> {
    without_leaks(|| {
        let (schema, columns) = on_device(&batches(&[5, 6]), ImportOptions::default())?;
        let broken = Err(Error::value("the disk\0 is full"));
        let [first, second] = <[Column; 2]>::try_from(columns).unwrap();
        let made = [Ok(first), broken, Ok(second)].into_iter();
        let mut arrays = StreamReader::new(ArrowDeviceArrayStream::new(schema, Box::new(made)).into())?;
        assert!(arrays.next().unwrap().is_ok());
        assert!(failure(arrays.next().unwrap()).contains("the disk is full"));
        assert!(arrays.next().is_none());
        Ok(())
    })
}

#[test]
fn a_panic_in_the_producer_is_an_error_of_the_stream() -> Result<()> {
    without_leaks(|| {
        let (schema, _) = on_device(&batches(&[5]), ImportOptions::default())?;
        let made = std::iter::from_fn(|| panic!("printed by this test on purpose"));
        let stream = ArrowDeviceArrayStream::new(schema, Box::new(made));
        let text = failure(ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default()));
        assert!(text.contains("panicked"), "{text}");
        Ok(())
    })
}

#[test]
fn a_batch_of_another_type_is_an_error_of_the_stream() -> Result<()> {
    without_leaks(|| {
        let (schema, _) = on_device(&batches(&[5]), ImportOptions::default())?;
        let other = array(&DataType::Int32, 9, true, &mut Random::new(3)).unwrap();
        let other = Column::from_arrow("x", &other, ImportOptions::default())?;
        let stream = ArrowDeviceArrayStream::new(schema, all(vec![other]));
        let text = failure(ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default()));
        assert!(text.contains("one type"), "{text}");
        Ok(())
    })
}

#[test]
fn an_array_of_another_device_type_than_its_stream_is_refused() -> Result<()> {
    without_leaks(|| {
        let (schema, columns) = on_device(&batches(&[5]), ImportOptions::default())?;
        let mut stream = ArrowDeviceArrayStream::new(schema, all(columns));
        let device_type = ptr::from_mut(&mut stream).cast::<i32>();
        // SAFETY: the type is the first field of the struct.
        assert_eq!(unsafe { *device_type }, ONEAPI);
        // SAFETY: as above.
        unsafe { *device_type = CPU };
        let mut arrays = StreamReader::new(stream.into())?;
        let text = failure(arrays.next().unwrap());
        assert!(text.contains("type 1") && text.contains("type 14"), "{text}");
        Ok(())
    })
}

#[test]
fn a_released_stream_is_refused() -> Result<()> {
    without_leaks(|| {
        let (schema, columns) = on_device(&batches(&[5]), ImportOptions::default())?;
        let mut stream = ArrowDeviceArrayStream::new(schema, all(columns));
        drop(take(ptr::from_mut(&mut stream)));
        assert!(stream.is_released());
        assert!(failure(StreamReader::new(stream.into()).map(drop)).contains("released"));
        assert!(failure(StreamReader::new(ArrowArrayStream::empty().into()).map(drop)).contains("released"));
        Ok(())
    })
}

#[test]
fn memory_without_a_device_ordinal_is_an_error_of_the_stream() -> Result<()> {
    without_leaks(|| {
        let Some([part, _]) = two_sub_devices(default_queue()?.device())? else { return Ok(()) };
        let queue = Queue::new(&part, None, crate::common::IN_ORDER)?;
        let placed = ImportOptions { queue: Some(&queue), kind: None, columns: None };
        let (schema, columns) = on_device(&batches(&[5]), placed)?;
        let stream = ArrowDeviceArrayStream::new(schema, all(columns));
        let text = failure(ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default()));
        assert!(text.contains("sub-device"), "{text}");
        Ok(())
    })
}

#[test]
fn arrow_rs_reads_a_host_stream_in_place() -> Result<()> {
    without_leaks(|| {
        let batches = batches(&[5, 0, 70]);
        let (schema, columns) = on_device(&batches, HOST)?;
        let address = columns[0].children()[0].values()?.address();
        let mut stream = ArrowArrayStream::new(schema, all(columns));
        let raw = ptr::from_mut(&mut stream).cast::<FFI_ArrowArrayStream>();
        // SAFETY: one layout; it is moved out, so that dropping `stream` releases nothing.
        let reader = unsafe { RecordBatchStreamReader::from_raw(raw) }.unwrap();
        let read = reader.collect::<std::result::Result<Vec<_>, _>>().unwrap();
        assert_eq!(read[0].column(0).to_data().buffers()[0].as_ptr() as usize, address);
        assert_eq!(read, batches);
        Ok(())
    })
}

#[test]
fn arrow_rs_reports_device_memory_in_a_host_stream() -> Result<()> {
    without_leaks(|| {
        let (schema, columns) = on_device(&batches(&[5]), ImportOptions::default())?;
        let mut stream = ArrowArrayStream::new(schema.clone(), all(columns.clone()));
        let raw = ptr::from_mut(&mut stream).cast::<FFI_ArrowArrayStream>();
        // SAFETY: one layout; it is moved out, so that dropping `stream` releases nothing.
        let mut reader = unsafe { RecordBatchStreamReader::from_raw(raw) }.unwrap();
        let text = reader.next().unwrap().unwrap_err().to_string();
        assert!(text.contains("device USM, which the host cannot read"), "{text}");
        let stream = ArrowDeviceArrayStream::of_host(schema, all(columns));
        assert!(
            failure(ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default()))
                .contains("device USM")
        );
        Ok(())
    })
}

#[test]
fn a_device_stream_on_the_host_is_copied_as_one_batch() -> Result<()> {
    without_leaks(|| {
        let batches = batches(&[5, 0, 70]);
        let (schema, columns) = on_device(&batches, HOST)?;
        let stream = ArrowDeviceArrayStream::of_host(schema.clone(), all(columns.clone()));
        let mut arrays = StreamReader::new(ForeignStruct::from(stream))?;
        let first = Column::import_device(arrays.next().unwrap()?, HOST)?;
        assert_eq!(Table::from_structs(first)?.to_arrow()?, batches[..1]);
        let exported = columns[0].export_host_device()?;
        assert_eq!(
            (raw_device_array(&exported).device_type, raw_device_array(&exported).device_id),
            (CPU, -1)
        );
        let stream = ArrowDeviceArrayStream::of_host(schema, all(columns));
        let joined = table(ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default())?);
        let expected = arrow_select::concat::concat_batches(&batches[0].schema(), &batches).unwrap();
        assert_eq!(joined.to_arrow()?, [expected]);
        Ok(())
    })
}

#[test]
fn an_error_of_an_arrow_rs_reader_fails_the_import() -> Result<()> {
    without_leaks(|| {
        let batches = batches(&[5]);
        let schema = batches[0].schema();
        let made = [
            Ok(batches[0].clone()),
            Err(ArrowError::IoError("no such row".into(), std::io::Error::other(""))),
        ];
        let mut stream = FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new(made, schema)));
        let stream: ForeignStruct<ArrowArrayStream> = take(ptr::from_mut(&mut stream).cast());
        let text = failure(ColumnOrTable::from_stream(stream, ImportOptions::default()));
        assert!(text.contains("no such row"), "{text}");
        Ok(())
    })
}

#[test]
fn a_device_stream_is_imported_to_the_requested_queue() -> Result<()> {
    without_leaks(|| {
        let batches = batches(&[5, 6]);
        let (schema, columns) = on_device(&batches, ImportOptions::default())?;
        let other = Queue::new(default_queue()?.device(), None, crate::common::PROFILING)?;
        let stream = ArrowDeviceArrayStream::new(schema.clone(), all(columns.clone()));
        let placed = ImportOptions { queue: Some(&other), kind: Some(UsmKind::Shared), columns: None };
        let moved = table(ColumnOrTable::from_device_stream(stream.into(), placed)?);
        assert_eq!((moved.queue(), moved.batches()[0].usm_kind()), (&other, Some(UsmKind::Shared)));
        assert_eq!(moved.to_arrow()?, batches);
        // If the producer names no queue, the column gets the current one, if that can use the memory.
        let stream = ArrowDeviceArrayStream::new(schema, all(columns));
        let current = with_queue(&other, || {
            ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default())
        })?;
        assert_eq!(table(current).queue(), &other);
        Ok(())
    })
}
