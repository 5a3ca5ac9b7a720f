//! Links against the symbols of glibc 2.28 and GCC 8, for wheels that must run on them; see manylinux.cc.

const SOURCE: &str = "build/manylinux.cc";

/// Compiles the replacements into the libraries made from the crate, and passes the linker options that use
/// them.
pub fn link() {
    for argument in arguments() {
        println!("cargo:rustc-link-arg={argument}");
    }
}

/// Compiles the replacements and returns the linker arguments that use them.
pub fn arguments() -> Vec<String> {
    println!("cargo:rerun-if-changed={SOURCE}");
    let mut found = Vec::new();
    let text = std::fs::read_to_string(SOURCE).unwrap_or_default();
    // As an object file: an archive would come too late for references from the standard library's objects.
    for object in cc::Build::new().cpp(true).std("c++17").file(SOURCE).compile_intermediates() {
        found.push(object.display().to_string());
    }
    for line in text.lines() {
        let name = line.strip_prefix("OLD(").or_else(|| line.strip_prefix("REPLACED("));
        if let Some(name) = name.and_then(|rest| rest.split([',', ')']).next()) {
            found.push(format!("-Wl,--wrap={name}"));
        }
    }
    // The libraries that contained these functions in glibc 2.28.
    found.push("-Wl,--push-state,--no-as-needed,-l:libpthread.so.0,-l:libdl.so.2,--pop-state".to_owned());
    found
}
