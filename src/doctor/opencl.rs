//! Checks whether each named OpenCL driver can be loaded and offers a platform.

use super::dlopen::Driver;
use super::icd::{self, Entry, Fault, IcdSource, Twin};
use super::installation::reinstall;
use super::probe::{Asker, Change, Probe, ended};
use super::report::{Finding, Topic, counted};
use super::system::{System, named};
use super::variables;
use std::path::Path;

const TOPIC: Topic = Topic::OpenCl;

const LOADER: &str = "libOpenCL.so.1";
/// The wheel of the OpenCL loader and the CPU driver.
const PACKAGE: &str = "intel-opencl-rt";

/// The error code of `cl_khr_icd` for a driver without devices.
const PLATFORM_NOT_FOUND: i32 = -1001;

/// Returns the findings, and the value of `OCL_ICD_FILENAMES` after their fixes, if any.
///
/// `plain`: the devices without variables that select devices. `cause`: the fix of a problem that affects
/// more than drivers.
pub(super) fn findings(
    system: &System,
    asker: &Asker,
    plain: &Probe,
    cause: Option<&str>,
) -> (Vec<Finding>, Option<String>) {
    let mut found = loader(system, asker, plain, cause);
    found.extend(folder(system));
    found.extend(unread(system));
    let entries = icd::entries(system);
    let answers = answers(system, asker, plain, &entries);
    // Every fix keeps the same drivers, so that no fix names a driver that another one removes.
    let kept: Vec<_> =
        entries.iter().zip(&answers).filter(|(_, answer)| answer.works()).map(|(entry, _)| entry).collect();
    found.extend(
        entries.iter().zip(&answers).map(|(entry, answer)| describe(system, entry, answer, &kept, cause)),
    );
    let is_sound = answers.iter().all(Answer::is_sound);
    if is_empty(system) {
        found.push(Finding::problem(
            TOPIC,
            "OCL_ICD_FILENAMES is set but empty: usmq then adds no driver, and none is named",
            "unset OCL_ICD_FILENAMES",
        ));
    } else if entries.is_empty() {
        found.push(none(system, plain));
    } else if is_sound {
        found.extend(unhelpful(system, asker, plain));
    }
    if is_sound && !is_empty(system) {
        return (found, None);
    }
    found.extend(without_the_others(asker, plain, &kept));
    let named: Vec<_> = kept.iter().map(|entry| entry.library.clone()).collect();
    (found, if named.is_empty() { cpu_driver(system) } else { Some(named.join(":")) })
}

/// The driver that usmq adds if `OCL_ICD_FILENAMES` is not set.
pub(super) fn cpu_driver(system: &System) -> Option<String> {
    let path = system.runtime_folder()?.join("libintelocl.so");
    system.exists(&path).then(|| path.display().to_string())
}

/// Tests each driver alone, and lists its devices.
fn answers<'a>(system: &System, asker: &Asker, plain: &Probe, entries: &'a [Entry]) -> Vec<Answer<'a>> {
    let mut answers: Vec<Answer<'a>> = Vec::new();
    for (position, entry) in entries.iter().enumerate() {
        let twin =
            entries[..position].iter().find_map(|known| Some((icd::twin(system, known, entry)?, known)));
        answers.push(match twin {
            Some((Twin::SameFile, known)) => Answer::SameFile(known),
            Some((Twin::Copy, known)) => Answer::Copy(known),
            None => answer(system, asker, entry),
        });
    }
    // A driver may load and fail only when its devices are listed: testing each alone finds it.
    if answers.iter().all(Answer::is_sound) && failure(plain).is_some() {
        // A failure without any driver is not the fault of a driver.
        if alone(asker, &[]).is_some_and(|probe| failure(&probe).is_none()) {
            for (entry, answer) in entries.iter().zip(&mut answers) {
                if let (Answer::Driver(_), Some(how)) =
                    (&answer, alone(asker, &[entry]).as_ref().and_then(failure))
                {
                    *answer = Answer::Broken(format!("{how}, when its devices are listed"));
                }
            }
        }
    }
    answers
}

/// The failure of listing the devices.
fn failure(probe: &Probe) -> Option<String> {
    match probe {
        Probe::Seen(seen) => seen.error.as_ref().map(|error| format!("makes the runtime fail: {error}")),
        Probe::Died { how, said } => Some(ended(how, said)),
        Probe::TooLong(limit) => Some(format!("does not answer within {} s", limit.as_secs_f32())),
    }
}

