//! Tests behaviour that CUDA permits a driver: usmq must neither hang nor produce wrong elements.

use super::array::CudaArray;
use super::driver::Driver;
use super::mock_driver::CONTEXT;
use super::tests::{MIB, another_queue, bench, numbers, until};
use crate::array::Array;
use crate::device::{UserEvent, UsmKind};
use crate::manager::current_queue;
use crate::memory::{Access, OWN_RANGE, after_writes, ordered};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Of an array that is copied directly.
const SMALL: usize = 2 * OWN_RANGE;

/// While a thread copies to memory that is not registered, all other calls of the driver block. The copy waits for a transfer
/// of usmq, so the transfer must not need a call.
#[test]
fn another_librarys_blocking_copy_does_not_hold_up_the_transfer_that_it_waits_for() {
    let bench = bench();
    let queue = current_queue().unwrap();
    let usm = Array::from_slice(&numbers(MIB)).unwrap();
    let Some((user_event, event)) = UserEvent::new(&queue).unwrap() else { return };
    ordered(&queue, &[(usm.allocation(), Access::Write)], |_| Ok(event)).unwrap();
    let cuda = CudaArray::copied(&usm, &bench.device).unwrap();
    let (driver, pointer, stream) = (bench.driver.clone(), cuda.address(), cuda.stream().unwrap());
    let reader = std::thread::spawn(move || driver.copy_to_pageable(stream, pointer, MIB));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!reader.is_finished(), "the copy did not wait for the transfer");
    user_event.signal();
    until("the copy and the transfer wait for each other", || reader.is_finished());
    assert_eq!(reader.join().unwrap(), numbers(MIB));
}

#[test]
fn transfers_in_both_directions_complete() {
    let bench = bench();
    let queue = current_queue().unwrap();
    bench.driver.slow.store(true, Ordering::SeqCst);
    let usm = Array::from_slice(&numbers(2 * MIB)).unwrap();
    let sent: Vec<_> = (0..3).map(|_| CudaArray::copied(&usm, &bench.device).unwrap()).collect();
    let stream = bench.driver.new_stream(CONTEXT).unwrap();
    let (other, ..) = bench.foreign(&numbers(100), Some(stream));
    let received = other.to_queue(&queue, UsmKind::Device).unwrap();
    let reader = std::thread::spawn(move || received.to_bytes());
    until("the transfers wait for each other", || reader.is_finished());
    assert_eq!(reader.join().unwrap().unwrap(), numbers(100));
    for cuda in &sent {
        cuda.wait().unwrap();
        assert_eq!(bench.driver.read(cuda.address()), numbers(2 * MIB));
    }
}

/// The driver may give out memory before the work ahead of its free is complete, and makes its next user wait for that.
#[test]
fn a_transfer_does_not_wait_for_memory_that_waits_for_it() {
    let bench = bench();
    let usm = Array::from_slice(&numbers(2 * MIB)).unwrap();
    let small = CudaArray::copied(&Array::from_slice(&numbers(100)).unwrap(), &bench.device).unwrap();
    small.wait().unwrap();
    bench.driver.slow.store(true, Ordering::SeqCst);
    let large = CudaArray::copied(&usm, &bench.device).unwrap();
    drop(small);
    let next = CudaArray::copied(&usm, &bench.device).unwrap();
    let event = bench.driver.record(CONTEXT, next.stream().unwrap()).unwrap();
    until("the transfers wait for each other", || bench.driver.is_complete(event));
    bench.driver.forget(event);
    for cuda in [&large, &next] {
        assert_eq!(bench.driver.read(cuda.address()), numbers(2 * MIB));
    }
    drop((large, next));
    until("memory stays", || bench.driver.live_memory() == 0);
}

/// A full device has as much memory again once everything that was released is free.
#[test]
fn a_full_device_waits_for_pending_frees_then_reports_an_error() {
    let bench = bench();
    bench.driver.slow.store(true, Ordering::SeqCst);
    bench.driver.room.store(2, Ordering::SeqCst);
    let usm = Array::from_slice(&numbers(MIB)).unwrap();
    let first = CudaArray::copied(&usm, &bench.device).unwrap();
    first.wait().unwrap();
    let second = CudaArray::copied(&usm, &bench.device).unwrap();
    drop(first);
    let third = CudaArray::copied(&usm, &bench.device).unwrap();
    third.wait().unwrap();
    assert_eq!(bench.driver.read(third.address()), numbers(MIB));
    let error = CudaArray::copied(&usm, &bench.device).unwrap_err();
    assert!(matches!(error, crate::Error::Allocation { .. }), "{error}");
    drop(second);
}

