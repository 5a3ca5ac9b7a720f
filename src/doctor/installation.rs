//! Checks which libsycl this process uses, its origin, and whether its parts match.

use super::report::{Finding, Topic};
use super::search_path::without;
use super::system::{System, quoted};
use crate::error::{DOCTOR, spelled};
use crate::runtime;
use std::path::Path;

const TOPIC: Topic = Topic::Runtime;

pub(super) const INSTALL: &str = "pip install 'intel-sycl-rt>=2026.1,<2027' 'intel-opencl-rt>=2026.1,<2027'";

/// The command that reinstalls a wheel of the runtime in the installed version.
pub(super) fn reinstall(system: &System, package: &str) -> String {
    let version = system.runtime_folder().and_then(|folder| wheel_version(system, folder, package));
    version.map_or_else(
        || INSTALL.to_owned(),
        |version| format!("pip install --force-reinstall '{package}=={version}'"),
    )
}

pub(super) fn findings(system: &System) -> Vec<Finding> {
    let Some(libsycl) = system.libsycl() else {
        let what = "no libsycl is loaded: usmq was built without a SYCL runtime (a stub build)";
        return vec![Finding::problem(TOPIC, what, format!("{INSTALL}\nthen build usmq again"))];
    };
    let mut found: Vec<_> = system.loaded_as("libsycl.so").map(|path| describe(system, path)).collect();
    found.extend(two_of(system, "libsycl.so", "SYCL runtimes"));
    found.extend(two_of(system, "libur_loader.so", "Unified Runtime loaders"));
    found.extend(loader_elsewhere(system, libsycl));
    found.extend(no_compiler(system, libsycl));
    found
}

fn describe(system: &System, path: &Path) -> Finding {
    let version = version(system, path).map_or_else(String::new, |version| format!(" {version}"));
    Finding::ok(TOPIC, format!("libsycl{version}, {}\n{}", origin(system, path), path.display()))
}

