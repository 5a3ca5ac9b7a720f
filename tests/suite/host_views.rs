//! Host views, and copies to slices: what they exclude, and when they wait.

use crate::common::{LOOSE, Work, advanced, default_queue};
use std::thread;
use usmq::interop::arrow::{Column, SyncMode};
use usmq::interop::dlpack::{self, Export};
use usmq::interop::suai;
use usmq::{Array, DType, Error, HostView, HostViewMut, Queue, Result, UsmKind};

const LONG: u32 = 20_000_000;

fn states(kind: UsmKind, queue: &Queue) -> Result<Array> {
    let array = Array::builder::<u32>(4).kind(kind).queue(queue).build()?;
    array.copy_from_slice(&[1u32, 2, 3, 4])?;
    Ok(array)
}

fn is_in_use<T>(result: Result<T>, is_mutable: bool) -> bool {
    let Err(error) = result else { return false };
    let text = error.to_string();
    let named = text.contains("uint32[4] (") && text.contains("drop the view first");
    named && matches!(error, Error::HostView { is_mutable: found, .. } if found == is_mutable)
}

#[test]
fn views_may_move_between_threads() {
    const fn check<T: Send + Sync>() {}
    check::<HostView<f32>>();
    check::<HostViewMut<f32>>();
}

#[test]
fn a_view_waits_for_writes_and_shows_the_memory_itself() -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    for kind in [UsmKind::Host, UsmKind::Shared] {
        let x = states(kind, &queue)?;
        work.advance(&queue.with_properties(LOOSE)?, &x, LONG)?;
        let view = x.host_view::<u32>()?;
        let expected: Vec<_> = (1..=4).map(|state| advanced(state, LONG)).collect();
        assert_eq!(&*view, expected);
        assert_eq!(view.as_ptr() as usize, x.address());
        drop(view);
        x.host_view_mut::<u32>()?[1..3].copy_from_slice(&[8, 9]);
        assert_eq!(x.to_vec::<u32>()?, [expected[0], 8, 9, expected[3]]);
        // A part of an array has a view of its own.
        assert_eq!(&*x.index(2..)?.host_view::<u32>()?, &[9, expected[3]]);
    }
    Ok(())
}

#[test]
fn commands_that_write_are_refused_while_a_view_lives() -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let (x, y) = (states(UsmKind::Shared, &queue)?, states(UsmKind::Shared, &queue)?);
    let (first, second) = (x.host_view::<u32>()?, x.index(1..)?.host_view::<u32>()?);
    assert_eq!((first.len(), second.len()), (4, 3));
    assert!(is_in_use(work.advance(&queue, &x, 1), false));
    assert!(is_in_use(
        work.advance(&queue.with_properties(LOOSE)?, &x.reshape((2, 2))?.reshape(-1)?, 1),
        false
    ));
    assert!(is_in_use(work.advance_into(&queue, &y, &x, 1), false));
    assert!(is_in_use(x.fill(1u32), false));
    assert!(is_in_use(x.index(0)?.fill(1u32), false));
    assert!(is_in_use(x.assign(&y), false));
    assert!(is_in_use(x.copy_from_slice(&[0u32; 4]), false));
    assert!(is_in_use(x.host_view_mut::<u32>(), false));
    // Reads are possible, and so is everything that copies.
    work.advance_into(&queue, &x, &y, 1)?;
    assert_eq!(y.to_vec::<u32>()?[0], advanced(1, 1));
    assert_eq!((x.to_vec::<u32>()?, x.copy()?.size()), (vec![1, 2, 3, 4], 4));
    x.wait()?;
    drop(first);
    assert!(is_in_use(x.fill(1u32), false), "one view is left");
    assert_eq!(&*second, [2, 3, 4]);
    drop(second);
    x.fill(1u32)?;
    assert_eq!(&*x.host_view::<u32>()?, [1; 4]);
    Ok(())
}

#[test]
fn every_command_is_refused_while_a_mutable_view_lives() -> Result<()> {
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let (x, y) = (states(UsmKind::Host, &queue)?, states(UsmKind::Host, &queue)?);
    let mut view = x.host_view_mut::<u32>()?;
    view[0] = 7;
    assert!(is_in_use(work.advance_into(&queue, &x, &y, 1), true));
    assert!(is_in_use(x.to_vec::<u32>(), true));
    assert!(is_in_use(x.copy(), true));
    assert!(is_in_use(x.fill(1u32), true));
    assert!(is_in_use(x.host_view::<u32>(), true));
    assert!(is_in_use(x.index(1..)?.host_view_mut::<u32>(), true));
    let read = ::futures::executor::block_on(x.to_vec_async::<u32>());
    assert!(is_in_use(read, true));
    drop(view);
    assert_eq!(x.to_vec::<u32>()?, [7, 2, 3, 4]);
    Ok(())
}

#[test]
fn a_leaked_view_lives_as_long_as_the_process() -> Result<()> {
    let x = states(UsmKind::Host, &default_queue()?)?;
    std::mem::forget(x.host_view_mut::<u32>()?);
    assert!(is_in_use(x.to_vec::<u32>(), true));
    Ok(())
}

