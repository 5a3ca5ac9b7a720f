//! Built programs in files, so that later processes need not compile OpenCL C and SPIR-V again.
//!
//! They are in a folder of their own inside that of the runtime's kernel cache, under the same switch. A file holds the
//! whole input of its build, so a driver gets it only for exactly this input. Damaged files count as absent.

use crate::runtime::{RegularFile, Who, fault, kernel_cache, make_private};
use once_cell::sync::OnceCell;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// Also the version of the format: change it with the key or the file.
const MAGIC: &[u8; 16] = b"usmq program 1\n\0";
/// Magic, checksum, and the length of the key.
const HEAD: usize = 16 + 8 + 8;
const FOLDER: &str = "usmq-programs";
const ENDING: &str = "bin";
const UNFINISHED: &str = "part";
/// The limit of all files without `SYCL_CACHE_MAX_SIZE`, in bytes.
const LIMIT: u64 = 256 << 20;
/// A larger file is none of usmq's.
const LARGEST: u64 = 1 << 30;
/// A writer needs less time. An older unfinished file is of a process that has ended.
const ABANDONED: Duration = Duration::from_secs(600);

/// Everything that determines the built program.
pub(super) struct Key(Vec<u8>);

impl Key {
    pub(super) fn new<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut key = Vec::new();
        for part in parts {
            key.extend((part.len() as u64).to_le_bytes());
            key.extend(part);
        }
        Self(key)
    }

    fn file(&self, folder: &Path) -> PathBuf {
        let (one, two) = (hash(&[b"1", &self.0]), hash(&[b"2", &self.0]));
        folder.join(format!("{one:016x}{two:016x}.{ENDING}"))
    }
}

/// The program that this or another process has kept for this input.
pub(super) fn load(key: &Key) -> Option<Vec<u8>> {
    load_from(folder()?, key)
}

/// Keeps a program for later processes. If that fails, they compile it again.
pub(super) fn store(key: &Key, program: &[u8]) {
    if let Some(folder) = folder()
        && let Err(error) = store_in(folder, key, program, limit())
    {
        tracing::debug!(target: "usmq", %error, folder = %folder.display(), "a built kernel is not kept on disk");
    }
}

/// The folder, if kernels are cached on disk and no other user can write there.
fn folder() -> Option<&'static Path> {
    static CHECKED: OnceCell<Option<PathBuf>> = OnceCell::new();
    let check = || {
        let folder = kernel_cache()?.join(FOLDER);
        make_private(&folder).ok()?;
        fault(&folder, Who::here()).is_none().then_some(folder)
    };
    CHECKED.get_or_init(check).as_deref()
}

/// The runtime's own limit of its cache, where 0 is none.
fn limit() -> u64 {
    let given = std::env::var("SYCL_CACHE_MAX_SIZE").ok().and_then(|bytes| bytes.trim().parse().ok());
    given.map_or(LIMIT, |bytes: u64| if bytes == 0 { u64::MAX } else { bytes })
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish()
}

fn load_from(folder: &Path, key: &Key) -> Option<Vec<u8>> {
    let path = key.file(folder);
    let RegularFile { mut file, bytes: length } = RegularFile::open_unlinked(&path, LARGEST).ok()?;
    let mut head = [0; HEAD];
    file.read_exact(&mut head).ok()?;
    let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    if &head[..16] != MAGIC || number(24)? != key.0.len() as u64 {
        return None;
    }
    let rest = length.checked_sub(HEAD as u64)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(rest).ok()?).ok()?;
    Read::by_ref(&mut file).take(rest).read_to_end(&mut bytes).ok()?;
    let (of, program) = bytes.split_at_checked(key.0.len())?;
    if of != key.0 || program.is_empty() || number(16)? != hash(&[&bytes]) {
        return None;
    }
    // Marks the file as used, for the order in which files are removed.
    let _ = file.set_modified(SystemTime::now());
    bytes.drain(..key.0.len());
    Some(bytes)
}

fn store_in(folder: &Path, key: &Key, program: &[u8], limit: u64) -> io::Result<()> {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let rest = [&key.0, program].concat();
    if program.is_empty() || (HEAD + rest.len()) as u64 > limit.min(LARGEST) {
        return Ok(());
    }
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let unfinished = folder.join(format!("{}-{number}.{UNFINISHED}", std::process::id()));
    let write = || {
        // A file of this name is of an ended process with the same id.
        let _ = fs::remove_file(&unfinished);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(MAGIC)?;
        file.write_all(&hash(&[&rest]).to_le_bytes())?;
        file.write_all(&(key.0.len() as u64).to_le_bytes())?;
        file.write_all(&rest)?;
        // Other processes see the whole file or none.
        fs::rename(&unfinished, key.file(folder))
    };
    write().inspect_err(|_| _ = fs::remove_file(&unfinished))?;
    shrink(folder, limit)
}

