//! Every public operation, with each call that it makes of the SYCL runtime failing in turn.
//!
//! For a build with `USMQ_FAULTS=1`, in a target folder of its own: `make test-faults`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

#[cfg(usmq_faults)]
#[path = "faults/cold.rs"]
mod cold;
#[cfg(usmq_faults)]
mod common;
#[cfg(usmq_faults)]
#[path = "faults/device.rs"]
mod device;
#[cfg(usmq_faults)]
#[path = "faults/harness.rs"]
mod harness;
#[cfg(usmq_faults)]
#[path = "faults/interop.rs"]
mod interop;
#[cfg(usmq_faults)]
#[path = "faults/memory.rs"]
mod memory;
#[cfg(usmq_faults)]
#[path = "common/spirv.rs"]
mod spirv;

#[cfg(usmq_faults)]
#[test]
fn every_operation_bears_every_fault() -> usmq::Result<()> {
    let home = common::default_queue()?;
    let mut queues = common::four_queues(home.device(), None)?.to_vec();
    queues.extend(common::queues_elsewhere(&home)?);
    let mut sweep = harness::Sweep::new(queues);
    memory::all(&mut sweep, &home)?;
    device::all(&mut sweep, &home);
    interop::all(&mut sweep, &home)?;
    let harness::Sum { operations, calls, faults, errors, borne, problems } = sweep.sum;
    println!(
        "==> {operations} operations with {calls} calls, {faults} faults: {errors} errors, {borne} borne, {} problems",
        problems.len()
    );
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

#[cfg(usmq_faults)]
#[test]
fn the_first_calls_of_a_process_bear_every_fault() -> usmq::Result<()> {
    cold::all()
}

/// Of what a usual build is made, this test is: the layer must not be in it.
#[cfg(not(usmq_faults))]
#[test]
fn a_usual_build_has_no_faults() {
    let name = ["usmq", "fault", "arm"].join("_");
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(!program.windows(name.len()).any(|bytes| bytes == name.as_bytes()), "{name} is in a usual build");
    // What is in one is found so.
    assert!(usmq::devices().is_ok());
    let known = ["usmq", "cxxbridge1"].join("$");
    assert!(
        program.windows(known.len()).any(|bytes| bytes == known.as_bytes()),
        "does the search still work?"
    );
}
