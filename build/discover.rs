//! Finds the SYCL headers and libraries to build against. Used by build.rs only; changes nothing.

use crate::application::{Build, ENVIRONMENTS};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A SYCL installation: the paths of `sycl/sycl.hpp` and `libsycl.so`.
pub struct Sycl {
    pub include: Vec<PathBuf>,
    pub lib: PathBuf,
    /// Where it was found, for messages.
    pub source: String,
}

/// The environment variables of the search; cargo runs the build script again if one changes.
pub const VARIABLES: [&str; 11] = [
    "PYO3_PYTHON",
    "VIRTUAL_ENV",
    "USMQ_SYCL_ROOT",
    "ONEAPI_ROOT",
    "CMPLR_ROOT",
    "CXX",
    "USMQ_ALLOW_STUB",
    "USMQ_MANYLINUX",
    "USMQ_FAULTS",
    "USMQ_SANITIZER",
    "DOCS_RS",
];

/// The order: the running interpreter's wheel, then USMQ_SYCL_ROOT, then a oneAPI toolkit. The wheel comes
/// first, because an extension built against a toolkit would load a second libsycl into a process whose other
/// packages use the wheel's.
pub fn find_sycl(build: &Build) -> Result<Sycl, String> {
    let mut tried = Vec::new();
    for (source, found) in [
        ("the Python wheel intel-sycl-rt", from_interpreters(build, &mut tried)),
        ("USMQ_SYCL_ROOT", from_root("USMQ_SYCL_ROOT", &[""], &mut tried)),
        ("ONEAPI_ROOT", from_root("ONEAPI_ROOT", &["compiler/latest", ""], &mut tried)),
        ("CMPLR_ROOT", from_root("CMPLR_ROOT", &[""], &mut tried)),
        ("icpx on PATH", from_icpx(&mut tried)),
    ] {
        if let Some((include, lib)) = found {
            return Ok(Sycl { include, lib, source: source.to_owned() });
        }
    }
    Err(tried.join("\n  "))
}

type Found = Option<(Vec<PathBuf>, PathBuf)>;

fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// PYO3_PYTHON, VIRTUAL_ENV, the environments of the application, `python3` on PATH: the first with the
/// wheel.
fn from_interpreters(build: &Build, tried: &mut Vec<String>) -> Found {
    for (variable, below) in [("PYO3_PYTHON", ""), ("VIRTUAL_ENV", "bin/python")] {
        let found = match set(variable) {
            Some(path) if below.is_empty() => from_wheel(&path, tried),
            Some(path) => from_wheel(&path.join(below), tried),
            None => {
                tried.push(format!("{variable}: not set"));
                None
            }
        };
        if found.is_some() {
            return found;
        }
    }
    from_environments(build, tried).or_else(|| from_wheel(Path::new("python3"), tried))
}

fn from_environments(build: &Build, tried: &mut Vec<String>) -> Found {
    for folder in build.folders() {
        let mut none = true;
        for environment in ENVIRONMENTS.map(|name| folder.join(name)) {
            let python = environment.join("bin/python");
            if !python.exists() {
                continue;
            }
            none = false;
            if !build.trusts(&environment) {
                let path = environment.display();
                tried.push(format!("{path}: belongs to another user; to use it, set VIRTUAL_ENV={path}"));
            } else if let Some(found) = from_wheel(&python, tried) {
                return Some(found);
            }
        }
        if none {
            tried.push(format!("{}: has no environment .venv or venv", folder.display()));
        }
    }
    None
}

const ASK_THE_WHEEL: &str = "
import importlib.metadata as m
wanted = ('sycl/sycl.hpp', 'libsycl.so')
for name in wanted:
    print(next(str(f.locate().resolve()) for f in m.files('intel-sycl-rt') if str(f).endswith(name)))
";

fn from_wheel(python: &Path, tried: &mut Vec<String>) -> Found {
    let output = Command::new(python).args(["-c", ASK_THE_WHEEL]).output();
    let Ok(output) = output else {
        tried.push(format!("{}: cannot be run", python.display()));
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().map(Path::new);
    match (lines.next(), lines.next()) {
        (Some(header), Some(library)) if output.status.success() => {
            check(header.ancestors().nth(2)?, library.parent()?, &python.display().to_string(), tried)
        }
        _ => {
            tried.push(format!("{}: has no package intel-sycl-rt", python.display()));
            None
        }
    }
}

fn from_root(variable: &str, below: &[&str], tried: &mut Vec<String>) -> Found {
    let Some(root) = set(variable) else {
        tried.push(format!("{variable}: not set"));
        return None;
    };
    below.iter().find_map(|sub| {
        let root = root.join(sub);
        check(&root.join("include"), &root.join("lib"), &format!("{variable}={}", root.display()), tried)
    })
}

fn from_icpx(tried: &mut Vec<String>) -> Found {
    let Some(icpx) = on_path(Path::new("icpx")) else {
        tried.push("icpx: not on PATH".to_owned());
        return None;
    };
    let root = toolkit_of(&icpx)?;
    check(&root.join("include"), &root.join("lib"), &icpx.display().to_string(), tried)
}

fn on_path(program: &Path) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|folder| folder.join(program)).find(|path| path.exists())
}

/// The folder that contains `bin/icpx`, `include` and `lib`.
fn toolkit_of(icpx: &Path) -> Option<PathBuf> {
    icpx.canonicalize().ok()?.ancestors().nth(2).map(Path::to_owned)
}

/// Whether this compiler is icpx and the SYCL installation is its own: then it accepts `-fsycl`. With other
/// headers, such as the wheel's, it compiles the shim like any C++ compiler.
pub fn takes_fsycl(compiler: &Path, sycl: &Sycl) -> bool {
    let is_icpx = compiler.file_name().is_some_and(|name| name == "icpx");
    let found = on_path(compiler).filter(|_| is_icpx).and_then(|icpx| toolkit_of(&icpx));
    found.is_some_and(|root| root.join("include").canonicalize().ok() == sycl.include[0].canonicalize().ok())
}

fn check(include: &Path, lib: &Path, origin: &str, tried: &mut Vec<String>) -> Found {
    let missing =
        [include.join("sycl/sycl.hpp"), lib.join("libsycl.so")].into_iter().find(|path| !path.exists());
    if let Some(path) = missing {
        tried.push(format!("{origin}: {} does not exist", path.display()));
        return None;
    }
    // Toolkits before 2025 have CL/ and other headers one level down.
    Some((vec![include.to_owned(), include.join("sycl")], lib.to_owned()))
}
