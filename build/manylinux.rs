//! Links against the symbols of glibc 2.28 and GCC 8, for wheels that must run there; see manylinux.cc.

const SOURCE: &str = "build/manylinux.cc";

/// Compiles the replacements into the libraries, and has the linker use them.
pub fn link() {
    println!("cargo:rerun-if-changed={SOURCE}");
    let text = std::fs::read_to_string(SOURCE).unwrap_or_default();
    // As an object: what the standard library's own objects ask for would come too late for an archive.
    for object in cc::Build::new().cpp(true).std("c++17").file(SOURCE).compile_intermediates() {
        println!("cargo:rustc-link-arg={}", object.display());
    }
    for line in text.lines() {
        let name = line.strip_prefix("OLD(").or_else(|| line.strip_prefix("REPLACED("));
        if let Some(name) = name.and_then(|rest| rest.split([',', ')']).next()) {
            println!("cargo:rustc-link-arg=-Wl,--wrap={name}");
        }
    }
    // Where these functions were then.
    println!(
        "cargo:rustc-link-arg=-Wl,--push-state,--no-as-needed,-l:libpthread.so.0,-l:libdl.so.2,--pop-state"
    );
}
