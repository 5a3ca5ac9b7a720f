//! Arrow: round trips of arrays of every type through devices and other libraries, compared with arrow-rs.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use crate::arrays::{array, every_type, is_run_ends};
use crate::common::Random;
use crate::structs::{
    ONEAPI, count_host_releases, foreign_array, raw_array, raw_device_array, reimport, without_leaks,
};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array as _, ArrayRef, Float64Array, RecordBatch};
use arrow_schema::{DataType, Field as ArrowField, Schema};
use std::collections::HashMap;
use std::sync::Arc;
use usmq::interop::arrow::{Column, ColumnOrTable, ImportOptions, SyncMode, Table};
use usmq::{Array, DType, Error, Result, UsmKind, current_queue};

/// Around the bytes of a bitmap.
const OFFSETS: [usize; 5] = [0, 1, 7, 8, 9];

const HOST: ImportOptions<'_> = ImportOptions { queue: None, kind: Some(UsmKind::Host), columns: None };

fn on_device(array: &ArrayRef) -> Result<Column> {
    Column::from_arrow("x", array, ImportOptions::default())
}

/// An export to another library and an import keep the memory and the values.
fn assert_comes_back(column: &Column, expected: &ArrayRef, what: &str) -> Result<()> {
    let exported = column.export_device(SyncMode::Event)?;
    let before = raw_device_array(&exported);
    assert_eq!((before.device_type, before.reserved), (ONEAPI, [0; 3]), "{what}");
    assert_eq!(
        (before.array.length, before.array.offset),
        (column.len() as i64, column.offset() as i64),
        "{what}"
    );
    let before = before.array.addresses();
    let back = reimport(exported)?;
    assert_eq!((back.len(), back.offset()), (column.len(), column.offset()), "{what}");
    let after = raw_device_array(&back.export_device(SyncMode::Now)?).array.addresses();
    // A column without values keeps no memory.
    let same = |(after, before): (&usize, &usize)| after == before || (column.is_empty() && *after == 0);
    assert!(
        after.len() == before.len() && after.iter().zip(&before).all(same),
        "{what}: {before:?}, {after:?}"
    );
    assert_eq!(&back.to_arrow()?, expected, "{what}");
    Ok(())
}

#[test]
fn arrays_of_every_type_round_trip_at_the_same_addresses() -> Result<()> {
    without_leaks(|| {
        let mut random = Random::new(1);
        for data_type in every_type() {
            for (length, nulls) in [(0, false), (0, true), (1, true), (9, false), (100, false), (100, true)] {
                let what = format!("{length} of {data_type}, nulls: {nulls}");
                let array = array(&data_type, length, nulls, &mut random).expect(&what);
                let column = on_device(&array)?;
                assert_eq!((column.len(), column.field().name()), (length, "x"), "{what}");
                // arrow-rs counts bitmaps only.
                let nulls = if data_type == DataType::Null { length } else { array.null_count() };
                assert_eq!(column.null_count()?, nulls, "{what}");
                assert_eq!(&column.to_arrow()?, &array, "{what}");
                assert_comes_back(&column, &array, &what)?;
            }
        }
        Ok(())
    })
}

#[test]
fn slices_of_every_type_round_trip_on_either_side() -> Result<()> {
    without_leaks(|| {
        let mut random = Random::new(2);
        for data_type in every_type() {
            for nulls in [false, true] {
                let whole = array(&data_type, 40, nulls, &mut random).unwrap();
                let column = on_device(&whole)?;
                for offset in OFFSETS {
                    for length in [0, 1, 8, 40 - offset] {
                        let what = format!("{length} of {data_type} from {offset}, nulls: {nulls}");
                        let part = whole.slice(offset, length);
                        // Slices before the copy to the device, and on the device.
                        assert_comes_back(&on_device(&part)?, &part, &what)?;
                        let cut = column.slice(offset, length)?;
                        // An empty part starts at 0.
                        let first = if length == 0 { 0 } else { offset };
                        assert_eq!((cut.len(), cut.offset()), (length, first), "{what}");
                        assert_comes_back(&cut, &part, &what)?;
                    }
                }
            }
        }
        Ok(())
    })
}

#[test]
fn a_host_array_is_copied_from_its_offset() -> Result<()> {
    without_leaks(|| {
        let mut random = Random::new(3);
        for data_type in every_type() {
            for nulls in [false, true] {
                let whole = array(&data_type, 40, nulls, &mut random).unwrap();
                let column = Column::from_arrow("x", &whole, HOST)?;
                for offset in OFFSETS {
                    let what = format!("{data_type} from {offset}, nulls: {nulls}");
                    let part = column.slice(offset, 20)?;
                    // arrow-rs itself moves buffers where it can, and rarely exports an offset.
                    let (raw, releases) = count_host_releases(part.export_host()?);
                    assert_eq!(raw.offset as usize, offset, "{what}");
                    let copy = Column::import(foreign_array(column.field(), raw), ImportOptions::default())?;
                    assert_eq!(&copy.to_arrow()?, &whole.slice(offset, 20), "{what}");
                    let released = crate::structs::eventually(|| Ok(releases.count() == 1))?;
                    assert!(released, "{what}: {} releases", releases.count());
                    // The import leaves out whole bytes of bitmaps, and the values before them.
                    let kept = if is_run_ends(&data_type) { offset } else { offset % 8 };
                    assert_eq!(copy.offset(), kept, "{what}");
                }
            }
        }
        Ok(())
    })
}

