//! Arrow: ownership and lifetime of structs, and the refusal of invalid ones.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

use crate::arrays::{array, item};
use crate::common::{IN_ORDER, Random, default_queue, four_queues, queues_elsewhere};
use crate::structs::{
    CPU, LeakCheck, ONEAPI, RawArray, RawDeviceArray, Releases, count_host_releases, count_releases,
    eventually, foreign_array, foreign_device_array, live, raw_device_array, reimport, take_array,
    without_leaks,
};
use arrow_array::cast::AsArray;
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::{DataType, Field as ArrowField};
use std::ptr;
use std::sync::Arc;
use std::thread;
use usmq::interop::arrow::{
    ArrowArray, ArrowDeviceArray, Column, Field, ForeignStruct, ImportOptions, SyncMode,
};
use usmq::{Context, Error, Queue, Result, UsmKind};

const HOST: ImportOptions<'_> = ImportOptions { queue: None, kind: Some(UsmKind::Host), columns: None };

/// A struct with a list, text and a dictionary.
fn nested() -> ArrayRef {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let types = [DataType::List(item(DataType::Int64)), DataType::Utf8, dictionary];
    let fields = types.into_iter().map(|of| ArrowField::new(of.to_string(), of, true)).collect();
    array(&DataType::Struct(fields), 50, true, &mut Random::new(1)).unwrap()
}

fn on_device(array: &ArrayRef) -> Result<Column> {
    Column::from_arrow("x", array, ImportOptions::default())
}

fn numbers() -> ArrayRef {
    array(&DataType::Float64, 40, true, &mut Random::new(2)).unwrap()
}

fn once(releases: &Releases) -> Result<bool> {
    eventually(|| Ok(releases.count() == 1))
}

#[test]
fn a_moved_struct_can_be_released_on_any_thread() -> Result<()> {
    without_leaks(|| {
        let array = nested();
        let column = on_device(&array)?;
        // The struct moves when the list grows, to the heap, and to another thread.
        let mut moved = Vec::new();
        for ready in [SyncMode::Event, SyncMode::Now, SyncMode::Event, SyncMode::Event] {
            moved.push(column.export_device(ready)?);
        }
        drop(moved.swap_remove(1));
        let mut boxed = Box::new(moved.remove(0));
        let taken = take_array(column.field(), ptr::from_mut(&mut *boxed));
        assert!(boxed.is_released());
        thread::spawn(move || drop((taken, moved))).join().unwrap();
        let schema = column.export_schema()?;
        thread::spawn(move || drop(Box::new(schema))).join().unwrap();
        assert_eq!(&column.to_arrow()?, &array);
        Ok(())
    })
}

#[test]
fn each_export_keeps_the_memory_independently() -> Result<()> {
    without_leaks(|| {
        let array = nested();
        let column = on_device(&array)?;
        let [first, second] =
            [column.export_device(SyncMode::Event)?, column.export_device(SyncMode::Event)?];
        let held = live()?;
        drop(column);
        assert_eq!(live()?, held);
        drop(first);
        let back = Column::import_device(second.into(), ImportOptions::default())?;
        assert_eq!(&back.to_arrow()?, &array);
        Ok(())
    })
}

#[test]
fn an_import_keeps_its_struct_until_its_last_slice_is_dropped() -> Result<()> {
    without_leaks(|| {
        let array = nested();
        let (raw, releases) = count_releases(on_device(&array)?.export_device(SyncMode::Event)?);
        let column = on_device(&array)?;
        let back =
            Column::import_device(foreign_device_array(column.field(), raw), ImportOptions::default())?;
        let slice = back.slice(3, 20)?.children()[1].clone();
        drop(back);
        slice.wait()?;
        assert_eq!(releases.count(), 0);
        // The child of a slice is a slice, too.
        assert_eq!(&slice.to_arrow()?, &array.as_struct().column(1).slice(3, 20));
        drop(slice);
        assert!(once(&releases)?);
        Ok(())
    })
}

