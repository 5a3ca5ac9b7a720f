//! The OpenCL drivers: whether each that is named can be loaded and offers a platform.

use super::icd::{self, Entry, Fault, Source, Twin};
use super::library::Driver;
use super::origin::INSTALL;
use super::probe::{Asker, Change, Probe, ended};
use super::report::{Finding, Topic, counted};
use super::world::{World, named};
use std::path::Path;

const TOPIC: Topic = Topic::OpenCl;

const LOADER: &str = "libOpenCL.so.1";

/// No platform: the code of `cl_khr_icd` for a driver whose devices are not there.
const PLATFORM_NOT_FOUND: i32 = -1001;

pub(super) fn findings(world: &World, asker: &Asker, probe: &Probe) -> Vec<Finding> {
    let mut found = loader(world, asker, probe);
    found.extend(folder(world));
    found.extend(unread(world));
    found.extend(variable(world));
    let entries = icd::entries(world);
    let answers: Vec<_> = entries.iter().map(|entry| answer(world, asker, entry)).collect();
    // What a fix keeps.
    let mut sound: Vec<_> = entries
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| answer.is_sound())
        .map(|(entry, _)| entry)
        .collect();
    for (position, (entry, answer)) in entries.iter().zip(&answers).enumerate() {
        let earlier = || entries[..position].iter();
        match earlier().find_map(|known| icd::twin(world, known, entry).map(|twin| (known, twin))) {
            Some((known, Twin::SameFile)) => found.push(Finding::ok(
                TOPIC,
                format!(
                    "{}, {}: the same file as {}, taken once",
                    entry.library,
                    entry.origin(),
                    known.library
                ),
            )),
            Some((known, Twin::Copy)) => found.push(Finding::problem(
                TOPIC,
                format!(
                    "{}, {}, is a copy of {}: one driver loaded twice, and its second device may fail",
                    entry.library,
                    entry.origin(),
                    known.library
                ),
                entry.removal(&sound),
            )),
            None => found.push(describe(world, entry, answer, &sound)),
        }
    }
    if entries.is_empty() {
        found.push(none(world, probe));
    }
    if sound.len() == entries.len() {
        found.extend(culprits(asker, probe, &mut sound));
    }
    if sound.len() < entries.len() {
        found.extend(without_the_others(asker, probe, &sound));
    }
    found
}

/// A driver may start and fail only when its devices are listed: each alone shows which one does.
fn culprits(asker: &Asker, probe: &Probe, sound: &mut Vec<&Entry>) -> Vec<Finding> {
    let fault = |probe: &Probe| match probe {
        Probe::Seen(seen) => seen.error.clone().map(|error| format!("lets the runtime fail: {error}")),
        Probe::Died { how, said } => Some(ended(how, said)),
        Probe::TooLong(limit) => Some(format!("does not answer within {} s", limit.as_secs_f32())),
    };
    // What fails without any driver is not the fault of one.
    if fault(probe).is_none() || alone(asker, &[]).is_none_or(|probe| fault(&probe).is_some()) {
        return Vec::new();
    }
    let how = |entry: &&Entry| fault(&alone(asker, &[*entry])?);
    let broken: Vec<_> = sound.iter().filter_map(|entry| Some((*entry, how(entry)?))).collect();
    sound.retain(|entry| broken.iter().all(|(other, _)| other != entry));
    let describe = |(entry, how): &(&Entry, String)| {
        let what = format!("{}, {}, {how}, when its devices are listed", entry.library, entry.origin());
        Finding::problem(TOPIC, what, entry.removal(sound))
    };
    broken.iter().map(describe).collect()
}

/// What is seen with some of the drivers.
fn alone(asker: &Asker, drivers: &[&Entry]) -> Option<Probe> {
    let drivers = drivers.iter().map(|entry| entry.library.as_str()).collect::<Vec<_>>().join(":");
    asker.devices_with(&[
        Change::Set("OCL_ICD_FILENAMES", &drivers),
        Change::Set("OCL_ICD_VENDORS", "/nonexistent"),
    ])
}

/// What is seen without the drivers that do not work, where they take everything with them.
fn without_the_others(asker: &Asker, probe: &Probe, sound: &[&Entry]) -> Option<Finding> {
    if probe.count() > 0 {
        return None;
    }
    let probe = alone(asker, sound)?;
    let seen = probe.seen()?;
    let what = format!("with the other drivers alone: {}", seen.names());
    (!seen.devices.is_empty()).then(|| Finding::ok(TOPIC, what))
}

/// What is known of one driver.
enum Answer {
    Fault(Fault),
    Driver(Driver),
    Broken(String),
    /// It could not be tried in this process.
    Untried,
    /// A bare name that only usmq's own search path knows.
    Unsearched(String),
}

