//! A suite, as `fuzz/src/suite.rs` checks it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../src/suite.rs"]
mod suite;

fuzz_target!(|input: &[u8]| suite::check(input));
