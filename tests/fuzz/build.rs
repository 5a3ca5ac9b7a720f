//! Writes the folder of libsycl into the program as a run path, so that it starts without LD_LIBRARY_PATH.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Cargo sets it for direct dependents of usmq (links = "usmq"); a stub build has none.
    if let Ok(folder) = std::env::var("DEP_USMQ_LIBDIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