/// Lists the devices with some of the drivers, and without the variables that select devices.
fn alone(asker: &Asker, drivers: &[&Entry]) -> Option<Probe> {
    let drivers = drivers.iter().map(|entry| entry.library.as_str()).collect::<Vec<_>>().join(":");
    let mut changes = variables::NONE_CHOOSES.to_vec();
    changes.push(Change::Set("OCL_ICD_FILENAMES", &drivers));
    changes.push(Change::Set("OCL_ICD_VENDORS", "/nonexistent"));
    asker.devices_with(&changes)
}

/// Lists the devices without the broken drivers, if those break the whole list.
fn without_the_others(asker: &Asker, plain: &Probe, kept: &[&Entry]) -> Option<Finding> {
    if plain.count() > 0 {
        return None;
    }
    let probe = alone(asker, kept)?;
    let seen = probe.seen()?;
    let what = format!("with only the other drivers: {}", seen.names());
    (!seen.devices.is_empty()).then(|| Finding::ok(TOPIC, what))
}

/// Finds working drivers without a device for arrays that keep usmq from adding the CPU driver.
fn unhelpful(system: &System, asker: &Asker, plain: &Probe) -> Option<Finding> {
    let has_usm = |probe: &Probe| {
        probe.seen().is_some_and(|seen| seen.devices.iter().any(|device| !device.usm.is_empty()))
    };
    let value = system.variable("OCL_ICD_FILENAMES").filter(|_| !has_usm(plain))?;
    let added = cpu_driver(system)?;
    let mut changes = variables::NONE_CHOOSES.to_vec();
    changes.push(Change::Set("OCL_ICD_FILENAMES", &added));
    let without = asker.devices_with(&changes).filter(has_usm)?;
    Some(Finding::problem(
        TOPIC,
        format!(
            "OCL_ICD_FILENAMES={value} names no driver that has a device for arrays, and keeps usmq from adding one\n\
             without it: {}",
            without.seen()?.names()
        ),
        "unset OCL_ICD_FILENAMES",
    ))
}

/// The result for one driver.
enum Answer<'a> {
    /// The loader loads one file once.
    SameFile(&'a Entry),
    /// A second copy of a driver.
    Copy(&'a Entry),
    Fault(Fault),
    Driver(Driver),
    Broken(String),
    /// It could not be tested in this process.
    Untried,
    /// A bare name that only usmq's search path finds.
    Unsearched(String),
}

impl Answer<'_> {
    /// Whether the driver has no problem.
    fn is_sound(&self) -> bool {
        matches!(
            self,
            Self::Driver(Driver::Platforms(_) | Driver::Refuses(PLATFORM_NOT_FOUND))
                | Self::Untried
                | Self::SameFile(_)
        )
    }

    /// Whether it may have a device, so that a fix keeps it.
    fn works(&self) -> bool {
        matches!(self, Self::Driver(Driver::Platforms(1..)) | Self::Untried)
    }
}

fn answer<'a>(system: &System, asker: &Asker, entry: &Entry) -> Answer<'a> {
    if let Some(fault) = entry.fault(system) {
        return Answer::Fault(fault);
    }
    // usmq's extension searches the folder of libsycl for bare names; the OpenCL loader does not.
    if entry.is_bare()
        && let Some(folder) = system.runtime_folder()
        && system.find_library(&entry.library) == Some(folder.join(&entry.library))
        && !system.library_path().any(|known| system.same_file(known, folder))
    {
        return Answer::Unsearched(folder.join(&entry.library).display().to_string());
    }
    match asker.driver(&entry.library) {
        Some(Ok(driver)) => Answer::Driver(driver),
        Some(Err(how)) => Answer::Broken(how),
        None => Answer::Untried,
    }
}

