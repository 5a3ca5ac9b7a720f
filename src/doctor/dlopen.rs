//! Test-loads a library; only in a child process, because its initialisers run.

use std::ffi::{CStr, CString, c_char, c_void};

/// The result of loading a library as an OpenCL driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Driver {
    /// It offers this number of platforms.
    Platforms(u32),
    /// It is a driver, but returns this error code.
    Refuses(i32),
    /// A library without the entry point of drivers.
    NoEntry,
    /// The loader's message.
    NotLoaded(String),
}

/// Opens a library as the loaders of SYCL and OpenCL do; it stays open.
fn open(name: &str) -> Result<*mut c_void, String> {
    let name = CString::new(name).map_err(|_| "its name contains a zero byte".to_owned())?;
    // SAFETY: runs the library's initialisers, as any use of the device would.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: a C string of this thread, valid until its next call of the loader; or null.
    let reason = unsafe { libc::dlerror() };
    if reason.is_null() {
        return Err("it cannot be loaded".to_owned());
    }
    // SAFETY: not null, and copied immediately.
    Err(unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned())
}

/// Why a library cannot be loaded.
pub(super) fn refusal(name: &str) -> Option<String> {
    open(name).err()
}

/// Loads an OpenCL driver and queries its platforms, as the OpenCL loader does.
///
/// Source: the extension `cl_khr_icd`, version 1.0.
pub(super) fn driver(name: &str) -> Driver {
    type Extension = unsafe extern "C" fn(*const c_char) -> *mut c_void;
    type Platforms = unsafe extern "C" fn(u32, *mut c_void, *mut u32) -> i32;
    let library = match open(name) {
        Ok(library) => library,
        Err(reason) => return Driver::NotLoaded(reason),
    };
    // SAFETY: the library is open, the name is a C string.
    let entry = unsafe { libc::dlsym(library, c"clGetExtensionFunctionAddress".as_ptr()) };
    if entry.is_null() {
        return Driver::NoEntry;
    }
    // SAFETY: OpenCL fixes the type of the function of this name.
    let entry: Extension = unsafe { std::mem::transmute(entry) };
    // SAFETY: called as its definition requires.
    let platforms = unsafe { entry(c"clIcdGetPlatformIDsKHR".as_ptr()) };
    if platforms.is_null() {
        return Driver::NoEntry;
    }
    // SAFETY: the extension fixes the type of the function of this name.
    let platforms: Platforms = unsafe { std::mem::transmute(platforms) };
    let mut count = 0;
    // SAFETY: queries only the number, which is written to `count`.
    match unsafe { platforms(0, std::ptr::null_mut(), &raw mut count) } {
        0 => Driver::Platforms(count),
        code => Driver::Refuses(code),
    }
}

impl Driver {
    /// Serialized as one line, to return it from a child.
    pub(super) fn to_line(&self) -> String {
        match self {
            Self::Platforms(count) => format!("platforms {count}"),
            Self::Refuses(code) => format!("refuses {code}"),
            Self::NoEntry => "no-entry ".to_owned(),
            Self::NotLoaded(reason) => format!("not-loaded {reason}"),
        }
    }

    pub(super) fn from_line(line: &str) -> Option<Self> {
        let (what, rest) = line.split_once(' ')?;
        match what {
            "platforms" => rest.parse().ok().map(Self::Platforms),
            "refuses" => rest.parse().ok().map(Self::Refuses),
            "no-entry" => Some(Self::NoEntry),
            "not-loaded" => Some(Self::NotLoaded(rest.to_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_are_not_drivers_are_distinguished() {
        assert_eq!(driver("libc.so.6"), Driver::NoEntry);
        let Driver::NotLoaded(reason) = driver("/nonexistent/libnone.so") else { panic!("it was loaded") };
        assert!(reason.contains("/nonexistent/libnone.so"), "{reason}");
        assert!(refusal("a\0b").is_some());
        assert_eq!(refusal("libc.so.6"), None);
    }

    #[test]
    fn each_answer_round_trips_from_the_child_process() {
        for answer in [
            Driver::Platforms(2),
            Driver::Refuses(-1001),
            Driver::NoEntry,
            Driver::NotLoaded("a: b c".to_owned()),
            Driver::NotLoaded(String::new()),
        ] {
            assert_eq!(Driver::from_line(&answer.to_line()), Some(answer));
        }
        assert_eq!(Driver::from_line(""), None);
    }
}
