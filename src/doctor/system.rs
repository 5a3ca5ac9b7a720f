//! The system that the doctor checks besides the runtime: files, variables, loaded libraries. Tests replace
//! it by a fake.

use crate::kernel::is_root;
use crate::runtime::emulator::Fault;
use crate::runtime::{self, RegularFile, Setting, read_text};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest text that the doctor reads.
const TEXT: u64 = 16 << 20;

pub(super) struct System {
    /// The folder used as `/`.
    pub root: PathBuf,
    /// As the user set them.
    pub variables: BTreeMap<String, String>,
    /// The value of `ONEAPI_DEVICE_SELECTOR` if usmq added a term to the user's value.
    pub completed_selector: Option<String>,
    /// Variables that usmq sets, or has set, because the user did not.
    pub settings: Vec<Setting>,
    /// Libraries mapped into this process.
    pub loaded: BTreeSet<PathBuf>,
    /// Whether this user may read and write a file.
    pub may_open: fn(&Path) -> bool,
    /// The reason why other users could write to a folder.
    pub fault: fn(&Path) -> Option<String>,
    /// Whether commands need no `sudo`.
    pub is_root: bool,
    /// The reason why the requested emulated GPUs are not available.
    pub emulation: Option<Fault>,
    /// Limits of this process on its memory.
    pub limits: Vec<Limit>,
}

impl System {
    pub(super) fn real() -> Self {
        let settings = runtime::settings();
        let mut variables: BTreeMap<_, _> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        // Set variables cannot be distinguished from the user's.
        for (name, value) in &settings {
            if variables.get(*name).is_some_and(|known| Path::new(known) == value) {
                variables.remove(*name);
            }
        }
        let mut completed_selector = None;
        if let Some(selector) = variables.get_mut("ONEAPI_DEVICE_SELECTOR") {
            let own = runtime::without_own_term(selector).to_owned();
            completed_selector = (own != *selector).then(|| std::mem::replace(selector, own));
        }
        Self {
            root: PathBuf::from("/"),
            variables,
            completed_selector,
            settings,
            loaded: runtime::libraries("lib"),
            may_open,
            fault: |folder| runtime::fault(folder, runtime::Who::here()),
            is_root: is_root(),
            emulation: runtime::emulator::fault().ok().flatten(),
            limits: limits_in_force(),
        }
    }

    /// A variable set by the user.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// A variable as the runtime sees it, and whether usmq set it.
    pub(super) fn in_force(&self, name: &str) -> Option<(String, bool)> {
        let own = self.settings.iter().find(|(known, _)| *known == name);
        self.variable(name)
            .map(|value| (value.to_owned(), false))
            .or_else(|| own.map(|(_, value)| (value.display().to_string(), true)))
    }

    /// The real path of a path of this system.
    pub(super) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        path.strip_prefix("/").map_or_else(|_| path.to_owned(), |rest| self.root.join(rest))
    }

    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.at(path).exists()
    }

    pub(super) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        read_text(&self.at(path), TEXT).ok()
    }

    /// Whether a file contains these bytes. Reads it in parts, because the file may not fit into memory.
    pub(super) fn has_bytes(&self, path: impl AsRef<Path>, wanted: &[u8]) -> bool {
        let Ok(RegularFile { mut file, .. }) = RegularFile::open(&self.at(path), u64::MAX) else {
            return false;
        };
        let mut part = Vec::new();
        loop {
            // Keep the end of the last part, which may start the wanted bytes.
            part.drain(..part.len().saturating_sub(wanted.len()));
            match file.by_ref().take(1 << 20).read_to_end(&mut part) {
                Ok(0) | Err(_) => return false,
                Ok(_) if part.windows(wanted.len()).any(|window| window == wanted) => return true,
                Ok(_) => {}
            }
        }
    }

    /// Names in a folder, sorted; none if it cannot be read.
    pub(super) fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The libsycl of this process; the first of several.
    pub(super) fn libsycl(&self) -> Option<&Path> {
        self.loaded_as("libsycl.so").next()
    }

    /// The folder of libsycl, where the runtime's other parts are expected.
    pub(super) fn runtime_folder(&self) -> Option<&Path> {
        self.libsycl()?.parent()
    }

    /// Loaded libraries whose name has this prefix.
    pub(super) fn loaded_as<'a>(&'a self, prefix: &str) -> impl Iterator<Item = &'a Path> + use<'a> {
        named(&self.loaded, prefix)
    }

    /// Folders of `LD_LIBRARY_PATH`.
    pub(super) fn library_path(&self) -> impl Iterator<Item = &Path> {
        let folders = self.variable("LD_LIBRARY_PATH").unwrap_or_default().split([':', ';']);
        folders.filter(|folder| !folder.is_empty()).map(Path::new)
    }

    /// The path of a library in the folders that a loader usually searches.
    pub(super) fn find_library(&self, name: &str) -> Option<PathBuf> {
        const USUAL: [&str; 6] = [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib64",
            "/usr/lib",
            "/usr/local/lib",
            "/lib/x86_64-linux-gnu",
            "/usr/lib/wsl/lib",
        ];
        let folders = self.library_path().chain(self.runtime_folder()).chain(USUAL.map(Path::new));
        folders.map(|folder| folder.join(name)).find(|path| self.exists(path))
    }

    /// Whether two paths are one file.
    pub(super) fn same_file(&self, one: &Path, other: &Path) -> bool {
        let real = |path: &Path| self.at(path).canonicalize().ok();
        real(one).is_some_and(|one| Some(one) == real(other))
    }
}

