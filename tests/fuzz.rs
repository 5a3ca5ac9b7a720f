//! Runs every target of `fuzz/` on inputs that failed earlier, and on random inputs with a fixed seed.
//!
//! `tests/run fuzz` runs many more inputs, chosen by libFuzzer for coverage. `FUZZ_INPUT=<hex>` with the name of
//! one test runs only that input. `FUZZ_SEED=3 FUZZ_INPUTS=100000` with the name of one test tries that many inputs of
//! another seed, without libFuzzer and nightly Rust.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

mod common;
#[path = "fuzz/targets/mod.rs"]
mod targets;

use common::Random;
use std::path::Path;
use targets::TARGETS;

/// The targets do not read the end of longer inputs.
const LONGEST: usize = 160;

/// Prints the input on which a test failed.
struct Trying<'a>(&'a str, &'a [u8]);

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("the input: FUZZ_INPUT={hex} cargo test --features arrow --test fuzz {}", self.0);
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// One input per line, in hexadecimal digits; a comment follows after a blank.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fuzz/corpus/{name}.txt"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| bytes(line.split(' ').next().unwrap())).collect()
}

fn try_on(name: &str) {
    let (_, count, _) = *TARGETS.iter().find(|target| target.0 == name).unwrap();
    let check = |input: &[u8]| {
        let _trying = Trying(name, input);
        targets::check(name, input);
    };
    if let Ok(hex) = std::env::var("FUZZ_INPUT") {
        return check(&bytes(&hex));
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u32>().unwrap());
    corpus(name).iter().for_each(|input| check(input));
    let mut random = Random::new(number("FUZZ_SEED").unwrap_or(8).into());
    for _ in 0..number("FUZZ_INPUTS").unwrap_or(count) {
        let length = random.below(LONGEST);
        check(&random.bytes(length));
    }
}

#[test]
fn arrow() {
    try_on("arrow");
}

#[test]
fn dlpack() {
    try_on("dlpack");
}

#[test]
fn format() {
    try_on("format");
}

#[test]
fn selector() {
    try_on("selector");
}

#[test]
fn signature() {
    try_on("signature");
}

#[test]
fn trace() {
    try_on("trace");
}
