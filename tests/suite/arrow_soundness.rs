//! Arrow from safe Rust: arrow-rs always gets arrays that are valid and immutable.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array as _, ArrayRef, BinaryViewArray, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch,
    StringArray, StringViewArray, StructArray,
};
use arrow_schema::{DataType, Field as ArrowField};
use std::sync::Arc;
use usmq::interop::arrow::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArrayStream, Column, ColumnOrTable, Field, ImportOptions,
    StreamReader, SyncMode, Table,
};
use usmq::{Array, DType, Error, Result, UsmKind, current_queue};

const HOST: ImportOptions<'_> = ImportOptions { queue: None, kind: Some(UsmKind::Host), columns: None };

fn in_usm(kind: UsmKind) -> ImportOptions<'static> {
    ImportOptions { kind: Some(kind), ..ImportOptions::default() }
}

fn interop<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Interop { message: text, .. }) => text,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

fn address(array: &ArrayRef) -> usize {
    array.as_primitive::<Int32Type>().values().as_ptr() as usize
}

#[test]
fn an_export_is_imported_with_the_field_of_its_column() -> Result<()> {
    let bytes = Array::uninit([1 << 16], DType::I8, UsmKind::Host, &current_queue()?)?;
    bytes.fill(1i8)?;
    let column = Column::from_array("x", &bytes)?;
    for back in [
        Column::import(column.export_host()?.into(), ImportOptions::default())?,
        Column::import_device(column.export_host_device()?.into(), ImportOptions::default())?,
        Column::import_device(column.export_device(SyncMode::Event)?.into(), ImportOptions::default())?,
    ] {
        assert_eq!((back.field(), back.len()), (column.field(), 1 << 16));
        assert_eq!(back.values()?.to_vec::<i8>()?, vec![1i8; 1 << 16]);
    }
    assert!(interop(Column::import(ArrowArray::empty().into(), HOST)).contains("released"));
    Ok(())
}

#[test]
fn later_writes_do_not_change_an_array_of_arrow_rs() -> Result<()> {
    for kind in UsmKind::ALL {
        let x = Array::uninit([4], DType::I32, kind, &current_queue()?)?;
        x.copy_from_slice(&[1i32, 2, 3, 4])?;
        let column = Column::from_array("x", &x)?;
        let table = Table::new(vec![column.clone()])?;
        let export = column.export_device(SyncMode::Now)?;
        let same_memory = Column::import_device(export.into(), ImportOptions::default())?;
        let grid = Column::from_array("grid", &x.reshape([2, 2])?)?;
        let (arrow, part, of_import) =
            (column.to_arrow()?, column.slice(1, 2)?.to_arrow()?, same_memory.to_arrow()?);
        let (rows, batch) = (grid.to_arrow()?, table.to_arrow()?);
        x.fill(7i32)?;
        x.wait()?;
        let expected: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
        assert_eq!((&arrow, &of_import), (&expected, &expected), "{kind}");
        assert_eq!(&part, &expected.slice(1, 2), "{kind}");
        assert_eq!(rows.as_fixed_size_list().values(), &expected, "{kind}");
        assert_eq!(batch[0].column(0), &expected, "{kind}");
        // A copy has the values of that moment; the column shares its memory.
        assert_eq!(column.to_arrow()?.as_primitive::<Int32Type>().values(), &[7; 4], "{kind}");
    }
    Ok(())
}

#[test]
fn memory_without_writable_handles_is_read_in_place() -> Result<()> {
    for kind in [UsmKind::Shared, UsmKind::Host] {
        let x = Array::uninit([4], DType::I32, kind, &current_queue()?)?;
        x.fill(5i32)?;
        let column = Column::from_array("x", &x)?;
        let at = x.address();
        assert_ne!(address(&column.to_arrow()?), at, "{kind}: x writes to it");
        let view = x.reshape([2, 2])?;
        drop(x);
        assert_ne!(address(&column.to_arrow()?), at, "{kind}: its view writes to it");
        drop(view);
        assert_eq!(address(&column.to_arrow()?), at, "{kind}: it has no writers");
        // Imported memory is read-only.
        let source: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let imported = Column::from_arrow("x", &source, in_usm(kind))?;
        let values = imported.values()?;
        assert!(values.fill(1i32).is_err());
        assert_eq!(address(&imported.to_arrow()?), values.address(), "{kind}");
        let exported = imported.export_device(SyncMode::Event)?;
        let same = Column::import_device(exported.into(), ImportOptions::default())?;
        assert_eq!(address(&same.to_arrow()?), values.address(), "{kind}");
    }
    Ok(())
}

