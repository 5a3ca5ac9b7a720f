//! Devices of Level Zero as the runtime lists them: the adapter, a GPU that two backends list, the compiler of OpenCL C, and
//! a GPU of this machine that Level Zero does not list.

use super::machine::{INTEL, gpus};
use super::probe::{Probe, Seen, Shown};
use super::report::{Finding, State, Topic};
use super::system::System;
use crate::device::Backend;

const TOPIC: Topic = Topic::IntelGpu;

/// The variable that chooses between the two adapters.
const ADAPTER: &str = "SYCL_UR_USE_LEVEL_ZERO_V2";

/// `probe`: the devices that no variable hides. `hardware`: the findings about Intel GPUs. `loads`: whether the dynamic loader
/// finds a library of this name.
pub(super) fn findings(
    system: &System,
    probe: &Probe,
    hardware: &[Finding],
    loads: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let Some(seen) = probe.seen() else { return Vec::new() };
    let devices: Vec<_> = of_backend(seen, Backend::LevelZero).collect();
    let Some(first) = devices.first() else {
        let has_gpu = !gpus(system, INTEL).is_empty();
        let explained = hardware.iter().any(|finding| finding.state == State::Problem);
        return if has_gpu && !explained { vec![unlisted()] } else { Vec::new() };
    };
    let mut found = vec![Finding::ok(TOPIC, adapter(system))];
    found.extend(devices.iter().filter_map(|device| twice(seen, device)));
    if let Some((library, package)) = Backend::LevelZero.capabilities().opencl_c_library
        && !loads(library)
    {
        let what = format!(
            "{library} was not found, so kernels in OpenCL C do not compile for {}; those in SYCL C++ do not need it",
            first.filter
        );
        let fix = format!("sudo apt install {package}    # name of Debian and Ubuntu");
        found.push(Finding::note(TOPIC, what).fix(fix));
    }
    found
}

fn of_backend(seen: &Seen, backend: Backend) -> impl Iterator<Item = &Shown> {
    let start = format!("{}:", backend.name());
    seen.devices.iter().filter(move |device| device.filter.starts_with(&start))
}

/// The node, the loader and the driver are there, and the runtime lists no device.
fn unlisted() -> Finding {
    let what = "the Level Zero driver lists no GPU: it may be older than the GPU or than the kernel's driver, or the GPU is too old \
                for it";
    let fix = "sudo apt update && sudo apt install --only-upgrade libze1 libze-intel-gpu1    # names of Debian and Ubuntu";
    Finding::note(TOPIC, what).fix(fix)
}

/// The runtime does not tell which adapter it has chosen.
fn adapter(system: &System) -> String {
    match system.variable(ADAPTER) {
        Some(value) => {
            let name = if value == "0" { "level_zero" } else { "level_zero_v2" };
            format!("the adapter is {name}, by {ADAPTER}={value}")
        }
        None => format!(
            "the runtime chooses the adapter by the GPU: level_zero_v2 for Lunar Lake, Battlemage and newer ones, level_zero for \
             others\n{ADAPTER}=0 or 1 chooses one of them"
        ),
    }
}

/// Says that OpenCL lists a GPU of this name, too.
fn twice(seen: &Seen, device: &Shown) -> Option<Finding> {
    let other = of_backend(seen, Backend::OpenCl).find(|other| other.name == device.name)?;
    Some(Finding::ok(
        TOPIC,
        format!(
            "{} and {} have one name, so they may be one GPU with two drivers; SYCL prefers the first, and a selector with the \
             backend chooses, as \"{}\"",
            device.filter, other.filter, other.filter
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::system::fake::FakeSystem;
    use super::*;

    fn look(system: &System, devices: &[&str], loads: bool) -> Vec<Finding> {
        let devices = devices.iter().map(|filter| Shown {
            filter: (*filter).to_owned(),
            name: if filter.contains("gpu") { "a GPU" } else { "a CPU" }.to_owned(),
            driver: String::new(),
            memory: 0,
            usm: "device".to_owned(),
        });
        let probe = Probe::Seen(Seen { devices: devices.collect(), ..Seen::default() });
        findings(system, &probe, &[], |_| loads)
    }

    #[test]
    fn without_the_library_of_opencl_c_its_package_is_named() {
        let found = look(&FakeSystem::new(), &["level_zero:gpu:0", "opencl:cpu:0"], false);
        let note = found.last().unwrap();
        assert_eq!(note.state, State::Note);
        assert!(note.what.contains("libocloc.so") && note.fix.as_ref().unwrap().contains("intel-ocloc"));
        assert_eq!(look(&FakeSystem::new(), &["level_zero:gpu:0", "opencl:cpu:0"], true).len(), 1);
    }

    #[test]
    fn a_gpu_of_two_backends_is_named_with_both() {
        let found = look(&FakeSystem::new(), &["opencl:gpu:0", "level_zero:gpu:0", "opencl:cpu:0"], true);
        assert!(found[1].what.starts_with("level_zero:gpu:0 and opencl:gpu:0"), "{found:?}");
    }

    #[test]
    fn a_gpu_on_the_bus_that_is_not_listed_is_a_note_unless_a_problem_explains_it() {
        assert_eq!(look(&FakeSystem::new(), &["opencl:cpu:0"], true), []);
        let system = FakeSystem::new()
            .file("/sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n")
            .file("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
        let found = look(&system, &["opencl:cpu:0"], true);
        assert!(found[0].what.contains("lists no GPU") && found[0].state == State::Note, "{found:?}");
        let explained = [Finding::problem(TOPIC, "no render node", "modprobe xe")];
        assert_eq!(findings(&system, &Probe::Seen(Seen::default()), &explained, |_| true), []);
    }

    #[test]
    fn the_variable_names_the_adapter() {
        let of = |system: &System| adapter(system);
        assert!(of(&FakeSystem::new()).contains("level_zero_v2 for Lunar Lake"));
        assert!(of(&FakeSystem::new().variable(ADAPTER, "1")).contains("is level_zero_v2"));
        assert!(of(&FakeSystem::new().variable(ADAPTER, "0")).contains("is level_zero, by"));
    }
}