/// Moves a child, or the dictionary, out of a parent's struct, as consumers may.
fn take_child(child: *mut RawArray) -> RawArray {
    // SAFETY: the parent's struct lives, and no one else uses the child.
    let moved = unsafe { ptr::read(child) };
    // SAFETY: as above.
    unsafe { (*child).release = None };
    moved
}

#[test]
fn a_child_that_was_moved_out_outlives_its_parent() -> Result<()> {
    without_leaks(|| {
        let array = nested();
        let column = on_device(&array)?;
        let (fields, device_id) = (column.field().children(), column.queue().device().ordinal() as i64);
        let export = column.export_device(SyncMode::Now)?;
        let children = raw_device_array(&export).array.child_pointers();
        let field = |number: usize| -> Arc<Field> { fields[number].clone() };
        let moved: Vec<_> = [0, 2].into_iter().map(|number| take_child(children[number])).collect();
        let dictionary = take_child(moved[1].dictionary);
        drop((export, column.clone()));
        let import = |field: &Arc<Field>, array: RawArray| {
            let sync_event = ptr::null_mut();
            let raw = RawDeviceArray { array, device_id, device_type: ONEAPI, sync_event, reserved: [7; 3] };
            Column::import_device(foreign_device_array(field, raw), ImportOptions::default())
        };
        assert_eq!(&import(&field(0), moved[0])?.to_arrow()?, array.as_struct().column(0));
        let values = import(&Arc::new(fields[2].dictionary().unwrap().clone()), dictionary)?;
        assert_eq!(&values.to_arrow()?, array.as_struct().column(2).as_any_dictionary().values());
        // The indices are released without their dictionary.
        drop(foreign_array(&field(2), moved[1]));
        Ok(())
    })
}

#[test]
fn a_child_of_a_host_array_may_be_moved_out() -> Result<()> {
    without_leaks(|| {
        let array = nested();
        let column = Column::from_arrow("x", &array, HOST)?;
        let export = column.export_host()?;
        let text = take_child(crate::structs::raw_array(&export).child_pointers()[1]);
        drop(export);
        let (text, releases) = count_host_releases(restored(text));
        let copy =
            Column::import(foreign_array(&column.field().children()[1], text), ImportOptions::default())?;
        assert_eq!(&copy.to_arrow()?, array.as_struct().column(1));
        assert!(once(&releases)?);
        Ok(())
    })
}

/// The struct of usmq with these bytes.
fn restored(raw: RawArray) -> ArrowArray {
    let mut array = ArrowArray::empty();
    // SAFETY: one layout, and an empty struct owns nothing that would be lost.
    unsafe { ptr::from_mut(&mut array).cast::<RawArray>().write(raw) };
    array
}

#[test]
fn threads_import_slice_and_release_concurrently() -> Result<()> {
    without_leaks(|| {
        let array = nested();
        let column = on_device(&array)?;
        let exports: Vec<_> = (0..8).map(|_| column.export_device(SyncMode::Event)).collect::<Result<_>>()?;
        let threads = exports.into_iter().enumerate().map(|(number, export)| {
            let array = array.clone();
            thread::spawn(move || -> Result<()> {
                let back = Column::import_device(export.into(), ImportOptions::default())?;
                let part = reimport(back.slice(number, 30)?.export_device(SyncMode::Event)?)?;
                drop(back);
                assert_eq!(&part.to_arrow()?, &array.slice(number, 30));
                Ok(())
            })
        });
        threads.collect::<Vec<_>>().into_iter().try_for_each(|thread| thread.join().unwrap())
    })
}

/// The error for a struct that a spoiler made invalid, after it was released once.
fn refused(field: &Arc<Field>, spoil: impl FnOnce(&mut RawDeviceArray)) -> Result<String> {
    let array = if field.children().is_empty() { numbers() } else { nested() };
    let (mut raw, releases) = count_releases(on_device(&array)?.export_device(SyncMode::Now)?);
    spoil(&mut raw);
    let error =
        Column::import_device(foreign_device_array(field, raw), ImportOptions::default()).unwrap_err();
    assert!(once(&releases)?, "{error}");
    match error {
        Error::Interop { message: text, .. } => Ok(text),
        other => panic!("another error: {other}"),
    }
}

