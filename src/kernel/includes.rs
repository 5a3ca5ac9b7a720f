//! The files that a source includes: for its signature, and so that a changed file is compiled again.

use super::lexer::{Piece, pieces};
use crate::device::{Includes, header};
use crate::runtime::read_file;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// More files than any kernel includes: a limit for headers that include each other.
const MOST: usize = 4096;
/// The most bytes of files that a signature is read from. Headers of the system have more, and define no types of
/// parameters that usmq does not know.
const LARGEST: usize = 256 << 10;
/// The most bytes of one file. The compiler would read a larger one for minutes.
const LARGEST_FILE: u64 = 256 << 20;
/// The text of a directive, as the lexer gives it.
const DIRECTIVE: &str = "include ";

/// Files that a source includes from folders of this machine, directly or through other files. Conditions are not
/// evaluated, so a file may be here that is not compiled.
#[derive(Default)]
pub(crate) struct IncludedFiles {
    files: Vec<IncludedFile>,
    /// The file of each directive, by the folder of the file that has it.
    found: HashMap<(PathBuf, String), usize>,
    /// Directives and options whose files usmq has not found, as they are written.
    missing: Vec<String>,
    contents: u64,
    /// Whether a text has a call of `printf`, perhaps behind a macro.
    prints: bool,
    /// Whether a directive names `usmq/kernel.h`, which usmq itself passes to the compiler.
    has_device_header: bool,
    /// The first file that the compiler must not read, and why.
    refused: Option<String>,
    /// Whether the files are too large for a signature, so that they are not here.
    is_large: bool,
}

/// One file.
pub(super) struct IncludedFile {
    pub(super) path: PathBuf,
    pub(super) pieces: Vec<Piece>,
    /// In bytes.
    pub(super) length: usize,
}

impl IncludedFile {
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

impl IncludedFiles {
    /// Reads the files. `flags` are those of the compiler.
    pub(super) fn read(source: &str, flags: &[&str]) -> Self {
        let all = Self::collect(source, flags, true);
        if all.length() <= LARGEST {
            return all;
        }
        let all = Self::collect(source, flags, false);
        Self { files: Vec::new(), found: HashMap::new(), is_large: true, ..all }
    }

    /// Finds all files; with `lexed` until they are too large for a signature.
    fn collect(source: &str, flags: &[&str], lexed: bool) -> Self {
        let prints = has_print(source.as_bytes()) || flags.iter().any(|flag| has_print(flag.as_bytes()));
        let mut all = Self { prints, ..Self::default() };
        let folders = folders(flags, &mut all.missing);
        let mut known: HashMap<PathBuf, usize> = HashMap::new();
        let mut hasher = None;
        // The source has no folder; the compiler looks in that of the process.
        let mut next = if source.contains("include") || source.contains("embed") {
            all.directives(&pieces(source), Path::new(""))
        } else {
            Vec::new()
        };
        let mut at = 0;
        while let Some((folder, name)) = next.get(at).cloned() {
            at += 1;
            if lexed && all.length() > LARGEST {
                return all;
            }
            let (path, text) = match find(&folder, &name, &folders) {
                Ok(Some(found)) => found,
                Ok(None) => {
                    all.miss(&name);
                    continue;
                }
                Err(why) => {
                    all.refused = Some(why);
                    return all;
                }
            };
            let number = known.get(&path).copied();
            all.found.insert((folder, name), number.unwrap_or(all.files.len()));
            if all.files.len() >= MOST || number.is_some() {
                continue;
            }
            (&path, &text).hash(hasher.get_or_insert_with(DefaultHasher::new));
            all.prints |= has_print(&text);
            let length = text.len();
            let text = String::from_utf8_lossy(&text);
            let pieces = if lexed { pieces(&text) } else { directives_of_lines(&text) };
            let file = IncludedFile { path: path.clone(), pieces, length };
            next.extend(all.directives(&file.pieces, file.folder()));
            known.insert(path, all.files.len());
            all.files.push(file);
        }
        all.contents = hasher.map_or(0, |hasher| hasher.finish());
        all
    }

    /// Whether no other file can define a macro or a type.
    pub(super) fn is_whole(&self) -> bool {
        self.missing.is_empty() && !self.is_large
    }

