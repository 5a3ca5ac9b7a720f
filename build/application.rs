//! Finds the folder of the application being built, and the Python environments in it and above it.
//!
//! A build script runs in the folder of its own crate and does not know the application. Two paths identify
//! it: the target folder that it writes to, and the folder in which cargo was started.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The names of a project's Python environment, by convention.
pub const ENVIRONMENTS: [&str; 2] = [".venv", "venv"];

pub struct Build {
    /// The folder of usmq's own Cargo.toml.
    pub manifest: PathBuf,
    /// OUT_DIR: below the target folder of the application.
    pub out: PathBuf,
    /// The folder in which cargo was started.
    pub started_in: Option<PathBuf>,
}

impl Build {
    /// The build that runs this build script.
    pub fn current() -> Self {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        // Cargo is the parent process. PWD is the folder of the shell, which may differ from cargo's.
        let cargo = format!("/proc/{}/cwd", std::os::unix::process::parent_id());
        Self {
            manifest: variable("CARGO_MANIFEST_DIR").unwrap_or_default(),
            out: variable("OUT_DIR").unwrap_or_default(),
            started_in: std::fs::read_link(cargo).ok().or_else(|| variable("PWD")),
        }
    }

    /// The workspace of the application. Cargo has written its Cargo.lock before any build script runs, and
    /// the target folder is below it, unless a setting such as CARGO_TARGET_DIR overrides it.
    pub fn application(&self) -> &Path {
        let workspace = |folder: &Path| folder.join("Cargo.lock").is_file();
        let above_target = self.out.ancestors().find(|folder| workspace(folder));
        let started_in = self.started_in.as_deref();
        let above_start =
            || started_in.and_then(|folder| folder.ancestors().find(|folder| workspace(folder)));
        above_target.or_else(above_start).or(started_in).unwrap_or(&self.manifest)
    }

    /// The folders that may contain an environment for this build, nearest first: from cargo's folder up,
    /// from the application up, then the checkout of usmq.
    pub fn folders(&self) -> Vec<&Path> {
        let application = self.application();
        let started_in = self.started_in.as_deref();
        let inside = started_in.filter(|folder| folder.starts_with(application));
        let outside = started_in.filter(|folder| !folder.starts_with(application));
        let mut found: Vec<&Path> = Vec::new();
        let upwards = [inside, Some(application), outside].into_iter().flatten().flat_map(Path::ancestors);
        for folder in upwards.chain([self.manifest.as_path()]) {
            if !found.contains(&folder) {
                found.push(folder);
            }
        }
        found
    }

    /// Whether executing code from this environment is safe: it belongs to the user who builds, to root, or
    /// to the owner of the application, whose code runs in this build anyway. Any user can create a `.venv`
    /// in /tmp.
    pub fn trusts(&self, environment: &Path) -> bool {
        let owner = |path: &Path| std::fs::metadata(path).ok().map(|found| found.uid());
        let trusted = [owner(Path::new("/proc/self")), owner(self.application()), Some(0)];
        owner(environment).is_some_and(|uid| trusted.contains(&Some(uid)))
    }
}