#[test]
fn the_host_reads_host_and_shared_memory_in_place() -> Result<()> {
    without_leaks(|| {
        let array: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-2.0)]));
        for kind in UsmKind::ALL {
            let column = Column::from_arrow(
                "x",
                &array,
                ImportOptions { kind: Some(kind), ..ImportOptions::default() },
            )?;
            let address = column.values()?.address();
            let read = column.to_arrow()?;
            let seen = read.as_primitive::<Float64Type>().values().as_ptr() as usize;
            assert_eq!((column.usm_kind(), &read), (Some(kind), &array));
            assert_eq!(seen == address, kind != UsmKind::Device, "{kind}");
            // The array of arrow-rs alone keeps the memory.
            drop(column);
            assert_eq!(&read, &array);
        }
        Ok(())
    })
}

#[test]
fn a_column_of_an_array_shares_its_memory() -> Result<()> {
    without_leaks(|| {
        let x = Array::arange(0, 12, 1, DType::F64, UsmKind::Shared, &current_queue()?)?;
        let column = Column::from_array("miles", &x)?;
        let exported = column.export_device(SyncMode::Event)?;
        assert_eq!(raw_device_array(&exported).array.buffers(), [0, x.address()]);
        assert_eq!(reimport(exported)?.values()?.address(), x.address());
        // Rows of an array are lists of fixed size.
        let rows = Column::from_array("grid", &x.reshape([4, 3])?)?;
        let host = rows.to_arrow()?;
        assert_eq!(host.data_type(), &DataType::FixedSizeList(crate::arrays::item(DataType::Float64), 3));
        assert_eq!(host.as_fixed_size_list().values(), &column.to_arrow()?);
        assert_eq!(&rows.slice(1, 2)?.to_arrow()?, &host.slice(1, 2));
        Ok(())
    })
}

#[test]
fn empty_columns_of_every_type_are_imported_and_exported() -> Result<()> {
    without_leaks(|| {
        for data_type in every_type() {
            let nothing = arrow_array::new_empty_array(&data_type);
            let column = Column::empty(on_device(&nothing)?.field(), &current_queue()?)?;
            assert!(column.is_empty());
            assert_comes_back(&column, &nothing, &data_type.to_string())?;
        }
        Ok(())
    })
}

#[test]
fn columns_imported_from_arrow_rs_may_have_nulls() -> Result<()> {
    without_leaks(|| {
        for data_type in every_type() {
            let column = on_device(&array(&data_type, 9, true, &mut Random::new(4)).unwrap())?;
            assert!(column.field().is_nullable(), "{data_type}");
            // A column of structs therefore stays a column, not a table.
            assert!(matches!(ColumnOrTable::from_column(column)?, ColumnOrTable::Column(_)), "{data_type}");
        }
        Ok(())
    })
}

/// A batch of three columns, whose schema has metadata on both levels.
fn batch(rows: usize) -> RecordBatch {
    let mut random = Random::new(5);
    let data = |key: &str| HashMap::from([(key.to_owned(), "é".to_owned())]);
    let types = [DataType::Int32, DataType::Utf8, DataType::List(crate::arrays::item(DataType::Boolean))];
    let columns = types.iter().map(|of| array(of, rows, true, &mut random).unwrap()).collect();
    let fields = types.into_iter().zip(["a", "b", "c"]).map(|(of, name)| ArrowField::new(name, of, true));
    let fields: Vec<_> = fields.map(|field| field.with_metadata(data("of a field"))).collect();
    RecordBatch::try_new(Arc::new(Schema::new_with_metadata(fields, data("of all"))), columns).unwrap()
}

#[test]
fn a_record_batch_round_trips_as_a_table_with_its_schema() -> Result<()> {
    without_leaks(|| {
        for rows in [0, 1, 50] {
            let batch = batch(rows);
            let table = Table::from_arrow(&batch, ImportOptions::default())?;
            assert_eq!((table.num_rows(), table.batches().len()), (rows, 1));
            assert_eq!(table.names().collect::<Vec<_>>(), ["a", "b", "c"]);
            assert_eq!(table.to_arrow()?, [batch]);
        }
        Ok(())
    })
}

#[test]
fn a_slice_of_a_table_is_exported_as_a_record_batch() -> Result<()> {
    without_leaks(|| {
        let batch = batch(50);
        let table = Table::from_arrow(&batch.slice(3, 40), ImportOptions::default())?;
        let selected = table.select(&["c", "a"])?;
        let rows = selected.batches()[0].slice(9, 20)?;
        let exported = rows.export_device(SyncMode::Event)?;
        assert_eq!(
            (raw_device_array(&exported).array.offset, raw_device_array(&exported).array.null_count),
            (9, 0)
        );
        let ColumnOrTable::Table(back) = ColumnOrTable::from_column(reimport(exported)?)? else {
            panic!("a struct that is never null is a record batch")
        };
        let expected = batch.project(&[2, 0]).unwrap().slice(3 + 9, 20);
        assert_eq!(back.to_arrow()?, [expected]);
        // A table starts at its first row, as a record batch must.
        assert_eq!(back.batches()[0].offset(), 0);
        assert_eq!(&back.column("a")?.to_arrow()?, &batch.column(0).slice(12, 20));
        assert!(matches!(back.column("b"), Err(Error::Index { .. })));
        Ok(())
    })
}

