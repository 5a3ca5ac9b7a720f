//! The sources of the OpenCL loader's drivers: variables and `.icd` files, and problems with the named files.
//!
//! Source: the OpenCL extension `cl_khr_icd`, and the loaders of Khronos and of the ocl-icd project.

use super::system::{System, quoted};
use crate::runtime::RegularFile;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The source that names a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IcdSource {
    /// `OCL_ICD_FILENAMES`.
    Variable,
    /// usmq, if no other source names a CPU driver.
    Usmq,
    /// A file of the folder of vendors.
    File(PathBuf),
}

/// One named driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub source: IcdSource,
    /// A path, or the bare name of a library.
    pub library: String,
}

/// A problem with a driver that is visible without loading it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing is named.
    Empty,
    Absent,
    /// A file, but no library.
    NotALibrary,
    /// More than the one line that loaders read.
    Lines,
}

const VENDORS: &str = "/etc/OpenCL/vendors";

/// The effective folder of `.icd` files.
pub(super) fn folder(system: &System) -> PathBuf {
    PathBuf::from(system.variable("OCL_ICD_VENDORS").unwrap_or(VENDORS))
}

/// All named drivers, in the order of the loader.
pub(super) fn entries(system: &System) -> Vec<Entry> {
    let mut found = Vec::new();
    if let Some((value, by_usmq)) = system.in_force("OCL_ICD_FILENAMES") {
        let source = if by_usmq { IcdSource::Usmq } else { IcdSource::Variable };
        let libraries = value.split(':').filter(|library| !library.is_empty());
        found.extend(libraries.map(|library| Entry { source: source.clone(), library: library.to_owned() }));
    }
    let folder = folder(system);
    for name in system.names(&folder).into_iter().filter(|name| name.ends_with(".icd")) {
        let file = folder.join(name);
        let text = system.read(&file).unwrap_or_default();
        let library = text.strip_suffix('\n').unwrap_or(&text).to_owned();
        found.push(Entry { source: IcdSource::File(file), library });
    }
    found
}

impl Entry {
    /// A bare name is searched by the dynamic loader.
    pub(super) fn is_bare(&self) -> bool {
        !self.library.contains('/')
    }

    pub(super) fn fault(&self, system: &System) -> Option<Fault> {
        if self.library.is_empty() {
            return Some(Fault::Empty);
        }
        if self.library.trim() != self.library || self.library.contains('\n') {
            return Some(Fault::Lines);
        }
        if self.is_bare() {
            return None;
        }
        let path = system.at(&self.library);
        if !path.is_file() {
            return Some(Fault::Absent);
        }
        let mut start = [0; 4];
        let read = RegularFile::open(&path, u64::MAX).and_then(|mut found| found.file.read_exact(&mut start));
        let is_library = read.is_ok() && start == *b"\x7fELF";
        (!is_library).then_some(Fault::NotALibrary)
    }

    /// The fix that removes the entry and keeps `others`.
    pub(super) fn removal(&self, system: &System, others: &[&Entry]) -> String {
        let file = match &self.source {
            IcdSource::File(file) => file,
            IcdSource::Variable | IcdSource::Usmq => {
                let rest: Vec<_> = others
                    .iter()
                    .filter(|other| other.source == IcdSource::Variable && **other != self)
                    .map(|other| other.library.as_str())
                    .collect();
                return if rest.is_empty() {
                    "unset OCL_ICD_FILENAMES".to_owned()
                } else {
                    format!("export OCL_ICD_FILENAMES={}", quoted(&rest.join(":")))
                };
            }
        };
        let may_write = file.parent().is_some_and(|folder| (system.may_open)(&system.at(folder)));
        let sudo = if may_write { "" } else { "sudo " };
        format!("{sudo}rm {}    # or install its driver again", quoted(&file.display().to_string()))
    }

    /// The origin of the entry, for a sentence.
    pub(super) fn origin(&self) -> String {
        match &self.source {
            IcdSource::Variable => "named by OCL_ICD_FILENAMES".to_owned(),
            IcdSource::Usmq => "added by usmq".to_owned(),
            IcdSource::File(file) => format!("named by {}", file.display()),
        }
    }
}

/// The relation of two entries for one driver.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Twin {
    /// One file under two names: the loader loads it once.
    SameFile,
    /// Two files with the same content: the driver is loaded twice.
    Copy,
}

pub(super) fn twin(system: &System, one: &Entry, other: &Entry) -> Option<Twin> {
    if one.library == other.library {
        return Some(Twin::SameFile);
    }
    if one.is_bare() || other.is_bare() {
        return None;
    }
    let (one, other) = (Path::new(&one.library), Path::new(&other.library));
    if system.same_file(one, other) {
        return Some(Twin::SameFile);
    }
    equal(&system.at(one), &system.at(other)).then_some(Twin::Copy)
}

/// No driver has as many bytes.
const LARGEST: u64 = 1 << 30;