impl Answer {
    fn is_sound(&self) -> bool {
        matches!(self, Self::Driver(Driver::Platforms(_) | Driver::Refuses(_)) | Self::Untried)
    }
}

fn answer(world: &World, asker: &Asker, entry: &Entry) -> Answer {
    if let Some(fault) = entry.fault(world) {
        return Answer::Fault(fault);
    }
    // usmq's extension searches the folder of libsycl for bare names; the OpenCL loader does not.
    if entry.is_bare()
        && let Some(folder) = world.runtime_folder()
        && world.find_library(&entry.library) == Some(folder.join(&entry.library))
        && !world.library_path().any(|known| world.same_file(known, folder))
    {
        return Answer::Unsearched(folder.join(&entry.library).display().to_string());
    }
    match asker.driver(&entry.library) {
        Some(Ok(driver)) => Answer::Driver(driver),
        Some(Err(how)) => Answer::Broken(how),
        None => Answer::Untried,
    }
}

fn describe(world: &World, entry: &Entry, answer: &Answer, sound: &[&Entry]) -> Finding {
    let (library, origin) = (&entry.library, entry.origin());
    let broken = |what: String| {
        let fix =
            if matches!(entry.source, Source::Usmq) { INSTALL.to_owned() } else { entry.removal(sound) };
        Finding::problem(TOPIC, what, fix)
    };
    match answer {
        Answer::Fault(Fault::Empty) => broken(format!("the file is empty, {origin}")),
        Answer::Fault(Fault::Absent) => broken(format!("{library} does not exist, {origin}")),
        Answer::Fault(Fault::NotALibrary) => broken(format!("{library} is not a library, {origin}")),
        Answer::Fault(Fault::Lines) => broken(format!(
            "loaders take one line without blanks, not {:?}, {origin}",
            library.chars().take(100).collect::<String>()
        )),
        Answer::Driver(Driver::Platforms(count)) => {
            Finding::ok(TOPIC, format!("{library}, {origin}: {}", counted(*count as usize, "platform")))
        }
        Answer::Driver(Driver::Refuses(PLATFORM_NOT_FOUND)) => Finding::note(
            TOPIC,
            format!("{library}, {origin}: a driver, but it finds no device of its own in this machine"),
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
            let loaded = world.loaded.iter().any(|path| world.same_file(path, Path::new(library)));
            let what = if loaded { "loaded" } else { "not tried: this process uses its devices already" };
            Finding::ok(TOPIC, format!("{library}, {origin}: {what}"))
        }
        Answer::Unsearched(path) => Finding::problem(
            TOPIC,
            format!("{library}, {origin}, lies beside libsycl, where the OpenCL loader does not search"),
            format!("export OCL_ICD_FILENAMES='{path}'"),
        ),
    }
}

/// The loader's text starts with the path, which the sentence names already.
fn shorter<'a>(reason: &'a str, library: &str) -> &'a str {
    reason.strip_prefix(library).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason)
}

/// Which libOpenCL the adapter has, or would have.
fn loader(world: &World, asker: &Asker, probe: &Probe) -> Vec<Finding> {
    let loaded = probe.seen().map(|seen| named(&seen.loaded, "libOpenCL.so").collect::<Vec<_>>());
    match loaded.as_deref() {
        Some([one]) => vec![Finding::ok(TOPIC, format!("loader of drivers: {}", one.display()))],
        Some([one, other, ..]) => vec![Finding::problem(
            TOPIC,
            format!("two loaders of drivers are in use: {} and {}", one.display(), other.display()),
            "take the folder of one of them out of LD_LIBRARY_PATH",
        )],
        _ => match world.find_library(LOADER) {
            Some(path) => {
                vec![Finding::ok(TOPIC, format!("loader of drivers, not in use: {}", path.display()))]
            }
            None if asker.refusal(LOADER) == Some(Ok(String::new())) => Vec::new(),
            None => vec![Finding::problem(
                TOPIC,
                format!("{LOADER}, the loader of drivers, was not found: no CPU device"),
                INSTALL,
            )],
        },
    }
}

/// The wheel of the CPU driver brings files that no loader reads, and that name a folder of its makers.
fn unread(world: &World) -> Option<Finding> {
    let folder = world.runtime_folder()?.parent()?.join("etc/OpenCL/vendors");
    let files = world.names(&folder).into_iter().filter(|name| name.ends_with(".icd")).count();
    if files == 0 || world.same_file(&folder, &icd::folder(world)) {
        return None;
    }
    let files = counted(files, ".icd file");
    Some(Finding::ok(TOPIC, format!("{files} in {}: not read, and not needed", folder.display())))
}