/// Quotes a text as one shell word.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Libraries whose file name has this prefix.
pub(super) fn named<'a>(
    libraries: &'a BTreeSet<PathBuf>,
    prefix: &str,
) -> impl Iterator<Item = &'a Path> + use<'a> {
    let prefix = prefix.to_owned();
    let fits = move |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    };
    libraries.iter().filter(fits).map(PathBuf::as_path)
}

fn may_open(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is a C string that outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
}

/// A limit of this process on its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    /// The name of the limit in `ulimit`.
    pub option: &'static str,
    pub bytes: u64,
    /// The hard limit: the largest value that this user may set; `None` for any value.
    pub most: Option<u64>,
}

const RESOURCES: [(&str, libc::__rlimit_resource_t); 2] =
    [("-v", libc::RLIMIT_AS), ("-d", libc::RLIMIT_DATA)];

fn read_limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes to the struct; on failure the struct is unchanged.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit
}

/// Whether this process may exceed a hard limit: `CAP_SYS_RESOURCE`, which containers remove from root.
fn may_exceed_limits() -> bool {
    const SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> SYS_RESOURCE & 1 == 1)
}

/// The effective limits.
fn limits_in_force() -> Vec<Limit> {
    let limits = RESOURCES.iter().map(|(option, resource)| (*option, read_limit(*resource)));
    limits
        .filter(|(_, limit)| limit.rlim_cur != libc::RLIM_INFINITY)
        .map(|(option, limit)| Limit {
            option,
            bytes: limit.rlim_cur,
            most: (limit.rlim_max != libc::RLIM_INFINITY && !may_exceed_limits()).then_some(limit.rlim_max),
        })
        .collect()
}

/// In a child: removes the limits, or raises them as far as this user may.
pub(super) fn raise_limits() {
    for (_, resource) in RESOURCES {
        let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: reads the struct.
        if unsafe { libc::setrlimit(resource, &raw const none) } != 0 {
            let most = read_limit(resource).rlim_max;
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: as above. If this also fails, the limit is unchanged.
            unsafe { libc::setrlimit(resource, &raw const limit) };
        }
    }
}

/// A fake system in a temporary folder, which is removed on drop.
#[cfg(test)]
pub(super) mod fake {
    use super::*;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::{AtomicUsize, Ordering};

    pub(in crate::doctor) struct FakeSystem(System);

    impl FakeSystem {
        pub(in crate::doctor) fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let root = std::env::temp_dir().join(format!("usmq-doctor-{}-{number}", std::process::id()));
            std::fs::create_dir_all(&root).unwrap();
            Self(System {
                root,
                variables: BTreeMap::new(),
                completed_selector: None,
                settings: Vec::new(),
                loaded: BTreeSet::new(),
                may_open: |_| true,
                fault: |_| None,
                is_root: false,
                emulation: None,
                limits: Vec::new(),
            })
        }

        pub(in crate::doctor) fn file(mut self, path: &str, text: &str) -> Self {
            let place = self.at(path);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, text).unwrap();
            if path.contains(".so") && text == "loaded" {
                self.loaded.insert(path.into());
            }
            self
        }

        pub(in crate::doctor) fn folder(self, path: &str) -> Self {
            std::fs::create_dir_all(self.at(path)).unwrap();
            self
        }

        pub(in crate::doctor) fn variable(mut self, name: &str, value: &str) -> Self {
            self.variables.insert(name.to_owned(), value.to_owned());
            self
        }
    }

    impl Deref for FakeSystem {
        type Target = System;

        fn deref(&self) -> &System {
            &self.0
        }
    }

    impl DerefMut for FakeSystem {
        fn deref_mut(&mut self) -> &mut System {
            &mut self.0
        }
    }

    impl Drop for FakeSystem {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0.root);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::FakeSystem;

    #[test]
    fn bytes_are_found_at_any_position_in_a_file() {
        for before in [0, 5, (1 << 20) - 3, 1 << 20, (3 << 20) - 1] {
            let system =
                FakeSystem::new().file("/x", &format!("{}wanted{}", "-".repeat(before), "-".repeat(9)));
            assert!(system.has_bytes("/x", b"wanted"), "{before}");
            assert!(!system.has_bytes("/x", b"other"));
        }
        assert!(!FakeSystem::new().has_bytes("/x", b"wanted"));
    }
}
