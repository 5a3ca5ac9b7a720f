//! Arrow: round trips of random nested types, data and slices through the device, compared with arrow-rs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use crate::arrays::{array, flat_types, nested_types};
use crate::common::Random;
use crate::structs::{
    LeakCheck, count_host_releases, count_releases, foreign_array, raw_device_array, reimport, take,
};
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch, RecordBatchIterator, new_empty_array};
use arrow_schema::{DataType, Field as ArrowField, Schema};
use arrow_select::concat::{concat, concat_batches};
use arrow_select::filter::filter;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::ptr;
use std::sync::Arc;
use usmq::interop::arrow::{
    ArrowArrayStream, ArrowDeviceArrayStream, Column, ColumnOrTable, ForeignStruct, ImportOptions, SyncMode,
    Table,
};
use usmq::{Error, UsmKind};

/// The maximum length of arrays. They are short, so that many of them test the edges.
const LONGEST: usize = 70;

const HOST: ImportOptions<'_> = ImportOptions { queue: None, kind: Some(UsmKind::Host), columns: None };

/// A type of up to three levels.
fn any_type() -> impl Strategy<Value = DataType> {
    prop::sample::select(flat_types()).prop_recursive(3, 12, 2, |inner| {
        let kinds = nested_types(&DataType::Null, &DataType::Null).len();
        (inner.clone(), inner, 0..kinds).prop_map(|(a, b, kind)| nested_types(&a, &b).swap_remove(kind))
    })
}

/// An array and its parameters, which the output of a failure contains.
#[derive(Debug, Clone)]
struct Case {
    data_type: DataType,
    length: usize,
    nulls: bool,
    seed: u64,
}

impl Case {
    fn array(&self) -> ArrayRef {
        array(&self.data_type, self.length, self.nulls, &mut Random::new(self.seed)).unwrap()
    }
}

fn any_case() -> impl Strategy<Value = Case> {
    (any_type(), 0..LONGEST, any::<bool>(), any::<u64>()).prop_map(|(data_type, length, nulls, seed)| Case {
        data_type,
        length,
        nulls,
        seed,
    })
}

/// Where to cut, as parts of a thousand, so that shrinking the array shrinks the cuts.
fn any_cut() -> impl Strategy<Value = (usize, usize)> {
    (0..=1000usize, 0..=1000usize)
}

fn cut((first, second): (usize, usize), length: usize) -> (usize, usize) {
    let (start, end) = (first.min(second) * length / 1000, first.max(second) * length / 1000);
    (start, end - start)
}

/// Columns of equal length, as a batch.
fn any_batch() -> impl Strategy<Value = RecordBatch> {
    (prop::collection::vec(any_type(), 1..4), 0..LONGEST, any::<u64>()).prop_map(|(types, rows, seed)| {
        let mut random = Random::new(seed);
        let columns = types.iter().map(|of| array(of, rows, true, &mut random)).collect::<Result<_, _>>();
        let fields =
            types.iter().enumerate().map(|(n, of)| ArrowField::new(format!("c{n}"), of.clone(), true));
        RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns.unwrap()).unwrap()
    })
}

/// A batch in parts, some of them empty.
fn parts(batch: &RecordBatch, cuts: &[usize]) -> Vec<RecordBatch> {
    let mut places: Vec<_> = cuts.iter().map(|cut| cut * batch.num_rows() / 1000).collect();
    places.extend([0, batch.num_rows()]);
    places.sort_unstable();
    places.windows(2).map(|pair| batch.slice(pair[0], pair[1] - pair[0])).collect()
}

