//! Order, errors and release of transfers, on a real SYCL device and a recording driver.

use super::array::{CudaArray, Described};
use super::device::CudaDevice;
use super::driver::Driver;
use super::interface::{Descriptor, elements, export};
use super::mock_driver::{CONTEXT, MockDriver};
use super::transfer::register;
use crate::array::{Array, DType};
use crate::device::{Queue, UsmKind};
use crate::error::{Error, Result};
use crate::manager::current_queue;
use crate::memory::{OWN_RANGE, trim};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const MIB: usize = 1 << 20;

pub(super) struct Bench {
    pub(super) driver: Arc<MockDriver>,
    pub(super) device: Arc<CudaDevice>,
}

pub(super) fn bench() -> Bench {
    let driver = Arc::new(MockDriver::default());
    let device = CudaDevice::new(driver.clone(), 0).unwrap();
    Bench { driver, device }
}

pub(super) fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|number| (number * 7 % 251) as u8).collect()
}

pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sets a flag when it is dropped.
struct DropProbe(Arc<AtomicBool>);

impl Drop for DropProbe {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Whose errors no other test gets.
pub(super) fn another_queue() -> Queue {
    let queue = current_queue().unwrap();
    Queue::create(queue.context(), queue.device(), Default::default()).unwrap()
}

impl Bench {
    /// Memory of another library, which works on `stream`.
    pub(super) fn foreign(&self, bytes: &[u8], stream: Option<usize>) -> (CudaArray, usize, Arc<AtomicBool>) {
        let pointer = self.driver.foreign(bytes);
        let gone = Arc::<AtomicBool>::default();
        let described = Described {
            pointer,
            shape: &[bytes.len()],
            strides: None,
            dtype: DType::U8,
            readonly: false,
            stream,
        };
        let array = self.over(&described, Box::new(DropProbe(gone.clone()))).unwrap();
        (array, pointer, gone)
    }

    fn over(&self, described: &Described<'_>, owner: Box<dyn Any + Send + Sync>) -> Result<CudaArray> {
        let find = |_| Ok((self.device.clone(), CONTEXT));
        // SAFETY: the recorder keeps the memory until the test ends.
        unsafe { CudaArray::over(described, described.layout()?, find, owner) }
    }
}

#[test]
fn transfers_of_any_size_arrive() {
    let bench = bench();
    let queue = current_queue().unwrap();
    for count in [1, 3, OWN_RANGE - 1, OWN_RANGE, OWN_RANGE + 1, MIB, 3 * MIB + 5] {
        let bytes = numbers(count);
        let (cuda, ..) = bench.foreign(&bytes, None);
        let usm = cuda.to_queue(&queue, UsmKind::Device).unwrap();
        assert_eq!(usm.to_bytes().unwrap(), bytes, "{count} in");
        let back = CudaArray::copied(&usm, &bench.device).unwrap();
        back.wait().unwrap();
        assert_eq!(bench.driver.read(back.address()), bytes, "{count} out");
    }
}

#[test]
fn a_transfer_and_the_producers_stream_wait_for_each_other() {
    let bench = bench();
    let queue = current_queue().unwrap();
    let stream = bench.driver.new_stream(CONTEXT).unwrap();
    let (cuda, pointer, _) = bench.foreign(&numbers(3 * MIB), Some(stream));
    // The producer is still writing when the array is handed over...
    bench.driver.submit(stream, move || {
        std::thread::sleep(Duration::from_millis(100));
        // SAFETY: the recorder keeps the memory.
        unsafe { std::ptr::write_bytes(pointer as *mut u8, 1, 3 * MIB) };
    });
    bench.driver.slow.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let usm = cuda.to_queue(&queue, UsmKind::Device).unwrap();
    assert!(begun.elapsed() < Duration::from_millis(90), "the host waited");
    // ... and writes again right after.
    bench.driver.submit(stream, move || {
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(pointer as *mut u8, 2, 3 * MIB) };
    });
    assert_eq!(usm.to_bytes().unwrap(), vec![1; 3 * MIB]);
    bench.driver.finish(stream);
    assert_eq!(bench.driver.read(pointer), vec![2; 3 * MIB]);
}

#[test]
fn work_on_the_result_comes_after_the_transfer_without_a_host_wait() {
    let bench = bench();
    let queue = current_queue().unwrap();
    bench.driver.slow.store(true, Ordering::SeqCst);
    let stream = bench.driver.new_stream(CONTEXT).unwrap();
    let (cuda, ..) = bench.foreign(&numbers(2 * MIB), Some(stream));
    let usm = cuda.to_queue(&queue, UsmKind::Device).unwrap();
    let copy = usm.copy().unwrap(); // a command on the array's queue
    let wide = usm.cast(DType::U16).unwrap(); // a kernel
    assert_eq!(copy.to_bytes().unwrap(), numbers(2 * MIB));
    assert_eq!(wide.to_vec::<u16>().unwrap()[MIB + 1], u16::from(numbers(MIB + 2)[MIB + 1]));
}

