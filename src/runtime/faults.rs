//! Fault injection and a count of the shim's objects, in builds with `USMQ_FAULTS` only: for tests/faults.rs.

use cxx::UniquePtr;
use cxx::memory::UniquePtrTarget;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};

// `cpp/faults.cc`. Not part of the bridge in `ffi.rs`, since normal builds have neither.
unsafe extern "C" {
    safe fn usmq_fault_arm(at: u64, what: c_int, lasting: bool, others: bool);
    safe fn usmq_fault_disarm() -> u64;
    safe fn usmq_fault_place() -> *const c_char;
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `sycl::exception` with `errc::runtime`.
    Sycl = 0,
    /// `std::bad_alloc`.
    NoMemory = 1,
    /// An exception that is not a `std::exception`.
    Other = 2,
}

/// Makes the `at`-th call of the shim from now on fail, counted from 1 among the calls of this thread, or of
/// all other threads (`others`); once, or (`lasting`) with every call after it.
pub fn arm(at: u64, fault: Fault, lasting: bool, others: bool) {
    usmq_fault_arm(at, fault as c_int, lasting, others);
}

/// Ends [`arm`]; returns the number of failed calls and the first one.
pub fn disarm() -> (u64, String) {
    let thrown = usmq_fault_disarm();
    // SAFETY: a string that lives as long as the process, and that changes only while armed.
    let place = unsafe { CStr::from_ptr(usmq_fault_place()) };
    (thrown, place.to_string_lossy().into_owned())
}

static LIVE: Mutex<BTreeMap<&'static str, i64>> = Mutex::new(BTreeMap::new());

/// Live objects of the shim by type.
pub fn live() -> BTreeMap<&'static str, i64> {
    LIVE.lock().clone()
}

pub(super) fn count<T: UniquePtrTarget>(object: &UniquePtr<T>, step: i64) {
    if !object.is_null() {
        *LIVE.lock().entry(std::any::type_name::<T>()).or_default() += step;
    }
}

/// [`arm`] for Python, through `ctypes`. Numbers are those of [`Fault`].
#[unsafe(no_mangle)]
pub extern "C" fn usmq_faults_arm(at: u64, fault: c_int, lasting: bool, others: bool) {
    usmq_fault_arm(at, fault, lasting, others);
}

/// [`disarm`] for Python: how many calls failed.
#[unsafe(no_mangle)]
pub extern "C" fn usmq_faults_disarm() -> u64 {
    usmq_fault_disarm()
}

/// The sum of [`live`] for Python.
#[unsafe(no_mangle)]
pub extern "C" fn usmq_faults_live() -> i64 {
    LIVE.lock().values().sum()
}
