//! Checks the adapters of the Unified Runtime: which exist, which were loaded, and why one failed to load.

use super::installation::reinstall;
use super::probe::{Asker, Probe};
use super::report::{Finding, Topic};
use super::system::{System, named};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const TOPIC: Topic = Topic::Adapters;

/// The loader's name of each adapter, and its purpose.
const KNOWN: [(&str, &str); 7] = [
    ("opencl", "CPUs, and GPUs through OpenCL"),
    ("level_zero", "Intel GPUs"),
    ("level_zero_v2", "newer Intel GPUs"),
    ("cuda", "NVIDIA GPUs"),
    ("hip", "AMD GPUs"),
    ("native_cpu", "the CPU without a driver"),
    ("offload", "devices of LLVM's offload library"),
];

/// `cause`: the fix of a problem that affects more than adapters, if known.
pub(super) fn findings(system: &System, asker: &Asker, probe: &Probe, cause: Option<&str>) -> Vec<Finding> {
    let mut found = variables(system);
    let (mut missing, mut none) = (Vec::new(), true);
    for (name, purpose) in KNOWN {
        let Some(path) = place(system, probe, name) else {
            missing.push(name);
            continue;
        };
        none = false;
        let refusal = || asker.refusal(&path.display().to_string());
        let loaded = probe.seen().is_some_and(|seen| file_of(&seen.loaded, name).is_some());
        match if loaded { None } else { refusal() } {
            Some(Err(how)) => found.push(Finding::problem(
                TOPIC,
                format!("{name}: {} {how}", path.display()),
                cause.map_or_else(|| reinstall(system, "intel-cmplr-lib-ur"), str::to_owned),
            )),
            Some(Ok(reason)) if !reason.is_empty() => {
                found.push(Finding::problem(
                    TOPIC,
                    format!("{name}, for {purpose}, cannot be loaded: {reason}"),
                    cause.map_or_else(|| fix_of(system, name, &reason), str::to_owned),
                ));
            }
            _ => found.push(Finding::ok(TOPIC, format!("{name:<14} {purpose}{}", elsewhere(system, &path)))),
        }
    }
    if system.libsycl().is_some() {
        found.extend(absent(system, probe, &missing, none));
    }
    found
}

/// The path, unless it is the expected one.
fn elsewhere(system: &System, path: &Path) -> String {
    let folders = system.runtime_folder().zip(path.parent());
    let beside = folders.is_some_and(|(folder, own)| folder == own || system.same_file(folder, own));
    if beside { String::new() } else { format!("\n{}", path.display()) }
}

fn fix_of(system: &System, name: &str, reason: &str) -> String {
    match name {
        "cuda" => {
            "install the NVIDIA driver, which brings libcuda.so.1; in a container: --gpus all".to_owned()
        }
        "hip" => "install ROCm, which brings the libraries named above".to_owned(),
        "opencl" if reason.contains("libOpenCL") => reinstall(system, "intel-opencl-rt"),
        _ => reinstall(system, "intel-cmplr-lib-ur"),
    }
}

fn absent(system: &System, probe: &Probe, missing: &[&str], none: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    if missing.contains(&"opencl") {
        let what = if none {
            "no adapter is installed beside libsycl: no device is visible"
        } else {
            "opencl is missing, so there is no CPU device"
        };
        // A GPU alone is sufficient for some users.
        let fix = reinstall(system, "intel-cmplr-lib-ur");
        let finding = if probe.count() == 0 {
            Finding::problem(TOPIC, what, fix)
        } else {
            Finding::note(TOPIC, what).fix(fix)
        };
        found.push(finding);
    }
    let others: Vec<_> = missing.iter().filter(|name| **name != "opencl").copied().collect();
    if !others.is_empty() {
        found.push(Finding::ok(TOPIC, format!("not part of this runtime: {}", others.join(", "))));
    }
    found
}

/// The file of an adapter: the loaded one, else the one that the loader would try.
fn place(system: &System, probe: &Probe, name: &str) -> Option<PathBuf> {
    if let Some(path) = probe.seen().and_then(|seen| file_of(&seen.loaded, name)) {
        return Some(path.to_owned());
    }
    let file = format!("libur_adapter_{name}.so.0");
    let listed = |variable: &str| {
        let value = system.variable(variable).unwrap_or_default();
        value.split(',').map(PathBuf::from).collect::<Vec<_>>()
    };
    let forced = listed("UR_ADAPTERS_FORCE_LOAD").into_iter().find(|path| {
        path.file_name().is_some_and(|known| known.to_string_lossy().starts_with(&file[..file.len() - 2]))
    });
    let folders = listed("UR_ADAPTERS_SEARCH_PATH");
    let searched = || folders.iter().map(|folder| folder.join(&file)).find(|path| system.exists(path));
    forced.or_else(searched).or_else(|| system.find_library(&file)).or_else(|| inside(system, name))
}