/// `9.0.0`: from the file name, or from a longer name of the same file in its folder.
fn version(system: &System, path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let beside = system.names(path.parent()?).into_iter().filter(|other| other.starts_with(name));
    beside
        .chain([name.to_owned()])
        .filter_map(|name| name.strip_prefix("libsycl.so.").map(str::to_owned))
        .filter(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
        .max_by_key(String::len)
}

fn origin(system: &System, path: &Path) -> String {
    let folder = path.parent().unwrap_or(path);
    let how = if system.library_path().any(|entry| system.same_file(entry, folder)) {
        ", by LD_LIBRARY_PATH"
    } else {
        ""
    };
    if let Some(version) = wheel_version(system, folder, "intel-sycl-rt") {
        return format!("of the wheel intel-sycl-rt {version}{how}");
    }
    if let Some(package) = conda_package(system, folder) {
        return format!("of the conda package {package}{how}");
    }
    let roots = ["CMPLR_ROOT", "ONEAPI_ROOT"].into_iter().filter_map(|name| system.variable(name));
    let in_toolkit = |folder: &Path| {
        let text = folder.to_string_lossy();
        text.contains("/oneapi/")
            || roots.clone().any(|root| !root.is_empty() && folder.starts_with(root.trim_end_matches('/')))
    };
    let what = if in_toolkit(folder) { "of a oneAPI toolkit" } else { "of an unknown package" };
    format!("{what}{how}")
}

/// The version of a wheel whose libraries are in this folder.
fn wheel_version(system: &System, folder: &Path, package: &str) -> Option<String> {
    let prefix = format!("{}-", package.replace('-', "_"));
    let pythons = system.names(folder).into_iter().filter(|name| name.starts_with("python3"));
    let packages = pythons.map(|python| folder.join(python).join("site-packages"));
    packages
        .flat_map(|packages| system.names(packages))
        .find_map(|name| Some(name.strip_prefix(&prefix)?.strip_suffix(".dist-info")?.to_owned()))
}

fn conda_package(system: &System, folder: &Path) -> Option<String> {
    let known = ["intel-sycl-rt-", "dpcpp-cpp-rt-", "dpcpp_cpp_rt-"];
    let records = system.names(folder.parent()?.join("conda-meta"));
    let record = records.into_iter().find(|name| known.iter().any(|known| name.starts_with(known)))?;
    Some(record.trim_end_matches(".json").to_owned())
}

fn two_of(system: &System, library: &str, what: &str) -> Option<Finding> {
    let paths: Vec<_> = system.loaded_as(library).map(|path| path.display().to_string()).collect();
    (paths.len() > 1).then(|| {
        Finding::problem(
            TOPIC,
            format!(
                "{} {what} are loaded in this process; usmq refuses to start:\n{}",
                paths.len(),
                paths.join("\n")
            ),
            "install all SYCL packages into one environment from one source (PyPI or a oneAPI toolkit, not \
             both),\n\
             or import only one of them",
        )
    })
}

/// The loader must be that of libsycl, because both come from one build.
fn loader_elsewhere(system: &System, libsycl: &Path) -> Option<Finding> {
    let loader = system.loaded_as("libur_loader.so").next()?;
    let (folder, other) = (libsycl.parent()?, loader.parent()?);
    if system.same_file(folder, other) || folder == other {
        return None;
    }
    Some(Finding::problem(
        TOPIC,
        format!("it uses an adapter loader from another folder:\n{}", loader.display()),
        if system.library_path().any(|entry| entry == other || system.same_file(entry, other)) {
            without(system, &[other])
        } else {
            format!("remove {} from the library search path", other.display())
        },
    ))
}

fn no_compiler(system: &System, libsycl: &Path) -> Option<Finding> {
    let names = system.names(libsycl.parent()?);
    (!names.iter().any(|name| name.starts_with("libsycl-jit.so"))).then(|| {
        Finding::problem(
            TOPIC,
            "libsycl-jit.so is not beside libsycl: kernels in SYCL C++ cannot be compiled",
            reinstall(system, "intel-sycl-rt"),
        )
    })
}

/// Another library queried devices before usmq had named the CPU driver.
pub(super) fn too_early(devices: usize) -> Option<Finding> {
    let driver = runtime::asked_too_early()?.display().to_string();
    let finding = if devices == 0 {
        Finding::problem(TOPIC, runtime::TOO_EARLY, "")
    } else {
        Finding::note(TOPIC, runtime::TOO_EARLY)
    };
    let variable = format!("export OCL_ICD_FILENAMES={}", quoted(&driver));
    let first = spelled("`import usmq`", "call `usmq::devices()`");
    Some(finding.fix(format!("{variable}    # or {first} before that library")))
}

/// The runtime crashes in a process without a current folder.
pub(super) fn no_folder() -> Option<Finding> {
    Some(Finding::problem(TOPIC, runtime::folder_fault()?, "cd /    # or to any other existing folder"))
}

/// The error of [`runtime::ready`], unless it is the conflict of two libraries.
pub(super) fn forked() -> Option<Finding> {
    let error = runtime::ensure_usable().err()?;
    Some(Finding::problem(TOPIC, error.to_string(), format!("run it in a separate process: {DOCTOR}")))
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::super::system::fake::FakeSystem;
    use super::*;

    const LIB: &str = "/env/lib/libsycl.so.9";

    fn healthy() -> FakeSystem {
        FakeSystem::new()
            .file(LIB, "loaded")
            .file("/env/lib/libsycl.so.9.0.0", "")
            .file("/env/lib/libsycl.so.9.0.0-gdb.py", "")
            .file("/env/lib/libsycl-jit.so", "")
            .file("/env/lib/libur_loader.so.0", "loaded")
            .folder("/env/lib/python3.11/site-packages/intel_sycl_rt-2026.1.2.dist-info")
            .clean()
    }

    impl FakeSystem {
        /// The other names of libsycl are files, not loaded libraries.
        fn clean(mut self) -> Self {
            self.loaded.retain(|path| path.ends_with("libsycl.so.9") || path.ends_with("libur_loader.so.0"));
            self
        }
    }

    fn problems(system: &System) -> Vec<Finding> {
        findings(system).into_iter().filter(|finding| finding.state != State::Ok).collect()
    }

    #[test]
    fn version_and_wheel_are_named() {
        let system = healthy();
        let found = findings(&system);
        assert_eq!(found.len(), 1, "{found:?}");
        let what = &found[0].what;
        assert!(what.starts_with("libsycl 9.0.0, of the wheel intel-sycl-rt 2026.1.2\n"), "{what}");
        assert!(what.ends_with(LIB));
        let system = system.variable("LD_LIBRARY_PATH", "/x:/env/lib/");
        assert!(findings(&system)[0].what.contains("2026.1.2, by LD_LIBRARY_PATH"));
    }

    #[test]
    fn toolkits_and_conda_are_distinguished() {
        let toolkit = |path: &str| FakeSystem::new().file(&format!("{path}/libsycl.so.9"), "loaded");
        let what = |system: &System| findings(system)[0].what.clone();
        assert!(what(&toolkit("/opt/intel/oneapi/compiler/2026.0/lib")).contains("oneAPI toolkit"));
        assert!(what(&toolkit("/sw/c/lib").variable("CMPLR_ROOT", "/sw/c/")).contains("oneAPI toolkit"));
        assert!(what(&toolkit("/sw/c/lib").variable("CMPLR_ROOT", "")).contains("an unknown package"));
        let conda = toolkit("/conda/lib").file("/conda/conda-meta/dpcpp-cpp-rt-2026.0.0-h1.json", "");
        assert!(what(&conda).contains("conda package dpcpp-cpp-rt-2026.0.0-h1"));
    }

    #[test]
    fn two_runtimes_are_a_problem_that_names_both() {
        let found = problems(&healthy().file("/opt/lib/libsycl.so.8", "loaded"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains(LIB) && found[0].what.contains("/opt/lib/libsycl.so.8"));
    }

    #[test]
    fn a_loader_from_another_folder_is_a_problem() {
        let mut system = healthy().file("/opt/lib/libur_loader.so.0", "loaded");
        system.loaded.remove(Path::new("/env/lib/libur_loader.so.0"));
        let found = problems(&system);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("/opt/lib/libur_loader.so.0"));
        assert!(found[0].fix.as_ref().unwrap().contains("remove /opt/lib from"));
        system = system.variable("LD_LIBRARY_PATH", "/opt/lib:/env/lib");
        assert_eq!(problems(&system)[0].fix.as_deref(), Some("export LD_LIBRARY_PATH='/env/lib'"));
    }

    #[test]
    fn a_runtime_without_its_compiler_is_noted() {
        let system = healthy();
        std::fs::remove_file(system.at("/env/lib/libsycl-jit.so")).unwrap();
        let found = problems(&system);
        assert!(
            matches!(&found[..], [one] if one.state == State::Problem && one.what.contains("libsycl-jit"))
        );
    }

    #[test]
    fn a_build_without_a_runtime_is_reported() {
        assert!(matches!(&problems(&FakeSystem::new())[..], [one] if one.what.contains("stub")));
    }
}