#[test]
fn the_batches_of_a_host_stream_are_joined_with_their_current_contents() -> Result<()> {
    let x = Array::uninit([3], DType::I64, UsmKind::Host, &current_queue()?)?;
    x.copy_from_slice(&[1i64, 2, 3])?;
    let column = Column::from_array("x", &x)?;
    let batches = vec![column.clone(), column.slice(1, 2)?];
    let stream = ArrowArrayStream::new(column.field().clone(), Box::new(batches.into_iter().map(Ok)));
    let ColumnOrTable::Column(joined) = ColumnOrTable::from_stream(stream.into(), HOST)? else {
        panic!("numbers")
    };
    x.fill(0i64)?;
    assert_eq!(joined.values()?.to_vec::<i64>()?, [1, 2, 3, 2, 3]);
    Ok(())
}

/// The result of deserializing a column after some bytes of its buffers changed.
fn changed(array: &ArrayRef, buffer: usize, change: impl FnOnce(&mut Vec<u8>)) -> Result<ArrayRef> {
    let packed = Column::from_arrow("c", array, ImportOptions::default())?.pack()?;
    let mut frames = packed.buffers.iter().map(Array::to_bytes).collect::<Result<Vec<_>>>()?;
    change(&mut frames[buffer]);
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    Column::unpack(&packed.header, &frames, &current_queue()?)?.to_arrow()
}

fn set<const N: usize>(at: usize, bytes: [u8; N]) -> Box<dyn Fn(&mut Vec<u8>)> {
    Box::new(move |buffer| buffer[at..at + N].copy_from_slice(&bytes))
}

#[test]
fn invalid_serialized_contents_are_refused() -> Result<()> {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["hello", "world"]));
    let indices: ArrayRef = Arc::new(["a", "b", "a"].into_iter().collect::<DictionaryArray<Int32Type>>());
    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let views: ArrayRef = Arc::new(StringViewArray::from(vec!["a text of more than twelve", "short"]));
    let bytes: ArrayRef = Arc::new(BinaryViewArray::from(vec![&b"\xff of more than twelve"[..], b"\xff"]));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
        Some(vec![Some(1), None]),
        Some(vec![Some(4)]),
    ]));
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    let cases: [(&ArrayRef, usize, Change, &str); 14] = [
        // The size of the only data buffer of the views.
        (&views, 2, set(0, 20u64.to_ne_bytes()), "view 0 points outside its buffers"),
        (&text, 1, set(0, [0xff]), "value 0 is not UTF-8"),
        (&text, 1, set(8, [0xc3]), "value 1 is not UTF-8"),
        // Two texts have one half each of one character.
        (&text, 1, set(4, [0xc3, 0xa9]), "value 1 is not UTF-8"),
        (&text, 0, set(4, 11i32.to_ne_bytes()), "offset 2 is 10, after 11"),
        (
            &indices,
            0,
            set(0, 1_000_000i32.to_ne_bytes()),
            "value 0 is 1000000, and the dictionary has 2 values",
        ),
        (&indices, 0, set(8, (-7i32).to_ne_bytes()), "value 2 is -7"),
        (&nulls, 0, set(0, [0b111]), "it has 0 nulls, but declares 1"),
        (&views, 0, set(31, [1]), "the padding of view 1 is not zero"),
        (&views, 0, set(4, [b'A']), "the prefix of view 0 differs"),
        (&views, 0, set(8, 1i32.to_ne_bytes()), "view 0 points outside"),
        (&views, 0, set(20, [0xff]), "value 1 is not UTF-8"),
        (&views, 1, set(9, [0xff]), "value 0 is not UTF-8"),
        (&lists, 0, set(8, 4i32.to_ne_bytes()), "offset 2 is 4, after 2 and of 3"),
    ];
    for (array, buffer, change, says) in cases {
        let text = interop(changed(array, buffer, change));
        assert!(text.contains(says), "{says:?} is missing in {text}");
    }
    // Unchanged buffers are accepted, and binary data need not be UTF-8.
    for array in [&text, &indices, &nulls, &views, &bytes, &lists] {
        assert_eq!(&changed(array, 0, |_| ())?, array);
    }
    // The index of a null may be outside the dictionary.
    let hidden: ArrayRef = Arc::new([Some("a"), None].into_iter().collect::<DictionaryArray<Int32Type>>());
    let last = Column::from_arrow("c", &hidden, ImportOptions::default())?.pack()?.buffers.len() - 3;
    changed(&hidden, last, set(4, 99i32.to_ne_bytes()))?;
    Ok(())
}

