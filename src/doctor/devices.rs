//! Checks the visible devices, platforms that fail, and a runtime that hangs.

use super::installation::reinstall;
use super::probe::{Asker, Probe, Seen, Shown, ended};
use super::report::{Finding, State, Topic};
use super::system::System;
use crate::error::{size, spelled};

const TOPIC: Topic = Topic::Devices;

/// `others`: the findings so far, which may contain the reason.
pub(super) fn findings(system: &System, asker: &Asker, probe: &Probe, others: &[Finding]) -> Vec<Finding> {
    let mut found = Vec::new();
    let explained = others.iter().any(|finding| finding.state == State::Problem);
    match probe {
        Probe::Seen(seen) => {
            found.extend(seen.devices.iter().map(|device| describe(system, device, seen, explained)));
            found.extend(seen.broken.iter().map(|(platform, reason)| {
                Finding::problem(
                    TOPIC,
                    format!("the platform {platform} cannot be listed: {reason}"),
                    "update or remove its driver; the devices of other platforms work without it",
                )
            }));
            found.extend(nothing(system, seen, explained));
        }
        Probe::Died { how, said } => found.push(Finding::problem(
            TOPIC,
            format!("asking for the devices {}", ended(how, said)),
            if explained { ABOVE } else { TRACE },
        )),
        Probe::TooLong(limit) => found.push(Finding::problem(
            TOPIC,
            format!("the runtime does not list its devices within {} s", limit.as_secs_f32()),
            if explained { ABOVE } else { TRACE },
        )),
    }
    if asker.is_here() {
        found.push(Finding::note(
            TOPIC,
            format!(
                "the SYCL runtime has started in this process, so drivers and kernels were not tested here; \
                 {} tests them",
                spelled("python -m usmq doctor", "usmq::doctor() before the first use of a device")
            ),
        ));
    }
    found
}

/// The reason and its fix are earlier in the report.
const ABOVE: &str = "fix what is shown above";

const TRACE: &str = spelled(
    "SYCL_UR_TRACE=-1 OCL_ICD_ENABLE_TRACE=1 python -m usmq list    # the last lines name the driver",
    "start the program with SYCL_UR_TRACE=-1 OCL_ICD_ENABLE_TRACE=1; the last lines name the driver",
);

fn describe(system: &System, device: &Shown, seen: &Seen, explained: bool) -> Finding {
    let Shown { filter, name, driver, memory, usm } = device;
    let text = format!("{filter:<18} {name}, {}, driver {driver}", size(*memory));
    if !usm.is_empty() {
        return Finding::ok(TOPIC, format!("{text}, USM {usm}"));
    }
    let what = format!("{text}\nit has no USM, so usmq cannot allocate arrays on it");
    if seen.devices.iter().any(|other| !other.usm.is_empty()) {
        return Finding::note(TOPIC, what).fix("use another device");
    }
    Finding::problem(
        TOPIC,
        what,
        if explained { ABOVE.to_owned() } else { reinstall(system, "intel-opencl-rt") },
    )
}

fn nothing(system: &System, seen: &Seen, explained: bool) -> Option<Finding> {
    if !seen.devices.is_empty() {
        return None;
    }
    let what = seen.error.clone().unwrap_or_else(|| "no device is visible".to_owned());
    Some(Finding::problem(
        TOPIC,
        what,
        if explained { ABOVE.to_owned() } else { reinstall(system, "intel-opencl-rt") },
    ))
}

#[cfg(test)]
mod tests {
    use super::super::system::fake::FakeSystem;
    use super::*;
    use std::time::Duration;

    fn look(probe: &Probe, others: &[Finding]) -> Vec<Finding> {
        findings(&FakeSystem::new(), &Asker::new(Duration::from_secs(1)), probe, others)
    }

    fn device(usm: &str) -> Shown {
        Shown {
            filter: "opencl:cpu:0".to_owned(),
            name: "a CPU".to_owned(),
            driver: "1.2".to_owned(),
            memory: 1 << 30,
            usm: usm.to_owned(),
        }
    }

    #[test]
    fn devices_are_listed_with_their_memory_and_a_note_if_they_lack_usm() {
        let seen = Seen { devices: vec![device("device shared"), device("")], ..Seen::default() };
        let found = look(&Probe::Seen(seen), &[]);
        assert_eq!(found[0].what, "opencl:cpu:0       a CPU, 1.0 GiB, driver 1.2, USM device shared");
        assert_eq!((found[1].state, found.len()), (State::Note, 2));
        let alone = look(&Probe::Seen(Seen { devices: vec![device("")], ..Seen::default() }), &[]);
        assert_eq!(alone[0].state, State::Problem, "nothing can be computed here");
    }

    #[test]
    fn a_failing_platform_is_a_problem_even_if_other_devices_work() {
        let broken = vec![("Old one".to_owned(), "it fails".to_owned())];
        let found =
            look(&Probe::Seen(Seen { devices: vec![device("host")], broken, ..Seen::default() }), &[]);
        assert_eq!(
            found.iter().map(|finding| finding.state).collect::<Vec<_>>(),
            [State::Ok, State::Problem]
        );
        assert!(found[1].what.contains("Old one") && found[1].what.contains("it fails"));
    }

    #[test]
    fn without_a_device_the_fix_depends_on_the_known_cause() {
        let empty = || Probe::Seen(Seen::default());
        assert!(look(&empty(), &[])[0].fix.as_ref().unwrap().contains("pip install"));
        let reason = [Finding::problem(Topic::Variables, "x", "y")];
        assert!(look(&empty(), &reason)[0].fix.as_ref().unwrap().contains("above"));
    }

    #[test]
    fn a_crashing_or_hanging_runtime_is_reported_with_signal_or_timeout() {
        let died = Probe::Died { how: "signal SIGSEGV".to_owned(), said: "oh".to_owned() };
        let found = look(&died, &[]);
        assert!(
            found[0].what.contains("signal SIGSEGV): oh") && found[0].state == State::Problem,
            "{found:?}"
        );
        let found = look(&Probe::TooLong(Duration::from_secs(60)), &[]);
        assert!(found[0].what.contains("within 60 s"), "{found:?}");
    }
}
