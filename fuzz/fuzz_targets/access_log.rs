//! An access log, as `fuzz/src/access_log.rs` checks it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../src/access_log.rs"]
mod access_log;

fuzz_target!(|input: &[u8]| access_log::check(input));