#[test]
fn values_under_nulls_may_be_anything() -> Result<()> {
    let texts = StringArray::from(vec!["hello", "wörld", "!"]);
    let nulls = Some(vec![true, false, true].into());
    let text: ArrayRef =
        Arc::new(StringArray::new(texts.offsets().clone(), texts.values().clone(), nulls.clone()));
    let long = StringViewArray::from(vec!["short", "a text of more than twelve", "!"]);
    let buffers = long.data_buffers().to_vec();
    let views: ArrayRef = Arc::new(StringViewArray::new(long.views().clone(), buffers, nulls));
    for (array, buffer, change) in [
        (&text, 2, set(6, [0xff])),
        (&text, 2, set(7, [b'o'])),
        (&views, 1, set(16, (-1i32).to_ne_bytes())),
        (&views, 1, set(16 + 8, 7i32.to_ne_bytes())),
        (&views, 1, set(16 + 4, *b"abcd")),
    ] {
        let back = changed(array, buffer, change)?;
        back.to_data().validate_full().unwrap();
        assert_eq!(&back, array);
    }
    // Other values are checked with them.
    let wrong = |buffer: &mut Vec<u8>| (buffer[0], buffer[6]) = (0xff, 0xff);
    assert!(interop(changed(&text, 2, wrong)).contains("value 0 is not UTF-8"));
    Ok(())
}

#[test]
fn short_views_round_trip_through_a_device_export() -> Result<()> {
    let short: ArrayRef =
        Arc::new(StringViewArray::from(vec![Some("a"), None, Some("twelve bytes"), Some("")]));
    let long: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), Some("more than twelve bytes")]));
    // No value refers to this data buffer.
    let part = long.slice(0, 1);
    for kind in UsmKind::ALL {
        for array in [&short, &long, &part] {
            let column = Column::from_arrow("s", array, in_usm(kind))?;
            let mut back = column.clone();
            for _ in 0..3 {
                let exported = back.export_device(SyncMode::Event)?;
                back = Column::import_device(exported.into(), ImportOptions::default())?;
                assert_eq!(&back.to_arrow()?, array, "{kind}");
            }
            let packed = back.pack()?;
            let frames = packed.buffers.iter().map(Array::to_bytes).collect::<Result<Vec<_>>>()?;
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            assert_eq!(&Column::unpack(&packed.header, &frames, back.queue())?.to_arrow()?, array, "{kind}");
            assert_eq!(&back.to(Some(UsmKind::Host), None)?.to_arrow()?, array, "{kind}");
        }
        // Sliced in place, so that the views into the buffer are excluded.
        let sliced = Column::from_arrow("s", &long, in_usm(kind))?.slice(0, 1)?;
        let back =
            Column::import_device(sliced.export_device(SyncMode::Event)?.into(), ImportOptions::default())?;
        assert_eq!(&back.to_arrow()?, &part, "{kind}");
    }
    Ok(())
}

#[test]
fn offsets_before_the_rows_of_an_empty_column_are_not_read() -> Result<()> {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["ab", "c"]));
    let fields = vec![Arc::new(ArrowField::new("a", DataType::Utf8, true))];
    let both: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![text], None));
    let mut packed = Column::from_arrow("s", &both, in_usm(UsmKind::Host))?.pack()?;
    // Length, offset, one more than the nulls, buffers, and whether the first one exists.
    let mut change = |from: [u64; 5], to: [u64; 2]| {
        let from = from.map(u64::to_le_bytes).concat();
        let at = packed.header.windows(from.len()).position(|bytes| bytes == from).expect("an array");
        packed.header[at..at + 16].copy_from_slice(&to.map(u64::to_le_bytes).concat());
    };
    change([2, 0, 1, 1, 0], [0, 0]);
    change([2, 0, 1, 3, 0], [1, 1]);
    let mut frames = packed.buffers.iter().map(Array::to_bytes).collect::<Result<Vec<_>>>()?;
    frames[0][..4].copy_from_slice(&(1i32 << 20).to_ne_bytes());
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let column = Column::unpack(&packed.header, &frames, &current_queue()?)?;
    let packed = column.pack()?;
    let bytes: usize = packed.buffers.iter().map(Array::nbytes).sum();
    assert!(column.is_empty() && bytes <= 8, "{bytes} bytes");
    Ok(())
}

