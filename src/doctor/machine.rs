//! The hardware as the Linux kernel reports it: GPUs on the bus, device nodes and their permissions,
//! containers.

use super::system::System;
use std::path::PathBuf;

/// PCI numbers of vendors.
pub(super) const INTEL: &str = "0x8086";
pub(super) const NVIDIA: &str = "0x10de";

/// Display controllers of a vendor on the bus; sysfs shows them in containers too.
pub(super) fn gpus(system: &System, vendor: &str) -> Vec<String> {
    const DEVICES: &str = "/sys/bus/pci/devices";
    let is = |device: &str, file: &str, expected: &str| {
        let text = system.read(format!("{DEVICES}/{device}/{file}"));
        text.is_some_and(|text| text.trim().starts_with(expected))
    };
    let mut found = system.names(DEVICES);
    found.retain(|device| is(device, "class", "0x03") && is(device, "vendor", vendor));
    found
}

/// A device node of a GPU.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub path: PathBuf,
    pub may_open: bool,
}

/// Render nodes of a vendor, which compute work uses.
pub(super) fn render_nodes(system: &System, vendor: &str) -> Vec<Node> {
    let nodes = system.names("/dev/dri").into_iter().filter(|name| name.starts_with("renderD"));
    let of_vendor = nodes.filter(|name| {
        let text = system.read(format!("/sys/class/drm/{name}/device/vendor"));
        // Without sysfs data the node may belong to any vendor.
        text.is_none_or(|text| text.trim() == vendor)
    });
    of_vendor
        .map(|name| {
            let path = PathBuf::from("/dev/dri").join(name);
            Node { may_open: (system.may_open)(&system.at(&path)), path }
        })
        .collect()
}

/// The kind of container, if this is one.
pub(super) fn container(system: &System) -> Option<&'static str> {
    if system.exists("/.dockerenv") {
        return Some("Docker");
    }
    if system.exists("/run/.containerenv") {
        return Some("Podman");
    }
    if system.variable("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("Kubernetes");
    }
    let cgroup = system.read("/proc/1/cgroup").unwrap_or_default();
    [
        ("docker", "Docker"),
        ("kubepods", "Kubernetes"),
        ("libpod", "Podman"),
        ("lxc", "LXC"),
        ("containerd", "containerd"),
    ]
    .into_iter()
    .find(|(mark, _)| cgroup.contains(mark))
    .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::system::fake::FakeSystem;
    use super::*;

    #[test]
    fn only_display_controllers_of_the_vendor_are_counted() {
        let system = FakeSystem::new()
            .file("/sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n")
            .file("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
            .file("/sys/bus/pci/devices/0000:00:1f.0/class", "0x060100\n")
            .file("/sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n")
            .file("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
            .file("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
        assert_eq!(gpus(&system, INTEL), ["0000:00:02.0"]);
        assert_eq!(gpus(&system, NVIDIA), ["0000:01:00.0"]);
        assert!(gpus(&FakeSystem::new(), INTEL).is_empty());
    }

    #[test]
    fn nodes_of_the_vendor_are_listed_with_their_permission() {
        let mut system = FakeSystem::new()
            .file("/dev/dri/card0", "")
            .file("/dev/dri/renderD128", "")
            .file("/dev/dri/renderD129", "")
            .file("/sys/class/drm/renderD128/device/vendor", "0x8086\n")
            .file("/sys/class/drm/renderD129/device/vendor", "0x10de\n");
        let path = PathBuf::from("/dev/dri/renderD128");
        assert_eq!(render_nodes(&system, INTEL), [Node { path: path.clone(), may_open: true }]);
        system.may_open = |_| false;
        assert_eq!(render_nodes(&system, INTEL), [Node { path, may_open: false }]);
    }

    #[test]
    fn containers_are_detected_by_their_marker_files() {
        assert_eq!(container(&FakeSystem::new()), None);
        assert_eq!(container(&FakeSystem::new().file("/.dockerenv", "")), Some("Docker"));
        assert_eq!(container(&FakeSystem::new().file("/run/.containerenv", "")), Some("Podman"));
        let pod = FakeSystem::new().file("/proc/1/cgroup", "0::/kubepods/besteffort/pod1\n");
        assert_eq!(container(&pod), Some("Kubernetes"));
        assert_eq!(container(&FakeSystem::new().file("/proc/1/cgroup", "0::/init.scope\n")), None);
    }
}
