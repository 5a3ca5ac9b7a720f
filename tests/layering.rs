//! Imports point down, files stay small, and only one place names SYCL.

#![allow(clippy::unwrap_used)] // A test that cannot read its files must fail.

#[path = "layering/imports.rs"]
mod imports;

use std::fs;
use std::path::{Path, PathBuf};

/// The layers of docs/architecture.md, lowest first. A file imports from its own layer and from those before it.
const LAYERS: [&str; 18] = [
    "error",
    "ffi",
    "runtime",
    "completion",
    "trace",
    "device",
    "manager",
    "memory",
    "array",
    "placement",
    "kernel",
    "capture",
    "interop",
    "task",
    "profile",
    "doctor",
    "capi",
    "python",
];

const LONGEST: usize = 600;

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

/// The layer of a file below src/; none for lib.rs, which lists all layers.
fn layer_of(path: &Path) -> Option<usize> {
    let name = path.components().nth(1)?.as_os_str().to_str()?.trim_end_matches(".rs");
    LAYERS.iter().position(|layer| *layer == name)
}

/// The code of a Rust file without comments and the text of literals; each line keeps its number.
fn code_of(path: &Path) -> String {
    let text = read(path);
    let mut code = String::with_capacity(text.len());
    let mut rest = &text[..];
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(hashes) = raw_literal(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = hashes + 2;
            rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len())
        } else if c == '"' {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |(at, _)| at + 1)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        code.extend(rest[..skip].chars().filter(|c| *c == '\n'));
        rest = &rest[skip..];
    }
    code
}

/// Number of `#` of a raw string that starts here.
fn raw_literal(rest: &str) -> Option<usize> {
    let hashes = rest.strip_prefix('r')?;
    let quote = hashes.trim_start_matches('#');
    quote.starts_with('"').then_some(hashes.len() - quote.len())
}

/// The names after each `crate::`, also in braces, with their lines.
fn imports(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + prefix.len()..];
        let list = rest.strip_prefix('{').and_then(|list| list.split_once("};")).map(|(list, _)| list);
        let mut depth = 0;
        // Of `{a::{b, c}, d}` only a and d come after `crate::`.
        let outer = list.unwrap_or(rest).split(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            (c == ',' && depth == 0) || (c == '\n' && list.is_none())
        });
        for item in outer.take(if list.is_some() { usize::MAX } else { 1 }) {
            let item = item.trim_start();
            let end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
            found.push((line, &item[..end]));
        }
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}

/// The names that lib.rs re-exports as `crate::Name`, and the module that each comes from.
fn reexports() -> Vec<(String, String)> {
    let code = code_of(Path::new("src/lib.rs"));
    let mut found = Vec::new();
    for item in code.split(';') {
        let Some((_, path)) = item.split_once("use ") else { continue };
        let Some((module, names)) = path.split_once("::") else { continue };
        let names = names.trim_matches(|c: char| c == '{' || c == '}' || c.is_whitespace());
        found.extend(names.split(',').map(|name| (name.trim().to_owned(), module.to_owned())));
    }
    found
}

#[test]
fn every_source_file_is_in_a_layer() {
    for path in files("src", &["rs"]) {
        assert!(
            layer_of(&path).is_some() || path == Path::new("src/lib.rs"),
            "{} is in no layer",
            path.display()
        );
    }
}

