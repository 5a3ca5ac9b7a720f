//! Columns whose parts can be written: what was valid once is checked again, and no reader sees a write.

#![forbid(unsafe_code)]
#![allow(clippy::panic, reason = "a helper that fails is a test that fails")]

use arrow_array::cast::AsArray;
use arrow_array::{Array as _, ArrayRef, StringArray, StringViewArray};
use std::sync::Arc;
use usmq::interop::arrow::{ArrowArrayStream, Column, ColumnOrTable, Field, ImportOptions, SyncMode, Table};
use usmq::{Array, Error, Result, UsmKind, capture, current_queue};

const WORDS: [i32; 3] = [0, 5, 8];
const FAR: [i32; 3] = [0, 1 << 30, (1 << 30) + 64];
/// The second text begins inside of the first character.
const SPLIT: [u8; 8] = [0xc3, 0xa9, 0xc3, 0xa9, 0xc3, 0xa9, b'o', b'u'];

fn of<T: usmq::Element>(values: &[T], kind: UsmKind) -> Result<Array> {
    let array = Array::uninit([values.len()], T::DTYPE, kind, &current_queue()?)?;
    array.copy_from_slice(values)?;
    Ok(array)
}

fn refused<T>(result: Result<T>, what: &str) {
    match result {
        Err(Error::Interop { .. }) => {}
        Err(other) => panic!("{what}: another error: {other}"),
        Ok(_) => panic!("{what}: no error"),
    }
}

/// A column of two texts, and the arrays that can write to it.
fn texts(kind: UsmKind) -> Result<(Column, Array, Array)> {
    let (bytes, offsets) = (of(b"helloyou", kind)?, of(&WORDS, kind)?);
    let column = Column::from_parts("s", &bytes, None, Some(&offsets), Some("string"))?;
    Ok((column, bytes, offsets))
}

/// Each way from a column to an array of arrow-rs.
fn ways(column: &Column) -> Result<Vec<(&'static str, Result<ArrayRef>)>> {
    let table = Table::new(vec![column.clone()])?;
    let other = if column.usm_kind() == Some(UsmKind::Host) { UsmKind::Device } else { UsmKind::Host };
    let all = Array::from_slice(&vec![true; column.len()])?;
    let all = Column::from_parts("mask", &all, None, None, None)?;
    let first = |rows: Vec<arrow_array::RecordBatch>| rows[0].column(0).clone();
    let host = column.to_host()?;
    let imported = |column: &Column| Column::import(column.export_host()?.into(), ImportOptions::default());
    let stream = |column: &Column| {
        let batches = Box::new(vec![column.clone(), column.clone()].into_iter().map(Ok));
        let stream = ArrowArrayStream::new(column.field().clone(), batches);
        match ColumnOrTable::from_stream(stream.into(), ImportOptions::default())? {
            ColumnOrTable::Column(column) => column.slice(0, column.len() / 2)?.to_arrow(),
            ColumnOrTable::Table(_) => unreachable!("values of one type"),
        }
    };
    let packed = || {
        let packed = column.pack()?;
        let frames = packed.buffers.iter().map(Array::to_bytes).collect::<Result<Vec<_>>>()?;
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        Column::unpack(&packed.header, &frames, column.queue())?.to_arrow()
    };
    Ok(vec![
        ("to_arrow", column.to_arrow()),
        ("validate_full", column.validate_full().and_then(|()| column.to_arrow())),
        ("a slice", column.slice(0, column.len()).and_then(|part| part.to_arrow())),
        ("another name", column.named("t").to_arrow()),
        ("another kind", column.to(Some(other), None).and_then(|column| column.to_arrow())),
        ("the host", host.to_arrow()),
        ("a filter", column.filter(&all).and_then(|column| column.to_arrow())),
        ("a table", table.to_arrow().map(first)),
        ("a slice of a table", table.slice(0, column.len()).and_then(|table| table.to_arrow()).map(first)),
        ("a copied export", imported(&host).and_then(|column| column.to_arrow())),
        ("a filter of an import", imported(&host).and_then(|column| column.filter(&all)?.to_arrow())),
        (
            "an import in place",
            Column::import_device(column.export_device(SyncMode::Now)?.into(), ImportOptions::default())
                .and_then(|column| column.to_arrow()),
        ),
        (
            "a host array in place",
            Column::import_in_place(host.export_host()?.into(), None).and_then(|column| column.to_arrow()),
        ),
        ("a stream", stream(&host)),
        ("a pickle", packed()),
    ])
}