#[test]
fn a_queue_wait_includes_its_transfers() {
    let bench = bench();
    let queue = current_queue().unwrap();
    bench.driver.slow.store(true, Ordering::SeqCst);
    let stream = bench.driver.new_stream(CONTEXT).unwrap();
    let (cuda, ..) = bench.foreign(&numbers(3 * MIB), Some(stream));
    let usm = cuda.to_queue(&queue, UsmKind::Host).unwrap();
    queue.wait().unwrap();
    // SAFETY: host USM of this many bytes, and nothing writes to it any more.
    let found = unsafe { std::slice::from_raw_parts(usm.address() as *const u8, 3 * MIB) };
    assert!(found == numbers(3 * MIB));
}

#[test]
fn an_export_makes_its_consumer_wait_for_the_transfer() {
    let bench = bench();
    bench.driver.slow.store(true, Ordering::SeqCst);
    let usm = Array::from_slice(&numbers(3 * MIB)).unwrap();
    let cuda = CudaArray::copied(&usm, &bench.device).unwrap();
    // The source is free for others at once: a later write waits for the transfer's read.
    usm.fill(9u8).unwrap();
    let exported = export(&cuda).unwrap();
    let consumer = bench.driver.new_stream(CONTEXT).unwrap();
    let event = bench.driver.record(CONTEXT, exported.stream.unwrap()).unwrap();
    bench.driver.stream_wait_event(CONTEXT, consumer, event).unwrap();
    bench.driver.forget(event);
    bench.driver.finish(consumer);
    assert_eq!(bench.driver.read(exported.pointer), numbers(3 * MIB));
}

#[test]
fn a_consumers_work_on_the_given_stream_precedes_the_copy_back() {
    let bench = bench();
    let usm = Array::from_slice(&numbers(MIB)).unwrap();
    let cuda = CudaArray::copied(&usm, &bench.device).unwrap();
    let pointer = cuda.address();
    bench.driver.submit(export(&cuda).unwrap().stream.unwrap(), move || {
        std::thread::sleep(Duration::from_millis(50));
        // SAFETY: the array keeps the memory.
        unsafe { std::ptr::write_bytes(pointer as *mut u8, 3, MIB) };
    });
    let back = cuda.to_queue(&current_queue().unwrap(), UsmKind::Host).unwrap();
    assert_eq!(back.usm_kind(), Some(UsmKind::Host));
    assert_eq!(back.to_bytes().unwrap(), vec![3; MIB]);
}

#[test]
fn everything_is_released_after_its_last_use() {
    let bench = bench();
    let queue = current_queue().unwrap();
    bench.driver.slow.store(true, Ordering::SeqCst);
    let stream = bench.driver.new_stream(CONTEXT).unwrap();
    let (cuda, pointer, gone) = bench.foreign(&numbers(2 * MIB), Some(stream));
    let usm = cuda.to_queue(&queue, UsmKind::Device).unwrap();
    drop(cuda);
    assert!(!gone.load(Ordering::SeqCst), "the owner went while its memory was being read");
    usm.wait().unwrap();
    until("the owner stays for ever", || gone.load(Ordering::SeqCst));
    let ours = CudaArray::copied(&usm, &bench.device).unwrap();
    drop((ours, usm));
    until("memory of ours stays", || bench.driver.live_memory() == 1);
    until("events stay", || bench.driver.live_events() == 0);
    assert_eq!(bench.driver.read(pointer).len(), 2 * MIB);
    // The pool has kept the memory, and other tests may use it.
    until("memory stays registered", || {
        trim(None).unwrap();
        bench.driver.registered.lock().is_empty()
    });
}

#[test]
fn memory_is_registered_once_until_the_runtime_frees_it() {
    let bench = bench();
    let queue = current_queue().unwrap();
    // No pool keeps memory of this size.
    let bytes = (1 << 30) + 1;
    let usm = Array::uninit([bytes], DType::U8, UsmKind::Host, &queue).unwrap();
    let slot = bench.driver.foreign(&[0]);
    for _ in 0..3 {
        assert!(register(&bench.device, usm.allocation()).unwrap());
        assert_eq!(*bench.driver.registered.lock(), [usm.address()]);
    }
    drop(usm);
    until("memory stays registered", || bench.driver.registered.lock().is_empty());
    let part = Array::uninit([3], DType::U8, UsmKind::Host, &queue).unwrap();
    assert!(!register(&bench.device, part.allocation()).unwrap(), "a part of an allocation");
    assert!(bench.driver.read(slot) == [0]);
}