#[test]
fn imports_point_down() {
    let reexports = reexports();
    assert!(reexports.iter().any(|(name, module)| name == "Array" && module == "array"), "{reexports:?}");
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for path in files("src", &["rs"]) {
        let Some(own) = layer_of(&path) else { continue };
        let code = code_of(&path);
        for (line, name) in imports(&code) {
            let module = reexports.iter().find(|(known, _)| known == name).map_or(name, |(_, module)| module);
            let Some(layer) = LAYERS.iter().position(|layer| *layer == module) else {
                wrong.push(format!("{}:{line}: crate::{name} is in no layer", path.display()));
                continue;
            };
            seen += 1;
            if layer > own {
                wrong.push(format!("{}:{line}: crate::{name} of {module} is above", path.display()));
            }
        }
        // `super` can also leave a layer. The `super` of an inner module stays inside.
        let is_door = path.ends_with("mod.rs") || path.components().count() == 2;
        let way_out = if is_door { "super::" } else { "super::super::" };
        let outer = code.lines().take_while(|line| !(line.contains("mod ") && line.ends_with('{')));
        if outer.into_iter().any(|line| line.contains(way_out)) {
            wrong.push(format!("{}: {way_out} leaves the layer", path.display()));
        }
    }
    assert!(seen > 100, "only {seen} imports were found; does the search still work?");
    assert!(wrong.is_empty(), "imports that point up:\n{}", wrong.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let graph = imports::Graph::new();
    assert!(graph.len() > 800, "only {} imports were found; does the search still work?", graph.len());
    for (from, to) in [
        ("src/array/create.rs", "src/array/mod.rs"),
        ("src/array/create.rs", "src/device/queue.rs"),
        ("src/capi/queue.rs", "src/capi/status.rs"),
        ("src/doctor/mod.rs", "src/doctor/kernels.rs"),
        ("src/interop/cuda/array.rs", "src/interop/usm_array_interface.rs"),
        ("src/profile/session.rs", "src/memory/stats.rs"),
        ("src/python/array.rs", "src/python/numpy.rs"),
    ] {
        assert!(graph.has(from, to), "the import of {to} by {from} was not found");
    }
    let circles: Vec<_> = graph.circles().iter().map(|circle| graph.describe(circle)).collect();
    assert!(circles.is_empty(), "files import each other:\n{}", circles.join("\n"));
}

#[test]
fn cfg_features_appear_only_in_module_lists() {
    let mut seen = 0;
    for path in files("src", &["rs"]) {
        let listed = ["lib.rs", "mod.rs"].iter().any(|name| path.ends_with(name));
        for (number, line) in code_of(&path).lines().enumerate() {
            let chooses = line.contains("cfg(") && line.contains("feature");
            seen += usize::from(chooses);
            assert!(listed || !chooses, "{}:{}: {}", path.display(), number + 1, line.trim());
        }
    }
    assert!(seen > 0, "no feature was found; does the search still work?");
}

/// The folders below src/ in the picture of docs/architecture.md with the words of each, notes in brackets included; and
/// those outside of brackets, which are names of files.
fn picture() -> Vec<(String, Vec<String>, Vec<String>)> {
    let page = read(Path::new("docs/architecture.md"));
    let drawn = page.split("```").nth(1).unwrap();
    let mut found: Vec<(String, Vec<String>, Vec<String>)> = Vec::new();
    let (mut layer, mut depth) = (None, 0);
    for line in drawn.lines() {
        let mut rest = line;
        if let Some(head) = line.strip_prefix("+- ") {
            let folder = head.split_whitespace().next().unwrap_or_default();
            layer = folder.strip_prefix("src/").filter(|name| !name.contains('.'));
            rest = &head[folder.len()..];
            found.extend(layer.map(|name| (name.to_owned(), Vec::new(), Vec::new())));
        } else if let (Some(layer), Some(inner)) = (layer, line.strip_prefix("|   ")) {
            if !inner.starts_with(' ') {
                let folder = inner.split_whitespace().next().unwrap_or_default();
                rest = &inner[folder.len()..];
                found.push((format!("{layer}/{folder}"), Vec::new(), Vec::new()));
            }
        } else {
            layer = None;
        }
        let Some((_, words, names)) = found.last_mut().filter(|_| layer.is_some()) else { continue };
        for word in rest.split(|c: char| c.is_whitespace() || c == ',') {
            depth += word.matches('(').count();
            let name = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
            if !name.is_empty() {
                words.push(name.to_owned());
                names.extend((depth == 0 && name != "or").then(|| name.to_owned()));
            }
            depth -= word.matches(')').count();
        }
    }
    found
}

#[test]
fn the_picture_lists_exactly_the_files_of_each_folder() {
    let picture = picture();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    let sources = files("src", &["rs"]);
    for path in &sources {
        let (folder, name) = (path.parent().unwrap(), path.file_stem().unwrap().to_str().unwrap());
        let Ok(folder) = folder.strip_prefix("src") else { continue };
        if folder.as_os_str().is_empty() {
            continue;
        }
        seen += 1;
        let drawn = picture.iter().find(|(place, ..)| Path::new(place) == folder);
        if name != "mod" && !drawn.is_some_and(|(_, words, _)| words.iter().any(|word| word == name)) {
            wrong.push(format!("{} is missing", path.display()));
        }
    }
    for (folder, _, names) in &picture {
        for name in names {
            let path = Path::new("src").join(folder).join(format!("{name}.rs"));
            if !sources.contains(&path) {
                wrong.push(format!("{} does not exist", path.display()));
            }
        }
    }
    assert!(seen > 150, "only {seen} files were found; does the search still work?");
    assert!(wrong.is_empty(), "the picture in docs/architecture.md is wrong:\n{}", wrong.join("\n"));
    let page = read(Path::new("docs/architecture.md"));
    for path in files("cpp", &["h", "cc"]).into_iter().chain(files("layers", &["h", "cc"])) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(page.contains(name), "docs/architecture.md does not know {}", path.display());
    }
}