#[test]
fn each_way_to_arrow_checks_data_that_was_written_after_a_check() -> Result<()> {
    for kind in UsmKind::ALL {
        let (column, bytes, offsets) = texts(kind)?;
        let expected: ArrayRef = Arc::new(StringArray::from(vec!["hello", "you"]));
        for (way, array) in ways(&column)? {
            assert_eq!(&array?, &expected, "{kind}: {way}");
        }
        for wrong in [FAR, [0, 8, 5], [-1, 5, 8], [0, 5, 9]] {
            offsets.copy_from_slice(&wrong)?;
            // A filter limits the ranges to the text, so its result is valid.
            for (way, array) in ways(&column)? {
                if way.contains("filter") && array.is_ok() {
                    array?.to_data().validate_full().map_err(|error| Error::value(error.to_string()))?;
                    continue;
                }
                refused(array, &format!("{kind}: {way} of {wrong:?}"));
            }
        }
        offsets.copy_from_slice(&[0i32, 1, 8])?;
        bytes.copy_from_slice(&SPLIT)?;
        for (way, array) in ways(&column)? {
            refused(array, &format!("{kind}: {way} of halves of characters"));
        }
        offsets.copy_from_slice(&WORDS)?;
        bytes.copy_from_slice(b"HELLOYOU")?;
        let expected: ArrayRef = Arc::new(StringArray::from(vec!["HELLO", "YOU"]));
        for (way, array) in ways(&column)? {
            assert_eq!(&array?, &expected, "{kind}: {way}");
        }
    }
    Ok(())
}

#[test]
fn nested_columns_are_checked_again_after_a_write_to_any_part() -> Result<()> {
    for kind in UsmKind::ALL {
        let (column, _bytes, words) = texts(kind)?;
        let lists = of(&[0i64, 1, 2], kind)?;
        let column = column.listed("l", &lists)?;
        for (way, array) in ways(&column)? {
            assert_eq!(array?.len(), 2, "{kind}: {way}");
        }
        words.copy_from_slice(&FAR)?;
        for (way, array) in ways(&column)?.into_iter().filter(|(way, _)| !way.contains("filter")) {
            refused(array, &format!("{kind}: {way} of wrong texts"));
        }
        words.copy_from_slice(&WORDS)?;
        lists.copy_from_slice(&[0i64, 1, 1 << 40])?;
        for (way, array) in ways(&column)?.into_iter().filter(|(way, _)| !way.contains("filter")) {
            refused(array, &format!("{kind}: {way} of wrong lists"));
        }
    }
    Ok(())
}

#[test]
fn arrays_of_arrow_rs_do_not_change_with_the_parts_of_their_column() -> Result<()> {
    for kind in UsmKind::ALL {
        let (column, bytes, offsets) = texts(kind)?;
        let validity = of(&[0b11u8], kind)?;
        let column = column.with_validity(&validity)?;
        let expected: ArrayRef = Arc::new(StringArray::from(vec!["hello", "you"]));
        let arrays = ways(&column)?;
        offsets.copy_from_slice(&FAR)?;
        bytes.fill(0xffu8)?;
        validity.fill(0u8)?;
        bytes.wait()?;
        for (way, array) in arrays {
            assert_eq!(&array?, &expected, "{kind}: {way}");
        }
    }
    Ok(())
}

#[test]
fn a_copy_in_a_capture_is_checked_after_each_replay() -> Result<()> {
    let (column, _bytes, offsets) = texts(UsmKind::Device)?;
    let mut copy = None;
    let graph = capture(|| {
        copy = Some(column.to(Some(UsmKind::Shared), None)?);
        Ok(())
    })?;
    let Some(copy) = copy else { panic!("the capture ran") };
    for round in 0..2 {
        offsets.copy_from_slice(&WORDS)?;
        graph.replay()?;
        assert_eq!(copy.to_arrow()?.as_string::<i32>().value(1), "you", "round {round}");
        offsets.copy_from_slice(&FAR)?;
        graph.replay()?;
        refused(copy.to_arrow(), &format!("round {round}"));
    }
    Ok(())
}

