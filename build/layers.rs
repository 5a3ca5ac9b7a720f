//! Builds the OpenCL layers, the emulated GPUs and the ordered waits, as separate shared libraries, since the OpenCL
//! loader opens them by name.

use crate::discover::Sycl;
use crate::{env, is_set, manylinux};
use std::path::{Path, PathBuf};

struct Layer {
    /// `lib<name>.so`: the name by which the wheel, applications and `src/runtime/opencl_layers.rs` find it.
    name: &'static str,
    /// For build scripts of dependents that install an application: `DEP_USMQ_<key>`.
    key: &'static str,
    /// The functions that a build without it lacks.
    purpose: &'static str,
    folder: &'static str,
    sources: &'static [&'static str],
}

const LAYERS: [Layer; 2] = [
    Layer {
        name: "usmq_emulator",
        key: "emulator",
        purpose: "the emulated GPUs",
        folder: "cpp/emulator",
        sources: &[
            "checks", "commands", "devices", "events", "failures", "graphs", "memory", "settings", "table",
        ],
    },
    Layer {
        name: "usmq_waits",
        key: "waits",
        purpose: "the layer for waits",
        folder: "cpp/wait_layer",
        sources: &["layer"],
    },
];

/// The entry points of a layer, and the linker's list of them.
const ENTRY: &str = "cpp/opencl_layer/entry.cc";
const EXPORTS: &str = "cpp/opencl_layer/exports.map";

/// Builds the libraries in OUT_DIR. A failure is a warning: the rest of usmq works without them.
pub fn build(sycl: &Sycl) {
    let folder = PathBuf::from(env("OUT_DIR"));
    for layer in &LAYERS {
        let library = folder.join(format!("lib{}.so", layer.name));
        match compile(sycl, layer, &library) {
            Ok(()) => println!("cargo:{}={}", layer.key, library.display()),
            Err(error) => println!("cargo:warning=usmq is built without {}: {error}", layer.purpose),
        }
    }
    // Installed libraries find them beside themselves, and must not contain the build folder.
    if !is_set("CARGO_FEATURE_PYTHON") && !is_set("CARGO_FEATURE_C_LIBRARY") {
        println!("cargo:rustc-env=USMQ_LAYERS_BUILT={}", folder.display());
    }
}

fn compile(sycl: &Sycl, layer: &Layer, library: &Path) -> Result<(), String> {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").pic(true).flag("-fvisibility=hidden").cargo_metadata(false);
    // The cc crate instruments C++ as the Rust code is; Rust programs contain the runtime of their sanitizer, which
    // cannot be loaded again.
    build.flag("-fno-sanitize=all");
    for include in &sycl.include {
        build.flag("-isystem").flag(include);
    }
    build.file(ENTRY).files(layer.sources.iter().map(|name| format!("{}/{name}.cc", layer.folder)));
    let objects = build.try_compile_intermediates().map_err(|error| error.to_string())?;
    let mut link = build.get_compiler().to_command();
    link.args(["-shared", "-o"]).arg(library).args(objects).arg(format!("-Wl,--version-script={EXPORTS}"));
    link.arg(format!("-Wl,-soname,lib{}.so", layer.name));
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
    PathBuf::from("cpp/emulator/settings.cc")
}
