//! NVIDIA GPUs: device nodes, the driver library, and whether the runtime has an adapter for them.

use super::machine::{NVIDIA, container, gpus};
use super::probe::Asker;
use super::report::{Finding, Topic, counted};
use super::system::System;

const TOPIC: Topic = Topic::Nvidia;

/// `has_adapter`: whether the runtime has its adapter for CUDA. `count`: queries the driver's number of
/// devices.
pub(super) fn findings(
    system: &System,
    asker: &Asker,
    has_adapter: bool,
    count: impl FnOnce() -> Result<Option<usize>, String>,
) -> Vec<Finding> {
    let nodes = nodes(system);
    let hardware = gpus(system, NVIDIA).len();
    let answer = asker.line(|| match count() {
        Ok(Some(count)) => format!("count {count}"),
        Ok(None) => "loads".to_owned(),
        Err(reason) => reason,
    });
    if nodes == 0 && hardware == 0 {
        return vec![Finding::ok(TOPIC, "none: no /dev/nvidia*, none on the PCI bus")];
    }
    let seen = counted(nodes.max(hardware), "GPU");
    if nodes == 0 {
        let fix = match container(system) {
            Some(_) => "start the container with --gpus all (docker) or --device nvidia.com/gpu=all (podman)",
            None => "install the NVIDIA driver, then: sudo modprobe nvidia",
        };
        return vec![Finding::note(TOPIC, format!("{seen} on the bus, but no /dev/nvidia*")).fix(fix)];
    }
    vec![driver(system, &seen, answer), adapter(has_adapter)]
}

/// /dev/nvidia0 and so on.
fn nodes(system: &System) -> usize {
    let is_gpu = |name: &String| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    system.names("/dev").iter().filter(|name| is_gpu(name)).count()
}

fn driver(system: &System, seen: &str, answer: Option<Result<String, String>>) -> Finding {
    let version = system.read("/proc/driver/nvidia/version").unwrap_or_default();
    let kernel = version.lines().next().unwrap_or("of unknown version").trim();
    match answer {
        Some(Ok(line)) if line == "loads" => {
            Finding::ok(TOPIC, format!("{seen}; the driver library libcuda.so.1 can be loaded\n{kernel}"))
        }
        Some(Ok(line)) => match line.strip_prefix("count ") {
            Some(count) => Finding::ok(TOPIC, format!("{seen}; the driver shows {count}\n{kernel}")),
            None => Finding::note(TOPIC, format!("{seen}, but {line}\n{kernel}")).fix(
                "install the driver library of the same version as the kernel's driver; \
                 in a container: --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            ),
        },
        Some(Err(how)) => Finding::problem(
            TOPIC,
            format!("{seen}, but libcuda.so.1 {how}"),
            "install the NVIDIA driver again, in the version that the kernel has loaded",
        ),
        None => Finding::ok(
            TOPIC,
            format!("{seen}; the driver was not queried, because the runtime has started in this process"),
        ),
    }
}

fn adapter(has_adapter: bool) -> Finding {
    if has_adapter {
        return Finding::ok(TOPIC, "the runtime has its adapter for CUDA");
    }
    Finding::note(
        TOPIC,
        "this runtime has no adapter for CUDA (libur_adapter_cuda.so), so these GPUs are not SYCL devices",
    )
    .fix("use a oneAPI toolkit with the plugin for NVIDIA GPUs: https://developer.codeplay.com")
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::super::system::fake::FakeSystem;
    use super::*;
    use std::time::Duration;

    fn look(
        system: &System,
        has_adapter: bool,
        count: impl FnOnce() -> Result<Option<usize>, String>,
    ) -> Vec<Finding> {
        findings(system, &Asker::new(Duration::from_secs(30)), has_adapter, count)
    }

    fn with_nodes() -> FakeSystem {
        let system =
            FakeSystem::new().file("/dev/nvidia0", "").file("/dev/nvidia1", "").file("/dev/nvidiactl", "");
        system
            .file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module 570.1\nGCC\n")
    }

    #[test]
    fn a_machine_without_an_nvidia_gpu_has_one_unmarked_line() {
        let found = look(&FakeSystem::new(), false, || Err("not installed".to_owned()));
        assert!(matches!(&found[..], [one] if one.state == State::Ok));
    }

    #[test]
    fn device_nodes_without_an_adapter_are_reported() {
        let found = look(&with_nodes(), false, || Ok(Some(2)));
        assert!(found[0].what.starts_with("2 GPUs; the driver shows 2\nNVRM version"), "{found:?}");
        assert_eq!(found[1].state, State::Note);
        assert!(found[1].what.contains("no adapter for CUDA"));
        let found = look(&with_nodes(), true, || Ok(None));
        assert!(found.iter().all(|finding| finding.state == State::Ok), "{found:?}");
    }

    #[test]
    fn a_missing_or_crashing_driver_is_reported() {
        let found = look(&with_nodes(), true, || Err("libcuda.so.1 is not installed".to_owned()));
        assert!(found[0].state == State::Note && found[0].what.contains("not installed"), "{found:?}");
        // SAFETY: ends the child.
        let found = look(&with_nodes(), true, || unsafe { libc::abort() });
        assert!(found[0].state == State::Problem && found[0].what.contains("SIGABRT"), "{found:?}");
    }

    #[test]
    fn a_pci_gpu_without_device_nodes_has_its_own_hint() {
        let system = FakeSystem::new()
            .file("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
            .file("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
        let fix = |system: &System| look(system, false, || Ok(None))[0].fix.clone().unwrap();
        assert!(fix(&system).contains("modprobe"));
        assert!(fix(&system.file("/.dockerenv", "")).contains("--gpus all"));
    }
}
