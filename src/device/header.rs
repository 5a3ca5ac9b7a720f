//! The device header `usmq/kernel.h`, and how it declares kernels for this runtime.
//!
//! The header uses internal spellings of the runtime's compiler. The first build with it in a process compiles and runs
//! trial kernels; if they fail, the header includes SYCL's headers and uses their macros. The result is kept on disk for
//! each version of the runtime.

use crate::error::Result;
use crate::runtime::{ForkMutex, kernel_cache, libraries, read_text};
use std::borrow::Cow;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The name by which kernels include it.
pub(crate) const NAME: &str = "usmq/kernel.h";
/// Its place in the compiler's file system, which contains this file only, and the option that finds it there.
pub(super) const PLACE: &str = "/usmq-include/usmq/kernel.h";
pub(super) const FOLDER: &str = "-I/usmq-include";
const TEXT: &str = include_str!("../../python/usmq/include/usmq/kernel.h");

/// How the header declares kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// By attributes of the compiler, without any other header.
    Attributes,
    /// By the macros of SYCL's headers.
    SyclHeaders,
}

static FOUND: ForkMutex<Option<Spelling>> = ForkMutex::new(None);

impl Spelling {
    const ALL: [Self; 2] = [Self::Attributes, Self::SyclHeaders];

    /// The text of the header.
    pub(super) fn text(self) -> Cow<'static, str> {
        match self {
            Self::Attributes => TEXT.into(),
            Self::SyclHeaders => format!("#define USMQ_SYCL_HEADERS 1\n{TEXT}").into(),
        }
    }

    /// Its name in the file of the cache.
    fn word(self) -> &'static str {
        match self {
            Self::Attributes => "attributes",
            Self::SyclHeaders => "sycl headers",
        }
    }
}

/// The spelling that this runtime accepts. `works` compiles and runs the trial kernels. If no spelling works, the reason
/// is not the header, and nothing is kept.
pub(super) fn spelling(works: impl Fn(Spelling) -> bool) -> Result<Spelling> {
    if let Some(found) = *FOUND.lock()? {
        return Ok(found);
    }
    let Some(found) = choose(file().as_deref(), works) else { return Ok(Spelling::Attributes) };
    *FOUND.lock()? = Some(found);
    Ok(found)
}

/// The spelling that the file keeps, or the first that works, which the file then keeps.
fn choose(file: Option<&Path>, works: impl Fn(Spelling) -> bool) -> Option<Spelling> {
    if let Some(kept) = file.and_then(read) {
        return Some(kept);
    }
    let found = Spelling::ALL.into_iter().find(|spelling| works(*spelling))?;
    if let Some(file) = file {
        // Without it, the next process tries again.
        let _ = keep(file, found);
    }
    Some(found)
}

/// The spelling in use, once a kernel has included the header.
pub(crate) fn found() -> Option<Spelling> {
    *FOUND.lock().ok()?
}

/// The spelling that the cache on disk keeps for this runtime.
pub(crate) fn kept() -> Option<Spelling> {
    read(&file()?)
}

/// The file that keeps the result for this header and this file of the runtime, if kernels are cached on disk.
fn file() -> Option<PathBuf> {
    let runtime = libraries("libsycl.so").pop_first()?;
    let about = fs::metadata(&runtime).ok()?;
    let mut hasher = DefaultHasher::new();
    (TEXT, &runtime, about.len(), about.modified().ok()?).hash(&mut hasher);
    Some(kernel_cache()?.join(format!("usmq-header-{:016x}", hasher.finish())))
}

fn read(file: &Path) -> Option<Spelling> {
    let kept = read_text(file, 64).ok()?;
    Spelling::ALL.into_iter().find(|spelling| spelling.word() == kept.trim())
}

/// Other processes see the whole file or none.
fn keep(file: &Path, found: Spelling) -> std::io::Result<()> {
    let temporary = file.with_extension(std::process::id().to_string());
    // A file of this name is of an ended process with the same id, or no regular file.
    let _ = fs::remove_file(&temporary);
    fs::File::create_new(&temporary)?.write_all(found.word().as_bytes())?;
    fs::rename(&temporary, file).inspect_err(|_| _ = fs::remove_file(&temporary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_first_spelling_that_works_is_kept() {
        let file = std::env::temp_dir().join(format!("usmq-header-test-{}", std::process::id()));
        for (works, kept) in [
            (&[Spelling::Attributes, Spelling::SyclHeaders][..], Some(Spelling::Attributes)),
            (&[Spelling::SyclHeaders], Some(Spelling::SyclHeaders)),
            (&[], None),
        ] {
            let tried = RefCell::new(Vec::new());
            let attempt = |spelling| {
                tried.borrow_mut().push(spelling);
                works.contains(&spelling)
            };
            assert_eq!(choose(Some(&file), attempt), kept);
            let first = tried.take();
            assert_eq!(first, Spelling::ALL[..first.len()]);
            assert_eq!(choose(Some(&file), attempt), kept);
            assert_eq!(tried.borrow().is_empty(), kept.is_some());
            assert_eq!(fs::read_to_string(&file).ok().as_deref(), kept.map(Spelling::word));
            let _ = fs::remove_file(&file);
        }
        assert_eq!(choose(None, |_| true), Some(Spelling::Attributes));
    }
}