#[test]
fn a_refused_copy_is_an_error_and_leaves_nothing() {
    let bench = bench();
    let queue = current_queue().unwrap();
    for bytes in [100, 3 * MIB] {
        *bench.driver.refuse.lock() = 0..usize::MAX;
        let stream = bench.driver.new_stream(CONTEXT).unwrap();
        let (cuda, _, gone) = bench.foreign(&numbers(bytes), Some(stream));
        let error = cuda.to_queue(&queue, UsmKind::Device).unwrap_err();
        assert!(error.to_string().contains("on purpose"), "{error}");
        bench.driver.finish(stream); // not held up for ever
        drop(cuda);
        until("the owner stays for ever", || gone.load(Ordering::SeqCst));
        let usm = Array::from_slice(&numbers(bytes)).unwrap();
        let before = bench.driver.live_memory();
        let error = CudaArray::copied(&usm, &bench.device).unwrap_err();
        assert!(error.to_string().contains("on purpose"), "{error}");
        until("memory stays", || bench.driver.live_memory() == before);
        // The next operations work.
        *bench.driver.refuse.lock() = 0..0;
        let (cuda, ..) = bench.foreign(&numbers(bytes), None);
        assert_eq!(cuda.to_queue(&queue, UsmKind::Device).unwrap().to_bytes().unwrap(), numbers(bytes));
        queue.wait().unwrap();
    }
}

#[test]
fn memory_of_a_copy_without_a_known_end_is_kept_until_the_driver_reports_it() {
    let bench = bench();
    let queue = current_queue().unwrap();
    bench.driver.no_end.store(true, Ordering::SeqCst);
    bench.driver.is_lost.store(true, Ordering::SeqCst);
    let mut owners = Vec::new();
    // The second transfer tries to end the first one.
    for _ in 0..3 {
        let (cuda, _, gone) = bench.foreign(&numbers(MIB), None);
        assert!(cuda.to_queue(&queue, UsmKind::Device).is_err());
        owners.push(gone);
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(owners.iter().all(|gone| !gone.load(Ordering::SeqCst)), "the copy may still read");
    bench.driver.no_end.store(false, Ordering::SeqCst);
    bench.driver.is_lost.store(false, Ordering::SeqCst);
    let (cuda, ..) = bench.foreign(&numbers(MIB), None);
    assert_eq!(cuda.to_queue(&queue, UsmKind::Device).unwrap().to_bytes().unwrap(), numbers(MIB));
    until("the owners stay for ever", || owners.iter().all(|gone| gone.load(Ordering::SeqCst)));
}

#[test]
fn a_lost_context_is_an_error_of_each_reader() {
    let bench = bench();
    let queue = another_queue();
    let stream = bench.driver.new_stream(CONTEXT).unwrap();
    let (cuda, _, gone) = bench.foreign(&numbers(MIB), Some(stream));
    bench.driver.is_lost.store(true, Ordering::SeqCst);
    let usm = cuda.to_queue(&queue, UsmKind::Device).unwrap();
    // These begin before the failure is known.
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let usm = usm.clone();
            std::thread::spawn(move || usm.to_bytes().map(drop))
        })
        .collect();
    for reader in readers {
        let error = reader.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("on purpose"), "{error}");
    }
    assert!(usm.to_bytes().is_err());
    assert!(usm.copy().is_err());
    drop((cuda, usm));
    until("the owner stays for ever", || gone.load(Ordering::SeqCst));
    let _stored = queue.wait();
}

#[test]
fn a_transfer_does_not_wait_for_an_unrelated_one() {
    let bench = bench();
    let queue = current_queue().unwrap();
    let stream = bench.driver.new_stream(CONTEXT).unwrap();
    let (hold, held) = std::sync::mpsc::channel::<()>();
    bench.driver.submit(stream, move || _ = held.recv());
    let (slow, ..) = bench.foreign(&numbers(MIB), Some(stream));
    let slow = slow.to_queue(&queue, UsmKind::Device).unwrap();
    let (quick, ..) = bench.foreign(&numbers(100), None);
    assert_eq!(quick.to_queue(&another_queue(), UsmKind::Device).unwrap().to_bytes().unwrap(), numbers(100));
    drop(hold);
    assert_eq!(slow.to_bytes().unwrap(), numbers(MIB));
}