/// The folder that `OCL_ICD_VENDORS` names, when it hides what the system has.
fn folder(world: &World) -> Option<Finding> {
    let value = world.variable("OCL_ICD_VENDORS")?;
    let holds = world.names(value).iter().any(|name| name.ends_with(".icd"));
    Some(if holds {
        Finding::ok(TOPIC, format!("OCL_ICD_VENDORS={value} replaces /etc/OpenCL/vendors"))
    } else {
        let what = if world.exists(value) { "holds no .icd file" } else { "does not exist" };
        Finding::problem(
            TOPIC,
            format!("OCL_ICD_VENDORS={value} {what}: the drivers of the system are hidden"),
            "unset OCL_ICD_VENDORS",
        )
    })
}

fn variable(world: &World) -> Option<Finding> {
    let value = world.variable("OCL_ICD_FILENAMES")?;
    value.split(':').all(str::is_empty).then(|| {
        Finding::problem(
            TOPIC,
            "OCL_ICD_FILENAMES is set but empty: usmq then adds no driver, and none is named",
            "unset OCL_ICD_FILENAMES",
        )
    })
}

fn none(world: &World, probe: &Probe) -> Finding {
    let what = match world.runtime_folder() {
        Some(folder) if world.exists(folder.join("libintelocl.so")) => {
            "no driver is named, though that for CPUs is installed".to_owned()
        }
        _ => format!("no driver is installed: none beside libsycl, none in {}", icd::folder(world).display()),
    };
    if probe.count() == 0 {
        Finding::problem(TOPIC, what, INSTALL)
    } else {
        Finding::note(TOPIC, what).fix(INSTALL)
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe::Seen;
    use super::super::report::State;
    use super::super::world::fake::Fake;
    use super::*;
    use std::time::Duration;

    fn look(world: &World) -> Vec<Finding> {
        findings(world, &Asker::new(Duration::from_secs(30)), &Probe::Seen(Seen::default()))
    }

    fn only_problem(world: &World) -> (String, String) {
        let mut problems: Vec<_> =
            look(world).into_iter().filter(|finding| finding.state == State::Problem).collect();
        assert_eq!(problems.len(), 1, "{problems:?}");
        let one = problems.remove(0);
        (one.what, one.fix.unwrap())
    }

    fn world() -> Fake {
        Fake::new().file("/env/lib/libsycl.so.9", "loaded").file("/env/lib/libOpenCL.so.1", "")
    }

    #[test]
    fn no_driver_at_all_is_a_problem_and_says_where_was_looked() {
        let (what, fix) = only_problem(&world());
        assert!(what.contains("/etc/OpenCL/vendors"), "{what}");
        assert!(fix.contains("intel-opencl-rt"), "{fix}");
    }

    #[test]
    fn a_folder_that_hides_the_drivers_is_a_problem() {
        for (folder, expected) in [("/empty", "holds no .icd file"), ("/gone", "does not exist")] {
            let world = world().folder("/empty").file("/etc/OpenCL/vendors/a.icd", "libc.so.6\n");
            let found = look(&world.variable("OCL_ICD_VENDORS", folder));
            let hit = found.iter().find(|finding| finding.what.contains(expected));
            let hit = hit.unwrap_or_else(|| panic!("{found:?}"));
            assert_eq!((hit.state, hit.fix.as_deref()), (State::Problem, Some("unset OCL_ICD_VENDORS")));
        }
    }

    #[test]
    fn a_library_that_is_no_driver_is_named_with_its_file() {
        let (what, fix) = only_problem(&world().file("/etc/OpenCL/vendors/a.icd", "libc.so.6\n"));
        assert!(
            what.contains("not an OpenCL driver") && what.contains("/etc/OpenCL/vendors/a.icd"),
            "{what}"
        );
        assert!(fix.contains("rm /etc/OpenCL/vendors/a.icd"), "{fix}");
    }

    #[test]
    fn a_variable_set_to_nothing_is_a_problem() {
        let found = look(&world().variable("OCL_ICD_FILENAMES", ""));
        assert!(found.iter().any(|finding| finding.fix.as_deref() == Some("unset OCL_ICD_FILENAMES")));
    }

    #[test]
    fn a_bare_name_that_only_usmq_would_find_gets_its_full_path() {
        let world = world().file("/env/lib/libdriver.so", "").variable("OCL_ICD_FILENAMES", "libdriver.so");
        let (_, fix) = only_problem(&world);
        assert_eq!(fix, "export OCL_ICD_FILENAMES='/env/lib/libdriver.so'");
    }
}