proptest! {
    // A failing test that waits for a release waits at each step of shrinking.
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, max_shrink_time: 60_000, ..ProptestConfig::default()
    })]

    #[test]
    fn random_arrays_round_trip(
        case in any_case(), before in any_cut(), there in any_cut(), later in any_cut(),
    ) {
        let clean = LeakCheck::start()?;
        let whole = case.array();
        // Slices made by arrow-rs, by usmq, and by usmq as the other library.
        let (start, length) = cut(before, whole.len());
        let part = whole.slice(start, length);
        let column = Column::from_arrow("x", &part, ImportOptions::default())?;
        prop_assert_eq!(&column.to_arrow()?, &part);
        let (start, length) = cut(there, part.len());
        let part = part.slice(start, length);
        let (raw, releases) = count_releases(column.slice(start, length)?.export_device(SyncMode::Event)?);
        let back = Column::import_device(crate::structs::foreign_device_array(column.field(), raw), ImportOptions::default())?;
        drop(column);
        prop_assert_eq!(&back.to_arrow()?, &part);
        let (start, length) = cut(later, part.len());
        let part = part.slice(start, length);
        let again = reimport(back.slice(start, length)?.export_device(SyncMode::Now)?)?;
        drop(back);
        prop_assert_eq!(&again.to_arrow()?, &part);
        prop_assert_eq!(again.null_count()?, Column::from_arrow("", &part, HOST)?.null_count()?);
        drop(again);
        prop_assert!(crate::structs::eventually(|| Ok(releases.count() == 1))?, "{} releases", releases.count());
        clean.end()?;
    }

    #[test]
    fn random_host_arrays_are_copied_without_hidden_elements(case in any_case(), there in any_cut()) {
        let clean = LeakCheck::start()?;
        let whole = case.array();
        let column = Column::from_arrow("x", &whole, HOST)?;
        let (start, length) = cut(there, whole.len());
        let part = column.slice(start, length)?;
        let (raw, releases) = count_host_releases(part.export_host()?);
        let copy = Column::import(foreign_array(column.field(), raw), ImportOptions::default())?;
        prop_assert_eq!(&copy.to_arrow()?, &whole.slice(start, length));
        prop_assert!(crate::structs::eventually(|| Ok(releases.count() == 1))?, "{} releases", releases.count());
        drop((column, part, copy));
        clean.end()?;
    }

    #[test]
    fn random_arrays_are_filtered_like_those_of_arrow_rs(
        case in any_case(), there in any_cut(), shift in 0..9usize,
        bits in prop::collection::vec(prop::option::weighted(0.9, any::<bool>()), LONGEST + 9),
    ) {
        let clean = LeakCheck::start()?;
        let whole = case.array();
        let (start, length) = cut(there, whole.len());
        let mask: ArrayRef = Arc::new(BooleanArray::from(bits).slice(shift, length));
        let column = Column::from_arrow("x", &whole, ImportOptions::default())?.slice(start, length)?;
        let found = column.filter(&Column::from_arrow("mask", &mask, ImportOptions::default())?)?;
        found.validate_full()?;
        let expected = filter(&whole.slice(start, length), mask.as_boolean()).unwrap();
        prop_assert_eq!(&found.to_arrow()?, &expected);
        drop((column, found));
        clean.end()?;
    }

    #[test]
    fn random_tables_round_trip_through_a_device_stream(
        batch in any_batch(), cuts in prop::collection::vec(0..=1000usize, 0..4),
    ) {
        let clean = LeakCheck::start()?;
        let batches = parts(&batch, &cuts);
        let tables = batches.iter().map(|part| Table::from_arrow(part, ImportOptions::default()));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let schema = tables[0].schema().clone();
        let columns: Vec<_> = tables.iter().map(|table| table.batches()[0].clone()).collect();
        let before = columns.iter().map(|column| Ok(raw_device_array(&column.export_device(SyncMode::Now)?).array.addresses()));
        let before = before.collect::<Result<Vec<_>, Error>>()?;
        let stream = ArrowDeviceArrayStream::new(schema, Box::new(columns.into_iter().map(Ok)));
        let made = ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default())?;
        let ColumnOrTable::Table(table) = made else {
            panic!("its schema describes record batches")
        };
        prop_assert_eq!(table.to_arrow()?, batches);
        for (column, before) in table.batches().iter().zip(before) {
            let after = raw_device_array(&column.export_device(SyncMode::Now)?).array.addresses();
            prop_assert!(column.is_empty() || after == before, "{before:?}, {after:?}");
        }
        drop((table, tables));
        clean.end()?;
    }

    #[test]
    fn random_tables_reach_arrow_rs_through_a_host_stream(
        batch in any_batch(), cuts in prop::collection::vec(0..=1000usize, 0..4),
    ) {
        let clean = LeakCheck::start()?;
        let batches = parts(&batch, &cuts);
        let tables = batches.iter().map(|part| Table::from_arrow(part, HOST));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let columns: Vec<_> = tables.iter().map(|table| Ok(table.batches()[0].clone())).collect();
        let mut stream = ArrowArrayStream::new(tables[0].schema().clone(), Box::new(columns.into_iter()));
        let raw = ptr::from_mut(&mut stream).cast::<FFI_ArrowArrayStream>();
        // SAFETY: one layout; it is moved out, so that dropping `stream` releases nothing.
        let reader = unsafe { RecordBatchStreamReader::from_raw(raw) }.unwrap();
        drop(tables);
        prop_assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap(), batches);
        clean.end()?;
    }

    #[test]
    fn random_host_streams_of_arrow_rs_become_one_table(
        batch in any_batch(), cuts in prop::collection::vec(0..=1000usize, 0..4),
    ) {
        let clean = LeakCheck::start()?;
        let batches = parts(&batch, &cuts);
        let reader = RecordBatchIterator::new(batches.clone().into_iter().map(Ok), batch.schema());
        let mut stream = FFI_ArrowArrayStream::new(Box::new(reader));
        let stream: ForeignStruct<ArrowArrayStream> = take(ptr::from_mut(&mut stream).cast());
        let ColumnOrTable::Table(table) = ColumnOrTable::from_stream(stream, ImportOptions::default())? else {
            panic!("its schema describes record batches")
        };
        prop_assert_eq!(table.batches().len(), 1);
        prop_assert_eq!(table.to_arrow()?, vec![concat_batches(&batch.schema(), &batches).unwrap()]);
        drop(table);
        clean.end()?;
    }
}

#[test]
fn the_generator_produces_deep_types_and_long_arrays() {
    // Otherwise the tests above would cover less.
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let cases = (0..300).map(|_| any_case().new_tree(&mut runner).unwrap().current()).collect::<Vec<_>>();
    let depth = |case: &Case| format!("{:?}", case.data_type).matches("data_type").count();
    assert!(cases.iter().any(|case| depth(case) >= 3), "nothing is nested");
    assert!(cases.iter().any(|case| case.length == 0) && cases.iter().any(|case| case.length > 60));
    let nothing = cases.iter().map(|case| (case, case.array()));
    for (case, array) in nothing {
        assert_eq!((array.len(), array.data_type()), (case.length, &case.data_type));
        assert_eq!(&concat(&[&array, &new_empty_array(&case.data_type)]).unwrap(), &array);
    }
}
