//! Intel GPUs: the hardware, the nodes under /dev/dri, the Level Zero loader and its driver.

use super::machine::{INTEL, container, gpus, render_nodes};
use super::probe::Probe;
use super::report::{Finding, Topic, counted};
use super::system::{System, named};
use std::path::PathBuf;

const TOPIC: Topic = Topic::IntelGpu;

const LOADER: &str = "libze_loader.so.1";
/// The current and the earlier library name of the driver.
const DRIVERS: [&str; 2] = ["libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1"];
const PACKAGES: &str = "sudo apt install libze1 libze-intel-gpu1 intel-opencl-icd\n\
                        (names of Debian and Ubuntu; https://dgpu-docs.intel.com has the packages for other systems)";

/// `loads`: whether the dynamic loader finds a library of this name.
pub(super) fn findings(system: &System, probe: &Probe, loads: impl Fn(&str) -> bool) -> Vec<Finding> {
    let hardware = gpus(system, INTEL);
    let nodes = render_nodes(system, INTEL);
    // Under WSL the GPU has another device node.
    let wsl = system.exists("/dev/dxg");
    if hardware.is_empty() && nodes.is_empty() && !wsl {
        return vec![Finding::ok(TOPIC, nothing(system))];
    }
    let mut found = Vec::new();
    let what = match hardware.len() {
        0 => "the GPU behind a device node".to_owned(),
        n => format!("{} on the bus: {}", counted(n, "GPU"), hardware.join(", ")),
    };
    found.push(Finding::ok(TOPIC, what));
    if nodes.is_empty() && !wsl {
        found.push(without_node(system));
    }
    for node in &nodes {
        let path = node.path.display();
        found.push(if node.may_open {
            Finding::ok(TOPIC, format!("{path} may be opened"))
        } else {
            let fix = if container(system).is_some() {
                format!("start the container with the group of the node: --group-add $(stat -c %g {path})")
            } else {
                format!("sudo usermod -aG $(stat -c %G {path}) $USER    # then log in again")
            };
            Finding::problem(TOPIC, format!("{path}: this user may not open it"), fix)
        });
    }
    found.extend(libraries(system, probe, loads));
    found
}

fn nothing(system: &System) -> String {
    match container(system) {
        Some(kind) => {
            format!("none, as far as this {kind} container shows: no /dev/dri, none on the PCI bus")
        }
        None => "none: no /dev/dri, none on the PCI bus".to_owned(),
    }
}

fn without_node(system: &System) -> Finding {
    match container(system) {
        Some(kind) => Finding::problem(
            TOPIC,
            format!("no render node under /dev/dri: this {kind} container was started without the GPU"),
            "start the container with --device /dev/dri",
        ),
        None => Finding::problem(
            TOPIC,
            "no render node under /dev/dri: the kernel has no driver for the GPU, or it is not loaded",
            "sudo modprobe xe || sudo modprobe i915    # then look at: sudo dmesg | grep -iE 'xe|i915'",
        ),
    }
}

fn libraries(system: &System, probe: &Probe, loads: impl Fn(&str) -> bool) -> Vec<Finding> {
    let find = |name: &str| -> Option<PathBuf> {
        let loaded = probe.seen().and_then(|seen| named(&seen.loaded, name).next().map(PathBuf::from));
        loaded.or_else(|| system.find_library(name)).or_else(|| loads(name).then(|| PathBuf::from(name)))
    };
    let missing = |what: &str| {
        Finding::problem(TOPIC, format!("{what} was not found: no GPU through Level Zero"), PACKAGES)
    };
    let loader = match find(LOADER) {
        Some(path) => Finding::ok(TOPIC, format!("Level Zero loader: {}", path.display())),
        None => missing(&format!("{LOADER}, the Level Zero loader,")),
    };
    let driver = match DRIVERS.into_iter().find_map(find) {
        Some(path) => Finding::ok(TOPIC, format!("Level Zero driver: {}", path.display())),
        None => missing(&format!("{}, the Level Zero driver,", DRIVERS[0])),
    };
    vec![loader, driver]
}

#[cfg(test)]
mod tests {
    use super::super::probe::Seen;
    use super::super::report::State;
    use super::super::system::fake::FakeSystem;
    use super::*;

    fn problems(system: &System) -> Vec<(String, String)> {
        findings(system, &Probe::Seen(Seen::default()), |_| false)
            .into_iter()
            .filter(|finding| finding.state == State::Problem)
            .map(|finding| (finding.what, finding.fix.unwrap()))
            .collect()
    }

    fn with_gpu() -> FakeSystem {
        FakeSystem::new()
            .file("/sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n")
            .file("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
            .file("/usr/lib/x86_64-linux-gnu/libze_loader.so.1", "")
            .file("/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1", "")
    }

    fn with_node() -> FakeSystem {
        with_gpu().file("/dev/dri/renderD128", "").file("/sys/class/drm/renderD128/device/vendor", "0x8086")
    }

    #[test]
    fn a_machine_without_an_intel_gpu_has_no_problem() {
        assert!(problems(&FakeSystem::new()).is_empty());
        let nvidia = FakeSystem::new()
            .file("/dev/dri/renderD128", "")
            .file("/sys/class/drm/renderD128/device/vendor", "0x10de\n");
        assert!(problems(&nvidia).is_empty());
    }

    #[test]
    fn a_fully_configured_gpu_has_no_problem() {
        assert_eq!(problems(&with_node()), []);
    }

    #[test]
    fn a_container_without_device_nodes_gets_the_start_option() {
        let found = problems(&with_gpu().file("/.dockerenv", ""));
        assert!(
            matches!(&found[..], [(what, fix)] if what.contains("Docker") && fix.contains("--device /dev/dri"))
        );
        let found = problems(&with_gpu());
        assert!(matches!(&found[..], [(_, fix)] if fix.contains("modprobe")));
    }

    #[test]
    fn an_inaccessible_node_is_reported_with_its_group() {
        let mut system = with_node();
        system.may_open = |_| false;
        let found = problems(&system);
        assert!(
            matches!(&found[..], [(what, fix)] if what.contains("renderD128") && fix.contains("usermod -aG"))
        );
        let mut system = with_node().file("/.dockerenv", "");
        system.may_open = |_| false;
        assert!(problems(&system)[0].1.contains("--group-add"));
    }

    #[test]
    fn a_missing_loader_and_a_missing_driver_are_distinguished() {
        for name in ["libze_loader.so.1", "libze_intel_gpu.so.1"] {
            let system = with_node();
            std::fs::remove_file(system.at(format!("/usr/lib/x86_64-linux-gnu/{name}"))).unwrap();
            let found = problems(&system);
            assert!(
                matches!(&found[..], [(what, fix)] if what.contains(name) && fix.contains("libze")),
                "{found:?}"
            );
        }
    }
}
