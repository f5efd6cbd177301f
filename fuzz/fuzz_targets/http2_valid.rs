//! The HTTP/2 client: frames that are probably valid, made from the input, so that the states behind
//! a valid beginning are reached.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/hotlap-load/tests/http2/replay.rs"]
mod replay;
#[allow(dead_code)]
#[path = "../../crates/hotlap-load/tests/http2/server.rs"]
mod server;

use server::*;

/// Header blocks, or parts of one.
const BLOCKS: [&[u8]; 16] = [
    OK,
    OK_5,
    b"\x89",
    b"\x8b\x0f\x0d\x019",
    b"\x08\x03100",
    b"\x88\x5f\x0atext/plain",
    b"\x88\xbe",
    b"\x88\xbe\xbf",
    b"\x88\x61\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
    b"\x20\x3f\xe1\x1f\x88",
    b"\x88\x7e\x01x",
    b"\x40\x01a\x01b",
    b"\x00\x01a\x01b",
    b"\x88\x5c\x011",
    b"\x88\x00\x01A\x01b",
    b"",
];

/// The next byte of the input, or 0.
fn next(input: &mut &[u8]) -> u8 {
    let Some((&byte, rest)) = input.split_first() else { return 0 };
    *input = rest;
    byte
}

/// Appends a frame made of some bytes of the input.
fn push(bytes: &mut Vec<u8>, input: &mut &[u8]) {
    let what = next(input);
    let choice = next(input);
    // In 15 of 16 cases, this is one of the first streams.
    let stream = match choice >> 4 {
        15 => u32::from(next(input)),
        _ => u32::from(choice >> 4) * 2 + 1,
    };
    let end = if choice & 1 == 1 { END } else { 0 };
    let value =
        [0, 1, 5, 100, 16_384, 65_535, 1 << 20, (1 << 31) - 1][usize::from(choice >> 1 & 7)];
    bytes.extend(match what % 16 {
        0..=3 => headers(stream, WHOLE | end, BLOCKS[usize::from(what >> 4)]),
        4 => headers(stream, end, BLOCKS[usize::from(what >> 4)]),
        5 => continuation(stream, WHOLE, BLOCKS[usize::from(what >> 4)]),
        6 => continuation(stream, 0, BLOCKS[usize::from(what >> 4)]),
        7 | 8 => data(stream, end, &b"Hello, World!"[..usize::from(what >> 4).min(13)]),
        9 => {
            let padding = what >> 4;
            let mut payload = vec![padding];
            payload.extend(b"Hello");
            payload.resize(6 + usize::from(padding), 0);
            if choice & 2 == 2 {
                data(stream, end | PADDED, &payload)
            } else {
                data(stream, end, &payload)
            }
        }
        10 => settings(&[(u16::from(what >> 4 & 7), value)]),
        11 => window_update(if choice & 1 == 1 { 0 } else { stream }, value),
        12 => rst_stream(stream, u32::from(what >> 4)),
        13 => goaway(stream, u32::from(what >> 4)),
        14 => ping().repeat(1 + usize::from(what >> 4)),
        _ => frame(what >> 4, choice, stream, &[next(input), next(input), next(input)]),
    });
}

fuzz_target!(|input: &[u8]| {
    let Some((&shape, mut rest)) = input.split_first() else { return };
    let mut bytes = settings(&[]);
    while !rest.is_empty() && bytes.len() < 64 * 1024 {
        push(&mut bytes, &mut rest);
    }
    let size = usize::from(shape >> 1).max(1);
    replay::agree(shape & 1 == 1, &bytes, bytes.chunks(size));
});