    /// Why a type of the source may be unknown; empty if usmq has read all files.
    pub(super) fn why_unread(&self) -> String {
        if self.is_large {
            return format!(
                "its included files have more than {} KiB, so usmq does not read them",
                LARGEST >> 10
            );
        }
        match &self.missing[..] {
            [] => String::new(),
            missing => format!("it did not find {} in the folders of the options", missing.join(", ")),
        }
    }

    /// The file of a directive in a file of this folder, if usmq has found it. `name` has its quotes or angles.
    pub(super) fn file(&self, folder: &Path, name: &str) -> Option<&IncludedFile> {
        if self.found.is_empty() {
            return None;
        }
        self.found.get(&(folder.to_owned(), name.to_owned())).map(|number| &self.files[*number])
    }

    /// The bytes of all files.
    pub(super) fn length(&self) -> usize {
        self.files.iter().map(|file| file.length).sum()
    }

    /// Whether the source includes `usmq/kernel.h`, directly or through other files.
    pub(super) fn has_device_header(&self) -> bool {
        self.has_device_header
    }

    /// Why the compiler must not get the source: it would wait for a file, or read it without end.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Identifies the included files for the caches of builds.
    pub(super) fn stamp(&self) -> Includes {
        Includes { contents: self.contents, is_complete: self.missing.is_empty(), prints: self.prints }
    }

    fn miss(&mut self, name: &str) {
        if !self.missing.iter().any(|known| known == name) {
            self.missing.push(name.to_owned());
        }
    }

    /// The names in the directives of a file in this folder, with the folder.
    fn directives(&mut self, pieces: &[Piece], folder: &Path) -> Vec<(PathBuf, String)> {
        let mut names = Vec::new();
        for piece in pieces {
            let Piece::Directive(line) = piece else { continue };
            if let Some(name) = line.strip_prefix(DIRECTIVE).filter(|name| is_name(name)) {
                if name.trim_matches(['"', '<', '>']) == header::NAME {
                    self.has_device_header = true;
                } else {
                    names.push((folder.to_owned(), name.to_owned()));
                }
                continue;
            }
            let is_other = ["include", "import", "embed"].iter().any(|word| line.starts_with(word));
            if is_other || line.contains("__has_include") || line.contains("__has_embed") {
                self.miss(&format!("#{line}"));
            }
        }
        names
    }
}

/// Whether the text calls a function or a macro that prints: `printf` of any library, or those of `usmq/kernel.h`.
fn has_print(text: &[u8]) -> bool {
    let has = |word: &[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    has(b"printf") || has(b"usmq_assert")
}

/// The directives on lines of their own, also those in comments: enough to find the files, and fast.
fn directives_of_lines(text: &str) -> Vec<Piece> {
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix('#'));
    let includes = lines.filter_map(|line| {
        let name = line.trim_start().strip_prefix("include")?.trim_start();
        let end = 1 + name.get(1..)?.find(['"', '>'])?;
        Some(Piece::Directive(format!("{DIRECTIVE}{}", name.get(..=end)?)))
    });
    includes.collect()
}

/// Whether it is a name in quotes or angles.
fn is_name(text: &str) -> bool {
    text.len() > 2
        && (text.starts_with('"') && text.ends_with('"') || text.starts_with('<') && text.ends_with('>'))
}

/// A folder, and whether only names in quotes are looked up in it.
type Folder = (PathBuf, bool);

/// The file with its text, or why the compiler must not read it.
fn find(own: &Path, name: &str, folders: &[Folder]) -> Result<Option<(PathBuf, Vec<u8>)>, String> {
    let is_quoted = name.starts_with('"');
    let Some(path) = name.get(1..name.len() - 1) else { return Ok(None) };
    let others =
        folders.iter().filter(|(_, for_quotes)| is_quoted || !for_quotes).map(|(folder, _)| &**folder);
    for folder in is_quoted.then_some(own).into_iter().chain(others) {
        let path = folder.join(path);
        match read_file(&path, LARGEST_FILE) {
            Ok(text) => return Ok(Some((in_real_folder(path), text))),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::FileTooLarge) => {
                return Err(format!("cannot include {name}, found as {}: {error}", path.display()));
            }
            // As the compiler, look in the next folder.
            Err(_) => {}
        }
    }
    Ok(None)
}

