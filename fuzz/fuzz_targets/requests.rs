//! A file of requests, as `fuzz/src/requests.rs` checks it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../src/requests.rs"]
mod requests;

fuzz_target!(|input: &[u8]| requests::check(input));
