//! An independent definition of the Arrow structs, and a producer that counts its releases.

#![allow(dead_code, reason = "every test binary uses a part of this")]

use parking_lot::{Mutex, MutexGuard};
use std::ffi::c_void;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use usmq::interop::arrow::{
    ArrayStruct, ArrowArray, ArrowDeviceArray, Column, FfiStruct, Field, ForeignStruct,
};
use usmq::memory::stats;
use usmq::{Array, DType, Result, UsmKind, current_queue};

pub const CPU: i32 = 1;
pub const ONEAPI: i32 = 14;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawArray {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut RawArray,
    pub dictionary: *mut RawArray,
    pub release: Option<unsafe extern "C" fn(*mut RawArray)>,
    pub private_data: *mut c_void,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawDeviceArray {
    pub array: RawArray,
    pub device_id: i64,
    pub device_type: i32,
    pub sync_event: *mut c_void,
    pub reserved: [i64; 3],
}

/// The C view of a struct of usmq. The copy owns nothing and is valid while the struct lives.
pub fn raw_device_array(array: &ArrowDeviceArray) -> RawDeviceArray {
    let array = ptr::from_ref(array).cast::<RawDeviceArray>();
    // SAFETY: both are the struct of the interface, and `array` comes from a reference.
    unsafe { *array }
}

/// As [`raw_device_array`], for host arrays.
pub fn raw_array(array: &ArrowArray) -> RawArray {
    let array = ptr::from_ref(array).cast::<RawArray>();
    // SAFETY: as in `raw_device_array`.
    unsafe { *array }
}

impl RawArray {
    pub fn buffers(&self) -> Vec<usize> {
        if self.buffers.is_null() {
            return Vec::new();
        }
        // SAFETY: the producer keeps this number of pointers while its struct lives.
        let all = unsafe { slice::from_raw_parts(self.buffers, self.n_buffers as usize) };
        all.iter().map(|buffer| *buffer as usize).collect()
    }

    pub fn child_pointers(&self) -> Vec<*mut RawArray> {
        if self.children.is_null() {
            return Vec::new();
        }
        // SAFETY: as in `buffers`.
        unsafe { slice::from_raw_parts(self.children, self.n_children as usize) }.to_vec()
    }

    /// The children, then the dictionary.
    pub fn nested(&self) -> Vec<RawArray> {
        let dictionary = (!self.dictionary.is_null()).then_some(self.dictionary);
        // SAFETY: as in `buffers`.
        self.child_pointers().into_iter().chain(dictionary).map(|child| unsafe { *child }).collect()
    }

    /// Addresses of all buffers, including those of nested arrays.
    pub fn addresses(&self) -> Vec<usize> {
        let nested = self.nested();
        self.buffers().into_iter().chain(nested.iter().flat_map(RawArray::addresses)).collect()
    }
}

/// The memory that a producer's struct keeps until its release.
struct Watched {
    _inner: Box<dyn Send>,
    releases: Arc<AtomicUsize>,
}

/// How often a struct was released.
#[derive(Clone)]
pub struct Releases(Arc<AtomicUsize>);

impl Releases {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

unsafe extern "C" fn release(array: *mut RawArray) {
    // SAFETY: the consumer passes a struct of `count_releases` that is not released.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: created from a box in `watch`, and taken once: `release` is cleared.
    let watched = unsafe { Box::from_raw(array.private_data.cast::<Watched>()) };
    watched.releases.fetch_add(1, Ordering::SeqCst);
}

fn watch(raw: &mut RawArray, inner: Box<dyn Send>) -> Releases {
    let releases = Releases(Arc::new(AtomicUsize::new(0)));
    raw.release = Some(release);
    raw.private_data =
        Box::into_raw(Box::new(Watched { _inner: inner, releases: releases.0.clone() })).cast();
    releases
}

/// The array as a foreign struct, whose releases are counted. A test may invalidate its fields.
pub fn count_releases(array: ArrowDeviceArray) -> (RawDeviceArray, Releases) {
    let mut raw = raw_device_array(&array);
    let releases = watch(&mut raw.array, Box::new(array));
    (raw, releases)
}

/// As [`count_releases`], for host arrays.
pub fn count_host_releases(array: ArrowArray) -> (RawArray, Releases) {
    let mut raw = raw_array(&array);
    let releases = watch(&mut raw, Box::new(array));
    (raw, releases)
}

/// Passes a struct to usmq as C does: by its bytes, with its field. Once per struct.
pub fn foreign_device_array(field: &Arc<Field>, mut raw: RawDeviceArray) -> ForeignStruct<ArrowDeviceArray> {
    take_array(field, ptr::from_mut(&mut raw).cast())
}

/// As [`foreign_device_array`], for host arrays.
pub fn foreign_array(field: &Arc<Field>, mut raw: RawArray) -> ForeignStruct<ArrowArray> {
    take_array(field, ptr::from_mut(&mut raw).cast())
}

/// Moves an array out of its source, which is released from then on.
pub fn take_array<T: ArrayStruct>(field: &Arc<Field>, source: *mut T) -> ForeignStruct<T> {
    // SAFETY: as for `take`, with a field that describes the struct, or with a wrong one that the import must detect.
    unsafe { ForeignStruct::take_array(field, source) }
}

/// Moves a schema or stream out of its source, which is released from then on.
pub fn take<T: FfiStruct<About = ()>>(source: *mut T) -> ForeignStruct<T> {
    // SAFETY: the tests pass structs of this file, of usmq or of arrow-rs, valid or with a wrong field that the import
    // must detect; no other thread uses them.
    unsafe { ForeignStruct::take(source) }
}

/// Imports an export as a column, as another library would.
pub fn reimport(array: ArrowDeviceArray) -> Result<Column> {
    Column::import_device(array.into(), Default::default())
}

/// Number of allocations of all devices and kinds.
pub fn live() -> Result<u64> {
    Ok(stats(None)?.iter().map(|(_, stats)| stats.live).sum())
}

/// Returns whether a condition becomes true while other calls of usmq run the due releases.
pub fn eventually(mut holds: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !holds()? {
        if Instant::now() > deadline {
            return Ok(false);
        }
        let queue = current_queue()?;
        queue.wait()?;
        drop(Array::uninit([1], DType::U8, UsmKind::Device, &queue)?);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

/// Allocations are counted per process, so tests run one at a time; each must leak none.
pub struct LeakCheck {
    before: u64,
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl LeakCheck {
    pub fn start() -> Result<Self> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let guard = ONE_AT_A_TIME.lock();
        // The release thread may still hold memory of the test before. `trim` waits for it.
        usmq::memory::trim(None)?;
        Ok(Self { before: live()?, _one_at_a_time: guard })
    }

    /// Call after everything of the test is dropped.
    pub fn end(self) -> Result<()> {
        let settled = eventually(|| Ok(live()? == self.before))?;
        assert!(settled, "{} live allocations, {} at the start of the test", live()?, self.before);
        Ok(())
    }
}

/// Runs a test that must leak no allocation.
pub fn without_leaks(test: impl FnOnce() -> Result<()>) -> Result<()> {
    let clean = LeakCheck::start()?;
    test()?;
    clean.end()
}