/// The runtime library that contains the OpenCL adapter, from 2026.2 on.
fn inside(system: &System, name: &str) -> Option<PathBuf> {
    if name != "opencl" {
        return None;
    }
    let mut libraries =
        ["libur_loader.so", "libsycl.so"].into_iter().filter_map(|name| system.loaded_as(name).next());
    libraries.find(|library| system.has_bytes(library, b"clGetPlatformIDs")).map(Path::to_owned)
}

fn file_of<'a>(loaded: &'a BTreeSet<PathBuf>, name: &str) -> Option<&'a Path> {
    named(loaded, &format!("libur_adapter_{name}.so")).next()
}

/// Variables that replace the loader's own search.
fn variables(system: &System) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in ["UR_ADAPTERS_FORCE_LOAD", "UR_ADAPTERS_SEARCH_PATH"] {
        let Some(value) = system.variable(name) else { continue };
        let missing: Vec<_> =
            value.split(',').filter(|path| !path.is_empty() && !system.exists(path)).collect();
        found.push(if missing.is_empty() {
            Finding::ok(TOPIC, format!("{name}={value}"))
        } else {
            Finding::problem(
                TOPIC,
                format!("{name} names {}, which does not exist", missing.join(" and ")),
                format!("unset {name}"),
            )
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::probe::{Seen, Shown};
    use super::super::report::State;
    use super::super::system::fake::FakeSystem;
    use super::*;
    use std::time::Duration;

    fn look(system: &System, seen: Seen) -> Vec<Finding> {
        findings(system, &Asker::new(Duration::from_secs(30)), &Probe::Seen(seen), None)
    }

    fn with_one_device() -> Seen {
        let device = Shown {
            filter: "level_zero:gpu:0".to_owned(),
            name: String::new(),
            driver: String::new(),
            memory: 0,
            usm: "device".to_owned(),
        };
        let loaded = ["/env/lib/libur_adapter_level_zero.so.0.12.0"].map(PathBuf::from).into();
        Seen { devices: vec![device], loaded, ..Seen::default() }
    }

    #[test]
    fn a_missing_opencl_adapter_is_a_problem_only_without_another_device() {
        let system = FakeSystem::new().file("/env/lib/libsycl.so.9", "loaded");
        let states = |seen| -> Vec<_> {
            let found = look(&system, seen).into_iter().filter(|finding| finding.fix.is_some());
            found.map(|finding| finding.state).collect()
        };
        assert_eq!(states(Seen::default()), [State::Problem]);
        assert_eq!(states(with_one_device()), [State::Note]);
    }

    #[test]
    fn an_adapter_inside_the_runtime_is_found() {
        let with = |library: &str, text: &str| {
            let mut system = FakeSystem::new().file("/env/lib/libsycl.so.9", "loaded").file(library, text);
            system.loaded.insert(library.into());
            system
        };
        for library in ["/env/lib/libur_loader.so.0", "/env/lib/libsycl.so.9"] {
            let system = with(library, "\u{1}clGetPlatformIDs\u{1}");
            assert_eq!(inside(&system, "opencl").as_deref(), Some(Path::new(library)));
            assert_eq!(inside(&system, "cuda"), None);
            assert_eq!(inside(&with(library, ""), "opencl"), None);
        }
    }

    #[test]
    fn an_adapter_loaded_from_another_folder_is_named_with_its_path() {
        let system = FakeSystem::new().file("/env/lib/libsycl.so.9", "loaded");
        assert_eq!(look(&system, with_one_device())[0].what, "level_zero     Intel GPUs");
        let system = FakeSystem::new().file("/other/lib/libsycl.so.9", "loaded");
        assert!(
            look(&system, with_one_device())[0]
                .what
                .ends_with("\n/env/lib/libur_adapter_level_zero.so.0.12.0")
        );
    }

    #[test]
    fn folders_and_files_named_by_variables_must_exist() {
        let system = FakeSystem::new().folder("/there").variable("UR_ADAPTERS_SEARCH_PATH", "/there,/gone");
        let found = &look(&system, Seen::default())[0];
        assert_eq!(
            (found.state, found.fix.as_deref()),
            (State::Problem, Some("unset UR_ADAPTERS_SEARCH_PATH"))
        );
        assert!(found.what.contains("/gone") && !found.what.contains("/there"), "{}", found.what);
        let system = FakeSystem::new().folder("/there").variable("UR_ADAPTERS_SEARCH_PATH", "/there");
        assert_eq!(look(&system, Seen::default())[0].state, State::Ok);
    }

    #[test]
    fn an_adapter_that_cannot_be_loaded_is_reported_with_the_reason() {
        // Unlike this test system, the dynamic loader finds no file there.
        let system = FakeSystem::new()
            .file("/nonexistent/libsycl.so.9", "loaded")
            .file("/nonexistent/libur_adapter_cuda.so.0", "");
        let found = look(&system, with_one_device());
        let hit = found.iter().find(|finding| finding.state == State::Problem).unwrap();
        assert!(hit.what.starts_with("cuda, for NVIDIA GPUs, cannot be loaded: "), "{}", hit.what);
        assert!(hit.fix.as_ref().unwrap().contains("--gpus all"));
    }
}
