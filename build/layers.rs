//! Builds the OpenCL layer, with the emulated GPUs and the in-order queues, as a separate shared library, since the OpenCL
//! loader opens it by name.

use crate::discover::Sycl;
use crate::{env, is_set, manylinux};
use std::path::{Path, PathBuf};

/// The name by which the wheel, applications and `src/runtime/opencl_layers.rs` find the library.
const LIBRARY: &str = "libusmq_layers.so";

/// The sources in `layers/`.
const SOURCES: [&str; 11] = [
    "entry",
    "queues",
    "emulator/checks",
    "emulator/commands",
    "emulator/devices",
    "emulator/events",
    "emulator/failures",
    "emulator/graphs",
    "emulator/memory",
    "emulator/settings",
    "emulator/table",
];

/// The linker's list of entry points.
const EXPORTS: &str = "layers/exports.map";

/// Builds the library in OUT_DIR. A failure is a warning: the rest of usmq works without it.
pub fn build(sycl: &Sycl) {
    let folder = PathBuf::from(env("OUT_DIR"));
    let library = folder.join(LIBRARY);
    match compile(sycl, &library) {
        // For build scripts of dependents that install an application: `DEP_USMQ_LAYERS`.
        Ok(()) => println!("cargo:layers={}", library.display()),
        Err(error) => println!(
            "cargo:warning=usmq is built without {LIBRARY}, the emulated GPUs and the in-order queues: {error}"
        ),
    }
    // Installed libraries find it beside themselves, and must not contain the build folder.
    if !is_set("CARGO_FEATURE_PYTHON") && !is_set("CARGO_FEATURE_C_LIBRARY") {
        println!("cargo:rustc-env=USMQ_LAYERS_BUILT={}", folder.display());
    }
}

fn compile(sycl: &Sycl, library: &Path) -> Result<(), String> {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").pic(true).flag("-fvisibility=hidden").cargo_metadata(false);
    // The cc crate instruments C++ as the Rust code is; Rust programs contain the runtime of their sanitizer, which
    // cannot be loaded again.
    build.flag("-fno-sanitize=all");
    for include in &sycl.include {
        build.flag("-isystem").flag(include);
    }
    build.files(SOURCES.map(|name| format!("layers/{name}.cc")));
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

/// The source that parses the emulator's settings: the shim compiles it too, to check them before the runtime does.
pub fn emulator_settings() -> PathBuf {
    PathBuf::from("layers/emulator/settings.cc")
}
