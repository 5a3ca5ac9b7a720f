//! Checks LD_LIBRARY_PATH for libraries that the dynamic loader uses instead of the runtime's.

use super::report::{Finding, Topic};
use super::system::{System, quoted};
use std::path::{Path, PathBuf};

const TOPIC: Topic = Topic::Variables;

/// The libraries used instead of the runtime's; none if the runtime's folder comes first.
pub(super) fn shadowing(system: &System) -> Vec<PathBuf> {
    let Some(own) = system.runtime_folder() else { return Vec::new() };
    let before = system.library_path().take_while(|folder| !is_folder(system, folder, own));
    let is_taken = |path: &PathBuf| {
        path.file_name().is_some_and(|name| {
            let own = own.join(name);
            system.exists(&own) && !system.same_file(&own, path)
        })
    };
    let libraries = before.flat_map(|folder| {
        let names = system.names(folder).into_iter();
        names.filter(|name| name.starts_with("lib") && name.contains(".so")).map(|name| folder.join(name))
    });
    libraries.filter(is_taken).collect()
}

fn is_folder(system: &System, one: &Path, other: &Path) -> bool {
    one == other || system.same_file(one, other)
}

/// The command that removes these folders from LD_LIBRARY_PATH.
pub(super) fn without(system: &System, folders: &[&Path]) -> String {
    let stays = |folder: &&Path| !folders.iter().any(|other| is_folder(system, folder, other));
    let rest: Vec<_> =
        system.library_path().filter(stays).map(|folder| folder.display().to_string()).collect();
    if rest.is_empty() {
        "unset LD_LIBRARY_PATH".to_owned()
    } else {
        format!("export LD_LIBRARY_PATH={}", quoted(&rest.join(":")))
    }
}

/// The effect of LD_LIBRARY_PATH on the runtime, with the command that fixes it.
pub(super) fn finding(system: &System) -> Option<Finding> {
    let found = shadowing(system);
    let folders: Vec<_> = found.iter().filter_map(|path| path.parent()).collect();
    let list: Vec<_> = found.iter().map(|path| path.display().to_string()).collect();
    let shown = list.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    let more = list.len().saturating_sub(5);
    let more = if more == 0 { String::new() } else { format!("\nand {more} more") };
    let own = system.runtime_folder()?.display();
    (!found.is_empty()).then(|| {
        let what = format!("LD_LIBRARY_PATH puts other libraries before those of {own}:\n{shown}{more}");
        Finding::ok(TOPIC, what).fix(without(system, &folders))
    })
}

#[cfg(test)]
mod tests {
    use super::super::system::fake::FakeSystem;
    use super::*;

    fn system(path: &str) -> FakeSystem {
        FakeSystem::new()
            .file("/env/lib/libsycl.so.9", "loaded")
            .file("/env/lib/libOpenCL.so.1", "")
            .file("/other/lib/libOpenCL.so.1", "other")
            .file("/other/lib/libm.so.6", "")
            .folder("/third/lib")
            .variable("LD_LIBRARY_PATH", path)
    }

    #[test]
    fn only_runtime_libraries_found_before_its_own_folder_are_reported() {
        let found = |path: &str| shadowing(&system(path));
        assert_eq!(found("/other/lib"), [PathBuf::from("/other/lib/libOpenCL.so.1")]);
        assert_eq!(found("/third/lib:/other/lib/:/env/lib").len(), 1);
        assert!(found("/env/lib:/other/lib").is_empty());
        assert!(found("/third/lib:/nonexistent").is_empty());
        assert!(found("").is_empty());
        assert!(shadowing(&FakeSystem::new().variable("LD_LIBRARY_PATH", "/x")).is_empty());
    }

    #[test]
    fn a_link_to_the_runtimes_own_library_is_the_same_library() {
        let system = system("/third/lib");
        std::os::unix::fs::symlink(
            system.at("/env/lib/libOpenCL.so.1"),
            system.at("/third/lib/libOpenCL.so.1"),
        )
        .unwrap();
        assert!(shadowing(&system).is_empty());
    }

    #[test]
    fn the_fix_keeps_the_other_folders() {
        let fix = |path: &str| finding(&system(path)).unwrap().fix.unwrap();
        assert_eq!(fix("/other/lib"), "unset LD_LIBRARY_PATH");
        assert_eq!(fix("/third/lib:/other/lib"), "export LD_LIBRARY_PATH='/third/lib'");
        assert_eq!(fix("/third/lib::/other/lib:/env/lib"), "export LD_LIBRARY_PATH='/third/lib:/env/lib'");
        assert_eq!(finding(&system("/third/lib")), None);
    }
}