fn describe(
    system: &System,
    entry: &Entry,
    answer: &Answer<'_>,
    kept: &[&Entry],
    cause: Option<&str>,
) -> Finding {
    let (library, origin) = (&entry.library, entry.origin());
    let broken = |what: String| {
        let fix = match entry.source {
            IcdSource::Usmq => cause.map_or_else(|| reinstall(system, PACKAGE), str::to_owned),
            _ => entry.removal(system, kept),
        };
        Finding::problem(TOPIC, what, fix)
    };
    match answer {
        Answer::SameFile(known) => Finding::ok(
            TOPIC,
            format!("{library}, {origin}: the same file as {}, loaded once", known.library),
        ),
        Answer::Copy(known) => broken(format!(
            "{library}, {origin}, is a copy of {}: one driver loaded twice, and its second device may fail",
            known.library
        )),
        Answer::Fault(Fault::Empty) => broken(format!("the file is empty, {origin}")),
        Answer::Fault(Fault::Absent) => broken(format!("{library} does not exist, {origin}")),
        Answer::Fault(Fault::NotALibrary) => broken(format!("{library} is not a library, {origin}")),
        Answer::Fault(Fault::Lines) => broken(format!(
            "the file must contain one line without blanks, not {:?}, {origin}",
            library.chars().take(100).collect::<String>()
        )),
        Answer::Driver(Driver::Platforms(count)) => {
            Finding::ok(TOPIC, format!("{library}, {origin}: {}", counted(*count as usize, "platform")))
        }
        Answer::Driver(Driver::Refuses(PLATFORM_NOT_FOUND)) => Finding::note(
            TOPIC,
            format!("{library}, {origin}: a driver, but it finds no device in this machine"),
        ),
        Answer::Driver(Driver::Refuses(code)) => {
            broken(format!("{library}, {origin}, refuses to start: OpenCL error {code}"))
        }
        Answer::Driver(Driver::NoEntry) => {
            broken(format!("{library} is a library, but not an OpenCL driver, {origin}"))
        }
        Answer::Driver(Driver::NotLoaded(reason)) => {
            broken(format!("{library} cannot be loaded, {origin}: {}", shorter(reason, library)))
        }
        Answer::Broken(how) => broken(format!("{library}, {origin}, {how}")),
        Answer::Untried => {
            let loaded = system.loaded.iter().any(|path| system.same_file(path, Path::new(library)));
            let what = if loaded { "loaded" } else { "not tried: the runtime has started in this process" };
            Finding::ok(TOPIC, format!("{library}, {origin}: {what}"))
        }
        Answer::Unsearched(path) => Finding::problem(
            TOPIC,
            format!("{library}, {origin}, is beside libsycl, where the OpenCL loader does not search"),
            format!("export OCL_ICD_FILENAMES='{path}'"),
        ),
    }
}

/// Removes the path from the start of the loader's text, because the sentence already names it.
fn shorter<'a>(reason: &'a str, library: &str) -> &'a str {
    reason.strip_prefix(library).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason)
}

/// The libOpenCL that the adapter uses, or would use.
fn loader(system: &System, asker: &Asker, probe: &Probe, cause: Option<&str>) -> Vec<Finding> {
    let loaded: Vec<_> =
        probe.seen().into_iter().flat_map(|seen| named(&seen.loaded, "libOpenCL.so")).collect();
    if !loaded.is_empty() {
        let used = |path: &&Path| Finding::ok(TOPIC, format!("OpenCL loader: {}", path.display()));
        return loaded.iter().map(used).collect();
    }
    match system.find_library(LOADER) {
        Some(path) => vec![Finding::ok(TOPIC, format!("OpenCL loader, not in use: {}", path.display()))],
        None if asker.refusal(LOADER) == Some(Ok(String::new())) => Vec::new(),
        None => vec![Finding::problem(
            TOPIC,
            format!("{LOADER}, the OpenCL loader, was not found: no CPU device"),
            cause.map_or_else(|| reinstall(system, PACKAGE), str::to_owned),
        )],
    }
}

/// The wheel of the CPU driver contains files that no loader reads, and that name a folder of the build
/// machine.
fn unread(system: &System) -> Option<Finding> {
    let folder = system.runtime_folder()?.parent()?.join("etc/OpenCL/vendors");
    let files = system.names(&folder).into_iter().filter(|name| name.ends_with(".icd")).count();
    if files == 0 || system.same_file(&folder, &icd::folder(system)) {
        return None;
    }
    let files = counted(files, ".icd file");
    Some(Finding::ok(TOPIC, format!("{files} in {}: not read, and not needed", folder.display())))
}

