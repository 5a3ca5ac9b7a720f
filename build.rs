//! Compiles the C++ shim and says where the SYCL libraries are; see docs/building.md for the order of discovery.

#[path = "build/discover.rs"]
mod discover;
#[path = "build/manylinux.rs"]
mod manylinux;

use discover::{Sycl, VARIABLES, find_sycl, takes_fsycl};
use std::path::{Path, PathBuf};

const SOURCES: [&str; 9] =
    ["device", "context", "queue", "event", "user_event", "usm", "pool", "kernel", "opencl"];

fn main() {
    let manifest = PathBuf::from(env("CARGO_MANIFEST_DIR"));
    for path in ["build.rs", "build", "cpp", "src/ffi.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
    println!("cargo:rustc-check-cfg=cfg(usmq_faults)");
    for name in VARIABLES {
        println!("cargo:rerun-if-env-changed={name}");
    }
    match find_sycl(&manifest) {
        _ if is_set("DOCS_RS") => build_stub("DOCS_RS is set"),
        Ok(sycl) => build_with(&sycl),
        Err(_) if is_set("USMQ_ALLOW_STUB") => build_stub("no SYCL was found and USMQ_ALLOW_STUB is set"),
        Err(tried) => stop(&tried),
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn is_set(name: &str) -> bool {
    !matches!(env(name).as_str(), "" | "0")
}

/// One message with the fix; a panic would bury it under a backtrace.
fn stop(tried: &str) -> ! {
    eprintln!(
        "usmq: no SYCL runtime was found to build against.\n\n\
         To fix it, do one of these and build again:\n  \
         - python3 -m venv .venv && .venv/bin/pip install 'intel-sycl-rt>=2026.1,<2027' 'intel-opencl-rt>=2026.1,<2027' 'umf>=1.1,<2'\n  \
         - set USMQ_SYCL_ROOT to a folder with include/sycl/sycl.hpp and lib/libsycl.so\n  \
         - source a oneAPI toolkit's setvars.sh (sets ONEAPI_ROOT and CMPLR_ROOT)\n  \
         - set USMQ_ALLOW_STUB=1 for a build whose every call returns Error::RuntimeNotFound\n\n\
         Looked at, in this order:\n  {tried}\n"
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
            "cargo:warning=USMQ_SYCL_ROOT is not used: {} comes first, so that one process never holds two libsycl",
            sycl.source
        );
    }
    let mut build = bridge();
    for include in &sycl.include {
        // -isystem: the SYCL headers are not ours to warn about.
        build.flag("-isystem").flag(include);
    }
    if takes_fsycl(build.get_compiler().path(), sycl) {
        build.flag("-fsycl");
    } else {
        build.define("SYCL_DISABLE_FSYCL_SYCLHPP_WARNING", None);
    }
    build.files(SOURCES.iter().map(|name| format!("cpp/{name}.cc")));
    if is_set("USMQ_FAULTS") {
        println!("cargo:warning=usmq is built with faults on demand (USMQ_FAULTS): for its own tests only");
        println!("cargo:rustc-cfg=usmq_faults");
        build.define("USMQ_FAULTS", None).file("cpp/faults.cc");
    }
    build.compile("usmq_shim");
    link(sycl);
    if let Some(version) = wheel_version(&sycl.lib) {
        println!("cargo:rustc-env=USMQ_BUILT_WITH={version}");
    }
}

/// For `doctor`: a runtime that is older than these headers may miss functions.
fn wheel_version(lib: &Path) -> Option<String> {
    let folders = std::fs::read_dir(lib).ok()?.flatten().map(|entry| entry.path().join("site-packages"));
    folders.filter_map(|packages| std::fs::read_dir(packages).ok()).flatten().flatten().find_map(|package| {
        let name = package.file_name().into_string().ok()?;
        Some(name.strip_prefix("intel_sycl_rt-")?.strip_suffix(".dist-info")?.to_owned())
    })
}

/// Cargo puts search paths below its own target folder on the library path of `cargo run` and `cargo test`, for
/// applications that depend on us too. A link there to the real folder makes them start without any setting.
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
    println!("cargo:rustc-link-lib=dylib=umf");
    println!("cargo:rustc-link-lib=dylib=dl");
    // So that a built example also starts outside of cargo. (The instruction is an error where there are none.)
    if Path::new(&env("CARGO_MANIFEST_DIR")).join("examples").is_dir() {
        println!("cargo:rustc-link-arg-examples=-Wl,-rpath,{lib}");
    }
    link_cdylib();
    // For build scripts of dependents: DEP_USMQ_LIBDIR, DEP_USMQ_INCLUDE.
    println!("cargo:libdir={lib}");
    println!("cargo:include={}", sycl.include[0].display());
}

/// The extension usmq/_core.abi3.so lies in `<env>/lib/pythonX.Y/site-packages`, libusmq.so in the folder usmq/lib
/// beside it, the runtime in `<env>/lib`, or in lib beside the packages after `pip install --target`. Build paths must
/// not leak into either: under build isolation they are gone before the first use.
fn link_cdylib() {
    if is_set("CARGO_FEATURE_PYTHON") {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,$ORIGIN/../../..:$ORIGIN/../lib");
    } else {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,$ORIGIN/../../../..:$ORIGIN/../../lib");
        println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libusmq.so.0");
    }
    // Where both are loaded, each calls its own functions.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-Bsymbolic");
    if is_set("USMQ_MANYLINUX") {
        manylinux::link();
    }
}

fn build_stub(why: &str) {
    println!("cargo:warning=usmq is built without SYCL ({why}): every call returns Error::RuntimeNotFound");
    bridge().define("USMQ_STUB", None).compile("usmq_shim");
}
