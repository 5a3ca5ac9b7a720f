//! The files that a source includes, so that a changed file is compiled again.

use crate::device::header;
use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// More files than any kernel includes: a limit for headers that include each other.
const MOST: usize = 4096;

/// Identifies the contents of the files that the source includes from folders of this machine, directly or through
/// other files; 0 without any. Conditions are not evaluated, so a file may count that is not compiled.
pub(super) fn contents_of_includes(source: &str, flags: &[String]) -> u64 {
    if !source.contains("include") {
        return 0;
    }
    let mut search = Search { folders: folders(flags), seen: HashSet::new(), hasher: None };
    search.add(source, Path::new(""));
    search.hasher.map_or(0, |hasher| hasher.finish())
}

struct Search {
    /// The folders of the compiler's flags, in their order.
    folders: Vec<PathBuf>,
    seen: HashSet<PathBuf>,
    hasher: Option<DefaultHasher>,
}

impl Search {
    /// Adds the files that this text includes. `folder` is its own, where quoted names are found first.
    fn add(&mut self, text: &str, folder: &Path) {
        for name in included(text) {
            let own = (name.is_quoted).then(|| folder.to_owned());
            let found = own.into_iter().chain(self.folders.iter().cloned()).find_map(|folder| {
                let path = folder.join(&name.path);
                let text = fs::read(&path).ok()?;
                Some((path, text))
            });
            let Some((path, text)) = found else { continue };
            if self.seen.len() >= MOST || !self.seen.insert(path.clone()) {
                continue;
            }
            (&path, &text).hash(self.hasher.get_or_insert_with(DefaultHasher::new));
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            self.add(&String::from_utf8_lossy(&text), &folder);
        }
    }
}

struct Name {
    path: String,
    is_quoted: bool,
}

/// Also finds directives inside block comments: then the file counts without a need.
fn included(text: &str) -> Vec<Name> {
    let directives = text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let (open, close) = match rest.chars().next()? {
            '"' => ('"', '"'),
            '<' => ('<', '>'),
            _ => return None,
        };
        let (path, _) = rest.strip_prefix(open)?.split_once(close)?;
        Some(Name { path: path.to_owned(), is_quoted: open == '"' })
    });
    directives.filter(|name| name.path != header::NAME).collect()
}

/// The folders of `-I`, `-iquote`, `-isystem` and `-idirafter`.
fn folders(flags: &[String]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        let value =
            ["-I", "-iquote", "-isystem", "-idirafter"].iter().find_map(|name| flag.strip_prefix(name));
        match value.map(str::trim) {
            Some("") => folders.extend(flags.next().map(PathBuf::from)),
            Some(folder) => folders.push(PathBuf::from(folder)),
            None => {}
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_noticed_directly_and_through_others() {
        let root = std::env::temp_dir().join(format!("usmq-includes-{}", std::process::id()));
        let (first, second) = (root.join("first"), root.join("second"));
        fs::create_dir_all(&first).unwrap();
        fs::create_dir_all(&second).unwrap();
        let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
        write(&first.join("outer.h"), "#pragma once\n#include \"inner.h\"\n#include <outer.h>\n");
        write(&first.join("inner.h"), "int a;");
        write(&second.join("other.h"), "int c;");
        let flags = [format!("-I{}", first.display()), "-isystem".to_owned(), second.display().to_string()];
        let stamp = |source: &str| contents_of_includes(source, &flags);
        let source = "#include <sycl/sycl.hpp>\n#  include <outer.h>\n// #include <other.h>\nint x;";
        let before = stamp(source);
        assert_ne!(before, 0);
        assert_eq!(stamp(source), before);
        write(&second.join("other.h"), "int d;");
        assert_eq!(stamp(source), before);
        write(&first.join("inner.h"), "int b;");
        assert_ne!(stamp(source), before);
        let other = stamp("#include \"other.h\"\n");
        write(&second.join("other.h"), "int e;");
        assert_ne!(stamp("#include \"other.h\"\n"), other);
        assert_eq!(stamp("#include <usmq/kernel.h>\n#include <none.h>\n#include MACRO\n"), 0);
        fs::remove_dir_all(&root).unwrap();
    }
}
