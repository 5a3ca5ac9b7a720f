//! The oldest Rust that the crate supports: `rust-version` in Cargo.toml.
//!
//! Only that version itself could prove that it builds the crate. These tests bound it from below by the dependencies and
//! by the language; clippy's `incompatible_msrv` compares the functions of the standard library that usmq calls.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn minor(version: &str) -> u32 {
    let mut parts = version.split('.');
    assert_eq!(parts.next(), Some("1"), "{version}");
    parts.next().unwrap().parse().unwrap()
}

fn own() -> u32 {
    minor(env!("CARGO_PKG_RUST_VERSION"))
}

#[test]
fn the_newest_rust_that_a_dependency_needs_is_the_oldest_one_supported() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    cargo.args([
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--all-features",
        "--filter-platform",
        &target,
    ]);
    let done = cargo.args(["--manifest-path", manifest]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let all: Value = serde_json::from_slice(&done.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().unwrap().clone();

    let packages: HashMap<String, Value> =
        list(&all["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: HashMap<String, Value> =
        list(&all["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let root = text(&all["resolve"]["root"]);
    let (mut seen, mut open) = (HashSet::new(), vec![root.clone()]);
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for dependency in list(&nodes[&id]["deps"]) {
            // Users of the crate do not build what only its tests need.
            if list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev") {
                open.push(text(&dependency["pkg"]));
            }
        }
    }
    assert!(seen.len() > 40, "only {} packages were found; does the search still work?", seen.len());
    let needed =
        |id: &String| Some((minor(packages[id]["rust_version"].as_str()?), text(&packages[id]["name"])));
    let newest = seen.iter().filter(|id| **id != root).filter_map(needed).max().unwrap();
    assert!(newest.0 <= own(), "{} needs Rust 1.{}, but rust-version is 1.{}", newest.1, newest.0, own());
    // `let` chains are of Rust 1.88.
    assert_eq!(own(), newest.0.max(88), "rust-version can be lower");
}

#[test]
fn the_readme_names_the_same_rust() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(readme.contains(&format!("Rust 1.{} or newer", own())), "README.md names another Rust");
}

/// Syntax that is newer than Rust 1.88, and the version that has it.
const NEWER: [(&str, u32, fn(&str) -> bool); 3] = [
    ("`if let` in the guard of a match", 95, |line| {
        line.split_once("=>").is_some_and(|(arm, _)| arm.contains(" if let "))
    }),
    ("`cfg_select!`", 95, |line| line.contains("cfg_select!")),
    ("an inferred length of an array", 89, |line| line.contains("; _]")),
];

#[test]
fn no_source_uses_newer_syntax() {
    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![root.join("build.rs")];
    ["src", "build"].iter().for_each(|folder| files(&root.join(folder), &mut found));
    assert!(found.len() > 150, "only {} files were found; does the search still work?", found.len());
    for path in found {
        let source = std::fs::read_to_string(&path).unwrap();
        for (number, line) in source.lines().enumerate() {
            for (syntax, since, is_used) in NEWER.iter().filter(|(_, since, _)| *since > own()) {
                let is_code = !line.trim_start().starts_with("//");
                assert!(
                    !(is_code && is_used(line)),
                    "{}:{}: {syntax} is of Rust 1.{since}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}
