//! Reads files that may be anything: never waits for a FIFO or a device, and never reads more than a limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// An opened regular file, and its size.
pub(crate) struct RegularFile {
    pub(crate) file: File,
    pub(crate) bytes: u64,
}

impl RegularFile {
    /// Opens a file, also behind links.
    ///
    /// # Errors
    /// As the operating system; [`ErrorKind::InvalidInput`] if it is neither a regular file nor a folder, and
    /// [`ErrorKind::FileTooLarge`] if it has more than `most` bytes.
    pub(crate) fn open(path: &Path, most: u64) -> io::Result<Self> {
        Self::open_with(path, most, 0)
    }

    /// As [`RegularFile::open`], but not behind a link.
    pub(crate) fn open_unlinked(path: &Path, most: u64) -> io::Result<Self> {
        Self::open_with(path, most, libc::O_NOFOLLOW)
    }

    fn open_with(path: &Path, most: u64, flags: i32) -> io::Result<Self> {
        // Opening a device may have effects, so look before; another file may take its place, so look again.
        check(&fs::metadata(path)?, most)?;
        // Without O_NONBLOCK, opening a FIFO waits for a writer.
        let file = OpenOptions::new().read(true).custom_flags(flags | libc::O_NONBLOCK).open(path)?;
        let bytes = check(&file.metadata()?, most)?;
        Ok(Self { file, bytes })
    }
}

/// The bytes of a regular file, also behind links.
///
/// # Errors
/// As [`RegularFile::open`].
pub(crate) fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let RegularFile { file, bytes } = RegularFile::open(path, most)?;
    let mut all = Vec::new();
    all.try_reserve_exact(bytes as usize)?;
    // Files of /proc have more bytes than they state, and any file may grow.
    file.take(most.saturating_add(1)).read_to_end(&mut all)?;
    if all.len() as u64 > most { Err(too_large(most)) } else { Ok(all) }
}

/// As [`read_file`], as text. Other bytes than UTF-8 are replaced.
///
/// # Errors
/// As [`RegularFile::open`].
pub(crate) fn read_text(path: &Path, most: u64) -> io::Result<String> {
    read_file(path, most).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn check(about: &fs::Metadata, most: u64) -> io::Result<u64> {
    if about.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    if !about.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if about.len() > most { Err(too_large(most)) } else { Ok(about.len()) }
}

fn too_large(most: u64) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {most} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let folder = std::env::temp_dir().join(format!("usmq-regular-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        let kind = |name: &str, most| read_file(&at(name), most).map_err(|error| error.kind());
        fs::write(at("text"), "12345").unwrap();
        assert_eq!(kind("text", 5), Ok(b"12345".to_vec()));
        assert_eq!(kind("text", 4), Err(ErrorKind::FileTooLarge));
        symlink(at("text"), at("link")).unwrap();
        assert_eq!(kind("link", 5), Ok(b"12345".to_vec()));
        assert!(RegularFile::open_unlinked(&at("link"), 5).is_err());
        symlink("/dev/zero", at("device")).unwrap();
        assert_eq!(kind("device", 5), Err(ErrorKind::InvalidInput));
        let fifo = CString::new(at("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that lives during the call.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert_eq!(kind("fifo", 5), Err(ErrorKind::InvalidInput));
        assert_eq!(kind("", 5), Err(ErrorKind::IsADirectory));
        assert_eq!(kind("none", 5), Err(ErrorKind::NotFound));
        File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(kind("sparse", 1 << 20), Err(ErrorKind::FileTooLarge));
        // States no size, but has one.
        assert!(read_text(Path::new("/proc/self/status"), 1 << 20).unwrap().contains("Pid"));
        assert_eq!(
            read_file(Path::new("/proc/self/status"), 10).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