#[test]
fn a_device_array_that_breaks_a_rule_is_refused_and_released() -> Result<()> {
    without_leaks(|| {
        let field = on_device(&numbers())?.field().clone();
        let rules: [(&str, fn(&mut RawDeviceArray)); 15] = [
            ("length is -1", |raw| raw.array.length = -1),
            ("offset is -7", |raw| raw.array.offset = -7),
            ("address space", |raw| raw.array.length = i64::MAX),
            ("address space", |raw| raw.array.offset = i64::MAX),
            ("null count is -2", |raw| raw.array.null_count = -2),
            ("41 of 40 values are null", |raw| raw.array.null_count = 41),
            ("1 buffers, not 2", |raw| raw.array.n_buffers = 1),
            ("-1 buffers", |raw| raw.array.n_buffers = -1),
            ("list of buffers is null", |raw| raw.array.buffers = ptr::null_mut()),
            ("1 children", |raw| raw.array.n_children = 1),
            ("-1 children", |raw| raw.array.n_children = -1),
            ("a dictionary, unlike its schema", |raw| raw.array.dictionary = ptr::from_mut(&mut raw.array)),
            ("type 99", |raw| raw.device_type = 99),
            ("type 0", |raw| raw.device_type = 0),
            ("type -1", |raw| raw.device_type = -1),
        ];
        for (expected, spoil) in rules {
            let text = refused(&field, spoil)?;
            assert!(text.contains(expected), "{expected:?} is missing in {text}");
        }
        Ok(())
    })
}

#[test]
fn missing_and_non_usm_buffers_and_children_are_refused() -> Result<()> {
    without_leaks(|| {
        let (field, deep) = (on_device(&numbers())?.field().clone(), on_device(&nested())?.field().clone());
        let on_stack = [0u64; 64];
        let set = |raw: &mut RawDeviceArray, number: usize, address: *const u64| {
            // SAFETY: the list has two pointers, and its owner only drops it.
            let buffer = unsafe { raw.array.buffers.add(number) };
            // SAFETY: as above.
            unsafe { *buffer = address.cast() };
        };
        let text = refused(&field, |raw| set(raw, 1, ptr::null()))?;
        assert!(text.contains("buffer 1 is null"), "{text}");
        let text = refused(&field, |raw| set(raw, 0, ptr::null()))?;
        assert!(text.contains("buffer 0 is null"), "{text}");
        for number in [0, 1] {
            let text = refused(&field, |raw| set(raw, number, on_stack.as_ptr()))?;
            assert!(text.contains("not USM"), "{text}");
        }
        let shorter = |raw: &mut RawDeviceArray| {
            let child = raw.array.child_pointers()[1];
            // SAFETY: the parent's struct lives, and no one else uses the child.
            unsafe { (*child).length = 49 };
        };
        let text = refused(&deep, shorter)?;
        assert!(text.contains("a child has 49 of 50 values"), "{text}");
        let text = refused(&deep, |raw| drop(restored(take_child(raw.array.child_pointers()[2]))))?;
        assert!(text.contains("in child 2") && text.contains("released"), "{text}");
        let text = refused(&deep, |raw| raw.array.children = ptr::null_mut())?;
        assert!(text.contains("3 children"), "{text}");
        Ok(())
    })
}

#[test]
fn a_host_array_that_is_invalid_half_way_is_refused_and_released() -> Result<()> {
    without_leaks(|| {
        let column = Column::from_arrow("x", &nested(), HOST)?;
        // The copies of the first child are under way by then.
        let (raw, releases) = count_host_releases(column.export_host()?);
        drop(restored(take_child(raw.child_pointers()[2])));
        let error = Column::import(foreign_array(column.field(), raw), ImportOptions::default()).unwrap_err();
        assert!(error.to_string().contains("in child 2"), "{error}");
        assert_eq!(releases.count(), 1);
        Ok(())
    })
}