#[test]
fn source_files_stay_below_the_line_limit() {
    for (folder, endings) in [
        ("src", &["rs"][..]),
        ("cpp", &["h", "cc"]),
        ("layers", &["h", "cc"]),
        ("python/usmq", &["py", "pyi", "cpp"]),
    ] {
        for path in files(folder, endings) {
            let lines = read(&path).lines().count();
            assert!(lines <= LONGEST, "{} has {lines} lines", path.display());
        }
    }
}

/// `gil.rs` records the caller's line before it releases the GIL, so no other file may release it.
#[test]
fn the_gil_is_released_in_one_module() {
    let mut seen = 0;
    for path in files("src/python", &["rs"]) {
        let code = code_of(&path);
        seen += code.matches("detach(").count();
        let is_door = path.ends_with("gil.rs");
        assert!(
            is_door || !code.contains(".detach("),
            "{}: use `super::gil::detach(py, || …)`, so that profiles know the caller's line",
            path.display()
        );
    }
    assert!(seen > 50, "only {seen} calls were found; does the search still work?");
}

/// Outside the bridge and the shim, SYCL's names occur only in comments, in kernel sources, and in tests that read them.
#[test]
fn sycl_types_appear_only_in_the_shim() {
    const KERNEL_TEXT: [&str; 4] = [
        "src/array/cast_kernel.rs",
        "src/array/dtype.rs",
        "src/kernel/device_lack.rs",
        "src/kernel/signature_tests.rs",
    ];
    for path in files("src", &["rs"]) {
        if path == Path::new("src/ffi.rs") {
            continue;
        }
        let (text, code) = (read(&path), code_of(&path));
        assert_eq!(text.lines().count(), code.lines().count(), "{}", path.display());
        let has_kernel_text = KERNEL_TEXT.iter().any(|kernel| path == Path::new(kernel));
        for (number, (line, code)) in text.lines().zip(code.lines()).enumerate() {
            let in_literal = line.split("//").next().is_some_and(|line| line.contains("sycl::"));
            let allowed = !code.contains("sycl::") && (has_kernel_text || !in_literal);
            assert!(allowed, "{}:{}: {}", path.display(), number + 1, line.trim());
        }
    }
}

#[test]
fn the_search_ignores_comments_and_strings() {
    let found = |code: &str| imports(code).into_iter().map(|(_, name)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(found("use crate::array::Array;"), ["array"]);
    assert_eq!(found("use crate::{ffi, runtime::{self, Handle}, Device};"), ["ffi", "runtime", "Device"]);
    assert_eq!(found("x: crate::Array, y: crate::DType"), ["Array", "DType"]);
    let path = Path::new("tests/layering.rs");
    let code = code_of(path);
    assert_eq!(code.lines().count(), read(path).lines().count());
    assert!(code.contains("fn the_search_ignores_comments_and_strings"));
    assert!(!code.contains("Of `{a::{b, c}, d}`") && !code.contains("use crate::{ffi"));
}
