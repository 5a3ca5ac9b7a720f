//! Builds the OpenCL layer of the emulated GPUs: a shared library of its own, since the OpenCL loader opens it by name.

use crate::discover::Sycl;
use crate::{env, is_set, manylinux};
use std::path::{Path, PathBuf};

/// The name under which the wheel, applications and `src/runtime/emulator.rs` look for it.
const LIBRARY: &str = "libusmq_emulator.so";

const SOURCES: [&str; 9] =
    ["checks", "commands", "devices", "entry", "events", "failures", "graphs", "memory", "settings"];

const EXPORTS: &str = "cpp/emulator/exports.map";

/// Makes the library in OUT_DIR. A compiler that cannot is a warning: the rest of usmq works without it.
pub fn build(sycl: &Sycl) {
    let library = Path::new(&env("OUT_DIR")).join(LIBRARY);
    if let Err(error) = compile(sycl, &library) {
        println!("cargo:warning=usmq is built without the emulated GPUs: {error}");
        return;
    }
    // For build scripts of dependents that install an application: DEP_USMQ_EMULATOR.
    println!("cargo:emulator={}", library.display());
    // What is installed finds it beside itself, and must not know the folder that it was built in.
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
    // Loaders of runtime 2026.2 close it while a process ends, when drivers may still call back.
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

/// The source that reads the settings: the shim has it, too, to check them before the runtime does.
pub fn settings() -> PathBuf {
    PathBuf::from("cpp/emulator/settings.cc")
}