/// Drivers have up to a hundred megabytes; only files of equal size are read.
fn equal(one: &Path, other: &Path) -> bool {
    let open = |path: &Path| RegularFile::open(path, LARGEST);
    let (Ok(one), Ok(other)) = (open(one), open(other)) else { return false };
    let length = one.bytes;
    if length != other.bytes {
        return false;
    }
    let (mut one, mut other) =
        (BufReader::with_capacity(1 << 20, one.file), BufReader::with_capacity(1 << 20, other.file));
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut rest = length;
    while rest > 0 {
        let part = rest.min(1 << 20) as usize;
        if one.read_exact(&mut left[..part]).is_err() || other.read_exact(&mut right[..part]).is_err() {
            return false;
        }
        if left[..part] != right[..part] {
            return false;
        }
        rest -= part as u64;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::system::fake::FakeSystem;
    use super::*;

    fn variable(library: &str) -> Entry {
        Entry { source: IcdSource::Variable, library: library.to_owned() }
    }

    #[test]
    fn drivers_are_listed_in_loader_order() {
        let system = FakeSystem::new()
            .variable("OCL_ICD_FILENAMES", "/a/liba.so::libb.so")
            .file("/etc/OpenCL/vendors/z.icd", "/z/libz.so\n")
            .file("/etc/OpenCL/vendors/y.icd", "liby.so")
            .file("/etc/OpenCL/vendors/readme", "not a driver");
        let found: Vec<_> = entries(&system).into_iter().map(|entry| entry.library).collect();
        assert_eq!(found, ["/a/liba.so", "libb.so", "liby.so", "/z/libz.so"]);
    }

    #[test]
    fn a_configured_folder_replaces_the_system_folder() {
        let system = FakeSystem::new()
            .file("/etc/OpenCL/vendors/z.icd", "/z/libz.so\n")
            .file("/other/a.icd", "/a/liba.so\n")
            .variable("OCL_ICD_VENDORS", "/other");
        assert_eq!(entries(&system).len(), 1);
        assert_eq!(entries(&system)[0].library, "/a/liba.so");
        assert!(entries(&system.variable("OCL_ICD_VENDORS", "/empty")).is_empty());
    }

    #[test]
    fn drivers_added_by_usmq_are_distinguished_from_user_settings() {
        let mut system = FakeSystem::new();
        system.settings.push(("OCL_ICD_FILENAMES", "/env/lib/libintelocl.so".into()));
        assert_eq!(entries(&system)[0].source, IcdSource::Usmq);
        let system = system.variable("OCL_ICD_FILENAMES", "/x.so");
        assert_eq!(entries(&system)[0].source, IcdSource::Variable);
        assert_eq!(entries(&system).len(), 1);
    }

    #[test]
    fn each_fault_is_detected_without_loading() {
        let system = FakeSystem::new()
            .file("/lib/text.so", "no library at all")
            .file("/lib/short.so", "")
            .file("/lib/good.so", "\x7fELF...")
            .folder("/lib/folder.so");
        for (library, expected) in [
            ("", Some(Fault::Empty)),
            ("/lib/none.so", Some(Fault::Absent)),
            ("/lib/folder.so", Some(Fault::Absent)),
            ("/lib/text.so", Some(Fault::NotALibrary)),
            ("/lib/short.so", Some(Fault::NotALibrary)),
            ("/lib/good.so", None),
            ("/lib/good.so ", Some(Fault::Lines)),
            ("/lib/good.so\n/lib/none.so", Some(Fault::Lines)),
            ("libbare.so", None),
        ] {
            assert_eq!(variable(library).fault(&system), expected, "{library:?}");
        }
    }

    #[test]
    fn a_link_is_the_same_driver_and_a_copy_is_a_second_one() {
        let system = FakeSystem::new()
            .file("/a/lib.so", "\x7fELF one")
            .file("/b/lib.so", "\x7fELF one")
            .file("/c/lib.so", "\x7fELF two");
        std::os::unix::fs::symlink(system.at("/a/lib.so"), system.at("/a/link.so")).unwrap();
        let twin_of = |other: &str| twin(&system, &variable("/a/lib.so"), &variable(other));
        assert_eq!(twin_of("/a/lib.so"), Some(Twin::SameFile));
        assert_eq!(twin_of("/a/../a/lib.so"), Some(Twin::SameFile));
        assert_eq!(twin_of("/a/link.so"), Some(Twin::SameFile));
        assert_eq!(twin_of("/b/lib.so"), Some(Twin::Copy));
        assert_eq!(twin_of("/c/lib.so"), None);
        assert_eq!(twin_of("/d/lib.so"), None);
        assert_eq!(twin_of("lib.so"), None);
    }

    #[test]
    fn removing_one_driver_keeps_the_others() {
        let (bad, good) = (variable("/bad.so"), variable("/good.so"));
        let file = Entry {
            source: IcdSource::File("/etc/OpenCL/vendors/x.icd".into()),
            library: "/x.so".to_owned(),
        };
        let mut system = FakeSystem::new();
        assert_eq!(bad.removal(&system, &[&bad, &file]), "unset OCL_ICD_FILENAMES");
        assert_eq!(bad.removal(&system, &[&bad, &good, &file]), "export OCL_ICD_FILENAMES='/good.so'");
        assert!(file.removal(&system, &[&file]).starts_with("rm '/etc/OpenCL/vendors/x.icd'"));
        system.may_open = |_| false;
        assert!(file.removal(&system, &[&file]).starts_with("sudo rm '/etc/OpenCL/vendors/x.icd'"));
    }
}
