//! The OpenCL layer of usmq: a library that the OpenCL loader opens, if a variable lists it when the loader starts. Its
//! parts make all queues of the CPU driver in-order, and emulate GPUs.

use super::loaded_libraries::{drivers_are_loaded, libraries};
use crate::error::spelled;
use once_cell::sync::{Lazy, OnceCell};
use std::ffi::{CStr, CString, OsStr, OsString, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The variable that lists layers for the OpenCL loader, which reads it once.
pub(super) const VARIABLE: &str = "OPENCL_LAYERS";

/// The path of the library, for applications that do not install it beside themselves.
pub(crate) const LIBRARY_VARIABLE: &str = "USMQ_LAYERS_LIBRARY";

/// The name of the library, also as its soname; see build/layers.rs.
pub(crate) const LIBRARY: &str = "libusmq_layers.so";

/// With the value 0, out-of-order queues of the CPU driver stay out-of-order.
pub(crate) const WAITS_VARIABLE: &str = "USMQ_WAIT_LAYER";

/// The folder of the library that this cargo build has made.
const BUILT: Option<&str> = option_env!("USMQ_LAYERS_BUILT");

/// Whether a library had asked for devices before usmq could list the layer.
static TOO_LATE: OnceCell<bool> = OnceCell::new();

/// Whether usmq listed the layer while GPUs were requested, before any device query.
static GPUS_IN_TIME: AtomicBool = AtomicBool::new(false);

/// The parts of usmq's OpenCL layer that this process uses. [`layers`](crate::layers) returns it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layers {
    /// Waits of several threads, of any library, cannot lock up the OpenCL driver for CPUs: its queues are in-order.
    pub waits: bool,
    /// The process emulates GPUs (`USMQ_EMULATE_GPUS`).
    pub emulator: bool,
}

/// The parts that the OpenCL loader uses, as the layer itself reports them. Call after the first device query.
pub(crate) fn layers() -> Layers {
    let parts = ask(c"usmq_layer_parts");
    // The bits of layers/entry.cc.
    Layers { waits: parts & 1 != 0, emulator: parts & 2 != 0 }
}

/// The number of GPUs that the layer has made.
pub(crate) fn emulated_gpus() -> usize {
    ask(c"usmq_layer_gpus") as usize
}

/// Whether all queues of the OpenCL CPU driver in this process execute in order. Call after the first device query.
pub(crate) fn cpu_queues_are_in_order() -> bool {
    static ARE: Lazy<bool> = Lazy::new(|| layers().waits);
    *ARE
}

/// Whether the user wants in-order queues on the CPU driver.
pub(crate) fn wants_in_order_queues() -> bool {
    std::env::var_os(WAITS_VARIABLE).is_none_or(|value| value != "0")
}

/// The answer of a function of the layer; 0 if no layer is loaded. A layer that the loader has refused may be loaded, too.
fn ask(function: &CStr) -> c_uint {
    let by_path = libraries(LIBRARY).into_iter().filter_map(|path| {
        let path = path.as_os_str().as_bytes();
        // The kernel marks files that another process has replaced since.
        CString::new(path.strip_suffix(b" (deleted)").unwrap_or(path)).ok()
    });
    // By its soname: the library may have another file name.
    let by_name = CString::new(LIBRARY).ok();
    by_path.chain(by_name).map(|library| call(&library, function)).max().unwrap_or_default()
}

fn call(library: &CStr, function: &CStr) -> c_uint {
    // SAFETY: the name is a C string; RTLD_NOLOAD only finds a library that is loaded already.
    let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return 0;
    }
    // SAFETY: dlopen returned this library, and the name is a C string.
    let found = unsafe { libc::dlsym(library, function.as_ptr()) };
    // SAFETY: dlopen returned this reference to it. The layer is linked so that it is never unloaded.
    unsafe { libc::dlclose(library) };
    // SAFETY: layers/entry.cc defines both functions with this type.
    unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn() -> c_uint>>(found) }
        .map_or(0, |answer| answer())
}

/// Whether the loader could not know of requested GPUs when it started.
pub(super) fn is_too_late_for_gpus() -> bool {
    drivers_are_loaded() && !layers().emulator && !GPUS_IN_TIME.load(Ordering::Relaxed)
}

/// The value of the variable that lists the layer first; `None` if it need not change.
///
/// First, because the loader cuts the variable of the process at the first colon: child processes see only the first
/// layer. It is also the last one that a call reaches, so the others see its devices.
pub(super) fn value(gpus: bool) -> Option<OsString> {
    if !gpus && !wants_in_order_queues() {
        return None;
    }
    let library = find().ok()?;
    TOO_LATE.get_or_init(|| drivers_are_loaded() && libraries(LIBRARY).is_empty());
    GPUS_IN_TIME.fetch_or(gpus && !drivers_are_loaded(), Ordering::Relaxed);
    let before = std::env::var_os(VARIABLE).unwrap_or_default();
    let others = paths(&before).filter(|path| path.file_name() != library.file_name());
    let now: Vec<_> = std::iter::once(library.as_path()).chain(others).map(Path::as_os_str).collect();
    let now = now.join(OsStr::new(":"));
    (now != before).then_some(now)
}

