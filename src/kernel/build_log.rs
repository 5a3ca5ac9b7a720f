//! Detects missing prerequisites in a build log: headers of the C++ standard library, a folder for temporary
//! files.
//!
//! The compiler inside the SYCL runtime has SYCL's own headers and uses the host's C and C++ headers.

use crate::runtime::{self, read_text};
use std::path::Path;

/// A missing prerequisite, without which no SYCL C++ kernel compiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lack {
    /// A header of the standard library that was not found.
    Header(String),
    /// The reason why the compiler cannot create a temporary file.
    TemporaryFile(String),
}

/// The C++ headers, except those of new compilers only, and the C and Linux headers that they include.
const STANDARD: &str = " algorithm any array atomic bit bitset cassert cctype cerrno cfenv cfloat charconv chrono \
    cinttypes climits clocale cmath compare complex concepts condition_variable csetjmp csignal cstdarg cstddef \
    cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem format \
    forward_list fstream functional future initializer_list iomanip ios iosfwd iostream istream iterator latch \
    limits list locale map memory memory_resource mutex new numbers numeric optional ostream queue random ranges \
    ratio regex scoped_allocator set shared_mutex source_location span sstream stack stdexcept streambuf string \
    string_view system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility \
    valarray variant vector version assert.h ctype.h errno.h features.h inttypes.h limits.h locale.h math.h \
    pthread.h sched.h stdint.h stdio.h stdlib.h string.h time.h wchar.h wctype.h ";
const INNER: [&str; 6] = ["bits/", "ext/", "gnu/", "sys/", "asm/", "linux/"];

pub(crate) fn lack(log: &str) -> Option<Lack> {
    log.lines().find_map(|line| {
        if let Some((_, reason)) = line.split_once("error: unable to make temporary file: ") {
            return Some(Lack::TemporaryFile(reason.trim().to_owned()));
        }
        let (_, rest) = line.split_once("fatal error: '")?;
        let (header, _) = rest.split_once("' file not found")?;
        let is_standard = STANDARD.split_whitespace().any(|known| known == header)
            || INNER.iter().any(|folder| header.starts_with(folder));
        is_standard.then(|| Lack::Header(header.to_owned()))
    })
}

/// Appends a fix to the log if a prerequisite is missing.
pub(crate) fn with_advice(log: String) -> String {
    match lack(&log) {
        Some(Lack::Header(_)) => {
            let release = read_text(Path::new("/etc/os-release"), 1 << 20).unwrap_or_default();
            let install = install_compiler(&release, is_root());
            format!(
                "{log}\nsycl.hpp needs the headers of a C++ standard library on this machine: {install}; a kernel \
                 with usmq/kernel.h in place of sycl.hpp needs none"
            )
        }
        Some(Lack::TemporaryFile(_)) => {
            let folder = temporary_folder();
            format!(
                "{log}\nthe compiler needs a folder for temporary files: set TMPDIR to a writable one, not {folder}"
            )
        }
        // The compiler names its sources relative to the current folder.
        None => match runtime::folder_fault() {
            Some(fault) => format!("{log}\n{fault}"),
            None => log,
        },
    }
}

/// Whether commands run as root, without `sudo`.
pub(crate) fn is_root() -> bool {
    // SAFETY: returns a number and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The variables that set that folder; the first one set has precedence.
pub(crate) const TEMPORARY: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"];

/// The folder in which the compiler creates temporary files.
pub(crate) fn temporary_folder() -> String {
    TEMPORARY.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(|| "/tmp".to_owned())
}

/// The command that installs the C++ headers on the distribution that this `/etc/os-release` describes.
pub(crate) fn install_compiler(release: &str, is_root: bool) -> String {
    let value = |name: &str| {
        release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let known = format!("{} {}", value("ID"), value("ID_LIKE")).replace(['"', '\''], " ");
    let is = |names: &[&str]| known.split_whitespace().any(|id| names.contains(&id));
    let sudo = if is_root { "" } else { "sudo " };
    if is(&["debian", "ubuntu"]) {
        format!("{sudo}apt-get update && {sudo}apt-get install -y g++")
    } else if is(&["fedora", "rhel", "centos"]) {
        format!("{sudo}dnf install -y gcc-c++")
    } else if is(&["suse", "opensuse", "sles"]) {
        format!("{sudo}zypper install -y gcc-c++")
    } else if is(&["arch"]) {
        format!("{sudo}pacman -S --needed gcc")
    } else {
        "install g++ with the package manager of this system".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_standard_header_is_distinguished_from_a_user_header() {
        let log = |header: &str| {
            format!("Device compilation failed\n\trtc_0.cpp:1:10: fatal error: '{header}' file not found\n")
        };
        for header in ["cstddef", "type_traits", "stdlib.h", "bits/c++config.h", "gnu/stubs.h"] {
            assert_eq!(lack(&log(header)), Some(Lack::Header(header.to_owned())));
        }
        for header in ["mine.h", "my/algorithm", "sycl/sycl.hpp", "Eigen"] {
            assert_eq!(lack(&log(header)), None, "{header}");
            assert_eq!(with_advice(log(header)), log(header));
        }
        assert!(with_advice(log("cmath")).contains("needs the headers of a C++ standard library"));
        assert_eq!(lack("error: use of undeclared identifier 'cstddef'"), None);
    }

    #[test]
    fn an_unusable_temporary_folder_is_reported_with_the_reason() {
        let log = "Detailed information:\n\terror: unable to make temporary file: Read-only file system\n";
        assert_eq!(lack(log), Some(Lack::TemporaryFile("Read-only file system".to_owned())));
        assert!(with_advice(log.to_owned()).contains("TMPDIR"));
    }

    #[test]
    fn each_distribution_family_has_an_install_command() {
        let command = |release: &str| install_compiler(release, true);
        assert_eq!(command("NAME=x\nID=debian\n"), "apt-get update && apt-get install -y g++");
        assert_eq!(command("ID=mint\nID_LIKE=\"ubuntu debian\"\n"), command("ID=debian"));
        assert_eq!(command("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\""), "dnf install -y gcc-c++");
        assert_eq!(command("ID=fedora"), "dnf install -y gcc-c++");
        assert_eq!(install_compiler("ID=fedora", false), "sudo dnf install -y gcc-c++");
        assert!(command("ID=other").contains("g++"));
        assert!(command("").contains("g++"));
    }
}
