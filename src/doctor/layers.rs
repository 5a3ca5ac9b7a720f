//! Checks usmq's OpenCL layer: whether it makes the queues of the CPU driver in-order, and whether requested emulated GPUs are visible.

use super::probe::Probe;
use super::report::{Finding, Topic, counted};
use super::system::{System, quoted};
use crate::runtime::emulator::{Fault, GPUS, NAME, OTHERS};
use crate::runtime::opencl_layers::{LIBRARY_VARIABLE, WAITS_VARIABLE};

const TOPIC: Topic = Topic::Settings;

/// The variables that this file reports.
pub(super) fn is_own(variable: &str) -> bool {
    [GPUS, LIBRARY_VARIABLE, WAITS_VARIABLE].contains(&variable) || OTHERS.contains(&variable)
}

/// The reason why usmq refuses all devices: the requested emulated GPUs are not available.
pub(super) fn fault(system: &System) -> Option<Finding> {
    Some(match system.emulation.as_ref()? {
        Fault::Setting(text) => {
            let name = text.split('=').next().unwrap_or(GPUS);
            Finding::problem(TOPIC, text, format!("unset {name}    # or give it such a value"))
        }
        Fault::NoLibrary(text) if system.variable(LIBRARY_VARIABLE).is_some() => {
            Finding::problem(TOPIC, text, format!("unset {LIBRARY_VARIABLE}"))
        }
        Fault::NoLibrary(text) => {
            Finding::problem(TOPIC, text, format!("unset {GPUS}    # or install usmq again"))
        }
        Fault::TooLate { text, layers } => {
            let gpus = quoted(system.variable(GPUS).unwrap_or_default());
            let layers = quoted(&layers.display().to_string());
            Finding::problem(TOPIC, text, format!("export {GPUS}={gpus} OPENCL_LAYERS={layers}"))
        }
    })
}

pub(super) fn findings(system: &System, probe: &Probe) -> Vec<Finding> {
    let mut found = waits(system, probe);
    if let Some(seen) = probe.seen() {
        found.extend(seen.layer_problems.iter().map(|(problem, fix)| Finding::problem(TOPIC, problem, fix)));
    }
    found.extend(emulated(system, probe));
    found
}

fn waits(system: &System, probe: &Probe) -> Vec<Finding> {
    if let Some(value) = system.variable(WAITS_VARIABLE) {
        let effect = if value == "0" {
            "waits of several threads, also of other libraries, can lock up the OpenCL driver for CPUs"
        } else {
            "no effect; only 0 has one"
        };
        return vec![Finding::note(TOPIC, format!("{WAITS_VARIABLE}={value}: {effect}"))];
    }
    let text =
        "waits of several threads cannot lock up the OpenCL driver for CPUs: all its queues are in-order";
    let in_order = probe.seen().is_some_and(|seen| seen.has_in_order_queues);
    in_order.then(|| Finding::ok(TOPIC, text)).into_iter().collect()
}

fn emulated(system: &System, probe: &Probe) -> Vec<Finding> {
    let others = OTHERS.iter().filter_map(|name| Some((name, system.variable(name)?)));
    let Some(gpus) = system.variable(GPUS).filter(|value| !value.is_empty()) else {
        return others
            .map(|(name, value)| {
                Finding::note(TOPIC, format!("{name}={value} has no effect without {GPUS}"))
                    .fix(format!("unset {name}    # or set {GPUS}, too"))
            })
            .collect();
    };
    let mut found = Vec::new();
    if let Some(seen) = probe.seen() {
        let visible = seen.devices.iter().filter(|device| device.name.starts_with(NAME)).count();
        if visible > 0 {
            let text = format!(
                "{} ({GPUS}={gpus}): parts of the CPU device, not real hardware",
                counted(visible, "emulated GPU")
            );
            found.push(Finding::ok(TOPIC, text));
        } else if seen.layer_problems.is_empty() {
            // The query failed, or it ran before the variable was set.
            let text = format!("{GPUS}={gpus}, but no emulated GPU is visible");
            found.push(Finding::problem(TOPIC, text, format!("unset {GPUS}")));
        }
    }
    found.extend(others.map(|(name, value)| Finding::ok(TOPIC, format!("{name}={value}"))));
    found
}

