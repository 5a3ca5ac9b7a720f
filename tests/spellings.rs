//! Messages name calls in the caller's language: outside src/python, Python calls appear only inside `spelled`.

#![allow(clippy::unwrap_used)] // A test that cannot read its files must fail.

use std::fs;
use std::path::{Path, PathBuf};

/// Spellings of calls that occur in Python and not in Rust.
const PYTHON: [&str; 13] = [
    "usmq.local(",
    "queue=",
    "like=",
    "copy=",
    "usm_type=",
    "dtype=",
    "device=",
    "profiling=",
    "=True",
    "=False",
    "to_numpy",
    "host_view",
    "python -m usmq",
];

/// The string literals of Rust code with their lines, without those in `spelled(…)`; and how many of these there are.
fn literals(text: &str) -> (Vec<(usize, &str)>, usize) {
    let (mut found, mut spelled) = (Vec::new(), 0);
    let (mut at, mut line, mut inside) = (0, 1, None::<usize>);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let mut length = c.len_utf8();
        if rest.starts_with("//") {
            length = rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("'\"'") {
            length = 3;
        } else if let Some(after) = rest.strip_prefix("spelled(") {
            inside = Some(1);
            spelled += 1;
            length = rest.len() - after.len();
        } else if c == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            length = end.map_or(rest.len(), |end| end + 2);
            if inside.is_none() {
                found.push((line, &rest[..length]));
            }
        } else if let Some(depth) = inside {
            let depth = depth + usize::from(c == '(') - usize::from(c == ')');
            inside = (depth > 0).then_some(depth);
        }
        line += rest[..length].matches('\n').count();
        at += length;
    }
    (found, spelled)
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    // The second has the text of Python's `repr`.
    let python = [Path::new("src/python"), Path::new("src/array/display.rs")];
    entries
        .filter(|path| !python.contains(&path.as_path()))
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| !path.to_string_lossy().ends_with("_tests.rs"))
        .collect()
}

#[test]
fn python_calls_in_messages_have_rust_spellings() {
    let (mut wrong, mut spelled) = (Vec::new(), 0);
    for path in sources(Path::new("src")) {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod").next().unwrap();
        let (found, count) = literals(code);
        spelled += count;
        for (line, literal) in found {
            if PYTHON.iter().any(|call| literal.contains(call)) {
                wrong.push(format!("{}:{line}: {literal}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these Rust messages name Python calls:\n{}", wrong.join("\n"));
    assert!(spelled > 5, "only {spelled} uses of `spelled` were found; does the search still work?");
}

#[test]
fn the_search_finds_only_literals_outside_spelled() {
    let code = "f(\"a\", spelled(\"queue=\", g(\"b\")), \"c\\\"\"); // \"d\"\nh('\"', \"like=\")";
    assert_eq!(literals(code), (vec![(1, "\"a\""), (1, "\"c\\\"\""), (2, "\"like=\"")], 1));
}

#[test]
fn errors_name_rust_calls() {
    let queue = usmq::current_queue().unwrap();
    let properties = usmq::QueueProperties { profiling: !queue.profiling(), ..Default::default() };
    let other = usmq::Queue::new(&queue, None, properties).unwrap();
    let x = usmq::Array::from_slice(&[1f32]).unwrap();
    let y = usmq::with_queue(&other, || usmq::Array::from_slice(&[1f32])).unwrap();
    let text = usmq::follow(&[&x, &y]).unwrap_err().to_string();
    assert!(text.contains("collocate(&array, other.queue())"), "{text}");
    assert!(text.contains("collocate_all(...) with all"), "{text}");
}
