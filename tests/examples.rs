//! The programs of examples/ run. Their assertions check the results.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

#[path = "../examples/errors.rs"]
mod errors;
#[path = "../examples/futures.rs"]
mod futures_example;
#[path = "../examples/interop.rs"]
mod interop;
#[path = "../examples/kernels.rs"]
mod kernels;
#[path = "../examples/memory.rs"]
mod memory;
#[path = "../examples/rayon.rs"]
mod rayon_example;
#[path = "../examples/two_gpus.rs"]
mod two_gpus;

#[test]
fn errors_are_handled_by_variant() {
    errors::main().unwrap();
}

#[test]
fn futures_run_on_two_queues() {
    futures_example::main().unwrap();
}

#[test]
fn arrays_are_exchanged_with_other_libraries() {
    interop::main().unwrap();
}

#[test]
fn kernels_compute() {
    kernels::main().unwrap();
}

#[test]
fn memory_is_viewed_and_limited() {
    memory::main().unwrap();
}

#[test]
fn threads_of_rayon_use_queues() {
    rayon_example::main().unwrap();
}

/// In its own process, with two emulated GPUs.
#[test]
fn two_gpus_compute_and_copy() {
    const IN_CHILD: &str = "USMQ_TEST_OF_TWO_GPUS";
    if std::env::var_os(IN_CHILD).is_some() {
        return two_gpus::main().unwrap();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "two_gpus_compute_and_copy", "--nocapture"]);
    child.env(IN_CHILD, "1").env("USMQ_EMULATE_GPUS", "2").env_remove("OCL_ICD_FILENAMES");
    let done = child.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn every_example_is_run_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let here = include_str!("examples.rs");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".rs") {
            seen += 1;
            assert!(here.contains(&format!("#[path = \"../examples/{name}\"]")), "{name} is not run");
        }
    }
    assert_eq!(seen, 7);
}