#[test]
fn decreasing_offsets_of_a_host_array_are_refused() -> Result<()> {
    without_leaks(|| {
        let mut offsets = [0i32, 4, 2, 6];
        let list = array(&DataType::Utf8, 3, false, &mut Random::new(3)).unwrap();
        let column = Column::from_arrow("x", &list, HOST)?;
        for (place, offset) in [(2, 2), (0, -1)] {
            offsets[place] = offset;
            let (raw, releases) = count_host_releases(column.export_host()?);
            // SAFETY: text has three pointers, and their owner only drops them.
            let buffer = unsafe { raw.buffers.add(1) };
            // SAFETY: as above.
            unsafe { *buffer = offsets.as_ptr().cast() };
            let error =
                Column::import(foreign_array(column.field(), raw), ImportOptions::default()).unwrap_err();
            assert!(error.to_string().contains("offsets decrease"), "{error}");
            assert_eq!(releases.count(), 1);
            offsets = [0, 4, 4, 6];
        }
        Ok(())
    })
}

#[test]
fn text_covered_by_its_offsets_must_not_be_null() -> Result<()> {
    without_leaks(|| {
        let text = array(&DataType::Utf8, 3, false, &mut Random::new(3)).unwrap();
        let column = Column::from_arrow("x", &text, HOST)?;
        for (offsets, sound) in [([0i32, 4, 4, 6], false), ([0i32; 4], true)] {
            let (raw, releases) = count_host_releases(column.export_host()?);
            // SAFETY: text has three pointers, and their owner only drops them.
            let buffers = unsafe { std::slice::from_raw_parts_mut(raw.buffers, 3) };
            (buffers[1], buffers[2]) = (offsets.as_ptr().cast(), ptr::null());
            let found = Column::import(foreign_array(column.field(), raw), ImportOptions::default());
            assert_eq!(found.as_ref().map(Column::len).ok(), sound.then_some(3));
            if let Err(error) = found {
                assert!(error.to_string().contains("its data is null"), "{error}");
            }
            column.queue().wait()?;
            assert!(once(&releases)?);
        }
        Ok(())
    })
}

#[test]
fn a_released_child_with_a_negative_count_is_refused() -> Result<()> {
    without_leaks(|| {
        let item = Arc::new(Field::new("item", "i")?);
        let field = Arc::new(Field::nested("x", "+w:2147483647", vec![item])?);
        let list = array(
            &DataType::FixedSizeList(Arc::new(ArrowField::new("item", DataType::Int32, true)), 2),
            3,
            false,
            &mut Random::new(3),
        )
        .unwrap();
        let column = Column::from_arrow("x", &list, HOST)?;
        let (mut raw, releases) = count_host_releases(column.export_host()?);
        drop(restored(take_child(raw.child_pointers()[0])));
        raw.length = 1 << 50;
        let error = Column::import(foreign_array(&field, raw), ImportOptions::default()).unwrap_err();
        assert!(error.to_string().contains("a child has"), "{error}");
        assert_eq!(releases.count(), 1);
        Ok(())
    })
}

#[test]
fn an_array_of_usmq_is_not_reinterpreted_as_another_type() -> Result<()> {
    without_leaks(|| {
        let bytes = usmq::Array::uninit([64], usmq::DType::I8, UsmKind::Host, &default_queue()?)?;
        bytes.fill(1i8)?;
        let column = Column::from_array("x", &bytes)?;
        for format in ["l", "w:64", "u", "+s"] {
            let field = Arc::new(Field::new("y", format)?);
            let (mut device, mut host) = (column.export_device(SyncMode::Now)?, column.export_host()?);
            let refused = [
                Column::import_device(
                    take_array(&field, ptr::from_mut(&mut device)),
                    ImportOptions::default(),
                ),
                Column::import(take_array(&field, ptr::from_mut(&mut host)), ImportOptions::default()),
            ];
            for error in refused.map(Result::unwrap_err) {
                let text = error.to_string();
                assert!(text.contains(&format!("{format:?}, not \"c\"")), "{text}");
            }
            assert!(device.is_released() && host.is_released());
        }
        // Another name is the same type.
        let field = Arc::new(Field::new("y", "c")?);
        let mut host = column.export_host()?;
        let back = Column::import(take_array(&field, ptr::from_mut(&mut host)), ImportOptions::default())?;
        assert_eq!((back.field(), back.values()?.to_vec::<i8>()?), (&field, vec![1; 64]));
        Ok(())
    })
}

