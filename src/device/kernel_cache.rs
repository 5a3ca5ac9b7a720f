//! The built kernels of all contexts, up to a limit. The least recently used builds are removed first.

use super::program::{ContextKey, Program, Unit};
use crate::completion::release;
use crate::error::Result;
use crate::ffi;
use crate::runtime::{ForkMutex, Handle};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Memory that usmq counts for one build: the driver and the compiler report none. Measured on the CPU driver, as
/// docs/howto/kernels.md describes.
pub(crate) const BYTES_OF_BUILD: u64 = 2 << 20;
const LIMIT: u64 = 256 * BYTES_OF_BUILD;

static CACHE: LazyLock<ForkMutex<KernelCache>> = LazyLock::new(ForkMutex::default);

type Bundle = Arc<Handle<ffi::Bundle>>;

/// Builds of one source for one device of a context. One SYCL source often has several kernels; one compilation
/// serves all of them.
#[derive(Default)]
struct Builds {
    bundle: Option<Bundle>,
    kernels: HashMap<Arc<str>, Program>,
    /// Compilations: the bundle, and kernels that were compiled without one.
    count: u64,
    used: u64,
}

struct KernelCache {
    builds: HashMap<(ContextKey, Unit), Builds>,
    /// Compilations of all entries.
    count: u64,
    uses: u64,
    limit: u64,
}

impl Default for KernelCache {
    fn default() -> Self {
        Self { builds: HashMap::new(), count: 0, uses: 0, limit: LIMIT }
    }
}

impl KernelCache {
    fn touched(&mut self, key: &(ContextKey, Unit)) -> Option<&mut Builds> {
        self.uses += 1;
        let builds = self.builds.get_mut(key)?;
        builds.used = self.uses;
        Some(builds)
    }

    /// Removes the oldest entries until the limit holds; the newest entry stays.
    fn shrink(&mut self) -> Vec<Builds> {
        let mut removed = Vec::new();
        while self.builds.len() > 1 && self.count.saturating_mul(BYTES_OF_BUILD) > self.limit {
            let oldest = self.builds.iter().min_by_key(|(_, builds)| builds.used).map(|(key, _)| key.clone());
            removed.extend(oldest.and_then(|key| self.remove(&key)));
        }
        removed
    }

    fn remove(&mut self, key: &(ContextKey, Unit)) -> Option<Builds> {
        let builds = self.builds.remove(key)?;
        self.count -= builds.count;
        Some(builds)
    }
}

pub(super) fn kernel(key: &(ContextKey, Unit), name: &str) -> Result<Option<Program>> {
    Ok(CACHE.lock()?.touched(key).and_then(|builds| builds.kernels.get(name).cloned()))
}

pub(super) fn bundle(key: &(ContextKey, Unit)) -> Result<Option<Bundle>> {
    Ok(CACHE.lock()?.touched(key).and_then(|builds| builds.bundle.clone()))
}

/// Adds a kernel; `is_own`: it was compiled without the bundle of its unit. Returns the kernel that another thread
/// has added meanwhile, if there is one.
pub(super) fn add_kernel(
    key: (ContextKey, Unit),
    name: &Arc<str>,
    program: Program,
    is_own: bool,
) -> Result<Program> {
    add(key, |builds| match builds.kernels.get(name) {
        Some(first) => (first.clone(), 0),
        None => {
            builds.kernels.insert(name.clone(), program.clone());
            (program, u64::from(is_own))
        }
    })
}

/// As [`add_kernel`], for a bundle.
pub(super) fn add_bundle(key: (ContextKey, Unit), bundle: Bundle) -> Result<Bundle> {
    add(key, |builds| match &builds.bundle {
        Some(first) => (first.clone(), 0),
        None => (builds.bundle.insert(bundle).clone(), 1),
    })
}

/// `change` returns its result and the number of compilations that it has added.
fn add<T>(key: (ContextKey, Unit), change: impl FnOnce(&mut Builds) -> (T, u64)) -> Result<T> {
    let mut cache = CACHE.lock()?;
    cache.uses += 1;
    let used = cache.uses;
    let builds = cache.builds.entry(key).or_default();
    builds.used = used;
    let (result, added) = change(builds);
    builds.count += added;
    cache.count += added;
    let removed = cache.shrink();
    drop(cache);
    free(removed);
    Ok(result)
}

/// Removes the builds of a context, which ends.
pub(super) fn take(context: ContextKey) -> impl Send {
    let mut removed = Vec::new();
    if let Ok(mut cache) = CACHE.lock() {
        let keys: Vec<_> = cache.builds.keys().filter(|(of, _)| *of == context).cloned().collect();
        removed.extend(keys.iter().filter_map(|key| cache.remove(key)));
    }
    removed
}

/// The release of a kernel may block, so the release thread does it.
fn free(removed: Vec<Builds>) {
    if !removed.is_empty() {
        release(move || drop(removed));
    }
}

/// Sets the limit of memory for built kernels, in bytes; the initial one, 512 MiB, if `None`. usmq counts 2 MiB for
/// each build, and drops the builds that were not used for the longest time. A [`Kernel`](crate::Kernel) keeps its
/// own builds.
///
/// ```
/// usmq::set_kernel_cache_limit(Some(64 << 20))?;
/// usmq::set_kernel_cache_limit(None)?; // the initial limit
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Fork`](crate::Error::Fork).
pub fn set_kernel_cache_limit(bytes: Option<u64>) -> Result<()> {
    let mut cache = CACHE.lock()?;
    cache.limit = bytes.unwrap_or(LIMIT);
    let removed = cache.shrink();
    drop(cache);
    free(removed);
    Ok(())
}

/// Drops all built kernels that no [`Kernel`](crate::Kernel) keeps. Files of the cache on disk stay.
///
/// ```
/// usmq::clear_kernel_cache()?; // for example in a service that has built many kernels once
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// [`Error::Fork`](crate::Error::Fork).
pub fn clear_kernel_cache() -> Result<()> {
    let mut cache = CACHE.lock()?;
    let removed = std::mem::take(&mut cache.builds);
    cache.count = 0;
    drop(cache);
    release(move || {
        drop(removed);
        // SAFETY: takes no pointer, and any thread may call it. The memory of compilers and kernels is many small
        // blocks, which the C library would keep.
        unsafe { libc::malloc_trim(0) };
    });
    Ok(())
}
