//! The OpenCL layers of usmq: libraries that the OpenCL loader opens, if a variable lists them when it starts.

use super::loaded_libraries::libraries;
use once_cell::sync::Lazy;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The variable that lists layers for the OpenCL loader, which reads it once.
pub(super) const VARIABLE: &str = "OPENCL_LAYERS";

/// The layer that keeps waits of several threads from locking up the CPU driver; see cpp/wait_layer.
const WAITS: &str = "libusmq_waits.so";

/// With the value 0 usmq does not list that layer.
const WAITS_VARIABLE: &str = "USMQ_WAIT_LAYER";

/// The folder of the layers that this cargo build has made.
const BUILT: Option<&str> = option_env!("USMQ_LAYERS_BUILT");

/// Whether waits of all libraries in this process go through the layer for waits. Call after the first device query.
pub(crate) fn waits_are_ordered() -> bool {
    static ARE: Lazy<bool> = Lazy::new(|| libraries(WAITS).iter().any(|path| is_active(path)));
    *ARE
}

/// Whether a loader uses the layer of this path. A layer that no loader has accepted may be mapped, too.
fn is_active(layer: &Path) -> bool {
    let Ok(path) = CString::new(layer.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is a C string; RTLD_NOLOAD only finds a library that is loaded already.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return false;
    }
    // SAFETY: dlopen returned this library, and the name is a C string.
    let found = unsafe { libc::dlsym(library, c"usmq_layer_is_active".as_ptr()) };
    // SAFETY: dlopen returned this reference to it. A layer is linked so that it is never unloaded.
    unsafe { libc::dlclose(library) };
    // SAFETY: cpp/opencl_layer/entry.cc defines it with this type.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<extern "C" fn() -> bool>>(found) }
        .is_some_and(|answer| answer())
}

/// The value of the variable that also lists the layer for waits and the other one; `None` if it need not change.
pub(super) fn value(other: Option<PathBuf>) -> Option<OsString> {
    let mut layers = vec![std::env::var_os(VARIABLE).unwrap_or_default()];
    let wanted = std::env::var_os(WAITS_VARIABLE).is_none_or(|value| value != "0");
    if wanted && !is_listed(WAITS) {
        // The last layer is the first that a call reaches: this one sees the devices of the driver.
        let found = find(WAITS).ok().map(PathBuf::into_os_string);
        // The loader separates paths by colons.
        layers.splice(0..0, found.filter(|path| !path.as_bytes().contains(&b':')));
    }
    layers.extend(other.map(PathBuf::into_os_string));
    if layers.len() == 1 {
        return None;
    }
    layers.retain(|layer| !layer.is_empty());
    Some(layers.join(OsStr::new(":")))
}

/// Whether the variable lists an existing library of this name, as set by a parent process.
pub(super) fn is_listed(library: &str) -> bool {
    let layers = std::env::var_os(VARIABLE).unwrap_or_default();
    let mut paths =
        layers.as_bytes().split(|byte| *byte == b':').map(|part| Path::new(OsStr::from_bytes(part)));
    paths.any(|path| path.file_name() == Some(OsStr::new(library)) && path.exists())
}

/// The layer of this name, or the folder that should contain it.
pub(super) fn find(library: &str) -> Result<PathBuf, Option<PathBuf>> {
    let own = own_folder();
    let beside = own.iter().flat_map(|folder| [folder.join(library), folder.join("lib").join(library)]);
    let built = BUILT.map(|folder| Path::new(folder).join(library));
    beside.chain(built).find(|path| path.exists()).ok_or(own)
}

/// The folder of the library or program that contains this code.
fn own_folder() -> Option<PathBuf> {
    let address = own_folder as fn() -> Option<PathBuf> as *const libc::c_void;
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
    fn a_cargo_build_finds_its_own_layers() {
        for library in [WAITS, "libusmq_emulator.so"] {
            assert!(find(library).is_ok(), "{:?}", find(library));
        }
    }
}
