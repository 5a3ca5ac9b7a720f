//! An independent definition of the structs of Arrow's C interfaces, from `arrow/c/abi.h`, and
//! columns created through them.

#![allow(dead_code, reason = "every test binary uses a part of this")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use usmq::interop::arrow::{ArrowArray, Column, Field, ForeignStruct, ImportOptions};
use usmq::{Result, UsmKind};

#[repr(C)]
pub struct CSchema {
    pub format: *const c_char,
    pub name: *const c_char,
    pub metadata: *const c_char,
    pub flags: i64,
    pub n_children: i64,
    pub children: *mut *mut CSchema,
    pub dictionary: *mut CSchema,
    pub release: Option<unsafe extern "C" fn(*mut CSchema)>,
    pub private_data: *mut c_void,
}

#[repr(C)]
pub struct CArray {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut CArray,
    pub dictionary: *mut CArray,
    pub release: Option<unsafe extern "C" fn(*mut CArray)>,
    pub private_data: *mut c_void,
}

#[repr(C)]
pub struct CDeviceArray {
    pub array: CArray,
    pub device_id: i64,
    pub device_type: i32,
    pub sync_event: *mut c_void,
    pub reserved: [i64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CTask {
    pub extract_data: Option<unsafe extern "C" fn(*mut CTask, *mut CDeviceArray) -> c_int>,
    pub private_data: *mut c_void,
}

#[repr(C)]
pub struct CProducer {
    pub device_type: i32,
    pub request: Option<unsafe extern "C" fn(*mut CProducer, i64)>,
    pub cancel: Option<unsafe extern "C" fn(*mut CProducer)>,
    pub additional_metadata: *const c_char,
    pub private_data: *mut c_void,
}

#[repr(C)]
pub struct CHandler {
    pub on_schema: Option<unsafe extern "C" fn(*mut CHandler, *mut CSchema) -> c_int>,
    pub on_next_task: Option<unsafe extern "C" fn(*mut CHandler, *mut CTask, *const c_char) -> c_int>,
    pub on_error: Option<unsafe extern "C" fn(*mut CHandler, c_int, *const c_char, *const c_char)>,
    pub release: Option<unsafe extern "C" fn(*mut CHandler)>,
    pub producer: *mut CProducer,
    pub private_data: *mut c_void,
}

const _: () = {
    assert!(size_of::<CSchema>() == 72 && size_of::<CArray>() == 80 && size_of::<CDeviceArray>() == 128);
    assert!(size_of::<CTask>() == 16 && size_of::<CProducer>() == 40 && size_of::<CHandler>() == 48);
};

// SAFETY: a task may be extracted on any thread.
unsafe impl Send for CTask {}

/// Host arrays made here and not yet released.
pub static HOST_ARRAYS: AtomicI64 = AtomicI64::new(0);

struct Numbers {
    values: Box<[i64]>,
    buffers: [*const c_void; 2],
}

/// An int64 array in host memory that counts itself until its release.
pub fn host_array(values: &[i64]) -> CArray {
    let mut owned = Box::new(Numbers { values: values.into(), buffers: [ptr::null(); 2] });
    owned.buffers[1] = owned.values.as_ptr().cast();
    HOST_ARRAYS.fetch_add(1, Ordering::Relaxed);
    CArray {
        length: values.len() as i64,
        null_count: 0,
        offset: 0,
        n_buffers: 2,
        n_children: 0,
        buffers: owned.buffers.as_mut_ptr(),
        children: ptr::null_mut(),
        dictionary: ptr::null_mut(),
        release: Some(release_numbers),
        private_data: Box::into_raw(owned).cast(),
    }
}

unsafe extern "C" fn release_numbers(array: *mut CArray) {
    // SAFETY: `host_array` made it and its user releases it once.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(array.private_data.cast::<Numbers>()) });
    HOST_ARRAYS.fetch_sub(1, Ordering::Relaxed);
}

/// The same as a device array of the host.
pub fn host_device_array(values: &[i64]) -> CDeviceArray {
    let (device_id, device_type) = (-1, 1);
    // Junk, as other producers leave it there.
    let reserved = [0xabab; 3];
    CDeviceArray { array: host_array(values), device_id, device_type, sync_event: ptr::null_mut(), reserved }
}

pub fn empty_array() -> CDeviceArray {
    // SAFETY: null pointers, zeros and no callbacks make up a released struct.
    unsafe { std::mem::zeroed() }
}

pub fn release(array: &mut CDeviceArray) {
    if let Some(release) = array.array.release {
        // SAFETY: the array is not released yet.
        unsafe { release(&mut array.array) };
    }
}

/// `extract_data` of a task.
pub fn extract(task: &mut CTask, out: *mut CDeviceArray) -> c_int {
    // SAFETY: the task is as its producer made it.
    task.extract_data.map_or(-1, |extract| unsafe { extract(task, out) })
}

/// The array of a task; a released one if it has none.
pub fn extract_into(task: &mut CTask) -> CDeviceArray {
    let mut array = empty_array();
    if extract(task, &mut array) == 0 { array } else { empty_array() }
}

/// The values of an int64 array that the host can read.
pub fn host_values(array: &CDeviceArray) -> Vec<i64> {
    assert_eq!((array.device_type, array.array.n_buffers, array.reserved), (1, 2, [0; 3]));
    let (length, offset) = (array.array.length as usize, array.array.offset as usize);
    if length == 0 {
        return Vec::new();
    }
    // SAFETY: the array has two buffers.
    let buffers = unsafe { std::slice::from_raw_parts(array.array.buffers, 2) };
    // SAFETY: the second one has that many values.
    let values = unsafe { std::slice::from_raw_parts(buffers[1].cast::<i64>(), offset + length) };
    values[offset..].to_vec()
}

pub fn number_field() -> Result<Arc<Field>> {
    Field::new("n", "l").map(Arc::new)
}

/// A column of int64 in USM.
pub fn numbers(values: &[i64], kind: UsmKind) -> Result<Column> {
    let mut array = host_array(values);
    // SAFETY: a valid struct of the interface, used only here.
    let array = unsafe { ForeignStruct::take_array(&number_field()?, (&raw mut array).cast::<ArrowArray>()) };
    Column::import(array, ImportOptions { queue: None, kind: Some(kind), columns: None })
}

/// The live allocations before a test, compared with those after it.
pub struct Balance {
    memory: u64,
    host_arrays: i64,
}

impl Balance {
    pub fn new() -> Result<Self> {
        // A queue and the pools are created once and kept.
        numbers(&[1], UsmKind::Host)?.wait()?;
        // Released memory may still be queued for release.
        usmq::memory::trim(None)?;
        Ok(Self { memory: live_memory()?, host_arrays: HOST_ARRAYS.load(Ordering::Relaxed) })
    }

    /// Memory, host arrays and threads of streams are as before, now or soon.
    pub fn check(self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let host_arrays = HOST_ARRAYS.load(Ordering::Relaxed);
            let (memory, threads) = (live_memory()?, stream_threads());
            if (memory, host_arrays, threads) == (self.memory, self.host_arrays, 0) {
                return Ok(());
            }
            let before = (self.memory, self.host_arrays);
            assert!(
                Instant::now() < end,
                "{memory} allocations and {host_arrays} host arrays, {before:?} before; {threads} threads"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn live_memory() -> Result<u64> {
    Ok(usmq::memory::stats(None)?.iter().map(|(_, stats)| stats.live).sum())
}

fn stream_threads() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "usmq-arrow").count()
}