#[test]
fn structs_with_nulls_are_not_a_table() -> Result<()> {
    without_leaks(|| {
        let structs = DataType::Struct(vec![ArrowField::new("a", DataType::Int32, true)].into());
        let column = on_device(&array(&structs, 40, true, &mut Random::new(6)).unwrap())?;
        let refused = Table::from_structs(column).unwrap_err();
        assert!(
            matches!(&refused, Error::Interop { message: text, .. } if text.contains("nulls")),
            "{refused}"
        );
        let numbers = on_device(&(Arc::new(Float64Array::from(vec![1.0])) as ArrayRef))?;
        assert!(matches!(Table::from_structs(numbers), Err(Error::Type { .. })));
        Ok(())
    })
}

#[test]
fn columns_of_different_lengths_are_not_a_table() -> Result<()> {
    without_leaks(|| {
        let [short, long] =
            [2, 3].map(|rows| on_device(&(Arc::new(Float64Array::from(vec![0.0; rows])) as _)));
        let refused = Table::new(vec![short?, long?]).unwrap_err();
        assert!(
            matches!(&refused, Error::Value { message: text, .. } if text.contains("lengths")),
            "{refused}"
        );
        Ok(())
    })
}

#[test]
fn host_exports_need_host_accessible_memory() -> Result<()> {
    without_leaks(|| {
        let array: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
        let refused = on_device(&array)?.export_host().unwrap_err();
        assert!(
            matches!(&refused, Error::Interop { message: text, .. } if text.contains("device USM")),
            "{refused}"
        );
        let host = Column::from_arrow("x", &array, HOST)?;
        let exported = host.export_host()?;
        assert_eq!(raw_array(&exported).buffers()[1], host.values()?.address());
        let exported = host.export_host_device()?;
        assert_eq!((exported.device_type(), exported.device_id()), (crate::structs::CPU, -1));
        assert!(exported.sync_event().is_null());
        Ok(())
    })
}

#[test]
fn a_column_packed_in_place_keeps_its_memory_and_is_used_in_place() -> usmq::Result<()> {
    let queue = usmq::with_queue("cpu", usmq::current_queue)?;
    let x = usmq::Array::from_slice(&[1i32, 2, 3, 4])?;
    let column = Column::from_array("x", &x)?;
    let packed = column.pack_in_place()?;
    assert_eq!(packed.buffers.last().map(usmq::Array::address), Some(column.values()?.address()));
    let bytes = packed.buffers.iter().map(usmq::Array::to_bytes).collect::<usmq::Result<Vec<_>>>()?;
    let owner = Arc::new(bytes);
    let frames: Vec<&[u8]> = owner.iter().map(Vec::as_slice).collect();
    // SAFETY: the vectors live in `owner`, and nothing writes to them.
    let back = unsafe { Column::unpack_in_place(&packed.header, &frames, &queue, owner.clone()) }?;
    assert_eq!(back.memory_kind(), Some(usmq::MemoryKind::System));
    let values = back.values()?;
    assert_eq!(values.address(), owner.last().unwrap().as_ptr() as usize);
    drop(back);
    assert!(Arc::strong_count(&owner) > 1, "an array keeps the memory");
    assert_eq!(values.to_vec::<i32>()?, [1, 2, 3, 4]);
    let short: Vec<&[u8]> = frames.iter().map(|frame| &frame[..frame.len().min(11)]).collect();
    // SAFETY: as above.
    let error = unsafe { Column::unpack_in_place(&packed.header, &short, &queue, owner.clone()) };
    assert!(error.unwrap_err().to_string().contains("too short"));
    Ok(())
}

#[test]
fn a_serialized_column_round_trips_and_a_short_buffer_is_an_error() {
    let queue = usmq::current_queue().unwrap();
    let column = Column::from_array("x", &usmq::Array::from_slice(&[1i32, 2, 3, 4]).unwrap()).unwrap();
    let part = column.slice(1, 2).unwrap();
    let packed = part.pack().unwrap();
    let bytes: Vec<_> = packed.buffers.iter().map(|buffer| buffer.to_bytes().unwrap()).collect();
    let frames: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    let back = Column::unpack(&packed.header, &frames, &queue).unwrap();
    assert_eq!(back.field(), part.field());
    assert_eq!(back.values().unwrap().to_vec::<i32>().unwrap(), [2, 3]);
    let short: Vec<&[u8]> = frames.iter().map(|frame| &frame[..11]).collect();
    let error = Column::unpack(&packed.header, &short, &queue).unwrap_err();
    assert!(error.to_string().contains("too short"), "{error}");
}
