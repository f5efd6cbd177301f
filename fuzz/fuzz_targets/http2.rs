//! The HTTP/2 client: any bytes, in one piece and cut anywhere, with heads reused and not.
//!
//! The first byte says how the rest is cut, whether valid SETTINGS come before it, and whether
//! further requests are sent. All must agree, and memory and what is sent are bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/hotlap-load/tests/http2/replay.rs"]
mod replay;

/// SETTINGS without parameters.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

fuzz_target!(|input: &[u8]| {
    let Some((&shape, bytes)) = input.split_first() else { return };
    let size = usize::from(shape >> 2).max(1);
    if shape & 2 == 2 {
        let bytes = [&SETTINGS, bytes].concat();
        replay::agree(shape & 1 == 1, &bytes, bytes.chunks(size));
    } else {
        replay::agree(shape & 1 == 1, bytes, bytes.chunks(size));
    }
});
