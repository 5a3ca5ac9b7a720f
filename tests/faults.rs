//! Runs every public operation and fails each of its calls into the SYCL runtime in turn.
//!
//! Needs a build with `USMQ_FAULTS=1` in a separate target folder: `tests/run test-faults`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

#[cfg(usmq_faults)]
#[path = "faults/capture.rs"]
mod capture;
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
fn every_operation_survives_every_fault() -> usmq::Result<()> {
    let home = common::default_queue()?;
    let mut queues = common::four_queues(home.device(), None)?.to_vec();
    queues.extend(common::queues_elsewhere(&home)?);
    let mut sweep = harness::Sweep::new(queues);
    memory::all(&mut sweep, &home)?;
    device::all(&mut sweep, &home);
    interop::all(&mut sweep, &home)?;
    capture::all(&mut sweep, &home)?;
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
fn the_first_calls_of_a_process_survive_every_fault() -> usmq::Result<()> {
    cold::all()
}

#[cfg(usmq_faults)]
#[test]
fn work_after_a_list_that_fails_in_the_middle_is_ordered() -> usmq::Result<()> {
    capture::a_list_that_fails_in_the_middle(&common::default_queue()?)
}

#[cfg(usmq_faults)]
#[test]
fn a_graph_lives_as_long_as_the_commands_of_a_failed_replay() -> usmq::Result<()> {
    capture::a_graph_lives_as_long_as_the_commands_of_a_failed_replay(&common::default_queue()?)
}

/// Each import copies the foreign handle, and usmq keeps a busy queue, so handles could accumulate.
#[cfg(usmq_faults)]
#[test]
fn handles_to_a_busy_queue_do_not_accumulate() -> usmq::Result<()> {
    let [queue, ..] = common::four_queues(common::default_queue()?.device(), None)?;
    let x = common::states(1000, &queue)?;
    let work = common::Work::new(&queue)?;
    let handles = || usmq::faults::live().into_iter().find(|(name, _)| name.ends_with("Queue")).unwrap().1;
    let before = handles();
    let event = work.advance(&queue, &x, 50_000_000)?;
    let address = queue.to_raw()?;
    for _ in 0..100 {
        // SAFETY: a second handle to the queue, freed below.
        drop(unsafe { usmq::Queue::from_raw(address) }?);
    }
    // SAFETY: it came from `to_raw` and is freed once.
    unsafe { usmq::Queue::free_raw(address) };
    let begun = std::time::Instant::now();
    while handles() > before + 1 && begun.elapsed().as_secs() < 5 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!event.done()?, "the test needs work in flight here");
    assert!(handles() <= before + 1, "{} handles, {before} before", handles());
    Ok(())
}

/// This test has the code of a regular build, which must not contain the layer.
#[cfg(not(usmq_faults))]
#[test]
fn a_regular_build_contains_no_fault_injection() {
    let name = ["usmq", "fault", "arm"].join("_");
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(!program.windows(name.len()).any(|bytes| bytes == name.as_bytes()), "{name} is in a usual build");
    // The search finds names that a build contains.
    assert!(usmq::devices().is_ok());
    let known = ["usmq", "cxxbridge1"].join("$");
    assert!(
        program.windows(known.len()).any(|bytes| bytes == known.as_bytes()),
        "does the search still work?"
    );
}