#[test]
fn an_array_of_another_library_needs_its_field() -> Result<()> {
    without_leaks(|| {
        let column = Column::from_arrow("x", &numbers(), HOST)?;
        let (raw, releases) = count_host_releases(column.export_host()?);
        let error = Column::import(restored(raw).into(), ImportOptions::default()).unwrap_err();
        assert!(error.to_string().contains("take_array"), "{error}");
        assert_eq!(releases.count(), 1);
        Ok(())
    })
}

#[test]
fn foreign_contents_are_validated_before_arrow_rs_reads_them() -> Result<()> {
    without_leaks(|| {
        let text = Arc::new(arrow_array::StringArray::from(vec!["hello", "wörld", "!"])) as ArrayRef;
        let words = Arc::new(
            ["a", "b", "a"]
                .into_iter()
                .collect::<arrow_array::DictionaryArray<arrow_array::types::Int8Type>>(),
        ) as ArrayRef;
        let nulls = Arc::new(arrow_array::Int8Array::from(vec![Some(1), None, Some(3)])) as ArrayRef;
        let (bad_text, bad_indices, bad_bitmap) = ([0xffu8; 12], [0i8, 2, 0], [0b11u8]);
        for (array, number, buffer, says) in [
            (&text, 2, bad_text.as_ptr(), "value 0 is not UTF-8"),
            (&words, 1, bad_indices.as_ptr().cast(), "value 1 is 2, and the dictionary has 2"),
            (&nulls, 0, bad_bitmap.as_ptr(), "it has 1 nulls, but declares 2"),
        ] {
            let column = Column::from_arrow("x", array, HOST)?;
            let foreign = |change: &dyn Fn(&mut RawArray)| {
                let (mut raw, _) = count_host_releases(column.export_host().unwrap());
                // SAFETY: the list has as many pointers, and its owner only drops it.
                let place = unsafe { raw.buffers.add(number) };
                // SAFETY: as above.
                unsafe { *place = buffer.cast() };
                change(&mut raw);
                foreign_array(column.field(), raw)
            };
            let wrong_count = |raw: &mut RawArray| raw.null_count = if number == 0 { 2 } else { 0 };
            for kind in UsmKind::ALL {
                let placed = ImportOptions { kind: Some(kind), ..ImportOptions::default() };
                let broken = Column::import(foreign(&wrong_count), placed)?;
                let told = broken.to_arrow().unwrap_err().to_string();
                assert!(told.contains(says), "{says:?} is missing in {told}");
                assert_eq!(broken.validate_full().unwrap_err().to_string(), told);
                // A slice without the invalid values is valid.
                if number != 0 {
                    assert!(broken.slice(2, 1)?.validate_full().is_ok() || number == 2);
                }
            }
            assert!(column.validate_full().is_ok());
        }
        Ok(())
    })
}

#[test]
fn released_structs_are_refused() -> Result<()> {
    without_leaks(|| {
        let column = on_device(&numbers())?;
        let mut export = column.export_device(SyncMode::Event)?;
        drop(take_array(column.field(), ptr::from_mut(&mut export)));
        let structs: [ForeignStruct<ArrowDeviceArray>; 2] = [export.into(), ArrowDeviceArray::empty().into()];
        for released in structs {
            let error = Column::import_device(released, ImportOptions::default()).unwrap_err();
            assert!(error.to_string().contains("released"), "{error}");
        }
        let error = Column::import(ArrowArray::empty().into(), ImportOptions::default()).unwrap_err();
        assert!(error.to_string().contains("released"), "{error}");
        Ok(())
    })
}

