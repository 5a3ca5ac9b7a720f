//! Checks the environment variables that select devices: which are set, and the devices that each hides.

use super::probe::{Asker, Change, Probe, Seen};
use super::report::{Finding, State, Topic};
use super::system::{System, quoted};
use crate::error::spelled;

const TOPIC: Topic = Topic::Variables;

/// The variables that can hide a device.
const HIDING: [&str; 5] = [
    "ONEAPI_DEVICE_SELECTOR",
    "ZE_AFFINITY_MASK",
    "SYCL_DEVICE_ALLOWLIST",
    "SYCL_UR_USE_LEVEL_ZERO_V2",
    "CUDA_VISIBLE_DEVICES",
];

const HIERARCHY: &str = "ZE_FLAT_DEVICE_HIERARCHY";

/// The environment in which none of them is set.
pub(super) const NONE_CHOOSES: [Change<'static>; HIDING.len()] = {
    let mut changes = [Change::Unset(""); HIDING.len()];
    let mut next = 0;
    while next < HIDING.len() {
        changes[next] = Change::Unset(HIDING[next]);
        next += 1;
    }
    changes
};

/// The variables that other topics report.
const ELSEWHERE: [&str; 6] = [
    "OCL_ICD_FILENAMES",
    "OCL_ICD_VENDORS",
    "UR_ADAPTERS_FORCE_LOAD",
    "UR_ADAPTERS_SEARCH_PATH",
    "SYCL_CACHE_DIR",
    "SYCL_CACHE_PERSISTENT",
];

/// Lists the devices without the variables that may hide one. Returns `None` if none is set, or no child can
/// run.
pub(super) fn without_choice(system: &System, asker: &Asker) -> Option<Probe> {
    HIDING.iter().find(|name| system.variable(name).is_some())?;
    asker.devices_with(&NONE_CHOOSES)
}

