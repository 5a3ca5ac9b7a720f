//! Builds the OpenCL layer of the emulated GPUs as a separate shared library, since the OpenCL loader opens
//! it by name.

use crate::discover::Sycl;
use crate::{env, is_set, manylinux};
use std::path::{Path, PathBuf};

/// The name by which the wheel, applications and `src/runtime/emulator.rs` find it.
const LIBRARY: &str = "libusmq_emulator.so";

const SOURCES: [&str; 9] =
    ["checks", "commands", "devices", "entry", "events", "failures", "graphs", "memory", "settings"];

const EXPORTS: &str = "cpp/emulator/exports.map";

/// Builds the library in OUT_DIR. A failure is a warning: the rest of usmq works without it.
pub fn build(sycl: &Sycl) {
    let library = Path::new(&env("OUT_DIR")).join(LIBRARY);
    if let Err(error) = compile(sycl, &library) {
        println!("cargo:warning=usmq is built without the emulated GPUs: {error}");
        return;
    }
    // For build scripts of dependents that install an application: DEP_USMQ_EMULATOR.
    println!("cargo:emulator={}", library.display());
    // Installed libraries find it beside themselves, and must not contain the build folder.
    if !is_set("CARGO_FEATURE_PYTHON") && !is_set("CARGO_FEATURE_C_LIBRARY") {
        println!("cargo:rustc-env=USMQ_EMULATOR_BUILT={}", library.display());
    }
}

fn compile(sycl: &Sycl, library: &Path) -> Result<(), String> {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").pic(true).flag("-fvisibility=hidden").cargo_metadata(false);
    for include in &sycl.include {
        build.flag("-isystem").flag(include);
    }
    build.files(SOURCES.iter().map(|name| format!("cpp/emulator/{name}.cc")));
    let objects = build.try_compile_intermediates().map_err(|error| error.to_string())?;
    let mut link = build.get_compiler().to_command();
    link.args(["-shared", "-o"]).arg(library).args(objects).arg(format!("-Wl,--version-script={EXPORTS}"));
    link.arg(format!("-Wl,-soname,{LIBRARY}"));
    // Loaders of runtime 2026.2 close it during process exit, when drivers may still call back.
    link.arg("-Wl,-z,nodelete");
    if env("PROFILE") == "release" {
        link.arg("-Wl,--strip-all");
    }
    if is_set("USMQ_MANYLINUX") {
        link.args(manylinux::arguments());
    }
    let status = link.status().map_err(|error| format!("the linker does not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("the linker ended with {status}")) }
}

/// The source that parses the settings: the shim compiles it too, to check them before the runtime does.
pub fn settings() -> PathBuf {
    PathBuf::from("cpp/emulator/settings.cc")
}
