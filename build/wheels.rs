//! The Python wheels of the runtime: the tested versions, and the command that installs them.

use std::path::Path;

/// A wheel, and the range of tested versions: from the first on, below the second.
pub struct Wheel {
    pub name: &'static str,
    from: [u32; 2],
    below: [u32; 2],
}

/// The requirements of an application: headers and libsycl, the driver of the CPU device.
pub const WHEELS: [Wheel; 2] = [
    Wheel { name: "intel-sycl-rt", from: [2026, 1], below: [2027, 0] },
    Wheel { name: "intel-opencl-rt", from: [2026, 1], below: [2027, 0] },
];

impl Wheel {
    /// The requirement in pip's syntax.
    pub fn requirement(&self) -> String {
        format!("{}{}", self.name, self.range())
    }

    pub fn range(&self) -> String {
        format!(">={}.{},<{}", self.from[0], self.from[1], self.below[0])
    }

    /// The installed version, from the dist-info folder of the environment whose libraries are in `lib`.
    pub fn version(&self, lib: &Path) -> Option<String> {
        let prefix = format!("{}-", self.name.replace('-', "_"));
        let folders = std::fs::read_dir(lib).ok()?.flatten().map(|entry| entry.path().join("site-packages"));
        folders.filter_map(|packages| std::fs::read_dir(packages).ok()).flatten().flatten().find_map(
            |package| {
                let name = package.file_name().into_string().ok()?;
                Some(name.strip_prefix(&prefix)?.strip_suffix(".dist-info")?.to_owned())
            },
        )
    }

    /// Whether usmq is tested with this version. An unreadable version is not tested.
    pub fn is_tested(&self, version: &str) -> bool {
        let mut parts = version.split('.').map(|part| {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            part[..digits].parse().ok()
        });
        let number = [parts.next().flatten(), Some(parts.next().flatten().unwrap_or(0))];
        let [Some(major), Some(minor)] = number else { return false };
        (self.from..self.below).contains(&[major, minor])
    }
}

/// The command that creates an environment with these wheels in a folder, or adds them to an existing one.
pub fn install_into(environment: &Path) -> String {
    let requirements: Vec<String> = WHEELS.iter().map(|wheel| format!("'{}'", wheel.requirement())).collect();
    let pip =
        format!("{} -m pip install {}", quoted(&environment.join("bin/python")), requirements.join(" "));
    if environment.join("bin/pip").exists() {
        return pip;
    }
    format!("python3 -m venv {} && {pip}", quoted(environment))
}

/// A path quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
