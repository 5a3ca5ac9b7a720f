//! The adapters of the Unified Runtime: which are there, which were loaded, and what keeps one from loading.

use super::origin::INSTALL;
use super::probe::{Asker, Probe};
use super::report::{Finding, Topic};
use super::world::{World, named};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const TOPIC: Topic = Topic::Adapters;

/// Names as the loader knows them, and what each is for.
const KNOWN: [(&str, &str); 7] = [
    ("opencl", "CPUs, and GPUs as a second way"),
    ("level_zero", "Intel GPUs"),
    ("level_zero_v2", "newer Intel GPUs"),
    ("cuda", "NVIDIA GPUs"),
    ("hip", "AMD GPUs"),
    ("native_cpu", "the CPU without a driver"),
    ("offload", "devices of LLVM's offload library"),
];

pub(super) fn findings(world: &World, asker: &Asker, probe: &Probe) -> Vec<Finding> {
    let mut found = variables(world);
    let (mut missing, mut none) = (Vec::new(), true);
    for (name, purpose) in KNOWN {
        let Some(path) = place(world, probe, name) else {
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
                "install the runtime again, or take what it loads out of LD_LIBRARY_PATH",
            )),
            Some(Ok(reason)) if !reason.is_empty() => {
                found.push(Finding::problem(
                    TOPIC,
                    format!("{name}, for {purpose}, cannot be loaded: {reason}"),
                    fix_of(name),
                ));
            }
            _ => found.push(Finding::ok(TOPIC, format!("{name:<14} {purpose}{}", elsewhere(world, &path)))),
        }
    }
    if world.libsycl().is_some() {
        found.extend(absent(probe, &missing, none));
    }
    found
}

/// The path, unless it is where one expects it.
fn elsewhere(world: &World, path: &Path) -> String {
    let beside = world.runtime_folder().zip(path.parent()).is_some_and(|(folder, own)| folder == own);
    if beside { String::new() } else { format!("\n{}", path.display()) }
}

fn fix_of(name: &str) -> &'static str {
    match name {
        "cuda" => "install the NVIDIA driver, which brings libcuda.so.1; in a container: --gpus all",
        "hip" => "install ROCm, which brings the libraries named above",
        _ => INSTALL,
    }
}

fn absent(probe: &Probe, missing: &[&str], none: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    if missing.contains(&"opencl") {
        let what = if none {
            "no adapter is beside libsycl: no device of any kind can be seen"
        } else {
            "opencl is missing, so there is no CPU device (the runtime's wheels have none from 2026.2 on)"
        };
        // A GPU is enough for some.
        let finding = if probe.count() == 0 {
            Finding::problem(TOPIC, what, INSTALL)
        } else {
            Finding::note(TOPIC, what).fix(INSTALL)
        };
        found.push(finding);
    }
    let others: Vec<_> = missing.iter().filter(|name| **name != "opencl").copied().collect();
    if !others.is_empty() {
        found.push(Finding::ok(TOPIC, format!("not part of this runtime: {}", others.join(", "))));
    }
    found
}

/// The file of an adapter: the one that was loaded, else where the loader would look.
fn place(world: &World, probe: &Probe, name: &str) -> Option<PathBuf> {
    if let Some(path) = probe.seen().and_then(|seen| file_of(&seen.loaded, name)) {
        return Some(path.to_owned());
    }
    let file = format!("libur_adapter_{name}.so.0");
    let listed = |variable: &str| {
        let value = world.variable(variable).unwrap_or_default();
        value.split(',').map(PathBuf::from).collect::<Vec<_>>()
    };
    let forced = listed("UR_ADAPTERS_FORCE_LOAD").into_iter().find(|path| {
        path.file_name().is_some_and(|known| known.to_string_lossy().starts_with(&file[..file.len() - 2]))
    });
    let folders = listed("UR_ADAPTERS_SEARCH_PATH");
    let searched = || folders.iter().map(|folder| folder.join(&file)).find(|path| world.exists(path));
    forced.or_else(searched).or_else(|| world.find_library(&file))
}

fn file_of<'a>(loaded: &'a BTreeSet<PathBuf>, name: &str) -> Option<&'a Path> {
    named(loaded, &format!("libur_adapter_{name}.so")).next()
}

/// Variables that replace the loader's own search.
fn variables(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in ["UR_ADAPTERS_FORCE_LOAD", "UR_ADAPTERS_SEARCH_PATH"] {
        let Some(value) = world.variable(name) else { continue };
        let missing: Vec<_> =
            value.split(',').filter(|path| !path.is_empty() && !world.exists(path)).collect();
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
