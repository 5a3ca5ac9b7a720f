//! Children that end beside running threads, whose memory is not a leak.

/// The options of AddressSanitizer for such a child; it ignores them without the sanitizer.
pub fn without_leaks() -> String {
    let options = std::env::var("ASAN_OPTIONS").unwrap_or_default();
    format!("{options}:detect_leaks=0")
}
