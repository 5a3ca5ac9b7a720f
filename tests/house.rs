//! The house keeps its shape: imports point down, files stay small, SYCL is named in one place.

#![allow(clippy::unwrap_used)] // A test that cannot read its files must fail.

use std::fs;
use std::path::{Path, PathBuf};

/// From the ground up, as docs/architecture.md draws it. A file imports from its own floor and from those before it.
const FLOORS: [&str; 11] = [
    "error",
    "ffi",
    "runtime",
    "device",
    "manager",
    "memory",
    "array",
    "placement",
    "kernel",
    "interop",
    "python",
];

const LONGEST: usize = 400;

fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if endings
                .iter()
                .any(|ending| path.extension().is_some_and(|extension| extension == *ending))
            {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The floor of a file below src/; none for lib.rs, which names them all.
fn floor_of(path: &Path) -> Option<usize> {
    let name = path.components().nth(1)?.as_os_str().to_str()?.trim_end_matches(".rs");
    FLOORS.iter().position(|floor| *floor == name)
}

/// The modules that a line names behind `crate::`.
fn named(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or("");
    code.match_indices("crate::")
        .map(|(at, prefix)| &code[at + prefix.len()..])
        .map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap_or(""))
        .collect()
}

#[test]
fn every_source_file_stands_on_a_floor() {
    for path in files("src", &["rs"]) {
        assert!(
            floor_of(&path).is_some() || path == Path::new("src/lib.rs"),
            "{} is on no floor",
            path.display()
        );
    }
}

#[test]
fn imports_point_down() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for path in files("src", &["rs"]) {
        let Some(own) = floor_of(&path) else { continue };
        for (number, line) in read(&path).lines().enumerate() {
            for module in named(line) {
                let Some(floor) = FLOORS.iter().position(|floor| *floor == module) else { continue };
                seen += 1;
                if floor > own {
                    wrong.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} imports were found; does the search still work?");
    assert!(wrong.is_empty(), "imports that point up:\n{}", wrong.join("\n"));
}

#[test]
fn the_picture_names_every_floor_and_every_file() {
    let picture = read(Path::new("docs/architecture.md"));
    for path in files("src", &["rs"]).iter().chain(&files("cpp", &["h", "cc"])) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if !["lib", "mod"].contains(&name) {
            assert!(picture.contains(name), "docs/architecture.md does not know {}", path.display());
        }
    }
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    for (folder, endings) in
        [("src", &["rs"][..]), ("cpp", &["h", "cc"]), ("python/usmq", &["py", "pyi", "cpp"])]
    {
        for path in files(folder, endings) {
            let lines = read(&path).lines().count();
            assert!(lines <= LONGEST, "{} has {lines} lines", path.display());
        }
    }
}

/// Outside the bridge and the shim, SYCL's names occur in comments, in the text of kernels and in tests of reading it.
#[test]
fn sycl_types_are_named_in_the_shim_only() {
    const KERNEL_TEXT: [&str; 3] = ["src/array/convert.rs", "src/array/dtype.rs", "src/kernel/signature.rs"];
    for path in files("src", &["rs"]) {
        if path == Path::new("src/ffi.rs") || KERNEL_TEXT.iter().any(|kernel| path == Path::new(kernel)) {
            continue;
        }
        for (number, line) in read(&path).lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            assert!(!code.contains("sycl::"), "{}:{}: {}", path.display(), number + 1, line.trim());
        }
    }
}
