//! The fuzz targets: each computes the expected result independently of usmq.

mod arrow;
mod choices;
mod dlpack;
#[path = "../../common/dtype_facts.rs"]
mod dtype_facts;
mod format;
mod selector;
mod signature;
mod trace;
mod tree;

use std::time::{Duration, Instant};
use usmq::{Array, DType, UsmKind, current_queue};

/// A target's name, the number of random inputs of a short run, and the check of one input.
pub const TARGETS: [(&str, u32, fn(&[u8])); 6] = [
    ("arrow", 1_000, arrow::check),
    ("dlpack", 1_000, dlpack::check),
    ("format", 100_000, format::check),
    ("selector", 100_000, selector::check),
    ("signature", 20_000, signature::check),
    ("trace", 100, trace::check),
];

/// Tries one input on the target of this name.
pub fn check(name: &str, input: &[u8]) {
    let (_, _, check) = TARGETS.iter().find(|target| target.0 == name).unwrap();
    check(input);
}

/// Returns whether a condition becomes true while other calls of usmq run the due releases.
fn eventually(holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        let queue = current_queue().unwrap();
        queue.wait().unwrap();
        drop(Array::uninit([1], DType::U8, UsmKind::Host, &queue).unwrap());
        std::thread::yield_now();
    }
    true
}