/// The folder in `OCL_ICD_VENDORS`, if it hides the system's drivers.
fn folder(system: &System) -> Option<Finding> {
    let value = system.variable("OCL_ICD_VENDORS")?;
    let holds = system.names(value).iter().any(|name| name.ends_with(".icd"));
    Some(if holds {
        Finding::ok(TOPIC, format!("OCL_ICD_VENDORS={value} replaces /etc/OpenCL/vendors"))
    } else {
        let what = if system.exists(value) { "holds no .icd file" } else { "does not exist" };
        Finding::problem(
            TOPIC,
            format!("OCL_ICD_VENDORS={value} {what}: the drivers of the system are hidden"),
            "unset OCL_ICD_VENDORS",
        )
    })
}

fn is_empty(system: &System) -> bool {
    system.variable("OCL_ICD_FILENAMES").is_some_and(|value| value.split(':').all(str::is_empty))
}

fn none(system: &System, probe: &Probe) -> Finding {
    let what =
        format!("no driver is installed: none beside libsycl, none in {}", icd::folder(system).display());
    let fix = reinstall(system, PACKAGE);
    if probe.count() == 0 { Finding::problem(TOPIC, what, fix) } else { Finding::note(TOPIC, what).fix(fix) }
}

#[cfg(test)]
mod tests {
    use super::super::probe::Seen;
    use super::super::report::State;
    use super::super::system::fake::FakeSystem;
    use super::*;
    use std::time::Duration;

    fn look(system: &System) -> Vec<Finding> {
        findings(system, &Asker::new(Duration::from_secs(30)), &Probe::Seen(Seen::default()), None).0
    }

    fn only_problem(system: &System) -> (String, String) {
        let mut problems: Vec<_> =
            look(system).into_iter().filter(|finding| finding.state == State::Problem).collect();
        assert_eq!(problems.len(), 1, "{problems:?}");
        let one = problems.remove(0);
        (one.what, one.fix.unwrap())
    }

    fn system() -> FakeSystem {
        FakeSystem::new().file("/env/lib/libsycl.so.9", "loaded").file("/env/lib/libOpenCL.so.1", "")
    }

    #[test]
    fn a_missing_driver_is_a_problem_that_lists_the_searched_folders() {
        let (what, fix) = only_problem(&system());
        assert!(what.contains("/etc/OpenCL/vendors"), "{what}");
        assert!(fix.contains("intel-opencl-rt"), "{fix}");
    }

    #[test]
    fn a_folder_that_hides_the_drivers_is_a_problem() {
        for (folder, expected) in [("/empty", "holds no .icd file"), ("/gone", "does not exist")] {
            let system = system().folder("/empty").file("/etc/OpenCL/vendors/a.icd", "libc.so.6\n");
            let found = look(&system.variable("OCL_ICD_VENDORS", folder));
            let hit = found.iter().find(|finding| finding.what.contains(expected));
            let hit = hit.unwrap_or_else(|| panic!("{found:?}"));
            assert_eq!((hit.state, hit.fix.as_deref()), (State::Problem, Some("unset OCL_ICD_VENDORS")));
        }
    }

    #[test]
    fn a_library_that_is_not_a_driver_is_named_with_its_file() {
        let (what, fix) = only_problem(&system().file("/etc/OpenCL/vendors/a.icd", "libc.so.6\n"));
        assert!(
            what.contains("not an OpenCL driver") && what.contains("/etc/OpenCL/vendors/a.icd"),
            "{what}"
        );
        assert!(fix.contains("rm '/etc/OpenCL/vendors/a.icd'"), "{fix}");
    }

    #[test]
    fn an_empty_variable_is_a_problem() {
        let found = look(&system().variable("OCL_ICD_FILENAMES", ""));
        assert!(found.iter().any(|finding| finding.fix.as_deref() == Some("unset OCL_ICD_FILENAMES")));
    }

    #[test]
    fn a_bare_name_that_only_usmq_resolves_gets_its_full_path() {
        let system = system().file("/env/lib/libdriver.so", "").variable("OCL_ICD_FILENAMES", "libdriver.so");
        let (_, fix) = only_problem(&system);
        assert_eq!(fix, "export OCL_ICD_FILENAMES='/env/lib/libdriver.so'");
    }
}