/// The array has no pending write then.
#[test]
fn a_small_transfer_is_usually_complete_on_return() {
    let bench = bench();
    let queue = another_queue();
    let stream = bench.driver.new_stream(CONTEXT).unwrap();
    let (cuda, ..) = bench.foreign(&numbers(SMALL), Some(stream));
    until("no transfer is complete on return", || {
        let usm = cuda.to_queue(&queue, UsmKind::Host).unwrap();
        let pending = after_writes(&queue, &[(usm.allocation(), Access::Read)]).unwrap();
        assert_eq!(usm.to_bytes().unwrap(), numbers(SMALL));
        pending.is_none()
    });
}

#[test]
fn a_small_transfer_does_not_wait_for_its_producer() {
    let bench = bench();
    let queue = another_queue();
    let Some(_) = UserEvent::new(&queue).unwrap() else { return };
    let stream = bench.driver.new_stream(CONTEXT).unwrap();
    let (cuda, ..) = bench.foreign(&numbers(MIB), Some(stream));
    let (hold, held) = std::sync::mpsc::channel::<()>();
    bench.driver.submit(stream, move || _ = held.recv());
    let usm = cuda.to_queue(&queue, UsmKind::Host).unwrap();
    let pending = after_writes(&queue, &[(usm.allocation(), Access::Read)]).unwrap();
    assert!(!pending.unwrap().done().unwrap());
    drop(hold);
    assert_eq!(usm.to_bytes().unwrap(), numbers(MIB));
}

/// Another library has submitted work on the array's in-order queue, of which the log has no entry.
#[test]
fn a_transfer_waits_for_other_libraries_on_the_queue_of_the_array() {
    let bench = bench();
    let queue = another_queue();
    for bytes in [100, SMALL] {
        let usm = Array::builder::<u8>(bytes).queue(&queue).kind(UsmKind::Host).zeroed().build().unwrap();
        usm.wait().unwrap();
        usm.allocation().share_on(&queue).unwrap();
        let Some((user_event, event)) = UserEvent::new(&queue).unwrap() else { return };
        queue.barrier(&[event]).unwrap();
        let cuda = CudaArray::copied(&usm, &bench.device).unwrap();
        // The other library's work writes before it ends.
        // SAFETY: host USM of this many bytes, and the transfer must not read it yet.
        unsafe { std::ptr::write_bytes(usm.address() as *mut u8, 7, bytes) };
        user_event.signal();
        cuda.wait().unwrap();
        assert_eq!(bench.driver.read(cuda.address()), vec![7; bytes]);
    }
}

#[test]
fn without_a_stream_the_owners_next_write_comes_after_the_copy() {
    let bench = bench();
    bench.driver.slow.store(true, Ordering::SeqCst);
    let (cuda, pointer, _) = bench.foreign(&numbers(2 * MIB), None);
    let usm = cuda.to_queue(&current_queue().unwrap(), UsmKind::Device).unwrap();
    // SAFETY: the recorder keeps the memory, and this thread is its owner.
    unsafe { std::ptr::write_bytes(pointer as *mut u8, 1, 2 * MIB) };
    assert_eq!(usm.to_bytes().unwrap(), numbers(2 * MIB));
}

/// A transfer that fails at once has not read memory that others still write.
#[test]
fn a_transfer_that_fails_at_once_waits_for_the_writers() {
    let bench = bench();
    let queue = current_queue().unwrap();
    let usm = Array::from_slice(&numbers(MIB)).unwrap();
    let Some((user_event, event)) = UserEvent::new(&queue).unwrap() else { return };
    ordered(&queue, &[(usm.allocation(), Access::Write)], |_| Ok(event)).unwrap();
    bench.driver.no_order.store(true, Ordering::SeqCst);
    let failing = std::thread::spawn(move || CudaArray::copied(&usm, &bench.device).map(drop));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!failing.is_finished(), "the transfer ended before the write");
    user_event.signal();
    until("the failure does not show", || failing.is_finished());
    assert!(failing.join().unwrap().is_err());
}
