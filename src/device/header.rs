//! The device header `usmq/kernel.h`, and how it declares kernels for this runtime.
//!
//! The header uses internal spellings of the runtime's compiler. The first build with it in a process compiles trial
//! kernels; if they fail, the header includes SYCL's headers and uses their macros. The result is kept on disk for each
//! version of the runtime.

use crate::error::Result;
use crate::runtime::{ForkMutex, kernel_cache, libraries};
use std::borrow::Cow;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

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

/// One kernel for each number of dimensions, in one source.
pub(super) const TRIAL: &str = "#include <usmq/kernel.h>\n\
    USMQ_KERNEL(1) void usmq_trial_1(size_t *x) { x[global_id(0)] = local_id(0); }\n\
    USMQ_KERNEL(2) void usmq_trial_2(size_t *x) { x[global_id(1)] = local_id(1); }\n\
    USMQ_KERNEL(3) void usmq_trial_3(size_t *x) { x[global_id(2)] = local_id(2); }\n";
pub(super) const TRIAL_KERNELS: [&str; 3] = ["usmq_trial_1", "usmq_trial_2", "usmq_trial_3"];

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

/// The spelling that this runtime accepts. `builds` compiles the trial kernels. If no spelling builds, the reason is
/// not the header, and nothing is kept.
pub(super) fn spelling(builds: impl Fn(Spelling) -> bool) -> Result<Spelling> {
    if let Some(found) = *FOUND.lock()? {
        return Ok(found);
    }
    let file = file();
    let kept = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
    let kept =
        kept.and_then(|kept| Spelling::ALL.into_iter().find(|spelling| spelling.word() == kept.trim()));
    let Some(found) = kept.or_else(|| Spelling::ALL.into_iter().find(|spelling| builds(*spelling))) else {
        return Ok(Spelling::Attributes);
    };
    if kept.is_none()
        && let Some(file) = file
    {
        // Without it, the next process compiles the trial kernels again.
        let _ = keep(&file, found);
    }
    *FOUND.lock()? = Some(found);
    Ok(found)
}

/// The spelling in use, once a kernel has included the header.
pub(crate) fn found() -> Option<Spelling> {
    *FOUND.lock().ok()?
}

/// The file that keeps the result for this header and this file of the runtime, if kernels are cached on disk.
fn file() -> Option<PathBuf> {
    let runtime = libraries("libsycl.so").pop_first()?;
    let about = fs::metadata(&runtime).ok()?;
    let mut hasher = DefaultHasher::new();
    (TEXT, &runtime, about.len(), about.modified().ok()?).hash(&mut hasher);
    Some(kernel_cache()?.join(format!("usmq-header-{:016x}", hasher.finish())))
}

/// Other processes see the whole file or none.
fn keep(file: &PathBuf, found: Spelling) -> std::io::Result<()> {
    let temporary = file.with_extension(std::process::id().to_string());
    fs::write(&temporary, found.word())?;
    fs::rename(&temporary, file)
}