#[test]
fn exports_and_views_exclude_each_other() -> Result<()> {
    let queue = default_queue()?;
    let host = Export { destination: Some(dlpack::Destination { kind: 1, id: 0 }), ..Export::default() };
    type Exported = dlpack::ExportedTensor<dlpack::DLManagedTensorVersioned>;
    let exports: [fn(&Array, Export<'_>) -> Result<()>; 4] = [
        |array, _| dlpack::export::<dlpack::DLManagedTensorVersioned>(array, Export::default()).map(drop),
        |array, host| dlpack::export(array, host).map(|exported: Exported| drop(exported)),
        |array, _| suai::export(array).map(drop),
        |array, _| Column::from_array("x", array)?.export_device(SyncMode::Event).map(drop),
    ];
    for (number, export) in exports.into_iter().enumerate() {
        let x = states(UsmKind::Shared, &queue)?;
        let view = x.host_view::<u32>()?;
        assert!(is_in_use(export(&x, host), false), "export {number}");
        drop(view);
        assert_eq!(&*x.host_view::<u32>()?, [1, 2, 3, 4], "the failed export {number} leaves no trace");
        export(&x, host)?;
        // The consumer may still know the address.
        for refused in [x.host_view::<u32>().map(drop), x.host_view_mut::<u32>().map(drop)] {
            let error = refused.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("another library has or had the memory"), "export {number}: {error}");
        }
        assert_eq!(&*x.to(None, Some(UsmKind::Host), None)?.host_view::<u32>()?, [1, 2, 3, 4]);
    }
    Ok(())
}

#[test]
fn arrays_without_a_view_say_why() -> Result<()> {
    let queue = default_queue()?;
    let refused = |array: &Array| {
        let error = array.host_view::<u32>().err();
        error.map_or_else(|| "no error".to_owned(), |error| error.to_string())
    };
    assert!(refused(&states(UsmKind::Device, &queue)?).contains("only host and shared USM"));
    assert!(refused(&Array::from_owner(vec![1u32], &queue)?).contains("only host and shared USM"));
    let x = states(UsmKind::Host, &queue)?;
    assert!(refused(&x.index((0..4).step_by(2))?).contains("not contiguous"));
    assert!(matches!(x.host_view::<i32>(), Err(Error::Type { .. })));
    assert!(matches!(x.as_readonly().host_view_mut::<u32>(), Err(Error::Value { .. })));
    assert_eq!(&*x.as_readonly().host_view::<u32>()?, [1, 2, 3, 4]);
    let empty = Array::builder::<u32>((0, 3)).kind(UsmKind::Host).queue(&queue).build()?;
    assert!(empty.host_view::<u32>()?.is_empty() && empty.host_view_mut::<u32>()?.is_empty());
    // Copies store 0 and 1 for other bytes.
    let bytes = Array::builder::<bool>(4).kind(UsmKind::Host).queue(&queue).build()?;
    bytes.copy_from_bytes(&[0, 1, 2, 1])?;
    assert_eq!(&*bytes.host_view::<bool>()?, [false, true, true, true]);
    bytes.fill(true)?;
    assert_eq!(&*bytes.host_view::<bool>()?, [true; 4]);
    Ok(())
}

#[test]
fn a_view_never_changes_while_another_thread_submits_writes() -> Result<()> {
    let queue = default_queue()?;
    let x = states(UsmKind::Shared, &queue)?;
    x.fill(0u32)?;
    thread::scope(|threads| -> Result<()> {
        let writer = threads.spawn(|| {
            let (mut written, mut refused) = (0u32, 0u32);
            while written < 300 {
                match x.fill(written) {
                    Ok(()) => written += 1,
                    Err(Error::HostView { .. }) => refused += 1,
                    Err(error) => return Err(error),
                }
            }
            Ok(refused)
        });
        while !writer.is_finished() {
            let view = x.host_view::<u32>()?;
            let first = view[0];
            thread::yield_now();
            assert_eq!(&*view, [first; 4]);
            drop(view);
            thread::yield_now();
        }
        writer.join().expect("no panic").map(drop)
    })?;
    assert_eq!(x.to_vec::<u32>()?, [299; 4]);
    Ok(())
}

#[test]
fn a_copy_to_a_slice_checks_length_type_and_values() -> Result<()> {
    let queue = default_queue()?;
    let x = states(UsmKind::Device, &queue)?;
    let mut values = [0u32; 4];
    x.copy_to_slice(&mut values)?;
    assert_eq!(values, [1, 2, 3, 4]);
    x.reshape((2, 2))?.transpose().copy_to_slice(&mut values)?;
    assert_eq!(values, [1, 3, 2, 4]);
    assert!(matches!(x.copy_to_slice(&mut values[..3]), Err(Error::Value { .. })));
    assert!(matches!(x.copy_to_slice(&mut [0f32; 4]), Err(Error::Type { .. })));
    x.index(..0)?.copy_to_slice::<u32>(&mut [])?;
    let bytes = Array::uninit(2, DType::Bool, UsmKind::Device, &queue)?;
    bytes.copy_from_bytes(&[1, 7])?;
    let mut truths = [true, false];
    bytes.copy_to_slice(&mut truths)?;
    assert_eq!(truths, [true, true]);
    Ok(())
}