#[test]
fn data_that_nothing_can_write_to_is_read_in_place_each_time() -> Result<()> {
    let address = |array: &ArrayRef| array.as_string::<i32>().values().as_ptr();
    let source: ArrayRef = Arc::new(StringArray::from(vec!["hello", "you"]));
    let placed = ImportOptions { kind: Some(UsmKind::Shared), ..ImportOptions::default() };
    let column = Column::from_arrow("s", &source, placed)?;
    let first = column.to_arrow()?;
    assert_eq!(address(&first), address(&column.to_arrow()?));
    let (column, bytes, offsets) = texts(UsmKind::Shared)?;
    let at = bytes.address();
    assert_ne!(address(&column.to_arrow()?) as usize, at, "its arrays can write to it");
    drop((bytes, offsets));
    assert_eq!(address(&column.to_arrow()?) as usize, at, "its arrays are gone");
    Ok(())
}

/// The header of a column, with changed bytes at `at`.
fn with<const N: usize>(header: &[u8], at: usize, bytes: [u8; N]) -> Vec<u8> {
    let mut changed = header.to_vec();
    let end = changed.len().min(at + N);
    changed[at..end].copy_from_slice(&bytes[..end - at]);
    changed
}

#[test]
fn numbers_beyond_all_buffers_in_a_packed_header_are_refused_at_once() -> Result<()> {
    use arrow_array::builder::{
        FixedSizeListBuilder, Int32Builder, ListBuilder, MapBuilder, PrimitiveRunBuilder, StringBuilder,
    };
    use arrow_array::types::Int32Type;
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    map.keys().append_value("k");
    map.values().append_null();
    let _ = map.append(true);
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value([Some(1), None]);
    let mut pairs = FixedSizeListBuilder::new(Int32Builder::new(), 2);
    pairs.values().append_value(1);
    pairs.values().append_null();
    pairs.append(true);
    let mut runs = PrimitiveRunBuilder::<Int32Type, Int32Type>::new();
    runs.extend([Some(1), Some(1), None]);
    let null = Column::empty(&Arc::new(Field::new("x", "n")?), &current_queue()?)?;
    let columns = [
        Column::from_arrow("x", &map.finish(), ImportOptions::default())?,
        Column::from_arrow("x", &lists.finish(), ImportOptions::default())?,
        Column::from_arrow("x", &pairs.finish(), ImportOptions::default())?,
        Column::from_arrow("x", &runs.finish(), ImportOptions::default())?,
        Column::from_arrow(
            "x",
            &StringViewArray::from(vec![Some("more than twelve bytes"), None]),
            ImportOptions::default(),
        )?,
        null,
    ];
    for column in columns {
        let packed = column.pack()?;
        let frames = packed.buffers.iter().map(Array::to_bytes).collect::<Result<Vec<_>>>()?;
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        // Nullable fields have the flag 2; without it, nulls of children are looked for.
        let flags =
            (0..packed.header.len()).filter(|at| packed.header[*at..].starts_with(&2u64.to_le_bytes()));
        let flags: Vec<_> = flags.collect();
        let mut headers: Vec<Vec<u8>> = flags.iter().map(|at| with(&packed.header, *at, [0])).collect();
        headers.push(flags.iter().fold(packed.header.clone(), |header, at| with(&header, *at, [0])));
        headers.push(packed.header.clone());
        for header in headers {
            for at in 0..header.len() {
                for number in [(1u64 << 55) - 1, 1 << 54] {
                    // It returns; what it returns depends on the number's meaning.
                    if let Ok(column) =
                        Column::unpack(&with(&header, at, number.to_le_bytes()), &frames, &current_queue()?)
                    {
                        let _ = (column.null_count()?, column.slice(0, 1.min(column.len()))?);
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn batches_of_more_rows_than_an_address_space_are_refused() -> Result<()> {
    let null = Column::empty(&Arc::new(Field::new("x", "n")?), &current_queue()?)?;
    let packed = Table::new(vec![null])?.pack()?;
    // The count of batches, then four numbers and a missing buffer of the struct, and four numbers of its child.
    let (start, batch) = packed.header.split_at(packed.header.len() - 9 * 8);
    let (start, _) = start.split_at(start.len() - 8);
    let most = (1u64 << 54).to_le_bytes();
    let long = with(&with(batch, 0, most), 5 * 8, most);
    let table = |count: usize| {
        let header = [start, &(count as u64).to_le_bytes(), &long.repeat(count)].concat();
        Table::unpack(&header, &[], &current_queue()?)
    };
    assert_eq!(table(1)?.num_rows(), 1 << 54);
    for count in [2, 1 << 10, 1 << 11] {
        refused(table(count), &format!("{count} batches"));
    }
    Ok(())
}