#[test]
fn memory_without_a_device_ordinal_is_not_exported() -> Result<()> {
    without_leaks(|| {
        let array = numbers();
        let root = default_queue()?;
        for queue in queues_elsewhere(&root)? {
            let placed = ImportOptions { queue: Some(&queue), kind: None, columns: None };
            let column = Column::from_arrow("x", &array, placed)?;
            let named =
                queue.device().parent().is_none() && *queue.context() == queue.device().default_context()?;
            match column.export_device(SyncMode::Event) {
                Ok(export) => {
                    assert!(named, "{queue}");
                    assert_eq!(export.device_id(), queue.device().ordinal() as i64);
                    // The current queue is on another device: the memory stays on its device.
                    let back = reimport(export)?;
                    assert_eq!((back.queue().device(), &back.to_arrow()?), (queue.device(), &array));
                }
                Err(Error::Interop { message: text, .. }) => {
                    assert!(!named && text.contains("collocate"), "{text}")
                }
                Err(other) => panic!("{queue}: {other}"),
            }
            // On the root device it can be exported.
            let moved = column.to(None, Some(&root))?;
            assert_eq!(&reimport(moved.export_device(SyncMode::Event)?)?.to_arrow()?, &array);
        }
        Ok(())
    })
}

#[test]
fn the_device_of_memory_comes_from_the_runtime_not_the_producer() -> Result<()> {
    without_leaks(|| {
        let array = numbers();
        let column = on_device(&array)?;
        for device_id in [-1, 77, i64::MIN] {
            let (mut raw, _) = count_releases(column.export_device(SyncMode::Event)?);
            (raw.device_id, raw.reserved) = (device_id, [-1; 3]);
            let back =
                Column::import_device(foreign_device_array(column.field(), raw), ImportOptions::default())?;
            assert_eq!((back.queue(), &back.to_arrow()?), (column.queue(), &array));
        }
        Ok(())
    })
}

#[test]
fn an_import_can_be_moved_to_another_context_and_usm_kind() -> Result<()> {
    let clean = LeakCheck::start()?;
    let array = nested();
    let column = on_device(&array)?;
    let root = default_queue()?;
    let fresh = Queue::new(root.device(), Some(&Context::new(&[root.device().clone()])?), IN_ORDER)?;
    let [.., loose, _] = four_queues(root.device(), None)?;
    for (queue, kind) in [(&loose, UsmKind::Device), (&fresh, UsmKind::Shared), (&root, UsmKind::Host)] {
        let (raw, releases) = count_releases(column.export_device(SyncMode::Event)?);
        let placed = ImportOptions { queue: Some(queue), kind: Some(kind), columns: None };
        let moved = Column::import_device(foreign_device_array(column.field(), raw), placed)?;
        assert_eq!((moved.queue(), moved.usm_kind()), (queue, Some(kind)));
        assert_eq!(&moved.to_arrow()?, &array);
        // A copy needs the struct no longer; the memory itself does.
        if queue == &fresh || kind != UsmKind::Device {
            assert!(once(&releases)?);
        } else {
            assert_eq!(releases.count(), 0);
        }
        drop(moved);
        assert!(once(&releases)?);
    }
    drop(column);
    clean.end()
}

#[test]
fn a_host_device_array_is_copied_like_any_host_array() -> Result<()> {
    without_leaks(|| {
        let array = nested();
        let column = Column::from_arrow("x", &array, HOST)?;
        let (raw, releases) = count_releases(column.export_host_device()?);
        assert_eq!(raw.device_type, CPU);
        let copy =
            Column::import_device(foreign_device_array(column.field(), raw), ImportOptions::default())?;
        assert_eq!((copy.usm_kind(), &copy.to_arrow()?), (Some(UsmKind::Device), &array));
        assert!(once(&releases)?);
        Ok(())
    })
}
