//! Compiles the C++ shim and links the SYCL libraries; docs/building.md describes the order of discovery.

#[path = "build/application.rs"]
mod application;
#[path = "build/discover.rs"]
mod discover;
#[path = "build/layers.rs"]
mod layers;
#[path = "build/manylinux.rs"]
mod manylinux;
#[path = "build/wheels.rs"]
mod wheels;

use application::Build;
use discover::{Sycl, VARIABLES, find_sycl, takes_fsycl};
use std::path::Path;
use wheels::WHEELS;

const SOURCES: [&str; 11] = [
    "device",
    "context",
    "queue",
    "event",
    "user_event",
    "level_zero",
    "usm",
    "kernel",
    "graph",
    "opencl",
    "emulation",
];

fn main() {
    for path in ["build.rs", "build", "cpp", "layers", "src/ffi.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rustc-check-cfg=cfg(usmq_faults, usmq_sanitizer)");
    for name in VARIABLES {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let build = Build::current();
    match find_sycl(&build) {
        _ if is_set("DOCS_RS") => build_stub("DOCS_RS is set"),
        Ok(sycl) => build_with(&sycl),
        Err(_) if is_set("USMQ_ALLOW_STUB") => build_stub("no SYCL was found and USMQ_ALLOW_STUB is set"),
        Err(tried) => stop(&build, &tried),
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn is_set(name: &str) -> bool {
    !matches!(env(name).as_str(), "" | "0")
}

/// Prints one message with the fix; a panic would hide it behind a backtrace. Cargo runs a failed build
/// script again at the next build, so the fix takes effect without `cargo clean`.
fn stop(build: &Build, tried: &str) -> ! {
    eprintln!(
        "usmq: no SYCL runtime was found to build against.\n\n\
         Run this, and build again:\n\n  \
         {}\n\n\
         Or do one of these, and build again:\n  \
         - set USMQ_SYCL_ROOT to a folder with include/sycl/sycl.hpp and lib/libsycl.so\n  \
         - source a oneAPI toolkit's setvars.sh (sets ONEAPI_ROOT and CMPLR_ROOT)\n  \
         - set USMQ_ALLOW_STUB=1 for a build whose every call returns Error::RuntimeNotFound\n\n\
         Looked at, in this order:\n  {tried}\n",
        wheels::install_into(&build.application().join(".venv")),
    );
    std::process::exit(1)
}

fn bridge() -> cc::Build {
    let mut build = cxx_build::bridge("src/ffi.rs");
    build.std("c++17").flag_if_supported("-fvisibility=hidden").cargo_metadata(true);
    build
}

fn build_with(sycl: &Sycl) {
    if is_set("USMQ_SYCL_ROOT") && sycl.source != "USMQ_SYCL_ROOT" {
        println!(
            "cargo:warning=USMQ_SYCL_ROOT is not used: {} in {} comes first, so that one process never holds two libsycl",
            sycl.source,
            sycl.lib.display()
        );
    }
    let mut build = bridge();
    for include in &sycl.include {
        // -isystem: suppresses warnings about the SYCL headers.
        build.flag("-isystem").flag(include);
    }
    if takes_fsycl(build.get_compiler().path(), sycl) {
        build.flag("-fsycl");
    } else {
        build.define("SYCL_DISABLE_FSYCL_SYCLHPP_WARNING", None);
    }
    build.files(SOURCES.iter().map(|name| format!("cpp/{name}.cc"))).file(layers::emulator_settings());
    if is_set("USMQ_FAULTS") {
        println!("cargo:warning=usmq is built with fault injection (USMQ_FAULTS): for its own tests only");
        println!("cargo:rustc-cfg=usmq_faults");
        build.define("USMQ_FAULTS", None).file("cpp/faults.cc");
    }
    if let Ok(name) = std::env::var("USMQ_SANITIZER") {
        println!("cargo:rustc-cfg=usmq_sanitizer");
        // Not for the layers; see build/layers.rs.
        build.flag(format!("-fsanitize={name}")).flag("-fno-omit-frame-pointer").flag("-g1");
    }
    build.compile("usmq_shim");
    layers::build(sycl);
    link(sycl);
    watch(sycl);
}

/// Detects another runtime in the same environment: cargo builds again if these files change or disappear.
/// Warns about untested versions.
fn watch(sycl: &Sycl) {
    let include = &sycl.include[0];
    // A missing file would count as changed at every build.
    for path in [sycl.lib.join("libsycl.so"), include.join("sycl/sycl.hpp")] {
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    for wheel in WHEELS {
        let Some(version) = wheel.version(&sycl.lib) else { continue };
        if !wheel.is_tested(&version) {
            println!(
                "cargo:warning=usmq is tested with {}{}, and {} has {version}; to change it: pip install '{}'",
                wheel.name,
                wheel.range(),
                sycl.lib.display(),
                wheel.requirement()
            );
        }
    }
}

/// Cargo adds search paths below its own target folder to the library path of `cargo run` and `cargo test`,
/// also for dependent applications. A link there to the real folder lets them start without further settings.
fn link(sycl: &Sycl) {
    let alias = Path::new(&env("OUT_DIR")).join("sycl-lib");
    let _ = std::fs::remove_file(&alias);
    let search = match std::os::unix::fs::symlink(&sycl.lib, &alias) {
        Ok(()) => alias,
        Err(_) => sycl.lib.clone(),
    };
    let lib = sycl.lib.display();
    println!("cargo:rustc-link-search=native={}", search.display());
    println!("cargo:rustc-link-lib=dylib=sycl");
    println!("cargo:rustc-link-lib=dylib=dl");
    // Lets a built example start outside of cargo too. (The instruction is an error without examples.)
    if Path::new(&env("CARGO_MANIFEST_DIR")).join("examples").is_dir() {
        println!("cargo:rustc-link-arg-examples=-Wl,-rpath,{lib}");
    }
    if is_set("CARGO_FEATURE_PYTHON") || is_set("CARGO_FEATURE_C_LIBRARY") {
        link_library();
    }
    // For build scripts of dependents: DEP_USMQ_LIBDIR, DEP_USMQ_INCLUDE.
    println!("cargo:libdir={lib}");
    println!("cargo:include={}", sycl.include[0].display());
}

/// Options for the two shared libraries made from this crate by `cargo rustc --crate-type cdylib`. (The crate
/// itself is an rlib only, since Rust programs need no shared library. Cargo gives a shared library the same
/// path for all features, so two members of a workspace would overwrite each other's. `rustc-link-arg-cdylib`
/// would also affect the shared libraries of dependents.)
///
/// The extension usmq/_core.abi3.so is in `<env>/lib/pythonX.Y/site-packages`, libusmq.so in the folder
/// usmq/lib beside it, the runtime in `<env>/lib`, or in lib beside the packages after `pip install
/// --target`. Neither library may contain build paths: under build isolation these do not exist at the first
/// use.
fn link_library() {
    if is_set("CARGO_FEATURE_PYTHON") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../..:$ORIGIN/../lib");
    } else {
        println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../../..:$ORIGIN/../../lib");
        println!("cargo:rustc-link-arg=-Wl,-soname,libusmq.so.0");
    }
    // If both are loaded, each calls its own functions.
    println!("cargo:rustc-link-arg=-Wl,-Bsymbolic");
    if is_set("USMQ_MANYLINUX") {
        manylinux::link();
    }
}

fn build_stub(why: &str) {
    println!("cargo:warning=usmq is built without SYCL ({why}): every call returns Error::RuntimeNotFound");
    bridge().define("USMQ_STUB", None).compile("usmq_shim");
}
