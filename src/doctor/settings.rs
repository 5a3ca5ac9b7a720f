//! Checks usmq's variables, memory limits, and the folder of the kernel cache.

use super::layers;
use super::report::{Finding, Topic};
use super::system::{System, quoted};
use crate::device::UsmKind;
use crate::error::size;
use crate::memory;
use std::path::{Path, PathBuf};

const TOPIC: Topic = Topic::Settings;

/// The variables that usmq reads at run time, and those that only the build reads.
const AT_RUN_TIME: [&str; 3] = ["USMQ_POOL", "USMQ_PROFILING", "USMQ_SYCL_GRAPHS"];
const AT_BUILD: [&str; 4] = ["USMQ_SYCL_ROOT", "USMQ_ALLOW_STUB", "USMQ_MANYLINUX", "USMQ_FAULTS"];

pub(super) fn findings(system: &System) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(cache(system));
    found.extend(own(system));
    found.extend(memory_limits());
    found
}

fn cache(system: &System) -> Option<Finding> {
    let (persistent, _) = system.in_force("SYCL_CACHE_PERSISTENT")?;
    if persistent != "1" {
        return Some(Finding::ok(
            TOPIC,
            format!("SYCL_CACHE_PERSISTENT={persistent}: each process compiles its kernels again"),
        ));
    }
    let folder = system.in_force("SYCL_CACHE_DIR").map(|(folder, _)| PathBuf::from(folder));
    // The runtime's default folder.
    let home = || system.variable("HOME").map(|home| Path::new(home).join(".cache/libsycl_cache"));
    let folder = folder.or_else(home)?;
    if let Some(fault) = (system.fault)(&system.at(&folder)) {
        return Some(Finding::problem(
            TOPIC,
            format!(
                "compiled kernels are not kept in {}: {fault}; another user who can write there could \
                 replace them",
                folder.display()
            ),
            format!(
                "rm -r {0} && mkdir -m 700 {0}    # or set SYCL_CACHE_DIR to a folder of your own",
                quoted(&folder.display().to_string())
            ),
        ));
    }
    Some(match hindrance(system, &folder) {
        None => Finding::ok(TOPIC, format!("compiled kernels are kept in {}", folder.display())),
        Some(reason) => Finding::problem(
            TOPIC,
            format!(
                "compiled kernels cannot be kept in {}: {reason}; each process compiles them again",
                folder.display()
            ),
            if system.variable("SYCL_CACHE_DIR").is_some() {
                "unset SYCL_CACHE_DIR    # or set it to a folder that you may write to"
            } else {
                "export SYCL_CACHE_PERSISTENT=0    # or set SYCL_CACHE_DIR to a folder that you may write to"
            },
        ),
    })
}

/// The reason why a folder, which is created if missing, is not writable.
fn hindrance(system: &System, folder: &Path) -> Option<String> {
    let nearest = folder.ancestors().find(|path| system.at(path).symlink_metadata().is_ok())?;
    if !system.at(nearest).is_dir() {
        return Some(format!("{} is not a folder", nearest.display()));
    }
    (!(system.may_open)(&system.at(nearest))).then(|| format!("{} is not writable", nearest.display()))
}

fn own(system: &System) -> Vec<Finding> {
    let is_here = |name: &str| name.starts_with("USMQ_") && !layers::is_own(name);
    let of_usmq = system.variables.iter().filter(|(name, _)| is_here(name));
    of_usmq
        .map(|(name, value)| match (name.as_str(), value.as_str()) {
            ("USMQ_POOL", "0") => Finding::note(
                TOPIC,
                "USMQ_POOL=0: memory is not reused; each allocation calls the runtime, which is slow",
            )
            .fix("unset USMQ_POOL"),
            (known, _) if AT_RUN_TIME.contains(&known) => Finding::ok(TOPIC, format!("{name}={value}")),
            (known, _) if AT_BUILD.contains(&known) => {
                Finding::ok(TOPIC, format!("{name}={value}: read when usmq is built"))
            }
            _ => Finding::note(TOPIC, format!("{name}={value}: usmq has no variable of this name"))
                .fix(format!("unset {name}")),
        })
        .collect()
}

/// Limits that this process has set for all devices.
fn memory_limits() -> Vec<Finding> {
    let limit = |kind: UsmKind| Some((kind, memory::limit(None, kind).ok()??));
    let set = UsmKind::ALL.into_iter().filter_map(limit);
    set.map(|(kind, bytes)| {
        Finding::ok(TOPIC, format!("limit of {kind} memory on each device: {}", size(bytes)))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::super::system::fake::FakeSystem;
    use super::*;

    fn with_cache(system: FakeSystem, folder: &str) -> Finding {
        let system = system.variable("SYCL_CACHE_PERSISTENT", "1").variable("SYCL_CACHE_DIR", folder);
        cache(&system).unwrap()
    }

    #[test]
    fn an_existing_or_creatable_folder_is_accepted() {
        assert_eq!(with_cache(FakeSystem::new().folder("/cache"), "/cache").state, State::Ok);
        assert_eq!(with_cache(FakeSystem::new().folder("/home"), "/home/me/.cache/usmq").state, State::Ok);
    }

    #[test]
    fn an_unwritable_folder_is_a_problem() {
        let found = with_cache(FakeSystem::new().file("/cache", ""), "/cache/usmq");
        assert!(found.state == State::Problem && found.what.contains("/cache is not a folder"), "{found:?}");
        let mut system = FakeSystem::new().folder("/cache");
        system.may_open = |_| false;
        let found = with_cache(system, "/cache");
        assert!(found.state == State::Problem && found.what.contains("is not writable"), "{found:?}");
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_a_problem() {
        let mut system = FakeSystem::new().folder("/cache");
        system.fault = |_| Some("others may write to it".to_owned());
        let found = with_cache(system, "/cache");
        assert!(found.state == State::Problem && found.what.contains("others may write"), "{found:?}");
    }

    #[test]
    fn a_disabled_cache_is_not_a_problem() {
        let found = cache(&FakeSystem::new().variable("SYCL_CACHE_PERSISTENT", "0")).unwrap();
        assert_eq!(found.state, State::Ok);
    }

    #[test]
    fn known_usmq_variables_are_shown_and_unknown_ones_are_noted() {
        let system = FakeSystem::new()
            .variable("USMQ_POOL", "0")
            .variable("USMQ_POLL", "1")
            .variable("USMQ_SYCL_ROOT", "/x");
        let found = own(&system);
        let states: Vec<_> = found.iter().map(|finding| finding.state).collect();
        assert_eq!(states, [State::Note, State::Note, State::Ok]);
        assert!(found[0].what.contains("USMQ_POLL"));
    }
}