/// The entries of the variable.
fn paths(value: &OsStr) -> impl Iterator<Item = &Path> {
    let parts = value.as_bytes().split(|byte| *byte == b':').filter(|part| !part.is_empty());
    parts.map(|part| Path::new(OsStr::from_bytes(part)))
}

/// The library: as [`LIBRARY_VARIABLE`] names it, as a parent process has listed it, or the one of this build. An error
/// says why there is none, and what to do.
pub(crate) fn find() -> Result<PathBuf, String> {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = match named {
        Some(named) => named
            .canonicalize()
            .map_err(|_| format!("{LIBRARY_VARIABLE} names {}, which does not exist", named.display()))?,
        None => listed().or_else(own).ok_or_else(|| {
            let place = own_folder().map_or_else(|| "this program".to_owned(), |path| path.display().to_string());
            format!(
                "{LIBRARY} is not in {place}; {}",
                spelled(
                    "reinstall usmq, or set USMQ_LAYERS_LIBRARY to the path of the library",
                    "put it beside the program, or set USMQ_LAYERS_LIBRARY to its path (build scripts find it in DEP_USMQ_LAYERS)"
                )
            )
        })?,
    };
    if path.as_os_str().as_bytes().contains(&b':') {
        return Err(format!(
            "{VARIABLE} cannot list {}, because a colon separates its entries; install usmq in a folder without a colon, \
             or set {LIBRARY_VARIABLE} to a copy of the library",
            path.display()
        ));
    }
    Ok(path)
}

/// The existing library that the variable lists, as set by a parent process.
fn listed() -> Option<PathBuf> {
    let layers = std::env::var_os(VARIABLE)?;
    let mut found = paths(&layers);
    found.find(|path| path.file_name() == Some(OsStr::new(LIBRARY)) && path.exists()).map(Path::to_owned)
}

/// The library of this installation or cargo build.
fn own() -> Option<PathBuf> {
    let own = own_folder();
    let beside = own.iter().flat_map(|folder| [folder.join(LIBRARY), folder.join("lib").join(LIBRARY)]);
    let built = BUILT.map(|folder| Path::new(folder).join(LIBRARY));
    beside.chain(built).find(|path| path.exists())
}

/// Why the loader does not use the layer though usmq wanted it, and the command that changes that, if there is one. Call
/// after the first device query.
pub(crate) fn why_unused() -> (String, Option<String>) {
    let is_named = std::env::var_os(LIBRARY_VARIABLE).is_some_and(|path| !path.is_empty());
    let unset = is_named.then(|| format!("unset {LIBRARY_VARIABLE}"));
    let path = match find() {
        Ok(path) => path,
        Err(reason) => return (reason, unset),
    };
    let path = path.display();
    if TOO_LATE.get().is_some_and(|late| *late) {
        let reason = format!(
            "another library asked the SYCL runtime for devices before usmq could list {LIBRARY}; {}, or set \
             {VARIABLE}={path} before the process starts",
            spelled(
                "put `import usmq` before that library's first use",
                "call `usmq::devices()` before that library's first use"
            )
        );
        let listed = std::env::var(VARIABLE).unwrap_or_else(|_| path.to_string());
        return (reason, Some(format!("export {VARIABLE}='{}'", listed.replace('\'', r"'\''"))));
    }
    let reason = match libraries("libOpenCL.so").first() {
        Some(loader) => format!(
            "the OpenCL loader {} has not taken {path}; run with the loader of the wheel intel-opencl-rt, or reinstall usmq",
            loader.display()
        ),
        None => "the SYCL runtime has not loaded the OpenCL loader, libOpenCL.so.1".to_owned(),
    };
    (reason, unset)
}

/// The folder of the library or program that contains this code.
fn own_folder() -> Option<PathBuf> {
    let address = own_folder as fn() -> Option<PathBuf> as *const c_void;
    // SAFETY: Dl_info is a C struct of pointers, for which zeros are valid.
    let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is that of a function of this library, and `about` outlives the call.
    let found = unsafe { libc::dladdr(address, &raw mut about) };
    if found == 0 || about.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader owns the name, which ends with a NUL and stays while this library is loaded.
    let name = unsafe { CStr::from_ptr(about.dli_fname) };
    // The path of a program may be relative to a previous working directory.
    let path = Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize();
    Some(path.or_else(|_| std::env::current_exe()).ok()?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cargo_build_finds_its_own_layer() {
        assert!(find().is_ok(), "{:?}", find());
    }

    #[test]
    fn empty_entries_of_the_variable_are_ignored() {
        let found: Vec<_> = paths(OsStr::new(":/a/x.so::/b/y.so:")).collect();
        assert_eq!(found, [Path::new("/a/x.so"), Path::new("/b/y.so")]);
    }
}