#[test]
fn more_transfers_than_streams_complete() {
    let bench = bench();
    let queue = current_queue().unwrap();
    bench.driver.slow.store(true, Ordering::SeqCst);
    let usm = Array::from_slice(&numbers(100)).unwrap();
    let sent: Vec<_> = (0..200).map(|_| CudaArray::copied(&usm, &bench.device).unwrap()).collect();
    for cuda in &sent {
        cuda.wait().unwrap();
        assert_eq!(bench.driver.read(cuda.address()), numbers(100));
    }
    queue.wait().unwrap();
}

#[test]
fn strided_memory_arrives_contiguous() {
    let bench = bench();
    let values: Vec<u8> = (0u16..12).flat_map(u16::to_ne_bytes).collect();
    let pointer = bench.driver.foreign(&values);
    let described = Described {
        pointer: pointer + 22,
        shape: &[3, 2],
        strides: Some(&[-4, -2]),
        dtype: DType::U16,
        readonly: true,
        stream: None,
    };
    let cuda = bench.over(&described, Box::new(())).unwrap();
    let queue = current_queue().unwrap();
    let plan = cuda.explain(&queue).unwrap();
    assert_eq!((plan.action.name(), plan.bytes), ("from_cuda", 22));
    let usm = cuda.to_queue(&queue, UsmKind::Shared).unwrap();
    assert!(usm.is_contiguous());
    assert_eq!(usm.to_vec::<u16>().unwrap(), [11, 9, 7, 5, 3, 1]);
}

#[test]
fn empty_arrays_are_imported_and_exported() {
    let bench = bench();
    let queue = current_queue().unwrap();
    let cuda = CudaArray::copied(&Array::zeros::<f32>([0, 3]).unwrap(), &bench.device).unwrap();
    assert_eq!(export(&cuda).unwrap().pointer, 0);
    assert_eq!(cuda.to_queue(&queue, UsmKind::Device).unwrap().shape(), [0, 3]);
    assert_eq!(bench.driver.copies.load(Ordering::SeqCst), 0);
}

#[test]
fn an_address_of_the_upper_half_is_valid() {
    let described = Described {
        pointer: 0xff00_ffff_ffef_0000,
        shape: &[2],
        strides: None,
        dtype: DType::F32,
        readonly: false,
        stream: None,
    };
    assert_eq!(described.layout().unwrap().size(), 2);
}

#[test]
fn an_invalid_description_is_refused_before_any_driver_call() {
    let good = Described {
        pointer: 64,
        shape: &[2],
        strides: None,
        dtype: DType::F32,
        readonly: false,
        stream: None,
    };
    let refused = |described: Described<'_>| described.layout().unwrap_err();
    assert!(matches!(refused(Described { stream: Some(0), ..good }), Error::Interop { .. }));
    let good = Described {
        pointer: 0,
        shape: &[2],
        strides: None,
        dtype: DType::F32,
        readonly: false,
        stream: None,
    };
    assert!(matches!(refused(good), Error::Interop { .. }));
    let wide = [usize::MAX / 2, 4];
    let wide = Described {
        pointer: 64,
        shape: &wide,
        strides: None,
        dtype: DType::F32,
        readonly: false,
        stream: None,
    };
    assert!(matches!(refused(wide), Error::Value { .. }));
    let below = Described {
        pointer: 64,
        shape: &[100],
        strides: Some(&[-1]),
        dtype: DType::F32,
        readonly: false,
        stream: None,
    };
    assert!(matches!(refused(below), Error::Value { .. }));
    let odd = Descriptor {
        pointer: 64,
        readonly: false,
        shape: vec![2],
        strides: Some(vec![6]),
        dtype: DType::F32,
        stream: None,
    };
    assert!(elements(&odd).is_err());
}

#[test]
fn transfers_from_many_threads_are_independent() {
    let bench = bench();
    let queue = current_queue().unwrap();
    std::thread::scope(|scope| {
        for value in 0..6u8 {
            let (bench, queue) = (&bench, &queue);
            scope.spawn(move || {
                for _ in 0..3 {
                    let (cuda, ..) = bench.foreign(&vec![value; MIB + 7], None);
                    let usm = cuda.to_queue(queue, UsmKind::Device).unwrap();
                    let back = CudaArray::copied(&usm, &bench.device).unwrap();
                    back.wait().unwrap();
                    assert_eq!(bench.driver.read(back.address()), vec![value; MIB + 7]);
                }
            });
        }
    });
}

#[test]
fn without_a_driver_every_entry_point_names_what_is_missing() {
    // On a machine with a card this is tested by tests/python/test_cuda.py with a library path of its own.
    if super::device_count().is_ok() {
        return;
    }
    let usm = Array::zeros::<f32>([3]).unwrap();
    let error = CudaArray::from_array(&usm, 0).unwrap_err();
    assert!(matches!(error, Error::RuntimeNotFound { .. }), "{error}");
}