fn structs(rows: usize, nulls: bool) -> ArrayRef {
    let fields = vec![Arc::new(ArrowField::new("a", DataType::Int64, true))];
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let bitmap = nulls.then(|| (0..rows).map(|row| row != 1).collect::<Vec<_>>().into());
    Arc::new(StructArray::new(fields.into(), vec![values], bitmap))
}

/// The result of a stream of these columns, read in place and through the host.
fn streams(columns: &[Column]) -> [Result<ColumnOrTable>; 2] {
    let field = columns[0].field().clone();
    let own = columns.to_vec();
    let batches = Box::new(own.into_iter().map(Ok));
    let host = columns.iter().map(Column::to_host).collect::<Result<Vec<_>>>();
    let host = host.map(|host| ArrowArrayStream::new(field.clone(), Box::new(host.into_iter().map(Ok))));
    [
        ColumnOrTable::from_device_stream(
            ArrowDeviceArrayStream::new(field, batches).into(),
            ImportOptions::default(),
        ),
        host.and_then(|host| ColumnOrTable::from_stream(host.into(), ImportOptions::default())),
    ]
}

#[test]
fn top_level_nullable_structs_are_a_table_unless_some_are_null() -> Result<()> {
    let column = Column::from_arrow("", &structs(4, false), ImportOptions::default())?;
    assert!(column.field().is_nullable());
    let ColumnOrTable::Table(table) = ColumnOrTable::from_column(column.clone())? else {
        panic!("no struct is null")
    };
    assert_eq!((table.num_rows(), table.names().collect::<Vec<_>>()), (4, vec!["a"]));
    assert!(!table.schema().is_nullable(), "rows are not null");
    assert_eq!(table.to_arrow()?, [RecordBatch::from(structs(4, false).as_struct())]);
    // Columns may be chosen from it, as from a record batch.
    let names = ["a".to_owned()];
    let placed = ImportOptions { columns: Some(&names), ..ImportOptions::default() };
    let chosen = Column::import_device(column.export_device(SyncMode::Event)?.into(), placed)?;
    assert!(matches!(ColumnOrTable::from_column(chosen)?, ColumnOrTable::Table(_)));
    for count in [1, 2] {
        for imported in streams(&vec![column.clone(); count]) {
            let ColumnOrTable::Table(table) = imported? else { panic!("no struct is null") };
            assert_eq!(table.num_rows(), 4 * count);
        }
    }
    // A null is not a row.
    let some = Column::from_arrow("", &structs(4, true), ImportOptions::default())?;
    let ColumnOrTable::Column(some) = ColumnOrTable::from_column(some)? else { panic!("one struct is null") };
    assert_eq!(&some.to_arrow()?, &structs(4, true));
    for imported in streams(std::slice::from_ref(&some)) {
        assert!(matches!(imported?, ColumnOrTable::Column(_)));
    }
    for imported in streams(&[column, some]) {
        let ColumnOrTable::Column(column) = imported? else { panic!("one struct is null") };
        assert_eq!((column.len(), column.null_count()?), (8, 1));
    }
    Ok(())
}

