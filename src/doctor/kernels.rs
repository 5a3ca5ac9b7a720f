//! Tests in a child process whether a kernel compiles and runs on the default device, and finds the reason if
//! not.

use super::installation::{INSTALL, reinstall};
use super::opencl::cpu_driver;
use super::probe::{Asker, Change, Probe, ended};
use super::report::{Finding, Topic};
use super::subprocess::Outcome;
use super::system::{System, quoted};
use super::variables;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, KernelOptions, Lack, TEMPORARY, install_compiler, lack, temporary_folder};
use crate::manager::current_queue;

const TOPIC: Topic = Topic::Kernels;

/// The C++ headers that SYCL's headers include. SYCL's own headers are inside the compiler and take a second
/// or more.
const HEADERS: &str = "#include <algorithm>\n#include <cmath>\n#include <cstdint>\n#include <cstdlib>\n\
                       #include <functional>\n#include <memory>\n#include <string>\n#include <tuple>\n\
                       #include <type_traits>\n#include <vector>\n";
/// Under a memory limit the kernel must need as much memory as users' kernels.
const SYCL_HEADERS: &str = "#include <sycl/sycl.hpp>\n";
const SYCL_KERNEL: &str = "#include <usmq/kernel.h>\nUSMQ_KERNEL(1) void answer(int *to) { *to = 42; }\n";
const OPENCL_KERNEL: &str = "kernel void answer(global int *to) { *to = 42; }\n";

/// The error if libsycl does not find the compiler.
const NO_COMPILER: &str = "kernel_bundle creation from source not supported";

/// The device of a kernel that ran, or the reason of the failure.
type Outcomes = std::result::Result<String, String>;

/// The outcomes of the trial kernels.
#[derive(Debug)]
pub(super) struct Trial {
    sycl: Outcomes,
    /// The kernel without headers of C++, if the one with them found no header.
    without_headers: Option<Outcomes>,
    /// The kernel in OpenCL C, if those in SYCL C++ failed and the device supports OpenCL C.
    opencl: Option<Outcomes>,
}

impl Trial {
    pub(super) fn works(&self) -> bool {
        self.sycl.is_ok() || matches!(self.without_headers, Some(Ok(_)))
    }
}

