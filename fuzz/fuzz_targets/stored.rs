//! A stored run, as `fuzz/src/stored.rs` checks it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../src/stored.rs"]
mod stored;

fuzz_target!(|input: &[u8]| stored::check(input));