#[test]
fn a_batch_with_another_schema_is_named() -> Result<()> {
    let queue = current_queue()?;
    let table = |dtype, name: &str| -> Result<Column> {
        let columns = vec![
            Column::from_array("a", &Array::uninit([2], DType::I64, UsmKind::Host, &queue)?)?,
            Column::from_array(name, &Array::uninit([2], dtype, UsmKind::Host, &queue)?)?,
        ];
        Ok(Table::new(columns)?.batches()[0].clone())
    };
    let (one, other) = (table(DType::F64, "b")?, table(DType::I32, "b")?);
    for imported in streams(&[one.clone(), one.clone(), other]) {
        let text = interop(imported);
        assert!(text.contains("batch 3") && text.contains("\"b\": \"i\", not \"g\""), "{text}");
    }
    let fewer = Table::new(vec![one.children()[0].clone()])?.batches()[0].clone();
    for imported in streams(&[one.clone(), fewer]) {
        let text = interop(imported);
        assert!(text.contains("batch 2") && text.contains("of [\"a\"], not of [\"a\", \"b\"]"), "{text}");
    }
    for imported in streams(&[one, table(DType::F64, "c")?]) {
        let text = interop(imported);
        assert!(
            text.contains("batch 2") && text.contains("of [\"a\", \"c\"], not of [\"a\", \"b\"]"),
            "{text}"
        );
    }
    Ok(())
}

/// A record batch's schema of one column `a` of int64, with metadata that is not UTF-8, written as `Field::to_bytes` does.
fn schema_with_odd_metadata() -> Field {
    let word = |value: u64| value.to_le_bytes();
    let text = |bytes: &[u8]| [&word(bytes.len() as u64)[..], bytes].concat();
    let metadata =
        [&1i32.to_ne_bytes()[..], &2i32.to_ne_bytes(), b"k\xff", &1i32.to_ne_bytes(), b"\xfe"].concat();
    let with = |format: &[u8], name: &[u8], flags: u64, children: &[u8], count: u64| {
        [
            &text(format)[..],
            &text(name),
            &word(flags),
            &word(1),
            &text(&metadata),
            &word(count),
            children,
            &word(0),
        ]
        .concat()
    };
    let child = with(b"l", b"a", 2, b"", 0);
    let bytes = [&word(1)[..], &with(b"+s", b"", 0, &child, 1)].concat();
    Field::from_bytes(&bytes).unwrap()
}

#[test]
fn non_utf8_metadata_survives_joining_batches() -> Result<()> {
    let schema = Arc::new(schema_with_odd_metadata());
    let values = Column::from_arrow("a", &Int64Array::from(vec![Some(1), None]), HOST)?;
    let batch = Table::new(vec![values])?.batches()[0].clone();
    for count in [1, 2, 3] {
        let batches = vec![batch.clone(); count];
        let stream = ArrowArrayStream::new(schema.clone(), Box::new(batches.into_iter().map(Ok)));
        let ColumnOrTable::Table(table) =
            ColumnOrTable::from_stream(stream.into(), ImportOptions::default())?
        else {
            panic!("record batches")
        };
        assert_eq!((table.schema(), table.num_rows(), table.batches().len()), (&schema, 2 * count, 1));
        let found: Vec<_> = table.schema().children()[0].metadata().collect();
        assert_eq!(found, [(&b"k\xff"[..], &b"\xfe"[..])]);
        assert_eq!(table.column("a")?.null_count()?, count);
    }
    Ok(())
}

#[test]
fn the_nesting_of_fields_and_columns_is_limited() -> Result<()> {
    let mut field = Arc::new(Field::new("x", "i")?);
    let refused = loop {
        match Field::nested("x", "+s", vec![field.clone()]) {
            Ok(deeper) => field = Arc::new(deeper),
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("65 levels"), "{refused}");
    // The deepest type can be created, serialized, exported and dropped.
    let column = Column::empty(&field, &current_queue()?)?;
    let back =
        Column::import_device(column.export_device(SyncMode::Event)?.into(), ImportOptions::default())?;
    assert_eq!(back.field(), &field);
    assert_eq!(Column::unpack(&back.pack()?.header, &[], back.queue())?.len(), 0);
    // Each axis of an array is a level.
    let deep = Array::zeros::<i32>(vec![1; 70])?;
    assert!(interop(Column::from_array("deep", &deep)).contains("levels"));
    Ok(())
}

#[test]
fn arrays_of_a_stream_have_their_field() -> Result<()> {
    let column = Column::from_array("x", &Array::from_slice(&[1i64, 2])?)?;
    let stream =
        ArrowDeviceArrayStream::new(column.field().clone(), Box::new(std::iter::once(Ok(column.clone()))));
    let mut arrays = StreamReader::new(stream.into())?;
    let first = Column::import_device(arrays.next().unwrap()?, ImportOptions::default())?;
    assert_eq!((first.field(), first.values()?.to_vec::<i64>()?), (column.field(), vec![1, 2]));
    Ok(())
}
