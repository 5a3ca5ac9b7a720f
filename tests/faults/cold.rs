//! Faults in the first calls of a process, one process per fault.

use crate::common::{default_queue, two_sub_devices};
use crate::harness::right_class;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use usmq::faults::{Fault, arm, disarm};
use usmq::{Array, Partition, Result, platform_problems, with_queue};

const CHILD: &str = "USMQ_FAULTS_COLD";

/// The test that the child runs.
const NAME: &str = "the_first_calls_of_a_process_survive_every_fault";

/// The first array of a process, or (`parts`) of a sub-device: sub-devices are created once.
fn first(parts: bool) -> Result<Vec<u32>> {
    if !parts {
        return Array::from_slice(&[1u32, 2, 3])?.to_vec();
    }
    let part = default_queue()?.device().sub_devices(&Partition::Equally(1))?.remove(0);
    with_queue(part, || Array::from_slice(&[1u32, 2, 3])?.to_vec())
}

/// Runs once with a failure of the call that the parent chose, then again without a fault.
fn child(asked: &str) -> Result<()> {
    let mut parts = asked.split(' ');
    let at = parts.next().and_then(|at| at.parse().ok()).unwrap();
    let fault = [Fault::Sycl, Fault::NoMemory, Fault::Other][parts.next().unwrap().parse::<usize>().unwrap()];
    let lasting = parts.next() == Some("true");
    let parts = parts.next() == Some("parts");
    if parts {
        default_queue()?;
    }
    arm(at, fault, lasting, false);
    let result = first(parts);
    let (thrown, place) = disarm();
    let mut outcome = match (&result, thrown) {
        (Ok(read), 0) if *read == [1, 2, 3] => "passed".to_owned(),
        (Ok(read), _) if *read == [1, 2, 3] => "borne".to_owned(),
        (Err(error), 1..) => match right_class(error, fault) {
            Ok(()) => "error".to_owned(),
            Err(wrong) => format!("wrong: {wrong} in {place}"),
        },
        other => format!("wrong: {other:?} in {place}"),
    };
    match first(parts) {
        Ok(read) if read == [1, 2, 3] => {}
        other => outcome = format!("wrong: then {other:?}, after {place}"),
    }
    for problem in platform_problems()? {
        outcome += &format!("; {}: {}", problem.platform, problem.error);
    }
    println!("<{outcome}; {} devices>", usmq::devices()?.len());
    Ok(())
}

fn run(asked: &str) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(CHILD, asked)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            return format!("hangs with {asked}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.split_once('<').and_then(|(_, rest)| rest.split_once('>')) {
        Some((outcome, _)) if output.status.success() => outcome.to_owned(),
        _ => format!("ends with {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr)),
    }
}

pub fn all() -> Result<()> {
    if let Ok(asked) = std::env::var(CHILD) {
        return child(&asked);
    }
    let divides = two_sub_devices(default_queue()?.device())?.is_some();
    for what in if divides { &["array", "parts"][..] } else { &["array"] } {
        every(what);
    }
    Ok(())
}

fn every(what: &str) {
    let (mut faults, mut errors, mut borne, mut wrong) = (0, 0, 0, Vec::new());
    for fault in 0..3 {
        for lasting in [false, true] {
            for at in 1..500 {
                let asked = format!("{at} {fault} {lasting} {what}");
                let outcome = run(&asked);
                match outcome.split(';').next() {
                    Some("passed") => break,
                    Some("error") => errors += 1,
                    Some("borne") => borne += 1,
                    _ => wrong.push(format!("{asked}: {outcome}")),
                }
                faults += 1;
            }
        }
    }
    println!(
        "==> first calls ({what}): {faults} faults: {errors} errors, {borne} borne, {} problems",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
