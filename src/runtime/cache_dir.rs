//! Checks that only this user controls a cache folder, since compiled kernels are executed as found there.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Other users may write here.
const OTHERS: u32 = 0o002;
const GROUP: u32 = 0o020;
/// In such a folder each user may remove only their own files.
const STICKY: u32 = 0o1000;

/// The user and group of the process.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    pub user: u32,
    pub group: u32,
}

impl Who {
    pub(crate) fn here() -> Self {
        // SAFETY: only queries an id of the process.
        let user = unsafe { libc::geteuid() };
        // SAFETY: as above.
        let group = unsafe { libc::getegid() };
        Self { user, group }
    }
}

/// Why another user could put files into this folder, if it exists, or into those above it.
pub(crate) fn fault(folder: &Path, who: Who) -> Option<String> {
    // Resolves links, as the runtime will.
    let (there, exists) = nearest(folder)?;
    for (number, path) in there.ancestors().enumerate() {
        let Ok(about) = path.metadata() else { continue };
        let own = exists && number == 0;
        if about.uid() != who.user && about.uid() != 0 {
            return Some(format!("{} belongs to another user", path.display()));
        }
        // A private group, with the user's own id, has no other member.
        let private = about.gid() == who.group && who.group == who.user;
        let writers = if private { OTHERS } else { OTHERS | GROUP };
        let guarded = !own && about.mode() & STICKY != 0;
        if about.mode() & writers != 0 && !guarded {
            return Some(format!("others may write to {}", path.display()));
        }
    }
    None
}

/// The nearest existing folder, without links, and whether it is the requested one.
fn nearest(folder: &Path) -> Option<(PathBuf, bool)> {
    folder.ancestors().enumerate().find_map(|(number, path)| Some((path.canonicalize().ok()?, number == 0)))
}

/// Creates the folder with access for its owner only. Restricts an existing folder where possible.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: a path from this function. If it fails, `fault` reports whether the folder is safe.
    unsafe { libc::chmod(path.as_ptr(), 0o700) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A temporary folder of the test, deleted with this value.
    struct Folder(PathBuf);

    impl std::ops::Deref for Folder {
        type Target = PathBuf;

        fn deref(&self) -> &PathBuf {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn folder(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("usmq-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        mode(&path, 0o700);
        Folder(path)
    }

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_owned_by_the_user_is_accepted_or_created() {
        let (base, who) = (folder("own"), Who::here());
        assert_eq!(fault(&base, who), None);
        assert_eq!(fault(&base.join("a/b"), who), None);
        make_private(&base.join("a/b")).unwrap();
        assert_eq!(fault(&base.join("a/b"), who), None);
        assert_eq!(base.join("a/b").metadata().unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_folder_writable_by_others_is_refused() {
        let (base, who) = (folder("open"), Who::here());
        let inside = base.join("cache");
        std::fs::create_dir(&inside).unwrap();
        for (open, closed) in [(&inside, 0o755), (&*base, 0o700)] {
            mode(open, 0o777);
            assert!(fault(&inside, who).unwrap().contains("others may write"), "{open:?}");
            mode(open, closed);
            assert_eq!(fault(&inside, who), None);
        }
        // As /tmp: others cannot replace our files there, but can add files to the folder itself.
        mode(&base, 0o1777);
        assert_eq!(fault(&inside, who), None);
        assert!(fault(&base, who).is_some());
        mode(&base, 0o700);
    }

    #[test]
    fn group_write_access_is_refused_except_for_the_users_own_group() {
        let base = folder("group");
        mode(&base, 0o770);
        let (user, group) = base.metadata().map(|about| (about.uid(), about.gid())).unwrap();
        let shared = Who { user, group: group.wrapping_add(1) };
        assert!(fault(&base, shared).is_some());
        if user == group {
            assert_eq!(fault(&base, Who { user, group }), None);
        }
    }

    #[test]
    fn a_folder_of_another_owner_is_refused_and_links_are_resolved() {
        let (base, who) = (folder("links"), Who::here());
        // A user that is neither root nor the owner.
        let stranger = Who { user: who.user.wrapping_add(4242), group: 4242 };
        let found = fault(&base, stranger);
        assert!(who.user == 0 || found.unwrap().contains("another user"));
        let (open, link) = (base.join("open"), base.join("link"));
        std::fs::create_dir(&open).unwrap();
        mode(&open, 0o777);
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(fault(&link, who).unwrap().contains("/open"));
        assert!(fault(&link.join("deeper"), who).unwrap().contains("/open"));
    }
}