#[cfg(test)]
mod tests {
    use super::super::probe::{Seen, Shown};
    use super::super::report::State;
    use super::super::system::fake::FakeSystem;
    use super::*;

    fn seen(names: &[&str]) -> Probe {
        let devices = names.iter().map(|name| Shown {
            filter: "opencl:gpu:0".to_owned(),
            name: (*name).to_owned(),
            driver: "1".to_owned(),
            memory: 0,
            usm: "device".to_owned(),
        });
        Probe::Seen(Seen { devices: devices.collect(), ..Seen::default() })
    }

    #[test]
    fn visible_emulated_gpus_are_counted() {
        let system = FakeSystem::new().variable(GPUS, "2").variable(OTHERS[2], "gpu:0=lost");
        let found = findings(&system, &seen(&["Emulated GPU 0 (a CPU)", "Emulated GPU 1 (a CPU)", "a CPU"]));
        let texts: Vec<_> = found.iter().map(|finding| finding.what.as_str()).collect();
        let first = "2 emulated GPUs (USMQ_EMULATE_GPUS=2): parts of the CPU device, not real hardware";
        assert_eq!(texts, [first, "USMQ_EMULATE_FAULTS=gpu:0=lost"]);
        assert!(found.iter().all(|finding| finding.state == State::Ok));
    }

    #[test]
    fn requested_gpus_that_are_not_visible_are_a_problem() {
        let system = FakeSystem::new().variable(GPUS, "2");
        let told = ("the layer is off".to_owned(), "unset X".to_owned());
        let with_reason = Probe::Seen(Seen { layer_problems: vec![told], ..Seen::default() });
        for (probe, what, fix) in [
            (
                seen(&["a CPU"]),
                "USMQ_EMULATE_GPUS=2, but no emulated GPU is visible",
                "unset USMQ_EMULATE_GPUS",
            ),
            (with_reason, "the layer is off", "unset X"),
        ] {
            let found = findings(&system, &probe);
            let [one] = &found[..] else { panic!("{found:?}") };
            assert_eq!((one.state, &one.what[..], one.fix.as_deref()), (State::Problem, what, Some(fix)));
        }
    }

    #[test]
    fn the_state_of_the_in_order_queues_is_reported() {
        let in_order = Probe::Seen(Seen { has_in_order_queues: true, ..Seen::default() });
        let states = |system: &FakeSystem, probe: &Probe| {
            findings(system, probe).iter().map(|finding| finding.state).collect::<Vec<_>>()
        };
        assert_eq!(states(&FakeSystem::new(), &in_order), [State::Ok]);
        assert_eq!(states(&FakeSystem::new(), &seen(&[])), []);
        assert_eq!(states(&FakeSystem::new().variable(WAITS_VARIABLE, "0"), &seen(&[])), [State::Note]);
    }

    #[test]
    fn variables_without_effect_are_noted() {
        let found = findings(&FakeSystem::new().variable(OTHERS[0], "4GiB"), &seen(&[]));
        assert!(matches!(&found[..], [one] if one.state == State::Note), "{found:?}");
        assert_eq!(findings(&FakeSystem::new(), &seen(&[])), []);
    }

    #[test]
    fn each_fault_has_its_fix() {
        let mut system = FakeSystem::new().variable(GPUS, "2");
        assert_eq!(fault(&system), None);
        for (emulation, fix) in [
            (Fault::Setting("USMQ_EMULATE_GPU_MEMORY=\"x\": y".to_owned()), "unset USMQ_EMULATE_GPU_MEMORY "),
            (Fault::NoLibrary("x".to_owned()), "unset USMQ_EMULATE_GPUS "),
            (
                Fault::TooLate { text: "x".to_owned(), layers: "/l/x.so".into() },
                "export USMQ_EMULATE_GPUS='2' OPENCL_LAYERS='/l/x.so'",
            ),
        ] {
            system.emulation = Some(emulation);
            let found = fault(&system).unwrap();
            assert!(
                found.state == State::Problem && found.fix.as_ref().unwrap().starts_with(fix),
                "{found:?}"
            );
        }
        let mut system = system.variable(LIBRARY_VARIABLE, "/none");
        system.emulation = Some(Fault::NoLibrary("x".to_owned()));
        assert_eq!(fault(&system).unwrap().fix.as_deref(), Some("unset USMQ_LAYERS_LIBRARY"));
    }
}
