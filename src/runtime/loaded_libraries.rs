//! The SYCL libraries that are loaded in this process, read from /proc/self/maps.

use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files mapped into this process whose name starts with `prefix`, such as `libsycl.so`.
pub(crate) fn libraries(prefix: &str) -> BTreeSet<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    matching(&maps, prefix)
}

fn matching(maps: &str, prefix: &str) -> BTreeSet<PathBuf> {
    maps.lines()
        .filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .map(Path::to_owned)
        .collect()
}

/// The folder of the libsycl that this process uses.
pub(super) fn runtime_folder() -> Option<PathBuf> {
    Some(libraries("libsycl.so").first()?.parent()?.to_owned())
}

/// Two runtimes in one process have separate platforms and contexts: pointers and queues of one are not valid
/// in the other, and mixing them corrupts memory.
pub(super) fn refuse_two_runtimes() -> Result<()> {
    for (library, what) in [("libsycl.so", "SYCL runtimes"), ("libur_loader.so", "Unified Runtime loaders")] {
        let libraries: Vec<_> = libraries(library).iter().map(|path| path.display().to_string()).collect();
        if libraries.len() > 1 {
            return Err(conflict(what, libraries));
        }
    }
    Ok(())
}

fn conflict(what: &str, libraries: Vec<String>) -> Error {
    let message = format!(
        "{} {what} are loaded in this process: {}. Install all SYCL packages into one environment from one source \
         (PyPI or a oneAPI toolkit, not both), or import only one of them",
        libraries.len(),
        libraries.join(" and "),
    );
    Error::RuntimeConflict { message, libraries }
}

/// Whether any library has queried the runtime for devices: the runtime then loads its adapters. Until 2026.1
/// there is one adapter per kind of driver; from 2026.2 on the OpenCL adapter is part of the runtime, and
/// only the loader of OpenCL drivers shows that it is in use.
pub(crate) fn drivers_are_loaded() -> bool {
    ["libur_adapter_", "libOpenCL.so"].iter().any(|name| !libraries(name).is_empty())
}

#[cfg(test)]
mod tests {
    use super::{conflict, matching};
    use crate::error::Error;

    #[test]
    fn a_conflict_lists_the_libraries() {
        let both = ["/a/libsycl.so.9", "/b/libsycl.so.9"].map(str::to_owned).to_vec();
        let error = conflict("SYCL runtimes", both.clone());
        let text =
            "2 SYCL runtimes are loaded in this process: /a/libsycl.so.9 and /b/libsycl.so.9. Install all";
        assert!(error.to_string().starts_with(text), "{error}");
        assert!(matches!(error, Error::RuntimeConflict { libraries, .. } if libraries == both));
    }

    #[test]
    fn each_library_in_proc_maps_is_listed_once() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 42   /opt/a b/lib/libsycl.so.9.0.0\n\
                    7f01-7f02 rw-p 00001000 08:01 42   /opt/a b/lib/libsycl.so.9.0.0\n\
                    7f03-7f04 r-xp 00000000 08:01 43   /usr/lib/libsycl.so.8\n\
                    7f05-7f06 r-xp 00000000 08:01 44   /usr/lib/libsycl-jit.so\n\
                    7ffd-7ffe rw-p 00000000 00:00 0    [stack]\n";
        let found: Vec<_> = matching(maps, "libsycl.so").into_iter().collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].to_str(), Some("/opt/a b/lib/libsycl.so.9.0.0"));
    }
}
