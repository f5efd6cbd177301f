//! A manifest, as `fuzz/src/manifest.rs` checks it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../src/manifest.rs"]
mod manifest;

fuzz_target!(|input: &[u8]| manifest::check(input));