/// The path without `..` and links in its folder: each file has one, also if files of two folders include each other.
fn in_real_folder(path: PathBuf) -> PathBuf {
    let parts = path.parent().zip(path.file_name());
    let real =
        parts.and_then(|(folder, name)| Some(Path::new(".").join(folder).canonicalize().ok()?.join(name)));
    real.unwrap_or(path)
}

/// The folders of `-iquote`, `-I`, `-isystem` and `-idirafter`, in which the compiler looks in this order. Other options
/// that read files are added to `missing`.
fn folders(flags: &[&str], missing: &mut Vec<String>) -> Vec<Folder> {
    const NAMES: [&str; 4] = ["-iquote", "-I", "-isystem", "-idirafter"];
    const OTHERS: [&str; 7] =
        ["-include", "-imacros", "-iprefix", "-iwithprefix", "-isysroot", "--sysroot", "@"];
    let mut folders: Vec<(usize, PathBuf)> = Vec::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        if OTHERS.iter().any(|name| flag.starts_with(name)) {
            missing.push((*flag).to_owned());
            continue;
        }
        let found =
            NAMES.iter().enumerate().find_map(|(rank, name)| Some((rank, flag.strip_prefix(name)?.trim())));
        let Some((rank, value)) = found else { continue };
        let value = if value.is_empty() { flags.next().copied() } else { Some(value) };
        folders.extend(value.map(|folder| (rank, PathBuf::from(folder))));
    }
    folders.sort_by_key(|(rank, _)| *rank);
    folders.into_iter().map(|(rank, folder)| (folder, rank == 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A temporary folder of the test, deleted with this value.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("usmq-includes-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(root.join("first/deep")).unwrap();
            fs::create_dir_all(root.join("second")).unwrap();
            Self(root)
        }

        fn write(&self, path: &str, text: &str) {
            fs::write(self.0.join(path), text).unwrap();
        }

        fn flag(&self, name: &str, folder: &str) -> String {
            format!("{name}{}", self.0.join(folder).display())
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn changed_files_are_noticed_directly_and_through_others() {
        let root = Root::new("changed");
        root.write("first/outer.h", "#pragma once\n#include \"inner.h\"\n#include <outer.h>\n");
        root.write("first/inner.h", "int a;");
        root.write("second/other.h", "int c;");
        let (first, second) = (root.flag("-I", "first"), root.flag("", "second"));
        let flags = [&*first, "-isystem", &second];
        let stamp = |source: &str| IncludedFiles::read(source, &flags).stamp().contents;
        let source = "#include <sycl/sycl.hpp>\n#  include <outer.h>\n// #include <other.h>\nint x;";
        let before = stamp(source);
        assert_ne!(before, 0);
        assert_eq!(stamp(source), before);
        root.write("second/other.h", "int d;");
        assert_eq!(stamp(source), before);
        root.write("first/inner.h", "int b;");
        assert_ne!(stamp(source), before);
        let other = stamp("#include \"other.h\"\n");
        root.write("second/other.h", "int e;");
        assert_ne!(stamp("#include \"other.h\"\n"), other);
        assert_eq!(stamp("#include <usmq/kernel.h>\n#include <none.h>\n#include MACRO\n"), 0);
    }

    #[test]
    fn a_file_that_the_compiler_must_not_read_is_refused() {
        let root = Root::new("refused");
        root.write("first/outer.h", "#include \"zero.h\"");
        std::os::unix::fs::symlink("/dev/zero", root.0.join("first/zero.h")).unwrap();
        fs::File::create(root.0.join("second/large.h")).unwrap().set_len(LARGEST_FILE + 1).unwrap();
        fs::create_dir(root.0.join("first/large.h")).unwrap();
        let (first, second) = (root.flag("-I", "first"), root.flag("-I", "second"));
        let refused = |source: &str| {
            let all = IncludedFiles::read(source, &[&first, &second]);
            all.refused().unwrap_or_default().to_owned()
        };
        let why = refused("#include <outer.h>");
        assert!(why.starts_with("cannot include \"zero.h\"") && why.ends_with("not a regular file"), "{why}");
        assert!(refused("#include <large.h>").ends_with("it has more than 268435456 bytes"));
        assert_eq!(refused("#include <none.h>"), "");
    }

    #[test]
    fn output_is_expected_from_sources_files_and_flags_that_name_printf() {
        let root = Root::new("prints");
        root.write("first/out.h", "#define OUT USMQ_PRINTF");
        let first = root.flag("-I", "first");
        let prints = |source: &str, flags: &[&str]| IncludedFiles::read(source, flags).stamp().prints;
        assert!(prints("void f() { experimental::printf(\"\"); }", &[]));
        assert!(prints("#include <out.h>", &[&first]));
        assert!(prints("void f(int i) { USMQ_ASSERT(i < 3); }", &[]));
        assert!(prints("void f() { OUT(\"\"); }", &["-DOUT=printf"]));
        assert!(!prints("#include <usmq/kernel.h>\nvoid f() {}", &[&first]));
    }

    #[test]
    fn files_that_were_not_found_are_named() {
        let root = Root::new("missing");
        root.write("first/a b.h", "#include \"lost.h\" // why\n#include <usmq/kernel.h>\n");
        let first = root.flag("-I", "first");
        let missing = |source: &str, flags: &[&str]| {
            let flags: Vec<&str> = [&*first].into_iter().chain(flags.iter().copied()).collect();
            IncludedFiles::read(source, &flags).missing
        };
        assert!(missing("int x; // include", &["-O2"]).is_empty());
        assert_eq!(missing("#include \"a b.h\"\n#include <z.h>", &[]), ["<z.h>", "\"lost.h\""]);
        assert_eq!(missing("#include NAME", &[]), ["#include NAME"]);
        assert_eq!(missing("#if __has_include(<z.h>)\n#endif", &[]), ["#if __has_include(<z.h>)"]);
        assert_eq!(missing("int x;", &["-include", "z.h"]), ["-include"]);
        assert_eq!(missing("int x;", &["@z"]), ["@z"]);
    }

    #[test]
    fn large_files_are_noticed_but_not_read_for_signatures() {
        let root = Root::new("large");
        root.write("first/large.h", &format!("#include \"a.h\"\n{}", " ".repeat(LARGEST)));
        root.write("first/a.h", "typedef float real;\n/*\n#include <none.h>\n*/\n");
        let first = root.flag("-I", "first");
        let read = || IncludedFiles::read("#include <large.h>", &[&first]);
        let (before, all) = (read().contents, read());
        assert!(all.file(Path::new(""), "<large.h>").is_none() && !all.is_whole());
        assert_eq!(all.why_unread(), "its included files have more than 256 KiB, so usmq does not read them");
        root.write("first/a.h", "typedef double real;\n");
        assert_ne!(read().contents, before);
        assert!(read().stamp().is_complete);
    }

    #[test]
    fn folders_are_searched_in_the_order_of_the_compiler() {
        let root = Root::new("order");
        for folder in ["first", "first/deep", "second"] {
            root.write(&format!("{folder}/a.h"), folder);
        }
        root.write("first/deep/b.h", "#include \"a.h\"");
        let found = |flags: &[&String], source: &str| {
            let flags: Vec<&str> = flags.iter().map(|flag| flag.as_str()).collect();
            let all = IncludedFiles::read(source, &flags);
            all.files.last().map(|file| file.folder().strip_prefix(&root.0).unwrap().to_owned())
        };
        let [system, plain, quote] = [("-isystem", "first"), ("-I", "second"), ("-iquote", "first/deep")]
            .map(|(name, folder)| root.flag(name, folder));
        let place = |text: &str| Some(PathBuf::from(text));
        assert_eq!(found(&[&system, &plain, &quote], "#include <a.h>"), place("second"));
        assert_eq!(found(&[&system, &plain, &quote], "#include \"a.h\""), place("first/deep"));
        assert_eq!(found(&[&system], "#include <a.h>"), place("first"));
        assert_eq!(found(&[&system], "#include <deep/b.h>"), place("first/deep"));
        assert_eq!(found(&[&quote], "#include <a.h>"), None);
    }
}