/// Removes the files that were not used for the longest time, until the limit holds.
fn shrink(folder: &Path, limit: u64) -> io::Result<()> {
    let now = SystemTime::now();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let Ok(about) = entry.metadata() else { continue };
        let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        match ending {
            Some(ENDING) => files.push((used, about.len(), path)),
            Some(UNFINISHED) if now.duration_since(used).is_ok_and(|age| age > ABANDONED) => {
                let _ = fs::remove_file(path);
            }
            _ => {}
        }
    }
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    files.sort_unstable();
    for (_, bytes, path) in files {
        if total <= limit {
            break;
        }
        // Another process may have removed it.
        let _ = fs::remove_file(path);
        total -= bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;

    /// A temporary folder of the test, deleted with this value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("usmq-programs-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn count(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn key(source: &str) -> Key {
        Key::new([source.as_bytes(), b"-O2"])
    }

    #[test]
    fn a_program_is_found_for_its_whole_input_only() {
        let folder = Folder::new("input");
        store_in(&folder.0, &key("a"), b"program", LIMIT).unwrap();
        assert_eq!(load_from(&folder.0, &key("a")).as_deref(), Some(&b"program"[..]));
        assert_eq!(load_from(&folder.0, &key("b")), None);
        // The parts have lengths, so text cannot move from one to the next.
        assert_ne!(Key::new([&b"ab"[..], b"c"]).0, Key::new([&b"a"[..], b"bc"]).0);
        // A file of another input under this name, as after a collision of hashes.
        fs::rename(key("a").file(&folder.0), key("b").file(&folder.0)).unwrap();
        assert_eq!(load_from(&folder.0, &key("b")), None);
        let mode = fs::metadata(key("b").file(&folder.0)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_counts_as_absent_and_is_replaced() {
        let folder = Folder::new("damaged");
        let file = key("a").file(&folder.0);
        store_in(&folder.0, &key("a"), b"program", LIMIT).unwrap();
        let whole = fs::read(&file).unwrap();
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert_eq!(load_from(&folder.0, &key("a")), None, "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            fs::write(&file, &changed).unwrap();
            assert_eq!(load_from(&folder.0, &key("a")), None, "byte {at}");
        }
        fs::write(&file, [&whole[..], b"more"].concat()).unwrap();
        assert_eq!(load_from(&folder.0, &key("a")), None);
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert_eq!(load_from(&folder.0, &key("a")), None);
        fs::remove_file(&file).unwrap();
        let fifo = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
        // SAFETY: a path that lives during the call.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert_eq!(load_from(&folder.0, &key("a")), None);
        fs::remove_file(&file).unwrap();
        File::create(&file).unwrap().set_len(3 << 30).unwrap();
        assert_eq!(load_from(&folder.0, &key("a")), None);
        store_in(&folder.0, &key("a"), b"program", LIMIT).unwrap();
        assert_eq!(load_from(&folder.0, &key("a")).as_deref(), Some(&b"program"[..]));
        assert_eq!(folder.count(), 1);
    }

    #[test]
    fn the_oldest_files_go_first_and_abandoned_ones_too() {
        let folder = Folder::new("limit");
        let size = |name: &str| fs::metadata(key(name).file(&folder.0)).unwrap().len();
        let age = |path: &Path, seconds| {
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        for (name, seconds) in [("a", 30), ("b", 20), ("c", 10)] {
            store_in(&folder.0, &key(name), b"program", LIMIT).unwrap();
            age(&key(name).file(&folder.0), seconds);
        }
        // A use makes a file the newest.
        assert!(load_from(&folder.0, &key("a")).is_some());
        let other = folder.0.join("1-0.part");
        fs::write(&other, "").unwrap();
        age(&other, 2 * ABANDONED.as_secs());
        store_in(&folder.0, &key("d"), b"program", 3 * size("a")).unwrap();
        let found = ["a", "b", "c", "d"].map(|name| load_from(&folder.0, &key(name)).is_some());
        assert_eq!(found, [true, false, true, true]);
        assert_eq!(folder.count(), 3);
        // A program above the limit is not kept, and removes nothing.
        store_in(&folder.0, &key("e"), &[0; 1000], 100).unwrap();
        assert_eq!(folder.count(), 3);
    }

    #[test]
    fn a_folder_without_write_access_is_an_error_that_store_ignores() {
        let folder = Folder::new("absent");
        assert!(store_in(&folder.0.join("none"), &key("a"), b"program", LIMIT).is_err());
        assert_eq!(load_from(&folder.0.join("none"), &key("a")), None);
    }
}
