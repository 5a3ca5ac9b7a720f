//! Decisions of the build script: the application's root, searched environments, warnings about versions.

#![allow(clippy::unwrap_used)] // A test that cannot make its folders must fail.

#[path = "../../build/application.rs"]
mod application;
#[path = "../../build/wheels.rs"]
mod wheels;

use application::{Build, ENVIRONMENTS};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use wheels::{WHEELS, install_into};

/// A folder of this test alone, deleted at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("usmq-build-script-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, path: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    fn folder(&self, path: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn build(place: &Folder, out: &str, started_in: &str) -> Build {
    Build {
        manifest: place.folder("usmq"),
        out: place.folder(out),
        started_in: Some(place.folder(started_in)),
    }
}

#[test]
fn the_application_root_is_the_workspace_of_the_target_folder() {
    let place = Folder::new("target");
    place.file("ws/Cargo.lock");
    for started_in in ["ws", "ws/member/src", "elsewhere"] {
        let build = build(&place, "ws/target/debug/build/usmq-1/out", started_in);
        assert_eq!(build.application(), place.0.join("ws"), "started in {started_in}");
    }
}

#[test]
fn with_an_external_target_folder_the_root_is_found_from_the_start_folder() {
    let place = Folder::new("elsewhere");
    place.file("ws/Cargo.lock");
    let build = build(&place, "cache/debug/build/usmq-1/out", "ws/member");
    assert_eq!(build.application(), place.0.join("ws"));
}

#[test]
fn without_a_workspace_the_root_is_the_cargo_start_folder() {
    let place = Folder::new("nowhere");
    let build = build(&place, "cache/debug/build/usmq-1/out", "here");
    assert_eq!(build.application(), place.0.join("here"));
}

#[test]
fn folders_are_searched_upwards_and_the_checkout_last() {
    let place = Folder::new("order");
    place.file("home/ws/Cargo.lock");
    let inside = build(&place, "home/ws/target/debug/build/usmq-1/out", "home/ws/member");
    let names = |build: &Build| -> Vec<PathBuf> {
        let below = build.folders().into_iter().filter_map(|path| path.strip_prefix(&place.0).ok());
        below.map(Path::to_owned).collect()
    };
    assert_eq!(names(&inside), ["home/ws/member", "home/ws", "home", "", "usmq"].map(PathBuf::from));
    let folders = inside.folders();
    assert!(folders.contains(&Path::new("/")), "the search reached the root: {folders:?}");
    assert_eq!(folders.last(), Some(&inside.manifest.as_path()));

    let outside = build(&place, "home/ws/target/debug/build/usmq-1/out", "other");
    assert_eq!(names(&outside), ["home/ws", "home", "", "other", "usmq"].map(PathBuf::from));
}

#[test]
fn the_running_build_is_found_from_its_process() {
    let build = Build::current();
    assert!(build.started_in.is_some_and(|folder| folder.is_dir()));
    assert_eq!(build.manifest, Path::new(env!("CARGO_MANIFEST_DIR")));
}

#[test]
fn an_environment_of_another_user_is_not_executed() {
    let place = Folder::new("owner");
    place.file("ws/Cargo.lock");
    let build = build(&place, "ws/target/debug/build/usmq-1/out", "ws");
    let environment = place.folder(&format!("ws/{}", ENVIRONMENTS[0]));
    assert!(build.trusts(&environment));
    assert!(build.trusts(Path::new("/usr")), "files of root are trusted");
    assert!(!build.trusts(&place.0.join("missing")));
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!(
            "an_environment_of_another_user_is_not_executed: chown needs root; the refusal is not tried"
        );
        return;
    }
    std::os::unix::fs::chown(&environment, Some(12345), None).unwrap();
    assert!(!build.trusts(&environment));
    // A checkout mounted into a container belongs to another user than the one who builds.
    std::os::unix::fs::chown(place.0.join("ws"), Some(12345), None).unwrap();
    assert!(build.trusts(&environment));
}

#[test]
fn versions_outside_the_tested_range_are_detected() {
    let tested = |name: &str, version: &str| {
        WHEELS.iter().find(|wheel| wheel.name == name).unwrap().is_tested(version)
    };
    for version in ["2026.1.0", "2026.1", "2026.2.0", "2026.99.1.dev3", "2026.1rc1"] {
        assert!(tested("intel-sycl-rt", version), "{version}");
        assert!(tested("intel-opencl-rt", version), "{version}");
    }
    for version in ["2025.3.1", "2026.0.2", "2026", "2027.0.0", "2027", "10000.0", "unknown", "", "9.9"] {
        assert!(!tested("intel-sycl-rt", version), "{version}");
    }
}

#[test]
fn the_version_is_read_from_the_dist_info_folder() {
    let place = Folder::new("dist-info");
    place.folder("lib/python3.11/site-packages/intel_sycl_rt-2027.0.1.dist-info");
    let versions = WHEELS.map(|wheel| wheel.version(&place.0.join("lib")));
    assert_eq!(versions, [Some("2027.0.1".to_owned()), None]);
}

#[test]
fn the_command_installs_all_wheels_of_the_requirements() {
    let requirements = fs::read_to_string("pyproject.toml").unwrap();
    for wheel in WHEELS {
        assert!(requirements.contains(&format!("\"{}\"", wheel.requirement())), "{}", wheel.requirement());
    }
    assert_eq!(
        install_into(Path::new("/a/.venv")),
        "python3 -m venv /a/.venv && /a/.venv/bin/python -m pip install 'intel-sycl-rt>=2026.1,<2027' \
         'intel-opencl-rt>=2026.1,<2027'"
    );
}

#[test]
fn pip_builds_the_package_with_the_oldest_tested_releases() {
    let project = fs::read_to_string("pyproject.toml").unwrap();
    let build = project.split("[project]").next().unwrap();
    for wheel in WHEELS.iter().filter(|wheel| wheel.name != "intel-opencl-rt") {
        let range = wheel.range();
        let oldest = range.trim_start_matches(">=").split(',').next().unwrap();
        let requirement = format!("\"{}=={oldest}.*\"", wheel.name);
        assert!(build.contains(&requirement), "{requirement} is not in {build}");
    }
}

#[test]
fn the_command_keeps_an_existing_environment_and_quotes_paths() {
    let place = Folder::new("it's here");
    let environment = place.folder(".venv");
    let first = |command: &str| command.split(" -m ").next().unwrap().to_owned();
    let words = |command: &str| {
        let printed = Command::new("sh").args(["-c", &format!("printf '%s|' {}", first(command))]).output();
        String::from_utf8(printed.unwrap().stdout).unwrap()
    };
    assert_eq!(words(&install_into(&environment)), "python3|");
    place.file(".venv/bin/pip");
    assert_eq!(words(&install_into(&environment)), format!("{}/bin/python|", environment.display()));
}
