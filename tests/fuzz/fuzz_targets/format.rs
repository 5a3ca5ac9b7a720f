//! The target `format` under libFuzzer.

#![no_main]

#[path = "../../common/mod.rs"]
mod common;
#[path = "../targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::check("format", data));