/// `plain`: the devices if none of them is set. Both queries used `changes`.
pub(super) fn findings(
    system: &System,
    asker: &Asker,
    probe: &Probe,
    plain: Option<&Probe>,
    changes: &[Change<'_>],
) -> Vec<Finding> {
    let set: Vec<_> = HIDING.iter().filter_map(|name| Some((*name, system.variable(name)?))).collect();
    let mut found = Vec::new();
    for (name, value) in &set {
        let others: Vec<_> =
            set.iter().filter(|(other, _)| other != name).map(|(other, _)| Change::Unset(other)).collect();
        // Test the effect of this variable alone.
        let alone = if others.is_empty() { None } else { asker.devices_with(&[&others, changes].concat()) };
        found.push(effect(name, value, alone.as_ref().unwrap_or(probe), plain.and_then(Probe::seen)));
    }
    let hides = |probe: &Probe| probe.count() == 0 && plain.is_some_and(|plain| plain.count() > 0);
    if set.len() > 1 && hides(probe) && found.iter().all(|finding| finding.state == State::Ok) {
        let names: Vec<_> = set.iter().map(|(name, _)| *name).collect();
        let what = format!("{} hide every device together", names.join(" and "));
        found.push(Finding::problem(TOPIC, what, format!("unset {}", names.join(" "))));
    }
    found.extend(both(system));
    found.extend(hierarchy(system));
    found.extend(ignored(system));
    found.extend(others(system));
    if found.is_empty() {
        found.push(Finding::ok(TOPIC, "no variable that selects devices is set"));
    }
    found
}

/// Finds the devices that a variable hides, by comparison with the list without it.
fn effect(name: &str, value: &str, probe: &Probe, without: Option<&Seen>) -> Finding {
    let set = format!("{name}={value:?}");
    let unset = format!("unset {name}");
    let Some(with) = probe.seen() else {
        return Finding::ok(TOPIC, set);
    };
    let Some(without) = without else {
        return match (&with.error, with.devices.is_empty()) {
            (Some(error), _) => Finding::problem(TOPIC, format!("{set}: {error}"), unset),
            (None, true) => Finding::problem(TOPIC, format!("{set} may hide every device"), unset),
            (None, false) => Finding::ok(TOPIC, set),
        };
    };
    if let (Some(error), None) = (&with.error, &without.error) {
        let reason = error.strip_prefix("no platform can be listed: ").unwrap_or(error);
        let names = if without.devices.is_empty() { "no device".to_owned() } else { without.names() };
        return Finding::problem(
            TOPIC,
            format!("{set} is not understood: {reason}\nwithout it: {names}"),
            unset,
        );
    }
    if without.devices.is_empty() {
        return Finding::ok(TOPIC, format!("{set} hides nothing: no device is seen without it either"));
    }
    if with.devices.is_empty() {
        return Finding::problem(
            TOPIC,
            format!("{set} hides every device\nwithout it: {}", without.names()),
            unset,
        );
    }
    let same = |a: &super::probe::Shown, b: &super::probe::Shown| a.name == b.name && a.driver == b.driver;
    let mut hidden = without.clone();
    for device in &with.devices {
        if let Some(position) = hidden.devices.iter().position(|other| same(other, device)) {
            hidden.devices.remove(position);
        }
    }
    Finding::ok(
        TOPIC,
        if hidden.devices.is_empty() {
            format!("{set} hides nothing")
        } else {
            format!("{set} hides {}", hidden.names())
        },
    )
}

/// If another library queried devices before usmq could add its term, the runtime keeps its empty list. No
/// other sign shows this, so the finding is a suspect.
pub(super) fn asked_before(system: &System) -> Option<Finding> {
    let (value, completed) = (system.variable(HIDING[0])?, system.completed_selector.as_deref()?);
    let what = format!(
        "{}={value:?} names the backend opencl alone: this runtime then finds no device if another library \
         lists devices before usmq",
        HIDING[0]
    );
    let drivers = system.settings.iter().find(|(name, _)| *name == "OCL_ICD_FILENAMES");
    let drivers = drivers
        .map(|(name, value)| format!(" {name}={}", quoted(&value.display().to_string())))
        .unwrap_or_default();
    let first = spelled("`import usmq`", "call `usmq::devices()`");
    let fix =
        format!("export {}={}{drivers}    # or {first} before that library", HIDING[0], quoted(completed));
    Some(Finding::ok(TOPIC, what).fix(fix))
}

fn both(system: &System) -> Option<Finding> {
    let (selector, mask) = (system.variable("ONEAPI_DEVICE_SELECTOR")?, system.variable("ZE_AFFINITY_MASK")?);
    Some(Finding::problem(
        TOPIC,
        format!(
            "ONEAPI_DEVICE_SELECTOR={selector:?} and ZE_AFFINITY_MASK={mask:?} are both set: \
             the mask renumbers the devices that the selector counts"
        ),
        "unset ZE_AFFINITY_MASK",
    ))
}

fn hierarchy(system: &System) -> Option<Finding> {
    let value = system.variable(HIERARCHY)?;
    Some(match value {
        "FLAT" => Finding::ok(TOPIC, format!("{HIERARCHY}=FLAT: each tile of a GPU is a root device")),
        "COMPOSITE" => {
            Finding::ok(TOPIC, format!("{HIERARCHY}=COMPOSITE: a GPU with its tiles is one root device"))
        }
        "COMBINED" => {
            Finding::ok(TOPIC, format!("{HIERARCHY}=COMBINED: tiles are root devices that know their GPU"))
        }
        other => Finding::problem(
            TOPIC,
            format!("{HIERARCHY}={other:?} is none of FLAT, COMPOSITE and COMBINED"),
            format!("unset {HIERARCHY}"),
        ),
    })
}

/// Variables of earlier runtimes.
fn ignored(system: &System) -> Vec<Finding> {
    let old = ["SYCL_DEVICE_FILTER", "SYCL_DEVICE_TYPE", "SYCL_BE"].into_iter();
    old.filter(|name| system.variable(name).is_some())
        .map(|name| {
            Finding::note(TOPIC, format!("{name} is set, but current runtimes ignore it"))
                .fix(format!("unset {name}    # set ONEAPI_DEVICE_SELECTOR instead"))
        })
        .collect()
}

/// Whether the runtime or a driver may read a variable.
pub(super) fn of_runtime(name: &str) -> bool {
    let read = ["ONEAPI_DEVICE_", "SYCL_", "ZE_", "UR_", "OCL_ICD_", "CL_CONFIG_", "NEO"];
    read.iter().any(|prefix| name.starts_with(prefix))
}

/// All other variables that the runtime and the drivers read.
fn others(system: &System) -> Vec<Finding> {
    let told = |name: &str| {
        HIDING.contains(&name)
            || ELSEWHERE.contains(&name)
            || name == HIERARCHY
            || ["SYCL_DEVICE_FILTER", "SYCL_DEVICE_TYPE", "SYCL_BE"].contains(&name)
    };
    system
        .variables
        .iter()
        .filter(|(name, _)| of_runtime(name) && !told(name))
        .map(|(name, value)| Finding::ok(TOPIC, format!("{name}={value}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::probe::Shown;
    use super::super::system::fake::FakeSystem;
    use super::*;

    fn seen(names: &[&str]) -> Seen {
        let devices = names.iter().map(|name| Shown {
            filter: format!("opencl:{name}:0"),
            name: (*name).to_owned(),
            driver: "1".to_owned(),
            memory: 0,
            usm: String::new(),
        });
        Seen { devices: devices.collect(), ..Seen::default() }
    }

    fn effect_of(with: Seen, without: Option<&Seen>) -> Finding {
        effect("ONEAPI_DEVICE_SELECTOR", "x:y", &Probe::Seen(with), without)
    }

    #[test]
    fn a_variable_that_hides_every_device_is_a_problem_that_lists_them() {
        let found = effect_of(seen(&[]), Some(&seen(&["cpu", "gpu"])));
        assert_eq!(found.state, State::Problem);
        assert!(found.what.ends_with("without it: opencl:cpu:0 cpu, opencl:gpu:0 gpu"), "{}", found.what);
        assert_eq!(found.fix.as_deref(), Some("unset ONEAPI_DEVICE_SELECTOR"));
    }

    #[test]
    fn an_invalid_variable_is_a_problem_with_the_reason() {
        let error = "no platform can be listed: Incomplete selector!".to_owned();
        let found = effect_of(Seen { error: Some(error), ..seen(&[]) }, Some(&seen(&["cpu"])));
        assert!(found.what.contains("is not understood: Incomplete selector!\n"), "{}", found.what);
        assert_eq!(found.state, State::Problem);
    }

    #[test]
    fn a_variable_that_hides_some_or_no_devices_is_shown() {
        let all = seen(&["cpu", "gpu"]);
        let found = effect_of(seen(&["gpu"]), Some(&all));
        assert_eq!((found.state, found.what.contains("hides opencl:cpu:0 cpu")), (State::Ok, true));
        assert!(effect_of(all.clone(), Some(&all)).what.ends_with("hides nothing"));
        assert_eq!(effect_of(seen(&[]), Some(&seen(&[]))).state, State::Ok);
    }

    #[test]
    fn without_a_comparison_an_empty_list_is_attributed_to_the_variable() {
        assert_eq!(effect_of(seen(&[]), None).state, State::Problem);
        assert_eq!(effect_of(seen(&["cpu"]), None).state, State::Ok);
    }

    #[test]
    fn two_selectors_together_are_a_problem() {
        let system = FakeSystem::new().variable("ONEAPI_DEVICE_SELECTOR", "opencl:*");
        assert!(both(&system).is_none());
        let found = both(&system.variable("ZE_AFFINITY_MASK", "0")).unwrap();
        assert_eq!((found.state, found.fix.as_deref()), (State::Problem, Some("unset ZE_AFFINITY_MASK")));
    }

    #[test]
    fn a_selector_that_usmq_completed_too_late_is_a_suspect() {
        let mut system = FakeSystem::new().variable("ONEAPI_DEVICE_SELECTOR", "opencl:cpu");
        assert_eq!(asked_before(&system), None);
        system.completed_selector = Some("opencl:cpu;*:99".to_owned());
        system.settings.push(("OCL_ICD_FILENAMES", "/env/lib/libintelocl.so".into()));
        let fix = asked_before(&system).unwrap().fix.unwrap();
        let expected =
            "export ONEAPI_DEVICE_SELECTOR='opencl:cpu;*:99' OCL_ICD_FILENAMES='/env/lib/libintelocl.so' ";
        assert!(fix.starts_with(expected), "{fix}");
    }

    #[test]
    fn the_hierarchy_accepts_three_values() {
        for (value, state) in
            [("FLAT", State::Ok), ("COMPOSITE", State::Ok), ("COMBINED", State::Ok), ("flat", State::Problem)]
        {
            let found = hierarchy(&FakeSystem::new().variable(HIERARCHY, value)).unwrap();
            assert_eq!(found.state, state, "{value}");
        }
    }

    #[test]
    fn deprecated_names_are_noted_and_others_are_shown_once() {
        let system = FakeSystem::new()
            .variable("SYCL_DEVICE_FILTER", "gpu")
            .variable("SYCL_CACHE_DIR", "/c")
            .variable("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1")
            .variable("HOME", "/root");
        assert!(matches!(&ignored(&system)[..], [one] if one.state == State::Note));
        let shown: Vec<_> = others(&system).into_iter().map(|finding| finding.what).collect();
        assert_eq!(shown, ["ZE_ENABLE_PCI_ID_DEVICE_ORDER=1"]);
    }
}