/// Tests a kernel in a child; `None` if no child can run, or no device supports arrays.
pub(super) fn trial(system: &System, asker: &Asker, probe: &Probe, changes: &[Change<'_>]) -> Option<Trial> {
    if probe.seen()?.devices.iter().all(|device| device.usm.is_empty()) {
        return None;
    }
    let sycl = sycl(system, asker, changes)?;
    let lacks_header = matches!(sycl.as_ref().map_err(|log| lack(log)), Err(Some(Lack::Header(_))));
    let without_headers =
        if lacks_header { tried(asker, changes, || Kernel::from_sycl(SYCL_KERNEL, "answer")) } else { None };
    let mut trial = Trial { sycl, without_headers, opencl: None };
    if !trial.works() {
        trial.opencl = opencl(asker, changes);
    }
    Some(trial)
}

fn sycl(system: &System, asker: &Asker, changes: &[Change<'_>]) -> Option<Outcomes> {
    let headers = if system.limits.is_empty() { HEADERS } else { SYCL_HEADERS };
    let source = format!("{headers}{SYCL_KERNEL}");
    tried(asker, changes, || Kernel::from_sycl(&source, "answer"))
}

fn opencl(asker: &Asker, changes: &[Change<'_>]) -> Option<Outcomes> {
    let outcome = tried(asker, changes, || {
        if !current_queue()?.device().capabilities().opencl_c {
            return Err(Error::value(String::new()));
        }
        Kernel::from_opencl(OPENCL_KERNEL, "answer", KernelOptions::default())
    });
    outcome.filter(|outcome| outcome.as_ref().err().is_none_or(|reason| !reason.is_empty()))
}

/// Runs a kernel in a child with these changes.
fn tried(asker: &Asker, changes: &[Change<'_>], kernel: impl FnOnce() -> Result<Kernel>) -> Option<Outcomes> {
    // Kernels cached by an earlier process would hide a broken compiler.
    let changes: Vec<_> =
        changes.iter().copied().chain([Change::Set("SYCL_CACHE_PERSISTENT", "0")]).collect();
    let work = || match answer(kernel) {
        Ok(device) => format!("+{device}"),
        Err(Error::KernelBuild { log, .. }) => format!("-{log}"),
        Err(error) => format!("-{error}"),
    };
    Some(match asker.trial(&changes, work)? {
        Outcome::Answer(text) => match text.strip_prefix('+') {
            Some(device) => Ok(device.to_owned()),
            None => Err(text.trim_start_matches('-').to_owned()),
        },
        Outcome::Died { how, said } => Err(ended(&how, &said)),
        Outcome::TooLong(limit) => Err(format!("does not finish within {} s", limit.as_secs_f32())),
        Outcome::Interrupted | Outcome::Unasked(_) => return None,
    })
}

/// Runs a kernel that writes one number, and returns its device.
fn answer(kernel: impl FnOnce() -> Result<Kernel>) -> Result<String> {
    let to = Array::zeros::<i32>([1])?;
    // SAFETY: the kernel writes the one element of its only argument.
    unsafe { kernel()?.launch([1], &[(&to).into()]) }?;
    match to.to_vec::<i32>()?[..] {
        [42] => Ok(to.queue().device().filter_string().unwrap_or("a device").to_owned()),
        ref other => Err(Error::value(format!("the kernel wrote {other:?} instead of [42]"))),
    }
}

/// `cause`: the fix of a problem that affects more than kernels, if known.
pub(super) fn findings(
    system: &System,
    asker: &Asker,
    changes: &[Change<'_>],
    trial: &Trial,
    cause: Option<&str>,
) -> Vec<Finding> {
    let reason = match &trial.sycl {
        Ok(device) => {
            return vec![Finding::ok(TOPIC, format!("a kernel in SYCL C++ compiled and ran on {device}"))];
        }
        Err(reason) => reason,
    };
    let lack = lack(reason);
    if let (Some(Lack::Header(header)), Some(Ok(device))) = (&lack, &trial.without_headers) {
        let install = install_compiler(&system.read("/etc/os-release").unwrap_or_default(), system.is_root);
        let what = format!(
            "a kernel in SYCL C++ compiled and ran on {device}\n'{header}' was not found: kernels that include \
             headers of SYCL or C++ do not compile, since they need those of a C++ standard library"
        );
        return vec![Finding::note(TOPIC, what).fix(install)];
    }
    if let (None, Some(Err(other))) = (&lack, &trial.opencl) {
        let fix = cause.map_or_else(|| reinstall(system, "intel-opencl-rt"), str::to_owned);
        return vec![Finding::problem(
            TOPIC,
            format!("no kernel runs on the default device: {}", shorter(other)),
            fix,
        )];
    }
    let works = |more: &[Change<'_>]| {
        let all: Vec<_> = changes.iter().chain(more).copied().collect();
        matches!(sycl(system, asker, &all), Some(Ok(_)))
    };
    let (what, fix) = match (lack, cause) {
        (Some(Lack::Header(header)), _) => (
            format!(
                "'{header}' was not found\nthe compiler inside the runtime uses the headers of a C++ \
                 standard library of \
                 this machine, and they are not installed"
            ),
            install_compiler(&system.read("/etc/os-release").unwrap_or_default(), system.is_root),
        ),
        (Some(Lack::TemporaryFile(reason)), _) => temporary(system, &reason, works),
        (None, Some(cause)) => (shorter(reason), cause.to_owned()),
        (None, None) => match culprit(system, works) {
            Some(name) => (
                format!("{name} is set, and without it they do: {}", shorter(reason)),
                format!("unset {name}"),
            ),
            None if reason.contains(NO_COMPILER) => {
                ("libsycl finds no compiler for them".to_owned(), reinstall(system, "intel-sycl-rt"))
            }
            None => (shorter(reason), INSTALL.to_owned()),
        },
    };
    let others = match &trial.opencl {
        Some(Ok(_)) => "\nkernels in OpenCL C work",
        _ => "",
    };
    vec![Finding::problem(TOPIC, format!("kernels in SYCL C++ do not compile: {what}{others}"), fix)]
}

/// The compiler creates a folder, although it may not write to it.
fn temporary(system: &System, reason: &str, works: impl Fn(&[Change<'_>]) -> bool) -> (String, String) {
    let set: Vec<_> = TEMPORARY.into_iter().filter(|name| system.variable(name).is_some()).collect();
    let what = format!(
        "no temporary file can be made in {}: {reason}",
        match set.first() {
            Some(name) => format!("{name}={}", system.variable(name).unwrap_or_default()),
            None => temporary_folder(),
        }
    );
    let unset: Vec<_> = set.iter().map(|name| Change::Unset(name)).collect();
    if !set.is_empty() && works(&unset) {
        return (what, format!("unset {}", set.join(" ")));
    }
    let home = system.variable("HOME").unwrap_or("/");
    let other = ["/tmp", "/var/tmp", "/dev/shm", home]
        .into_iter()
        .find(|folder| works(&[Change::Set("TMPDIR", folder)]));
    let fix = match other {
        Some(folder) => format!("export TMPDIR={}", quoted(folder)),
        None => "set TMPDIR to a folder that you may write to".to_owned(),
    };
    (what, fix)
}

/// A variable of the runtime or of a driver without which the kernel works.
fn culprit(system: &System, works: impl Fn(&[Change<'_>]) -> bool) -> Option<String> {
    let driver = cpu_driver(system);
    let mut names = system.variables.keys().filter(|name| variables::of_runtime(name));
    names
        .find(|name| match &driver {
            // The trial is a copy of this process, in which usmq adds no driver any more.
            Some(driver) if *name == "OCL_ICD_FILENAMES" => works(&[Change::Set(name, driver)]),
            _ => works(&[Change::Unset(name)]),
        })
        .cloned()
}

/// The part of a log after its first error, shortened, because a log may have hundreds of lines.
fn shorter(log: &str) -> String {
    let lines: Vec<_> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first = lines.iter().position(|line| line.contains("error")).unwrap_or(0);
    lines[first..].iter().take(3).copied().collect::<Vec<_>>().join("\n").chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::super::system::fake::FakeSystem;
    use super::*;
    use std::time::Duration;

    const HEADER: &str =
        "Device compilation failed\n\trtc_0.cpp:1:10: fatal error: 'cstddef' file not found\n";

    fn look(system: &System, sycl: Outcomes, opencl: Option<Outcomes>, cause: Option<&str>) -> Finding {
        let asker = Asker::new(Duration::from_secs(30));
        let mut found = findings(system, &asker, &[], &Trial { sycl, without_headers: None, opencl }, cause);
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    fn fails(reason: &str) -> Outcomes {
        Err(reason.to_owned())
    }

    #[test]
    fn a_successful_kernel_is_reported_with_its_device() {
        let found = look(&FakeSystem::new(), Ok("opencl:cpu:0".to_owned()), None, None);
        assert_eq!((found.state, found.what.contains("opencl:cpu:0")), (State::Ok, true));
    }

    #[test]
    fn missing_headers_are_reported_with_the_distribution_command() {
        let system = FakeSystem::new().file("/etc/os-release", "ID=ubuntu\n");
        let found = look(&system, fails(HEADER), Some(Ok(String::new())), None);
        assert!(
            found.what.contains("'cstddef' was not found") && found.what.contains("OpenCL C work"),
            "{found:?}"
        );
        assert!(found.fix.unwrap().contains("apt-get install -y g++"));
    }

    #[test]
    fn missing_headers_are_a_note_if_kernels_without_them_run() {
        let system = FakeSystem::new().file("/etc/os-release", "ID=ubuntu\n");
        let trial =
            Trial { sycl: fails(HEADER), without_headers: Some(Ok("opencl:cpu:0".to_owned())), opencl: None };
        assert!(trial.works());
        let found = findings(&system, &Asker::new(Duration::from_secs(30)), &[], &trial, None);
        assert_eq!((found.len(), found[0].state), (1, State::Note));
        assert!(found[0].what.contains("ran on opencl:cpu:0\n'cstddef' was not found"), "{found:?}");
        assert!(found[0].fix.as_ref().unwrap().contains("apt-get install -y g++"));
    }

    #[test]
    fn the_variable_that_names_an_unsuitable_driver_is_the_culprit() {
        let system = FakeSystem::new()
            .file("/env/lib/libsycl.so.9", "loaded")
            .file("/env/lib/libintelocl.so", "")
            .variable("SYCL_UR_TRACE", "-1")
            .variable("OCL_ICD_FILENAMES", "/usr/lib/libpocl.so");
        let with_intel = |changes: &[Change<'_>]| matches!(changes, [Change::Set("OCL_ICD_FILENAMES", driver)] if *driver == "/env/lib/libintelocl.so");
        assert_eq!(culprit(&system, with_intel).as_deref(), Some("OCL_ICD_FILENAMES"));
        assert_eq!(culprit(&system, |_| false), None);
        let traced = |changes: &[Change<'_>]| matches!(changes, [Change::Unset("SYCL_UR_TRACE")]);
        assert_eq!(culprit(&system, traced).as_deref(), Some("SYCL_UR_TRACE"));
    }

    #[test]
    fn a_known_cause_determines_the_fix() {
        for reason in ["out of memory", "crashes the calling process (signal SIGABRT)"] {
            let found = look(&FakeSystem::new(), fails(reason), None, Some("ulimit -v unlimited"));
            assert_eq!(found.fix.as_deref(), Some("ulimit -v unlimited"));
        }
        let found = look(&FakeSystem::new(), fails("error"), Some(fails("it crashes")), Some("unset X"));
        assert_eq!((found.what.contains("no kernel runs"), found.fix.as_deref()), (true, Some("unset X")));
    }

    #[test]
    fn the_first_error_of_a_long_log_is_shown() {
        let log = format!(
            "Device compilation failed\nIn file included from x\nx.cpp:1:2: error: bad\n{}",
            "more\n".repeat(90)
        );
        assert_eq!(shorter(&log), "x.cpp:1:2: error: bad\nmore\nmore");
        assert_eq!(shorter("one line"), "one line");
        assert_eq!(shorter(""), "");
    }
}
