//! Sets the environment variables that the SYCL runtime reads at its first device query, unless the user set
//! them.

use super::cache_dir::{Who, fault, make_private};
use super::emulator;
use super::loaded_libraries::{drivers_are_loaded, runtime_folder};
use super::opencl_layers;
use crate::error::spelled;
use once_cell::sync::OnceCell;
use std::path::{Path, PathBuf};

/// The OpenCL CPU driver of the wheel `intel-opencl-rt`.
const CPU_RUNTIME: &str = "libintelocl.so";

/// The variables that [`prepare`] has set; empty before.
static SET: OnceCell<Vec<Setting>> = OnceCell::new();

/// Name and value of a variable.
pub(crate) type Setting = (&'static str, PathBuf);

/// Whether the runtime had looked for its drivers before [`name_driver`] could name one.
static TOO_LATE: OnceCell<bool> = OnceCell::new();

/// The variable that lists OpenCL drivers.
const DRIVERS: &str = "OCL_ICD_FILENAMES";

/// The variable that selects devices.
const SELECTOR: &str = "ONEAPI_DEVICE_SELECTOR";

/// The term that [`load_an_adapter`] appends to it.
const NO_DEVICE: &str = ";*:99";

/// A selector as the user set it.
pub(crate) fn without_own_term(selector: &str) -> &str {
    selector.strip_suffix(NO_DEVICE).unwrap_or(selector)
}

/// Makes the pip-installed CPU device visible, and lists usmq's OpenCL layer. Python
/// calls it at import, since another library may query devices before usmq does. Loads nothing. Returns the driver and
/// layers that it set, for copies of the environment.
pub(crate) fn name_driver() -> Vec<Setting> {
    load_an_adapter();
    // On each call: the variable may be set between the import and the first device query.
    let layers = opencl_layers::value(emulator::asked_for().is_some());
    let layers = layers.map(|layers| (opencl_layers::VARIABLE, PathBuf::from(layers)));
    layers.iter().for_each(|(name, value)| set(name, value));
    static DONE: OnceCell<()> = OnceCell::new();
    // Once: later changes of the user have precedence.
    DONE.get_or_init(|| {
        TOO_LATE.get_or_init(drivers_are_loaded);
        SET.get_or_init(plan)
            .iter()
            .filter(|(name, _)| *name == DRIVERS)
            .for_each(|(name, value)| set(name, value));
    });
    let driver = SET.get().into_iter().flatten().find(|(name, _)| *name == DRIVERS).cloned();
    driver.into_iter().chain(layers).collect()
}

/// Runtime 2026.2.0 has its OpenCL adapter inside the loader, and reports that it is missing if a selector
/// makes it load no other adapter. A term that matches no device makes it load another one.
fn load_an_adapter() {
    let Ok(selector) = std::env::var(SELECTOR) else { return };
    let apart = || Some(runtime_folder()?.join("libur_adapter_opencl.so.0").exists());
    if names_opencl_alone(&selector) && apart() == Some(false) {
        set(SELECTOR, Path::new(&format!("{selector}{NO_DEVICE}")));
    }
}

/// Whether a selector accepts devices of the backend opencl only. Terms that begin with `!` discard devices.
fn names_opencl_alone(selector: &str) -> bool {
    let backend = |term: &str| term.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
    let mut accepted = selector
        .split(';')
        .map(str::trim)
        .filter(|term| !term.is_empty() && !term.starts_with('!'))
        .peekable();
    accepted.peek().is_some() && accepted.all(|term| backend(term) == "opencl")
}

/// Makes the pip-installed CPU device visible, and caches compiled kernels beyond the process.
pub(super) fn prepare() {
    name_driver();
    // Variables that the user has set meanwhile are kept.
    let others = SET.get_or_init(plan).iter().filter(|(name, _)| *name != DRIVERS && !is_set(name));
    others.for_each(|(name, value)| set(name, value));
    let Some((folder, fault)) = unsafe_cache() else {
        // If it cannot be created, the runtime works without it. An existing folder of the user is not
        // changed.
        let ours =
            settings().into_iter().find(|(name, _)| *name == "SYCL_CACHE_DIR").map(|(_, folder)| folder);
        let theirs = || named_cache().filter(|folder| !folder.exists());
        if let Some(folder) = ours.or_else(theirs) {
            let _ = make_private(&folder);
        }
        return;
    };
    // Overrides the user's setting too: another user who can write there would run code as this user.
    set("SYCL_CACHE_PERSISTENT", Path::new("0"));
    let text = format!(
        "kernels are not kept in {}: {fault}. Another user could replace the code that runs here. Empty the folder and \
         `chmod 700` it, or set SYCL_CACHE_DIR to another folder",
        folder.display()
    );
    warn(&text);
}

/// Reports a problem that does not stop the work: to subscribers of `tracing`, and on standard error.
pub(crate) fn warn(text: &str) {
    tracing::warn!(target: "usmq", "{text}");
    eprintln!("usmq: {text}");
}

/// The folder where the runtime would cache compiled kernels, and why that is unsafe.
fn unsafe_cache() -> Option<(PathBuf, String)> {
    let folder = kernel_cache()?;
    fault(&folder, Who::here()).map(|fault| (folder, fault))
}

/// The folder in which the runtime caches compiled kernels: the named one, or its own default.
pub(crate) fn kernel_cache() -> Option<PathBuf> {
    if !keeps_kernels() {
        return None;
    }
    named_cache().or_else(|| Some(user_cache()?.join("libsycl_cache")))
}

fn keeps_kernels() -> bool {
    std::env::var_os("SYCL_CACHE_PERSISTENT").is_some_and(|value| value != "0")
}

fn named_cache() -> Option<PathBuf> {
    std::env::var_os("SYCL_CACHE_DIR").map(PathBuf::from)
}

/// The settings that usmq has made for the runtime, or would make now.
pub(crate) fn settings() -> Vec<Setting> {
    SET.get().cloned().unwrap_or_else(plan)
}

/// The OpenCL CPU driver that usmq could not name, since another library queried the runtime for devices
/// first, and the runtime looks for drivers once.
pub(crate) fn asked_too_early() -> Option<PathBuf> {
    let driver = &SET.get()?.iter().find(|(name, _)| *name == DRIVERS)?.1;
    TOO_LATE.get().filter(|late| **late)?;
    Some(driver.clone())
}

/// The explanation if [`asked_too_early`] returns a driver.
pub(crate) const TOO_EARLY: &str = "another library asked the SYCL runtime for devices before usmq could name the \
    OpenCL driver for CPUs, and the runtime asks for drivers once";

fn plan() -> Vec<Setting> {
    let mut settings = Vec::new();
    if !is_set(DRIVERS)
        && !a_vendor_file_names_the_cpu_runtime()
        && let Some(driver) = cpu_runtime_beside_libsycl()
    {
        settings.push((DRIVERS, driver));
    }
    if !is_set("SYCL_CACHE_PERSISTENT")
        && let Some(folder) = cache_folder()
    {
        settings.push(("SYCL_CACHE_PERSISTENT", PathBuf::from("1")));
        if !is_set("SYCL_CACHE_DIR") {
            settings.push(("SYCL_CACHE_DIR", folder));
        }
    }
    settings
}

/// Why this process has no current folder. The runtime's loader ends the process without one, and the runtime's compiler
/// cannot read its sources.
pub(crate) fn folder_fault() -> Option<String> {
    let error = std::env::current_dir().err()?;
    Some(format!(
        "the SYCL runtime needs the current folder of the process, which was deleted or cannot be named ({error}); \
         change to an existing folder, as by `{}`",
        spelled("os.chdir(\"/\")", "std::env::set_current_dir(\"/\")")
    ))
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

fn set(name: &str, value: &Path) {
    // SAFETY: runs once, under the lock of `ready`, before the SYCL runtime has started threads. It is not
    // thread-safe: another thread of the application that reads or writes the environment through libc at
    // this moment races with it. SYCL offers no other way to pass these settings; the crate's documentation
    // and docs/building.md describe when this happens and how to avoid it.
    unsafe { std::env::set_var(name, value) }
}

/// `<env>/lib/libintelocl.so`, if it is beside the libsycl of this process.
fn cpu_runtime_beside_libsycl() -> Option<PathBuf> {
    Some(runtime_folder()?.join(CPU_RUNTIME)).filter(|path| path.exists())
}

/// A vendor file has one line, the path of a library.
const VENDOR_FILE: u64 = 1 << 16;

/// The same driver registered under two paths breaks its second device, so a system-wide registration has
/// precedence.
fn a_vendor_file_names_the_cpu_runtime() -> bool {
    let folder =
        std::env::var_os("OCL_ICD_VENDORS").map_or_else(|| "/etc/OpenCL/vendors".into(), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries
        .flatten()
        .filter_map(|entry| super::read_text(&entry.path(), VENDOR_FILE).ok())
        .any(|text| names_a_present_cpu_runtime(text.trim()))
}

fn names_a_present_cpu_runtime(library: &str) -> bool {
    let path = Path::new(library);
    let is_it = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(CPU_RUNTIME));
    // The loader searches for a bare name; a path that does not exist (the wheel's own file) registers
    // nothing.
    is_it && (path.components().count() == 1 || path.exists())
}

/// `$XDG_CACHE_HOME/usmq` or `~/.cache/usmq`.
fn cache_folder() -> Option<PathBuf> {
    Some(user_cache()?.join("usmq"))
}

fn user_cache() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
}

#[cfg(test)]
mod tests {
    use super::{names_a_present_cpu_runtime, names_opencl_alone};

    #[test]
    fn a_selector_is_opencl_only_if_every_accepted_term_is() {
        for alone in [
            "opencl:*",
            "opencl:0",
            "OpenCL:cpu",
            "opencl:0;opencl:1",
            "opencl:*;!level_zero:*",
            " opencl:0 ;",
        ] {
            assert!(names_opencl_alone(alone), "{alone}");
        }
        for other in
            ["", ";", "*:cpu", "opencl:0;level_zero:0", "opencl:0;*:99", "!opencl:0", "level_zero:*", "foo"]
        {
            assert!(!names_opencl_alone(other), "{other}");
        }
    }

    #[test]
    fn a_vendor_file_counts_only_if_its_library_can_be_loaded() {
        assert!(names_a_present_cpu_runtime("libintelocl.so"));
        assert!(!names_a_present_cpu_runtime("/no/such/folder/libintelocl.so"));
        assert!(!names_a_present_cpu_runtime("libpocl.so.2"));
        assert!(!names_a_present_cpu_runtime(""));
    }
}
